"""Regular expressions that are compiled on first use.

Compiling one takes 0.1 to 1 ms, importing ``re`` takes 3 ms, and most scripts need less than half of the expressions.
"""

from __future__ import annotations

from pytrace.base.fast_typing import TYPE_CHECKING, AnyStr, cast

if TYPE_CHECKING:
    import re

# The flags of ``re``, without importing it.
IGNORECASE = 2
DOTALL = 16
VERBOSE = 64
ASCII = 256

_METHODS = ("findall", "finditer", "fullmatch", "groupindex", "match", "pattern", "search", "split", "sub")


class _Late:
    """A proxy of an expression; the first use compiles it and takes over the methods of the result."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> object:
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = _compiled(self._source, self._flags)
        self.__dict__.update((method, getattr(compiled, method)) for method in _METHODS)
        return self.__dict__[name]


def _compiled(source: str | bytes, flags: int) -> re.Pattern[str] | re.Pattern[bytes]:
    import re

    return re.compile(source, flags)


def late(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The same as ``re.compile``, but compiled when one of its methods is first accessed."""
    return cast("re.Pattern[AnyStr]", _Late(source, int(flags)))
