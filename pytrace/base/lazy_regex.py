"""Regular expressions that are compiled on first use.

Compiling one takes at least 0.1 ms, and most scripts need less than half of them. Expressions that every start needs,
or that are matched for every token, are better compiled at import. Importing ``re`` takes 2 ms, which a start avoids.
"""

from __future__ import annotations

from pytrace.base.fast_typing import TYPE_CHECKING, AnyStr, cast

if TYPE_CHECKING:
    import re

_METHODS = ("findall", "finditer", "fullmatch", "groupindex", "match", "pattern", "search", "split", "sub")


class _Late:
    """A proxy of an expression; the first use compiles it and takes over the methods of the result."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> object:
        if name not in _METHODS:
            raise AttributeError(name)
        import re

        compiled = re.compile(self._source, self._flags)
        self.__dict__.update((method, getattr(compiled, method)) for method in _METHODS)
        return self.__dict__[name]


def late(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The same as ``re.compile``, but compiled when one of its methods is first accessed."""
    return cast("re.Pattern[AnyStr]", _Late(source, flags))
