"""The JSON form of values, and the lines of JSON output.

Output is always valid JSON in UTF-8.  Text of traced programs that is valid UTF-8 is written as it is.  A byte that is
not part of valid UTF-8 is written as the escape of U+FFFF followed by ``ff`` and the byte in hex (``\\uffffffNN``, as
bpftrace does), and so are the three bytes of U+FFFF itself; a reader restores the bytes by replacing ``\\uffff`` and
``ffNN`` after it (:func:`unquoted`).
Integers that a double cannot hold exactly are strings.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Never, TypeVar

from pytrace.base.control_characters import UNSEEN
from pytrace.core import types
from pytrace.render.text import for_any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytrace.render.text import Value

P = TypeVar("P")

# ---------------------------------------------------------------------------------------------- texts and numbers


@cache
def _to_escape() -> re.Pattern[str]:
    """What needs an escape; compiled when it is first used, as half a millisecond of each start."""
    return re.compile(rf'[\x00-\x1f"\\\x7f-\x9f\udc80-\udcff\uffff{UNSEEN}]')


_ESCAPES = {
    **{chr(code): f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0))},
    **{chr(0xDC00 + code): f"\\uffffff{code:02x}" for code in range(0x80, 0x100)},
    "\uffff": "\\uffffffef\\uffffffbf\\uffffffbf",
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


def _escape(match: re.Match[str]) -> str:
    letter = match.group()
    known = _ESCAPES.get(letter)
    if known is not None:
        return known
    # One that is not seen: as JSON has it, by its units of UTF-16.
    units = letter.encode("utf-16-be").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def escape(text: bytes) -> bytes:
    """The inside of a JSON string."""
    if text.isascii() and text.decode().isprintable() and b'"' not in text and b"\\" not in text:
        return text
    # surrogateescape turns each byte that is not valid UTF-8 into one lone surrogate.
    return _to_escape().sub(_escape, text.decode("utf-8", "surrogateescape")).encode()


def document(content: object, *, indent: int | None = 2) -> str:
    """Python's objects as JSON, with texts as :func:`escape` writes them; without *indent* on one line."""
    from json import dumps  # of reports

    text = dumps(content, indent=indent, ensure_ascii=False)
    # Quotes, backslashes and what is below U+0020 are escaped; all else is in texts only.
    return re.sub(rf"[\x7f-\x9f\udc80-\udcff\uffff{UNSEEN}]", _escape, text)


def quoted(text: bytes) -> bytes:
    """A JSON string."""
    return b'"%s"' % escape(text)


def unquoted(text: str) -> bytes:
    """The bytes that :func:`quoted` wrote, from the string that a JSON parser returns."""
    parts = re.split("\uffffff([0-9a-f]{2})", text)
    return b"".join([bytes.fromhex(part) if index % 2 else part.encode() for index, part in enumerate(parts)])


_EXACT = 1 << 53


def number(value: int) -> bytes:
    """A JSON number, or a string when a double cannot hold *value*."""
    if -_EXACT <= value <= _EXACT or int(float(value)) == value:
        return b"%d" % value
    return b'"%d"' % value


