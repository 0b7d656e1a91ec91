"""pytrace.runtime.dwarf.debug_info on compiled programs: parameters, source lines, inlined functions."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.types import (
    DOUBLE,
    INT8,
    INT32,
    INT64,
    UINT32,
    AddressSpace,
    Array,
    Enum,
    Field,
    Pointer,
    String,
    Struct,
)
from pytrace.runtime.binaries.cached_debug_info import CachedDebugInfo
from pytrace.runtime.binaries.user_binary import Binary, UserBinaries
from pytrace.runtime.dwarf.debug_info import DebugInfo
from pytrace.runtime.dwarf.units import Unit
from pytrace.runtime.elf.file import ElfFile
from tests.support.compile import compiled

PROGRAM = """\
#include <stdio.h>
#include <stdlib.h>
enum colour { RED, GREEN = 5, NONE = -1 };
struct point { int x; unsigned flag : 3, rest : 5; char tag[8]; union { long a; char b; }; struct point *next; };
struct big { long a[4]; };
static inline __attribute__((always_inline)) int inner(int v) {
    return v * 3 + rand();
}
__attribute__((noinline)) int work(const char *name, struct point *p, enum colour c, long a4, long a5, long a6, int a7,
                                   struct big b) {
    int r = inner(p->x);
    return r + c + (int)(a4 + a5 + a6) + a7 + (name ? name[0] : 0) + (int)b.a[1];
}
__attribute__((noinline)) double mixed(double d, int n) { return d * n; }
int main(int argc, char **argv) {
    struct point p = {argc, 2, 3, "tag", {1}, 0};
    struct big b = {{1, 2, 3, 4}};
    printf("%d %f\\n", work(argv[0], &p, GREEN, 4, 5, 6, 7, b), mixed(1.5, argc));
    return 0;
}
"""


FORMS = [
    "-O0", "-O2", "-O2 -gdwarf-4", "-O0 -gdwarf-3 -gstrict-dwarf", "-O0 -gdwarf-2",
    "-O2 -fdebug-types-section", "-O2 -gdwarf-4 -fdebug-types-section", "-O2 -gdwarf64", "-O2 -gz", "-O2 -gz=zlib-gnu",
    "-O0 -gsplit-dwarf", "-O2 -gsplit-dwarf", "-O0 -gsplit-dwarf -gdwarf-4", "-O2 -gsplit-dwarf -gdwarf-4",
    "-O2 -gsplit-dwarf -fdebug-types-section", "-O2 -gsplit-dwarf -gdwarf-4 -fdebug-types-section",
    "-O2 -gsplit-dwarf -gz",
]  # fmt: skip


@pytest.fixture(scope="module", params=FORMS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Binary:
    options = request.param.split()
    return Binary.open(str(compiled(tmp_path_factory.mktemp("dwarf"), "program", PROGRAM, "-g", *options)))


def _debug(binary: Binary) -> DebugInfo:
    assert binary.debug is not None
    return binary.debug.decoder


def test_parameters_and_where_they_are_at_the_entry(program: Binary) -> None:
    found = _debug(program).parameters("work", program.address_of("work"))
    assert found is not None
    assert [(item.name, item.location) for item in found] == [
        ("name", "di"), ("p", "si"), ("c", "dx"), ("a4", "cx"), ("a5", "r8"), ("a6", "r9"), ("a7", "sp+8"),
        ("b", "sp+16"),
    ]  # fmt: skip
    assert [item.declaration for item in found[:3]] == ["const char*", "struct point*", "enum colour"]
    assert found[0].type == Pointer(INT8, AddressSpace.USER)
    assert (found[3].type, found[6].type) == (INT64, INT32)
    colour = cast(Enum, found[2].type)
    assert dict(colour.members)["GREEN"] == 5
    assert cast(Struct, found[7].type).fields == (Field("a", Array(INT64, 4), 0),)


def test_structs(program: Binary) -> None:
    found = _debug(program).parameters("work", None)
    assert found is not None
    point = cast(Struct, cast(Pointer, found[1].type).target)
    assert point.find("flag") == Field("flag", UINT32, 4, 0, 3)
    assert point.find("rest") == Field("rest", UINT32, 4, 3, 5)
    assert point.find("tag") == Field("tag", String(8), 5)
    assert point.find("b") == Field("b", INT8, 16)
    following = point.find("next")
    assert following is not None
    assert cast(Pointer, following.type).target == point


def test_floating_point_parameters_cannot_be_read(program: Binary) -> None:
    found = _debug(program).parameters("mixed", program.address_of("mixed"))
    assert found is not None
    assert [(item.name, item.location) for item in found if item.readable] == [("n", "di")]
    assert [item.lost for item in found if not item.readable] == [("",)]


def test_unknown_function(program: Binary) -> None:
    assert _debug(program).parameters("nothing", None) is None


def test_lines(program: Binary) -> None:
    debug = _debug(program)
    (address,) = debug.addresses("program.c", 7, None)
    symbol = program.covering(address)
    assert symbol is not None
    assert symbol.name == "work", "the line is inlined there"
    assert debug.addresses("rogram.c", 7, None) == []
    assert debug.addresses("program.c", 6000, None) == []
    assert debug.line_of(address)[0].endswith("/program.c")


def test_inlined_functions(program: Binary) -> None:
    debug = _debug(program)
    symbol = program.functions("work")[0]
    chains = [[place.function for place in debug.frames(symbol.address + step)] for step in range(symbol.size)]
    assert ["inner", "work"] in chains
    assert all(chain in (["work"], ["inner", "work"]) for chain in chains)
    inlined = next(
        debug.frames(symbol.address + step) for step in range(symbol.size) if chains[step] == ["inner", "work"]
    )
    assert inlined[0].line == 7
    assert inlined[1].line == 11, "the place of the call"


def test_without_dwarf(tmp_path: Path) -> None:
    path = compiled(tmp_path, "plain", "int main(void) { return 0; }\n")
    binaries = UserBinaries()
    assert binaries.parameters(str(path), "main") is None
    assert binaries.lines(str(path), "plain.c", 1, None) == []


def test_the_reader_of_dwarf_is_imported_for_binaries_that_have_it(tmp_path: Path) -> None:
    compiled(tmp_path, "plain", "int main(void) { return 0; }\n")
    compiled(tmp_path, "full", "int main(void) { return 0; }\n", "-g")
    code = (
        "import sys\nfrom pytrace.runtime.binaries.user_binary import UserBinaries\n"
        "UserBinaries().parameters(sys.argv[1], 'main')\nprint('elftools' in sys.modules)\n"
    )
    for name, imported in (("plain", "False"), ("full", "True")):
        command = [sys.executable, "-c", code, str(tmp_path / name)]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == imported


def test_columns(tmp_path: Path) -> None:
    text = "int f(int);\nint g(int n) { if (n) return f(n); return f(n + 1); }\nint f(int n) { return n; }\n"
    path = compiled(tmp_path, "columns", text, "-g", "-O0", "-shared", "-fPIC")
    debug = CachedDebugInfo(ElfFile.open(str(path))).decoder
    line = debug.addresses("columns.c", 2, None)
    second = debug.addresses("columns.c", 2, text.splitlines()[1].index("f(n + 1)") + 1)
    assert len(line) == len(second) == 1
    assert second[0] > line[0]


def test_methods_and_references(tmp_path: Path) -> None:
    text = """
    namespace zoo { struct Base { long age; };
    struct Cat : Base { int legs; __attribute__((noinline)) int walk(const int &steps) { return legs * steps; } }; }
    int main(int argc, char **) { zoo::Cat cat; cat.legs = 4; return cat.walk(argc); }
    """
    binary = Binary.open(str(compiled(tmp_path, "cat", text, "-g", "-O1", language="c++")))
    name = binary.function_names("*walk*")[0]
    found = _debug(binary).parameters(name, binary.address_of(name))
    assert found is not None
    assert [(item.name, item.location) for item in found] == [("this", "di"), ("steps", "si")]
    cat = cast(Struct, cast(Pointer, found[0].type).target)
    assert cat.find("age") == Field("age", INT64, 0), "a member of the base class"
    assert cat.find("legs") == Field("legs", INT32, 8)


def test_damaged_dwarf_is_an_error_with_the_name(tmp_path: Path) -> None:
    path = compiled(tmp_path, "damaged", "int main(void) { return 0; }\n", "-g")
    binary = Binary.open(str(path))
    main = binary.address_of("main")
    section = binary.elf.section(".debug_abbrev")
    assert section is not None
    data = bytearray(path.read_bytes())
    data[section.offset : section.offset + section.size] = b"\xff" * section.size
    path.write_bytes(data)
    with pytest.raises(TraceError, match="damaged"):
        CachedDebugInfo(ElfFile.open(str(path))).decoder.frames(main or 0)


def test_results(program: Binary) -> None:
    debug = _debug(program)
    assert debug.result("work", program.address_of("work")) == INT32
    assert debug.result("mixed", program.address_of("mixed")) == DOUBLE
    assert debug.result("nothing", None) is None


@pytest.mark.parametrize("split", [False, True])
def test_units_are_forgotten_and_read_again(split: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of days comes by all units of a large library: only some stay in memory, and answers do not change."""
    options = ["-g", "-gsplit-dwarf"] if split else ["-g"]
    sources = [f"int part_{at}(int x) {{ return x + {at}; }}\n" for at in range(4)]
    objects = [compiled(tmp_path, f"part_{at}.o", text, *options, "-c") for at, text in enumerate(sources)]
    calls = " + ".join(f"part_{at}(1)" for at in range(4))
    declared = "".join(f"int part_{at}(int);\n" for at in range(4))
    path = compiled(tmp_path, "parts", f"{declared}int main(void) {{ return {calls}; }}\n", "-g", *map(str, objects))
    addresses = [symbol.address + 4 for symbol in Binary.open(str(path)).functions("part_*")] * 2
    whole = CachedDebugInfo(ElfFile.open(str(path))).decoder
    expected = [whole.frames(address) for address in addresses]
    assert [frames[0].function for frames in expected[:4]] == [f"part_{at}" for at in range(4)]
    before = _units_in_memory()
    monkeypatch.setattr("pytrace.runtime.dwarf.debug_info.MOST_READ", 1)
    debug = CachedDebugInfo(ElfFile.open(str(path))).decoder
    assert [debug.frames(address) for address in addresses] == expected
    assert len(debug._functions) <= 2
    assert _units_in_memory() - before <= (4 if split else 2)


def _units_in_memory() -> int:
    gc.collect()
    return sum(isinstance(found, Unit) for found in gc.get_objects())
