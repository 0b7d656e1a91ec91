"""Damaged copies of ELF files: each field of their structures set to values that make no sense, and files cut short."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from pytrace.runtime.binaries.elf_file import ElfFile, Section

_HEADER = (
    (16, 2), (18, 2), (20, 4), (24, 8), (32, 8), (40, 8), (48, 4), (52, 2), (54, 2), (56, 2), (58, 2), (60, 2), (62, 2),
)  # fmt: skip
_NARROW_HEADER = (
    (16, 2), (18, 2), (20, 4), (24, 4), (28, 4), (32, 4), (36, 4), (40, 2), (42, 2), (44, 2), (46, 2), (48, 2), (50, 2),
)  # fmt: skip
_SECTION = ((0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 8), (56, 8))
_SEGMENT = ((0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8))
_SYMBOL = ((0, 4), (4, 1), (5, 1), (6, 2), (8, 8), (16, 8))
_NARROW_SYMBOL = ((0, 4), (4, 4), (8, 4), (12, 1), (13, 1), (14, 2))
_WORDS = tuple((at, 4) for at in range(0, 40, 4))
_NUMBERED = tuple((at, 1) for at in range(48))
"""Where headers have numbers of different sizes: each byte."""
_STARTS = {
    ".note": _WORDS[:4], ".dynamic": tuple((at, 8) for at in range(0, 160, 8)), ".gnu_debuglink": _WORDS[:4],
    ".gnu_debugaltlink": _WORDS[:4], ".rela.plt": tuple((at, 8) for at in range(0, 48, 8)),
    ".hash": _WORDS, ".gnu.hash": _WORDS,
    ".debug_info": _NUMBERED, ".debug_line": _NUMBERED, ".debug_aranges": _NUMBERED, ".debug_abbrev": _NUMBERED,
    ".debug_rnglists": _NUMBERED, ".debug_loclists": _NUMBERED, ".debug_ranges": _NUMBERED, ".debug_loc": _NUMBERED,
    ".debug_str_offsets": _NUMBERED, ".debug_addr": _NUMBERED, ".debug_types": _NUMBERED,
    ".debug_line_str": _NUMBERED[:8],
    ".eh_frame": _NUMBERED, ".eh_frame_hdr": _NUMBERED[:12], ".zdebug": _NUMBERED[:16],
}  # fmt: skip
"""Which fields at the start of a section are damaged, by the start of its name."""


class Damaged(msgspec.Struct, frozen=True):
    """A damaged file; *what* says how."""

    what: str
    data: bytes


def damaged(data: bytes) -> Iterator[Damaged]:
    """All damaged copies of a file."""
    file = ElfFile(data, "whole")
    yield from _cut(file, data)
    for what, at, size in _fields(file):
        for name, value in (("0", 0), ("-1", -1), ("huge", (1 << 8 * size - 1) - 1), ("high", 0x7FF)):
            changed = bytearray(data)
            changed[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
            if changed != data:
                yield Damaged(f"{what} = {name}", bytes(changed))


def _cut(file: ElfFile, data: bytes) -> Iterator[Damaged]:
    places = {*range(72), *(section.offset for section in file.sections)}
    places |= {section.offset + section.size for section in file.sections}
    for place in sorted(around for at in places for around in (at - 1, at, at + 1)):
        if 0 <= place < len(data):
            yield Damaged(f"cut at {place}", data[:place])


def _fields(file: ElfFile) -> Iterator[tuple[str, int, int]]:
    wide = file.wide
    for at, size in _HEADER if wide else _NARROW_HEADER:
        yield f"header + {at}", at, size
    header = struct.unpack("<QQ" if wide else "<II", file.view[32:48] if wide else file.view[28:36])
    step = 56 if wide else 32
    for number in range(len(file.segments) + 4):
        yield from _record(f"segment {number}", header[0] + number * step, _SEGMENT if wide else _WORDS[:8])
    step = 64 if wide else 40
    for number, section in enumerate(file.sections):
        yield from _record(f"section {section.name}", header[1] + number * step, _SECTION if wide else _WORDS)
    for section in file.sections:
        yield from _contents(section, wide)


def _record(what: str, start: int, fields: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, int, int]]:
    for at, size in fields:
        yield f"{what} + {at}", start + at, size


def _contents(section: Section, wide: bool) -> Iterator[tuple[str, int, int]]:
    if section.name in (".symtab", ".dynsym"):
        step, fields = (24, _SYMBOL) if wide else (16, _NARROW_SYMBOL)
        for number in (0, 1, 2, section.size // step - 1):
            yield from _record(f"{section.name} {number}", section.offset + number * step, fields)
    for start, known in _STARTS.items():
        if section.name.startswith(start):
            fitting = tuple(field for field in known if sum(field) <= section.size)
            yield from _record(f"in {section.name}", section.offset, fitting)
