"""PLY's modules, imported without what only its generators need.

``ply.lex`` and ``ply.yacc`` import ``inspect`` and ``copy``, with ``ast``, ``dis``, ``tokenize`` and ``weakref``: 6 ms
of each compiled start. With shipped tables PLY calls nothing of these, so it gets modules that are loaded when it does.
"""

from __future__ import annotations

import sys
from types import ModuleType

_UNUSED = ("inspect", "copy")


class _Later(ModuleType):
    """A module that is imported when an attribute of it is used."""

    def __getattr__(self, name: str) -> object:
        __import__(self.__name__)
        found: object = getattr(sys.modules[self.__name__], name)
        return found


def load(name: str) -> ModuleType:
    """The module ``ply.NAME``."""
    whole = f"ply.{name}"
    if whole in sys.modules:
        return sys.modules[whole]
    later = [_Later(unused) for unused in _UNUSED if unused not in sys.modules]
    sys.modules.update((module.__name__, module) for module in later)
    try:
        __import__(whole)
    finally:
        for module in later:
            del sys.modules[module.__name__]
    return sys.modules[whole]
