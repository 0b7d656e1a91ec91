"""Tests of the data of Go's runtime, found in the data of a program or in its relocations."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.runtime.elf import go_module

WORDS = (0x500000, 0x500048, *range(2, 22), 0x401000, *range(23, 48))
RELOCATED = frozenset({0, 1, go_module.TEXT})


def program(contents: dict[str, bytes]) -> Any:
    """A file with sections; that of data is at 0x600000 and its start."""
    sections = {key: SimpleNamespace(name=key) for key in contents}
    return SimpleNamespace(
        section=sections.get,
        contents=lambda section: memoryview(contents[section.name]),
        view=memoryview(contents.get(".data", b"")),
        file_offset=lambda address: address - 0x600000 + 64,
        base=64,
    )


@pytest.mark.parametrize("name", [".go.module", ".noptrdata", ".data"])
def test_found_in_data(name: str) -> None:
    data = b"\1" * 32 + struct.pack("<48Q", *WORDS)
    found = go_module.find(program({name: data}), 0x500000, 0x48)
    assert found is not None
    assert found.words == WORDS
    assert go_module.find(program({name: data}), 0x500000, 0x50) is None


@pytest.mark.parametrize("name", [".rela.dyn", ".rela"])
def test_found_in_relocations(name: str) -> None:
    words = [0 if number in RELOCATED else word for number, word in enumerate(WORDS)]
    rows = b"".join(struct.pack("<QQQ", 0x600010 + 8 * number, 8, WORDS[number]) for number in sorted(RELOCATED))
    contents = {".data": bytes(16) + struct.pack("<48Q", *words), name: rows}
    found = go_module.find(program(contents), 0x500000, 0x48)
    assert found is not None
    assert found.words == WORDS


def test_cut_off() -> None:
    data = struct.pack("<4Q", *WORDS[:4])
    found = go_module.find(program({".data": data}), 0x500000, 0x48)
    assert found is not None
    assert found.words == WORDS[:4] + (0,) * 44


def test_what_functions_refer_to() -> None:
    """At another place by version: before 1.20, from 1.20 on, and since 1.27."""
    assert go_module.GoModule(tuple(range(48))).function_data(old=True) == 38
    assert go_module.GoModule(tuple(range(48))).function_data(old=False) == 40
    later = [*range(48)]
    later[37:39] = [0x500000, 0x300]
    assert go_module.GoModule(tuple(later)).function_data(old=False) == 43
