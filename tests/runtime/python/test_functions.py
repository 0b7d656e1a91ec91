"""Functions of records, as programs write them."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack

import pytest

from pytrace.core.stacks.python_format import FRAME, INDEX_BITS, RECORD, SLOT, SLOTS, UNIT
from pytrace.runtime.python.functions import UNKNOWN, PythonFunctions, function
from pytrace.runtime.symbols.images import Frame

TABLE = bytes([0x80 | 10 << 3 | 1, 0, 4, 0x80 | 12 << 3 | 1, 0, 4])
"""Two code units of the first line, and two of the line two below it (3.11)."""


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def record(name: bytes, kind: int = 1, file: bytes = b"app.py", first: int = 5, minor: int = 11) -> bytes:
    body = padded(name) + padded(file) + padded(TABLE)
    size = -(-(RECORD.size + len(body)) // UNIT) * UNIT
    head = RECORD.pack(minor, first, kind, len(name) // kind, 1, len(file), len(TABLE), size, *[0] * 4)
    return (head + body).ljust(size, b"\0")


@pytest.mark.parametrize(
    ("data", "kind", "name"),
    [
        (b"handler", 1, "handler"),
        ("würfel".encode("latin-1"), 1, "würfel"),
        ("名前".encode("utf-16-le"), 2, "名前"),
        ("𝔰s".encode("utf-32-le"), 4, "𝔰s"),
        (b"a\nb\x7f", 1, "a\\x0ab\\x7f"),
        (b"\x00\xd8", 2, "\ufffd"),
    ],
)
def test_names(data: bytes, kind: int, name: str) -> None:
    read = function(record(data, kind))
    assert read is not None
    assert (read.name, read.file) == (name, "app.py")
    assert read.frame(2, lines=True) == Frame(name, 4, "app.py", "app.py", 7)
    assert read.frame(-1, lines=True).line == 5
    assert read.frame(2, lines=False) == Frame(name, 4, "app.py")


def test_no_record() -> None:
    assert function(b"") is None
    assert function(bytes(200)) is None


def test_frames() -> None:
    functions = PythonFunctions(lines=True)
    address = FRAME | 3 << INDEX_BITS | 1
    assert functions.has(address)
    assert not functions.has(0x7FFF_FFFF_FFFF)
    assert functions.frame(address - (1 << INDEX_BITS)) == UNKNOWN
    functions = PythonFunctions(lines=True)
    with tempfile.TemporaryFile() as file, ExitStack() as stack:
        os.truncate(file.fileno(), SLOT * SLOTS)
        os.pwrite(file.fileno(), record(b"one"), 2 * UNIT)
        functions.start(file.fileno(), stack)
        assert functions.frame(address) == Frame("one", 0, "app.py", "app.py", 5)
        assert functions.frame(address + 3).line == 7
        assert functions.frame(FRAME | 1) == UNKNOWN
        assert functions.frame(FRAME | (1 << 32) - 1 << INDEX_BITS) == UNKNOWN
    assert functions.frame(address) == Frame("one", 0, "app.py", "app.py", 5)
