"""Layouts of CPython's versions: those of the file, those that interpreters publish, and headers of this machine."""

from __future__ import annotations

import glob
import struct
import sys
from pathlib import Path

import pytest

from pytrace.runtime.python import layouts
from pytrace.runtime.python.layouts import UnsupportedError, layout

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

from generating import python_layouts


def published(minor: int, **changed: int) -> bytes:
    """The beginning of ``_PyRuntime`` of an interpreter with the layout of the file."""
    build = minor, bool(changed.get("free_threaded"))
    row, indexes = layouts._rows()[0][build], layouts._rows()[1][build]
    words = [0] * layouts._WORDS
    words[layouts._VERSION] = 0x300 + minor << 16 | 0x4F0
    for name, index in indexes.items():
        words[index] = changed.get(name, getattr(row, name))
    words[layouts._FREE_THREADED] = changed.get("free_threaded", 0)
    return layouts.COOKIE + struct.pack(f"={layouts._WORDS - 1}Q", *words[1:])


def test_versions() -> None:
    rows, _ = layouts._rows()
    ordinary, free = ([(minor, one) for minor in range(first, 16)] for first, one in ((9, False), (13, True)))
    assert sorted(rows) == sorted(ordinary + free)
    for (minor, free_threaded), row in rows.items():
        assert (row.minor, row.free_threaded) == (minor, free_threaded)
        assert row.header_extra == (16 if free_threaded else 0)
        assert row.kind_shift == (8 if free_threaded and minor > 13 else 2)
        assert (row.code_tlbc is None) == (row.frame_tlbc is None) == (not free_threaded or minor < 14)
        assert (row.code_bytes is None) == (minor < 11)
        assert (row.cframe_frame is None) == (minor not in {11, 12})
        assert (row.tss_key is None) == (minor == 15)
        assert (row.frame_entry is None) == (row.cframe_previous is None) == (minor != 11)
        assert (row.code_traceable is None) == (minor < 11)


@pytest.mark.parametrize("free_threaded", [False, True])
@pytest.mark.parametrize("minor", [13, 14, 15])
def test_what_is_published_counts(minor: int, free_threaded: bool) -> None:
    build = {"free_threaded": int(free_threaded)}
    assert layout(minor, published(minor, **build)) == layouts._rows()[0][minor, free_threaded]
    assert layout(minor, published(minor, thread_id=1234, **build)).thread_id == 1234


@pytest.mark.parametrize(
    ("minor", "runtime", "message"),
    [
        (8, b"", "CPython 3.8 is not supported"),
        (16, b"", "CPython 3.16 is not supported"),
        (13, b"", "does not begin with the offsets of CPython 3.13"),
        (13, published(14), "does not begin with the offsets of CPython 3.13"),
        (14, published(14, thread_id=1 << 40), "publishes for thread_id"),
        (14, published(14, code_size=4096), "larger"),
    ],
)
def test_refused(minor: int, runtime: bytes, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        layout(minor, runtime)


@pytest.mark.parametrize("headers", sorted(glob.glob("/usr/include/python3.*[0-9]")))
def test_headers_of_this_machine(headers: str) -> None:
    text = Path(layouts.FILE).read_text()
    assert python_layouts.merged(text, [headers]) == text
