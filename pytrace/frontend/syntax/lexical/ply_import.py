"""PLY's modules, imported without what only its generators need.

``ply.lex`` and ``ply.yacc`` import ``inspect``, ``copy`` and ``warnings``, with ``ast``, ``dis``, ``tokenize`` and
``weakref``: 6 ms of each compiled start. With shipped tables PLY calls nothing of these, so it gets modules that are
loaded when it does. Its regular expressions are those of :mod:`pytrace.base.lazy_regex`.
"""

from __future__ import annotations

import sys
from types import ModuleType

from pytrace.base import lazy_regex

_UNUSED = ("inspect", "copy", "warnings", "re")


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
    earlier = {unused: sys.modules[unused] for unused in _UNUSED if unused in sys.modules}
    later = {unused: _Later(unused) for unused in _UNUSED if unused not in earlier or unused == "re"}
    vars(later["re"]).update(compile=lazy_regex.late, VERBOSE=lazy_regex.VERBOSE)
    sys.modules.update(later)
    try:
        __import__(whole)
    finally:
        for unused in later:
            del sys.modules[unused]
        sys.modules.update(earlier)
    return sys.modules[whole]
