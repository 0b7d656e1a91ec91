"""What traced programs decide: events, names in every place of the output, requests to the server of metrics."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any, cast
from xml.etree import ElementTree

from prometheus_client.openmetrics import parser as openmetrics_parser

from pytrace.base import control_characters
from pytrace.core import types
from pytrace.core.event_layout import EventLayout
from pytrace.core.options import Address
from pytrace.interface import html
from pytrace.results import file_form
from pytrace.results.formats import table
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.snapshot import Frame, MapData, Run, SnapshotData, StackTrace
from pytrace.runtime.output.renderer import RenderOptions
from pytrace.runtime.output.ring import Index
from pytrace.runtime.session import metrics
from pytrace.runtime.session.metrics import Answer, Exposition
from pytrace.runtime.stacks import python_processes
from tests.fuzz.parsers.saved_results import without_viewer
from tests.fuzz.target import NOTHING, Target
from tests.runtime.output.test_ring import data_of, expected, listed
from tests.runtime.stacks.test_interpreters import TABLE, record
from tests.support import encode, snapshots

_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\udc80-\udc9f\U000e0000-\U000e007f]"
)
"""What a terminal obeys, or a reader does not see; line ends and tabs stay where lines are printed."""


def _check_terminal(text: bytes) -> None:
    found = _HARMFUL.search(text.decode("utf-8", "surrogateescape"))
    assert found is None, f"{found[0]!r} in {text!r}"


# ---------------------------------------------------------------------------------------------- events


class _Printed:
    """The output of one form: what each kind of event prints."""

    def __init__(self, form: str) -> None:
        text, far = types.String(16), types.String(1024)
        self.run = encode.Run(json=form == "json", csv=form == "csv", options=RenderOptions(printable=form == "text"))
        run = self.run
        pair = types.Tuple((text, types.INT32))
        run.event("printf", (text, far, types.Buffer(100)), format="%s|%-20s|%r\n")
        run.event("print_value", (text,))
        run.event("print_value", (pair,))
        run.event("print_value", (types.Array(types.INT8, 8),))
        run.event("print_value", (types.Inet(),))
        run.event("join", [types.UINT32, *[text] * 16], separator=" ")
        run.event("row", (text, types.INT64, far), names=["name", "number", "path"])
        run.event("errorf", (text, far), format="%s: %s")
        run.event("warnf", (text,), format="%s")
        _renderer = run.renderer
        vars(run.output)["escapes"] = form == "text"

    def send(self, identity: int, payload: bytes) -> bytes:
        """What an event with this payload prints."""
        layout = EventLayout(self.run.specs[identity].args)
        fixed = payload[: layout.fixed_size - 8].ljust(layout.fixed_size - 8, b"\0")
        tail = payload[layout.fixed_size - 8 :][: layout.tail_capacity]
        fixed, tail = self._lengths(layout, fixed, tail)
        event = identity.to_bytes(4, "little") + len(tail).to_bytes(4, "little") + fixed + tail
        data = encode.record(event)
        self.run.renderer.handlers[identity](data, 8, len(event), len(data), 1)
        return self.run.printed()

    @staticmethod
    def _lengths(layout: EventLayout, fixed: bytes, tail: bytes) -> tuple[bytes, bytes]:
        """Lengths that programs send: those of strings in the tail, together its length, and of buffers and joins."""
        changed, left = bytearray(fixed), len(tail)
        for kind, offset, far in zip(layout.args, layout.offsets, layout.tails, strict=True):
            word = changed[offset - 8 : offset - 4]
            if far:
                size = min(left, int.from_bytes(word, "little") & 0x3FF)
                left -= size
                changed[offset - 8 : offset - 4] = size.to_bytes(4, "little")
            elif kind is types.UINT32:
                changed[offset - 8 : offset - 4] = (int.from_bytes(word, "little") % 17).to_bytes(4, "little")
        return bytes(changed), tail[: len(tail) - left]


@cache
def _printed(form: str) -> _Printed:
    return _Printed(form)


def events(data: bytes) -> None:
    """Events whose values are any bytes, printed on a terminal, as JSON and as CSV."""
    for form in ("text", "json", "csv"):
        printed = _printed(form)
        output = printed.send(data[0] % len(printed.run.specs) if data else 0, data[1:])
        messages, printed.run.messages = printed.run.messages, b""
        if form == "text":
            _check_terminal(output)
            _check_terminal(messages)
        elif form == "json":
            for line in output.splitlines():
                json.loads(line)
        else:
            _check_csv(output)


def _check_csv(output: bytes) -> None:
    """Tables without formulas, and with lines of equal length."""
    rows = list(csv.reader(io.StringIO(output.decode(), newline=""), strict=True))
    for before, row in pairwise([[], *rows]):
        # The names of columns are after an empty line; the script chooses them.
        for cell in row if before else ():
            assert re.match(r"[=+\-@\t\r\n\uff0b\uff0d\uff1d\uff20](?![0-9.]*$)", cell) is None, cell


def event_seeds() -> Iterator[bytes]:
    """An event of each kind with harmful text."""
    for number in range(9):
        yield bytes((number,)) + b"\x05\0\0\0\x07\0\0\0=1+1\x1b[2J\xe2\x80\xae\"\xff,\r\n" * 8


def ring(data: bytes) -> None:
    """Records of the ring buffer, by the kinds that *data* lists: each is found once, in order."""
    kinds = [byte % 6 for byte in data]
    found, end = Index(memoryview(data_of(kinds)).cast("I")).segments(0, len(data_of(kinds)))
    assert end == len(data_of(kinds))
    assert listed(found) == expected(kinds)


# ---------------------------------------------------------------------------------------------- names


def named(name: str) -> SnapshotData:
    """A snapshot with a name in every place that traced programs, their users or the machine decide."""
    frame = Frame(name, 4, name, name, name, 7, False, 16)
    stack = StackTrace((frame, Frame("", 0, name, "", "", 0, False, 32)), True)
    text, frames = types.String(64), types.Stack(True, 16)
    run = Run("run-1", name, name, "x86_64", name, "ab" * 32, (name,), 1, 2, 0, 1, "0.1")
    maps = [
        MapData("@n", text, types.Count(), {name: 3}, None, name),
        MapData("@v", text, text, {name: name}),
        MapData("@t", types.Tuple((text, types.INT32)), types.Hist(), {(name, 1): {3: 2}}),
        MapData("@k", types.Tuple((frames, text)), types.Sum(signed=True), {(stack, name): 3}),
        MapData("@s", frames, types.Count(), {stack: 3}),
        MapData("@w", None, frames, {None: stack}),
    ]
    columns = {"ts": types.UINT64, "name": text, "stack": frames, "n": types.INT64}
    rows = snapshots.table(list(columns), list(columns.values()), [(1, name, stack, -5)])
    return SnapshotData((run,), {item.name: item for item in maps}, (rows,), {"events": {name: 3}})


class _Tags(HTMLParser):
    """Collects tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(key for key, _ in attrs)

    def handle_comment(self, data: str) -> None:
        self.tags.append("!")

    def handle_pi(self, data: str) -> None:
        self.tags.append("?")


