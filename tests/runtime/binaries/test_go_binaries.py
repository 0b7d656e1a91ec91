"""Programs of Go: versions, functions, modules."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.runtime.binaries import go_binaries
from pytrace.runtime.binaries.go_binaries import functions
from tests.support.examples import examples

# ---------------------------------------------------------------------------------------------- go build
# Tests of the version of Go that a program was built by.


def file(data: bytes | None) -> Any:
    section = None if data is None else SimpleNamespace(name=".go.buildinfo")
    return SimpleNamespace(section=lambda _: section, contents=lambda _, most=None: memoryview(data or b"")[:most])


def info(version: str, flags: int = 2) -> bytes:
    head = b"\xff Go buildinf:" + bytes([8, flags])
    return head.ljust(32, b"\0") + bytes([len(version)]) + version.encode() + b"\x04path"


@pytest.mark.parametrize(
    ("version", "offset"),
    [("go1.19.8", 152), ("go1.22.12", 152), ("go1.24.4", 160), ("go1.27.3", 152), ("go1.99", None)],
)
def test_where_goroutines_have_their_numbers(version: str, offset: int | None) -> None:
    assert go_binaries.version(file(info(version))) == version
    assert go_binaries.goroutine_number(file(info(version))) == offset


@pytest.mark.parametrize("data", [None, b"", b"\xff Go buildinf:", info("go1.17", flags=0), info("")[:32], b"x" * 64])
def test_programs_that_do_not_say_it(data: bytes | None) -> None:
    assert go_binaries.version(file(data)) == ""
    assert go_binaries.goroutine_number(file(data)) is None


# ---------------------------------------------------------------------------------------------- go functions
# Tests of Go's table of functions, in all of its formats; tables of ours, as no suite has compilers for all.


NAMES = b"\0main.main\0net/http.(*Server).Serve\0"
PLACES = ((0x401000, 1), (0x401040, 11))
END = 0x401100


def table(magic: int, text: int = 0x401000, word: int = 8) -> bytes:
    """A table with two functions."""
    head = struct.pack("<IBBBBQQ", magic, 0, 0, 1, word, len(PLACES), 0)
    if magic == go_binaries._GO12:
        rows_at, wide, name_at = 16, "Q", 8
        infos_at = rows_at + 8 * 5
        names_at = infos_at + 2 * 12
        rows = b"".join(struct.pack("<QQ", pc, infos_at + 12 * at) for at, (pc, _) in enumerate(PLACES))
        infos = b"".join(struct.pack("<QI", pc, names_at + name) for pc, name in PLACES)
        return head[:16] + rows + struct.pack("<Q", END) + infos + NAMES
    new = magic != go_binaries._GO116
    wide, name_at = ("I", 4) if new else ("Q", 8)
    names_at = 72 if new else 64
    rows_at = names_at + len(NAMES)
    base = 0x401000 if new else 0
    size = struct.calcsize(f"<5{wide}")
    info = size + 1
    head += struct.pack("<Q", text) if new else b""
    head += struct.pack("<5Q", names_at, 0, 0, 0, rows_at)
    rows = b"".join(struct.pack(f"<2{wide}", pc - base, info + 16 * at) for at, (pc, _) in enumerate(PLACES))
    infos = b"".join((b"\xcc" * name_at + struct.pack("<I", name)).ljust(16, b"\0") for _, name in PLACES)
    return head.ljust(names_at, b"\0") + NAMES + rows + struct.pack(f"<{wide}", END - base) + b"\0" + infos


def go_functions_file(data: bytes, relocations: bytes = b"", name: str = ".gopclntab") -> Any:
    """A binary with the section, at 0x500000."""
    return program({name: data, ".rela.dyn": relocations})


def program(contents: dict[str, bytes]) -> Any:
    """A binary with sections, all at 0x500000."""
    sections = {key: SimpleNamespace(name=key, address=0x500000) for key in contents}
    return SimpleNamespace(
        section=sections.get, contents=lambda section, most=None: memoryview(contents[section.name])[:most]
    )


FORMATS = [go_binaries._GO12, go_binaries._GO116, go_binaries._GO118, go_binaries._GO120]


@pytest.mark.parametrize("magic", FORMATS)
def test_all_formats(magic: int) -> None:
    found = functions(go_functions_file(table(magic)))
    assert found is not None
    assert found.names() == [b"main.main", b"net/http.(*Server).Serve"]
    symbol = found.covering(0x401050)
    assert symbol is not None
    assert (symbol.name, symbol.address, symbol.size) == ("net/http.(*Server).Serve", 0x401040, END - 0x401040)
    assert found.covering(END) is None
    assert [item.name for item in found.match("main.*")] == ["main.main"]


def test_a_program_that_may_lie_anywhere() -> None:
    """Where its code begins is in another place, as the dynamic linker has to write it."""
    data = table(go_binaries._GO118, text=0)
    module = struct.pack("<QQ", 0x500000, 0x500000 + 72).ljust(8 * go_binaries.TEXT, b"\0")
    module += struct.pack("<Q", 0x401000)
    found = functions(program({".data.rel.ro.gopclntab": data, ".go.module": module}))
    assert found is not None
    assert found.addresses == [0x401000, 0x401040]
    assert functions(go_functions_file(data)) is None


@pytest.mark.parametrize("magic", FORMATS)
def test_where_code_of_go_is(magic: int) -> None:
    assert go_binaries.code(go_functions_file(table(magic))) == range(0x401000, END)
    assert go_binaries.code(go_functions_file(table(magic)[:20])) == range(0)


def test_a_table_that_the_c_linker_has_put_among_other_data() -> None:
    """Of a position-independent program with C."""
    data = b"\xf1\xff\xff\xff".rjust(20, b"\1") + bytes(4) + table(go_binaries._GO120)
    contents = {".data.rel.ro": data, ".note.go.buildid": b"", ".rela.dyn": b""}
    assert go_binaries.code(program(contents)) == range(0x401000, END)
    del contents[".note.go.buildid"]
    assert go_binaries.code(program(contents)) == range(0)


@pytest.mark.parametrize("data", [b"", b"\xf1\xff\xff\xff", table(0x12345678), table(go_binaries._GO120, word=4)])
def test_what_is_no_table(data: bytes) -> None:
    assert functions(go_functions_file(data)) is None
    assert functions(go_functions_file(data, name=".other")) is None


def test_an_offset_that_is_too_large() -> None:
    whole = bytearray(table(go_binaries._GO120))
    whole[24 + 5 * 8 : 24 + 6 * 8] = (1 << 63 | 100).to_bytes(8, "little")
    assert functions(go_functions_file(bytes(whole))) is None
    whole = bytearray(table(go_binaries._GO12))
    whole[16 + 8 : 16 + 16] = b"\xff" * 8
    assert functions(go_functions_file(bytes(whole))) is None


@examples(60)
@given(st.sampled_from(FORMATS), st.data())
def test_damaged_tables(magic: int, data: st.DataObject) -> None:
    whole = bytearray(table(magic))
    for place in data.draw(st.lists(st.integers(4, len(whole) - 1), max_size=6)):
        whole[place] = data.draw(st.integers(0, 255))
    found = functions(go_functions_file(bytes(whole[: data.draw(st.integers(0, len(whole)))])))
    if found is not None:
        found.covering(0x401050)
        found.names()


# ---------------------------------------------------------------------------------------------- go module
# Tests of the data of Go's runtime, found in the data of a program or in its relocations.


WORDS = (0x500000, 0x500048, *range(2, 22), 0x401000, *range(23, 48))
RELOCATED = frozenset({0, 1, go_binaries.TEXT})


def go_module_program(contents: dict[str, bytes]) -> Any:
    """A file with sections; that of data is at 0x600000 and its start."""
    sections = {key: SimpleNamespace(name=key) for key in contents}
    return SimpleNamespace(
        section=sections.get,
        contents=lambda section, most=None: memoryview(contents[section.name])[:most],
        view=memoryview(contents.get(".data", b"")),
        file_offset=lambda address: address - 0x600000 + 64,
        base=64,
    )


@pytest.mark.parametrize("name", [".go.module", ".noptrdata", ".data"])
def test_found_in_data(name: str) -> None:
    data = b"\1" * 32 + struct.pack("<48Q", *WORDS)
    found = go_binaries.find(go_module_program({name: data}), 0x500000, 0x48)
    assert found is not None
    assert found.words == WORDS
    assert go_binaries.find(go_module_program({name: data}), 0x500000, 0x50) is None


@pytest.mark.parametrize("name", [".rela.dyn", ".rela"])
def test_found_in_relocations(name: str) -> None:
    words = [0 if number in RELOCATED else word for number, word in enumerate(WORDS)]
    rows = b"".join(struct.pack("<QQQ", 0x600010 + 8 * number, 8, WORDS[number]) for number in sorted(RELOCATED))
    contents = {".data": bytes(16) + struct.pack("<48Q", *words), name: rows}
    found = go_binaries.find(go_module_program(contents), 0x500000, 0x48)
    assert found is not None
    assert found.words == WORDS


def test_cut_off() -> None:
    data = struct.pack("<4Q", *WORDS[:4])
    found = go_binaries.find(go_module_program({".data": data}), 0x500000, 0x48)
    assert found is not None
    assert found.words == WORDS[:4] + (0,) * 44


def test_what_functions_refer_to() -> None:
    """At another place by version: before 1.20, from 1.20 on, and since 1.27."""
    assert go_binaries.GoModule(tuple(range(48))).function_data(old=True) == 38
    assert go_binaries.GoModule(tuple(range(48))).function_data(old=False) == 40
    later = [*range(48)]
    later[37:39] = [0x500000, 0x300]
    assert go_binaries.GoModule(tuple(later)).function_data(old=False) == 43