def mapping(items: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A JSON object of names and values in JSON form."""
    return b"{%s}" % b", ".join([b"%s: %s" % (quoted(name), value) for name, value in items])


def distinct(names: Sequence[bytes]) -> Sequence[bytes]:
    """*names* with `` #2``, `` #3`` … after repeated ones: of equal names parsers keep only one."""
    return names if len(set(names)) == len(names) else DistinctNames(names).of(names)


_PARTS = 256


class DistinctNames:
    """Makes names distinct that are not in memory together: :meth:`of` gets some at a time, all of them once.

    Of each of *names*, in any order, eight bytes are kept: its hash.
    """

    def __init__(self, names: Iterable[bytes]) -> None:
        parts = [array("q") for _ in range(_PARTS)]
        for number in map(hash, names):
            parts[number % _PARTS].append(number)
        self._hashes = parts
        self._repeated: set[int] = set()
        for place, part in enumerate(parts):
            parts[place] = ordered = array("q", sorted(part))
            self._repeated.update(one for one, other in pairwise(ordered) if one == other)
        self._last: dict[bytes, int] = {}
        self._shown: set[bytes] = set()

    def of(self, names: Sequence[bytes]) -> Sequence[bytes]:
        """The next *names*, with `` #2``, `` #3`` … after those that were there before."""
        repeated = self._repeated
        return [self._next(name) if hash(name) in repeated else name for name in names] if repeated else names

    def _next(self, name: bytes) -> bytes:
        shown = name
        while name in self._last and (shown in self._shown or self._is_name(shown)):
            self._last[name] += 1
            shown = b"%s #%d" % (name, self._last[name])
        self._last.setdefault(name, 1)
        self._shown.add(shown)
        return shown

    def _is_name(self, text: bytes) -> bool:
        number = hash(text)
        part = self._hashes[number % _PARTS]
        place = bisect_left(part, number)
        return place < len(part) and part[place] == number


def distinct_keys(type_: types.Type) -> bool:
    """True if different keys never have the same text: numbers, and at most one string between them."""
    members = type_.members if isinstance(type_, types.Tuple) else (type_,)
    texts = [member for member in members if not isinstance(member, types.Int | types.Pointer | types.Bool)]
    return not texts or (len(texts) == 1 and isinstance(texts[0], types.String))


def line(kind: str, data: bytes, mark: str = "") -> bytes:
    """One line of output: an object with ``type`` and ``data``, and the *mark* of estimates."""
    return b'{"type": "%s", "data": %s%s\n' % (kind.encode(), data, ending(mark))


def ending(mark: str) -> bytes:
    """The end of an object on a line, with the *mark* of estimates."""
    return b', "mark": "%s"}' % mark.encode() if mark else b"}"


# ---------------------------------------------------------------------------------------------- members


def named_members(
    names: Sequence[str], forms: Sequence[Callable[[Never], bytes]]
) -> Callable[[Sequence[Value]], bytes]:
    """An object of members, as records are one."""
    encoded = [quoted(name.encode(errors="surrogateescape")) for name in names]
    parts = [(name + b": ", for_any(form)) for name, form in zip(encoded, forms, strict=True)]

    def text(value: Sequence[Value]) -> bytes:
        return b"{%s}" % b", ".join([label + form(item) for (label, form), item in zip(parts, value, strict=True)])

    return text


# ---------------------------------------------------------------------------------------------- rows of tables


ROW_START, ROW_END = b'{"type": "row", "table": %d, "data": ', b"}\n"
"""The text before and after the object of a row, with a place for the number of its table."""

_Tree = dict[str, "_Tree | types.Type"]


def _path_names(path: str) -> list[str]:
    """Inverse of :func:`joined_path`: the names in *path*; those in quotes may contain dots."""
    if '"' not in path:
        return path.split(".")
    names, quoted = [""], False
    for letter in path:
        quoted ^= letter == '"'
        if letter == "." and not quoted:
            names.append("")
        else:
            names[-1] += letter
    return names


def row_object(
    names: Sequence[str], kinds: Sequence[types.Type], leaf: Callable[[types.Type], P]
) -> Iterator[bytes | P]:
    """The JSON object of a row, in which records and tuples are objects and arrays again.

    Args:
        names: paths of the columns (``a.b``); an empty one is that of a record that is the whole row.
        kinds: their types.
        leaf: makes an item for the value of one column.

    Returns:
        Literal text and the items of *leaf*, in order.
    """
    if list(names) == [""]:
        yield from _nested(kinds[0], leaf)
        return

    tree: _Tree = {}
    for path, type_ in zip(names, kinds, strict=True):
        *above, name = _path_names(path)
        place = tree
        for step in above:
            inner = place.setdefault(step, {})
            assert isinstance(inner, dict)
            place = inner
        place[name] = type_
    yield from _nested(tree, leaf)


def _nested(value: _Tree | types.Type, leaf: Callable[[types.Type], P]) -> Iterator[bytes | P]:
    if isinstance(value, types.Record) and value.members:
        value = dict(zip(value.names, value.members, strict=True))
    elif isinstance(value, types.Tuple) and value.members:
        value = {str(index): member for index, member in enumerate(value.members)}
    if isinstance(value, types.Type):
        yield leaf(value)
        return
    array = "0" in value
    yield b"[" if array else b"{"
    for index, (name, inner) in enumerate(value.items()):
        yield (b"," if array else b", ") if index else b""
        yield b"" if array else b'"%s": ' % escape(types.shown_name(name).encode(errors="surrogateescape"))
        yield from _nested(inner, leaf)
    yield b"]" if array else b"}"