@cache
def _harmless() -> tuple[_Tags, _Tags]:
    """The tags of a page of a notebook and of a report with a plain name: other names make the same."""
    found = named("name")
    return _Tags(html.snapshot(found)), _Tags(_written(table.named("html"), found).decode())


def python_record(data: bytes) -> None:
    """The record of a code object: a name without control characters, and lines of any instruction."""
    read = python_processes.function(data)
    if read is not None:
        for index in (-1, 0, 1, 1 << 23):
            frame = read.frame(index, lines=True)
            assert frame.name.isprintable() or not re.search("[\x00-\x1f\x7f-\x9f]", frame.name + frame.file)


def python_lines(data: bytes) -> None:
    """Line tables of all versions; interpreters end at 2³¹ lines."""
    for minor in range(9, 16):
        for index in (-1, 0, 7, 1 << 23):
            python_processes.line_of(minor, data, 1, index)


def names(data: bytes) -> None:
    """A name in every place, in every format: no control characters on terminals, no formulas, no markup, no more
    lines or fields than without it.
    """
    found = named(data.decode("utf-8", "surrogateescape"))
    assert file_form.from_bytes(file_form.to_bytes(found), "again") == found
    with without_viewer():
        pages = html.snapshot(found), _written(table.named("html"), found).decode()
        for page, plain in zip(pages, _harmless(), strict=True):
            tags = _Tags(page)
            assert tags.tags == plain.tags or set(tags.tags) < set(plain.tags), tags.tags
            assert tags.attributes <= plain.attributes, tags.attributes
            assert _HARMFUL.search(page.replace("\r", "")) is None
        _check_formats(found)
    _check_metrics(found)


def _check_formats(found: SnapshotData) -> None:
    for row in table.FORMATS:
        if not row.library:
            _check_format(row.name, _written(row, found))


