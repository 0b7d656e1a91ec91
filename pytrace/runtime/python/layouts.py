"""Where the structures of each minor version of CPython have what stacks are read from.

``layouts.json`` has them, which ``scripts/generate-python-layouts`` writes from CPython's headers. Since 3.13 an
interpreter publishes most of them itself (``_Py_DebugOffsets``, Include/internal/pycore_debug_offsets.h), and these
count: for them the file has the indexes of the words in that structure.
"""

from __future__ import annotations

import os
import struct
from functools import cache

import msgspec
from msgspec.structs import asdict, replace

FILE = os.path.join(os.path.dirname(__file__), "layouts.json")
COOKIE = b"xdebugpy"
PUBLISHED_SINCE = 13
_VERSION, _FREE_THREADED = 1, 2
_WORDS = 256
_TYPE = 8
_MOST = 1 << 20
"""Offsets are less than this."""


class UnsupportedError(Exception):
    """An interpreter whose stacks cannot be read; its text says why."""


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """Offsets in bytes; None where the version has no such member."""

    minor: int
    interpreters_head: int
    interpreter_next: int
    threads_head: int
    thread_next: int
    thread_id: int
    thread_frame: int
    frame_size: int
    frame_previous: int
    frame_code: int
    frame_instruction: int
    code_size: int
    code_name: int
    code_short_name: int
    code_file: int
    code_table: int
    code_line: int
    ascii_size: int
    compact_size: int
    free_threaded: bool = False
    object_type: int = _TYPE
    """In ``PyObject``: the type, after which the header ends."""
    kind_shift: int = 2
    """In the state of a string: the number of bits before its kind."""
    tss_key: int | None = None
    cframe_frame: int | None = None
    cframe_previous: int | None = None
    frame_entry: int | None = None
    frame_owner: int | None = None
    code_traceable: int | None = None
    code_version: int | None = None
    code_bytes: int | None = None
    code_tlbc: int | None = None
    frame_tlbc: int | None = None
    """Since 3.14 each thread of a free-threaded build runs a copy of the bytecode: the array of the copies in a code
    object, and in a frame the index of its one."""
    code_first: int | None = None
    code_arguments: int | None = None
    code_keywords: int | None = None
    code_flags: int | None = None
    code_locals: int | None = None
    code_local_names: int | None = None
    code_constants: int | None = None
    code_instrumentation: int | None = None
    thread_breaker: int | None = None
    tuple_items: int | None = None
    op_resume: int | None = None
    op_resume_quick: int | None = None
    op_resume_instrumented: int | None = None
    op_return: int | None = None
    op_generator: int | None = None
    op_return_instrumented: int | None = None
    op_constant: int | None = None
    op_constant_instrumented: int | None = None
    op_extended: int | None = None
    op_line: int | None = None
    code_monitoring: int | None = None
    monitoring_lines: int | None = None
    lines_data: int | None = None
    """Since 3.14, in what has the lines that are monitored: the entries, after the size of each."""

    @property
    def header_extra(self) -> int:
        """Bytes by which the header of an object is longer than that of ordinary builds."""
        return self.object_type - _TYPE


_Build = tuple[int, bool]
"""Minor version, whether it is free-threaded."""


@cache
def _rows() -> tuple[dict[_Build, Layout], dict[_Build, dict[str, int]]]:
    with open(FILE, "rb") as file:
        rows = msgspec.json.decode(file.read(), type=list[dict[str, int]])
    mark = "published "
    published = {
        _build(row): {name.removeprefix(mark): index for name, index in row.items() if name.startswith(mark)}
        for row in rows
    }
    return {_build(row): msgspec.convert(row, Layout, strict=False) for row in rows}, published


def _build(row: dict[str, int]) -> _Build:
    return row["minor"], bool(row.get("free_threaded"))


def layout(minor: int, runtime: bytes) -> Layout:
    """The layout of CPython 3.*minor*; *runtime* are the first bytes of its ``_PyRuntime`` as they were linked.

    Raises:
        UnsupportedError: a version that is not known, or a build that differs.
    """
    known, published = _rows()
    row = known.get((minor, False))
    if row is None:
        minors = [number for number, _ in known]
        raise UnsupportedError(f"CPython 3.{minor} is not supported (3.{min(minors)} to 3.{max(minors)} are)")
    if minor < PUBLISHED_SINCE:
        return row
    words = struct.unpack_from(f"={_WORDS}Q", runtime.ljust(8 * _WORDS, b"\0"))
    if runtime[:8] != COOKIE or words[_VERSION] >> 16 != 0x300 + minor:
        raise UnsupportedError(f"its _PyRuntime does not begin with the offsets of CPython 3.{minor}")
    build = minor, bool(words[_FREE_THREADED])
    row = known[build]
    offsets = {name: words[index] for name, index in published[build].items()}
    wrong = next((name for name, offset in offsets.items() if offset >= _MOST), None)
    if wrong is not None:
        raise UnsupportedError(f"the offset that it publishes for {wrong} is {offsets[wrong]}")
    changed = replace(row, **offsets)
    if asdict(changed)["code_size"] > row.code_size or changed.frame_instruction + 8 > row.frame_size:
        raise UnsupportedError(f"its structures are larger than those of CPython 3.{minor}")
    return changed