def _written(row: table.Format, found: SnapshotData) -> bytes:
    file = io.BytesIO()
    row.write(table.select(found, row).snapshot, WriteOptions(about=not row.binary), file)
    return file.getvalue()


def _check_format(name: str, output: bytes) -> None:
    if name == "csv":
        _check_csv(output)
    elif name == "json":
        for line in output.splitlines():
            json.loads(line)
    elif name in ("speedscope", "firefox"):
        json.loads(output)
    elif name == "svg":
        _check_picture(output)
    elif name == "folded":
        for line in output.split(b"\n")[:-1]:
            assert re.search(rb" \d+$", line), line
    elif name == "text":
        _check_terminal(control_characters.printable_lines(output).replace(b"\r\n", b"\n"))


SVG_TAGS = frozenset(("svg", "g", "rect", "text", "title", "path", "line", "polyline", "style", "desc", "defs"))


def _check_picture(output: bytes) -> None:
    """A picture that XML parsers read, without programs and links."""
    picture = ElementTree.fromstring(output)
    tags = {element.tag.rpartition("}")[2] for element in picture.iter()}
    assert tags <= SVG_TAGS, tags - SVG_TAGS
    attributes = {name.rpartition("}")[2] for element in picture.iter() for name in element.attrib}
    assert not any(name.startswith("on") or name == "href" for name in attributes), attributes
    _check_terminal(output.replace(b"\r", b""))


def _check_metrics(found: SnapshotData) -> None:
    _, text = Exposition(100).of(found, "application/openmetrics-text")
    families = list(openmetrics_parser.text_string_to_metric_families(text.decode()))
    assert families


NAME_WORDS = (
    "\x1b[2J", "\x1b]0;", "\x07", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff", "<script>", "</td>", "<!--", "&lt;",
    '"', "'", "=1+1", "+1", "-1", "@SUM(A1)", "\t=", "\r\n", ";", ",", "\\x41", "{}", "# HELP", "\U000e0041",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- requests


class _Connection:
    """A connection whose client has sent *data* and gone."""

    def __init__(self, data: bytes) -> None:
        self._entry = io.BytesIO(data)
        self.sent = b""

    def makefile(self, *_arguments: object) -> io.BytesIO:
        return self._entry

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def settimeout(self, _seconds: float) -> None: ...

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 1)


class _Server:
    """Answers every request to a host that it knows."""

    names = frozenset({"x"})
    address = Address("127.0.0.1", 1)

    def answer(self, path: str, accept: str) -> Answer:
        return Answer(200, "text/plain", f"path {path} {accept}".encode("utf-8", "surrogateescape"))

    def failed(self, error: Exception) -> None:
        raise error


def request(data: bytes) -> None:
    """A request to the server of metrics; what it answers is HTTP, and nothing of the request is in its header."""
    connection = _Connection(data)
    metrics._Handler(cast(Any, connection), ("127.0.0.1", 1), cast(Any, _Server()))
    if not connection.sent.startswith(b"HTTP/"):
        return  # HTTP/0.9, whose answers have no header
    head = connection.sent.partition(b"\r\n\r\n")[0]
    for line in head.split(b"\r\n")[1:]:
        assert re.fullmatch(rb"(Server|Date|Content-Type|Content-Length|Connection): [\x20-\x7e]*", line), line


REQUEST_WORDS = (
    "GET /metrics HTTP/1.1\r\n", "HEAD / HTTP/1.0\r\n", "Accept: application/openmetrics-text\r\n", "Host: x\r\n",
    "\r\n\r\n", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n",
    "Expect: 100-continue\r\n", "Connection: keep-alive\r\n",
)  # fmt: skip


TARGETS = {
    "events": Target(
        "events, printed as text, JSON and CSV", events, NOTHING, seeds=event_seeds
    ),
    "ring": Target("records of the ring buffer", ring, NOTHING),
    "names": Target("names in every place of every format", names, NOTHING,
                    words=lambda: NAME_WORDS, length=128),
    "python_record": Target("records of Python's code objects", python_record, NOTHING,
                            seeds=lambda: [record("würfel".encode("latin-1")), record(b"a" * 40)]),
    "python_lines": Target("line tables of Python's code objects", python_lines, NOTHING, seeds=lambda: [TABLE]),
    "request": Target("requests to the server of metrics", request, NOTHING,
                      words=lambda: REQUEST_WORDS),
}  # fmt: skip
