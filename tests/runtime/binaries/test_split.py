"""pytrace.runtime.binaries.debug_info: units in `.dwo` files and packages, supplementary files."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.common.exceptions import DWARFError

from pytrace.core.diagnostics import TraceError
from pytrace.core.types import INT32, INT64, Pointer, Struct, Type
from pytrace.runtime.binaries.debug_info import PackageIndex, SplitUnits
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.binaries.user_binary import Binary, CachedDebugInfo, UserBinaries
from tests.support.compile import compiled, tool
from tests.support.rows import each_row

SHARED = "struct point { int x; char tag[8]; struct { long far; } inner; };\n"
FIRST = (
    SHARED
    + """\
long deep(struct point *where, long how);
__attribute__((noinline)) int work(struct point *p, int how) { return (int)deep(p, how + 1); }
int main(int argc, char **argv) { struct point p = {argc, "tag", {2}}; return work(&p, argc); }
"""
)
SECOND = (
    SHARED
    + """\
static inline __attribute__((always_inline)) long twice(long n) { return 2 * n + (long)__builtin_frame_address(0); }
__attribute__((noinline)) long deep(struct point *where, long how) { return where->x + twice(how); }
"""
)
FORMS = ["-gdwarf-5", "-gdwarf-4", "-gdwarf-5 -fdebug-types-section", "-gdwarf-4 -fdebug-types-section"]
# dwp of binutils 2.40 crashes on DWARF 5.
DWZ = pytest.mark.needs("dwz")
PACKERS = [("llvm-dwp", form) for form in FORMS] + [("dwp", form) for form in FORMS if "4" in form]


def _build(folder: Path, options: str, compiler: str = "gcc", second: str = SECOND) -> Path:
    """The program ``p`` of two units, with ``first.dwo`` and ``second.dwo`` beside it."""
    folder.mkdir(exist_ok=True)
    for name, text in (("first", FIRST), ("second", second)):
        (folder / f"{name}.c").write_text(text)
        tool(compiler, "-O2", *options.split(), "-gsplit-dwarf", "-c", f"{name}.c", "-o", f"{name}.o", folder=folder)
    tool(compiler, "first.o", "second.o", "-o", "p", folder=folder)
    return folder / "p"


def _names(path: Path, function: str, *debuginfo: str) -> list[str] | None:
    found = UserBinaries(debuginfo).parameters(str(path), function)
    return None if found is None else [f"{item.declaration} {item.name} {item.location}" for item in found]


def _complete(path: Path, *debuginfo: str) -> bool:
    """Whether everything that both split units say is there."""
    binaries = UserBinaries(debuginfo)
    found = binaries.parameters(str(path), "deep")
    if found is None or _names(path, "work", *debuginfo) is None:
        return False
    assert [(item.name, item.location) for item in found] == [("where", "di"), ("how", "si")]
    point = found[0].type.target  # type: ignore[attr-defined]
    assert [field.name for field in point.fields] == ["x", "tag", "inner"]
    assert point.find("inner").type.find("far").type == INT64
    binary = binaries.binary(str(path))
    assert binary.debug is not None
    symbol = binary.functions("deep")[0]
    chains = {
        tuple(place.function for place in binary.debug.frames(symbol.address + step)) for step in range(symbol.size)
    }
    assert ("twice", "deep") in chains
    assert binaries.result(str(path), "work") == INT32
    assert binary.debug.problems == []
    return True


@pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=pytest.mark.needs("clang"))])
@pytest.mark.parametrize("form", FORMS)
def test_dwo_files(form: str, compiler: str, tmp_path: Path) -> None:
    assert _complete(_build(tmp_path, form, compiler))


@pytest.mark.needs("clang", "dwz")
@each_row("compiler", ["gcc", "clang"])
@each_row(("packer", "form"), PACKERS)
def test_packages(packer: str, form: str, compiler: str, tmp_path: Path) -> None:
    path = _build(tmp_path, form, compiler)
    tool(packer, "-e", "p", "-o", "p.dwp", folder=tmp_path)
    for name in ("first", "second"):
        (tmp_path / f"{name}.dwo").unlink()
    assert _complete(path)


def test_only_the_units_that_are_asked_for_are_opened(tmp_path: Path) -> None:
    path = _build(tmp_path, "-gdwarf-5")
    debug = CachedDebugInfo(ElfFile.open(str(path))).decoder
    address = UserBinaries().binary(str(path)).address_of("deep")
    assert debug.addresses("second.c", 6000, None) == []
    assert not [name for name in debug.files if name.endswith(".dwo")], "lines need no split unit"
    assert debug.parameters("deep", address) is not None
    assert [name for name in debug.files if name.endswith(".dwo")] == [str(tmp_path / "second.dwo")]


def test_moved_files(tmp_path: Path) -> None:
    built = _build(tmp_path / "built", "-gdwarf-5").parent
    place = tmp_path / "bin"
    place.mkdir()
    path = Path(shutil.copy(built / "p", place / "p"))
    assert _complete(path), "the folder of the compilation is known"
    folder = tmp_path / "symbols"
    built.rename(folder)
    assert _names(path, "deep") is None
    assert _complete(path, str(folder)), "--debuginfo"
    for name in ("first", "second"):
        shutil.move(folder / f"{name}.dwo", place)
    assert _complete(path), "beside the binary"


def test_missing_files_are_named(tmp_path: Path) -> None:
    path = _build(tmp_path, "-gdwarf-5")
    (tmp_path / "second.dwo").unlink()
    binaries = UserBinaries()
    assert binaries.parameters(str(path), "deep") is None
    assert binaries.result(str(path), "deep") is None
    (problem,) = binaries.problems(str(path))
    assert "second.dwo" in problem
    assert "does not exist" in problem
    debug = binaries.binary(str(path)).debug
    assert debug is not None
    address = binaries.binary(str(path)).address_of("deep") or 0
    (place,) = debug.frames(address)
    assert (place.function, Path(place.file).name, place.line) == ("", "second.c", 3), "lines are in the binary"
    assert [symbol.name for symbol in binaries.lines(str(path), "second.c", 3, None)] == ["deep"]
    assert _names(path, "work") == ["struct point* p di", "int how si"], "the other unit is there"


@pytest.mark.parametrize("form", ["-gdwarf-5", "-gdwarf-4"])
def test_files_of_another_build_are_refused(form: str, tmp_path: Path) -> None:
    path = _build(tmp_path / "one", form)
    other = _build(tmp_path / "two", form, second=SECOND.replace("how", "why").replace("2 * n", "3 * n"))
    shutil.copy(other.parent / "second.dwo", path.parent / "second.dwo")
    binaries = UserBinaries()
    assert binaries.parameters(str(path), "deep") is None
    assert binaries.parameters(str(path), "deep") is None
    (problem,) = binaries.problems(str(path))
    assert "another build" in problem
    assert str(path.parent / "second.dwo") in problem


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = _build(tmp_path, "-gdwarf-5")
    (tmp_path / "second.dwo").write_bytes(b"\x7fELF" + b"\xff" * 200)
    (tmp_path / "p.dwp").write_text("no package")
    binaries = UserBinaries()
    assert binaries.parameters(str(path), "deep") is None
    problems = "\n".join(binaries.problems(str(path)))
    assert "p.dwp" in problems
    assert "second.dwo" in problems


@pytest.mark.parametrize("package", [False, pytest.param(True, marks=DWZ)])
def test_skeletons_in_a_separate_debug_file(package: bool, tmp_path: Path) -> None:
    path = _build(tmp_path, "-gdwarf-5")
    if package:
        tool("llvm-dwp", "-e", "p", "-o", "p.dwp", folder=tmp_path)
        for name in ("first", "second"):
            (tmp_path / f"{name}.dwo").unlink()
    (tmp_path / "symbols").mkdir()
    tool("objcopy", "--only-keep-debug", "p", "symbols/p.debug", folder=tmp_path)
    tool("objcopy", "--strip-debug", "--add-gnu-debuglink=symbols/p.debug", "p", folder=tmp_path)
    assert _names(path, "deep") is None
    assert _complete(path, str(tmp_path / "symbols"))


@DWZ
@pytest.mark.parametrize("form", ["-gdwarf-5", "-gdwarf-4"])
def test_supplementary_files(form: str, tmp_path: Path) -> None:
    text = FIRST + SECOND.removeprefix(SHARED)
    path = compiled(tmp_path, "p", text, "-O2", form)
    shutil.copy(path, tmp_path / "q")
    tool("dwz", "-m", "common.debug", "-M", "common.debug", "p", "q", folder=tmp_path)
    assert _complete(path)
    (tmp_path / "common.debug").rename(tmp_path / "other.debug")
    binaries = UserBinaries()
    assert binaries.parameters(str(path), "deep") is None
    (problem,) = binaries.problems(str(path))
    assert "common.debug" in problem
    assert "does not exist" in problem
    (tmp_path / "symbols").mkdir()
    (tmp_path / "other.debug").rename(tmp_path / "symbols/common.debug")
    assert _complete(path, "symbols"), "--debuginfo"


@DWZ
@pytest.mark.parametrize(("form", "file"), [
    ("-gdwarf-5", "p"), ("-gdwarf-5", "first.dwo"), ("-gdwarf-5", "p.dwp"), ("-gdwarf-4", "p"), ("-gdwarf-4", "p.dwp"),
])  # fmt: skip
def test_damage_anywhere_is_an_answer_or_a_message(form: str, file: str, tmp_path: Path) -> None:
    path = _build(tmp_path, f"{form} -fdebug-types-section")
    if file == "p.dwp":
        tool("llvm-dwp", "-e", "p", "-o", "p.dwp", folder=tmp_path)
        (tmp_path / "first.dwo").unlink()
    victim = tmp_path / file
    whole = victim.read_bytes()
    sections = [section for section in ElfFile.open(str(victim)).sections if "debug" in section.name and section.size]
    chosen = random.Random(20)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chosen.choice((1, 2, 8))):
            section = chosen.choice(sections)
            data[section.offset + chosen.randrange(section.size)] = chosen.choice((0, 0x7F, 0x80, 0xFF))
        victim.write_bytes(data)
        _ask_everything(UserBinaries(), str(path))


def _ask_everything(binaries: UserBinaries, path: str) -> None:
    debug = binaries.binary(path).debug
    assert debug is not None
    address = binaries.binary(path).address_of("work") or 0
    questions: list[Callable[[], object]] = [
        lambda: [_members(item.type) for item in binaries.parameters(path, "work") or ()],
        lambda: binaries.result(path, "work"),
        lambda: binaries.lines(path, "first.c", 3, None),
        lambda: [debug.frames(address + step) for step in range(16)],
    ]
    for question in questions:
        with contextlib.suppress(TraceError):
            question()


def _members(kind: Type, depth: int = 3) -> list[object]:
    """What a type is made of, so that it is read."""
    if isinstance(kind, Pointer) and depth:
        return _members(kind.target, depth - 1)
    return [_members(field.type, depth - 1) for field in (kind.fields if isinstance(kind, Struct) and depth else ())]


def test_sections_compressed_with_zstd(tmp_path: Path) -> None:
    path = compiled(tmp_path, "p", FIRST + SECOND.removeprefix(SHARED), "-O2", "-g")
    tool("objcopy", "--compress-debug-sections=zstd", "p", folder=tmp_path)
    assert _complete(path)
    elf = UserBinaries().binary(str(path)).elf
    section = elf.section(".debug_info")
    assert section is not None
    data = bytearray(path.read_bytes())
    data[section.offset + 24 : section.offset + section.size] = b"\xff" * (section.size - 24)
    path.write_bytes(data)
    with pytest.raises(TraceError, match="cannot be decompressed"):
        UserBinaries().parameters(str(path), "deep")


def test_files_of_a_container_are_looked_for_in_the_container(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real/tool")
    root = f"/proc/{os.getpid()}/root"
    units = SplitUnits((f"{root}{tmp_path}/link",), ("sub",), root)
    assert list(units._dwp_places()) == [
        f"{root}{tmp_path}/link.dwp", f"{root}{tmp_path}/real/tool.dwp", f"{root}{tmp_path}/real/sub/tool.dwp",
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- packages


INFO, ABBREV = 1, 3


def index(
    *units: tuple[int, int], version: int = 5, slots: int = 8, columns: tuple[int, ...] = (INFO, ABBREV)
) -> PackageIndex:
    """An index of units: signature and start in ``.debug_info``; each has 10 bytes there, 5 in ``.debug_abbrev``."""
    table = [(0, 0)] * slots
    for row, (signature, _) in enumerate(units, 1):
        slot, step = signature & slots - 1, (signature >> 32 & slots - 1) | 1
        while table[slot][1]:
            slot = (slot + step) & slots - 1
        table[slot] = signature, row
    data = struct.pack("<IIII", version, len(columns), len(units), slots)
    data += b"".join(struct.pack("<Q", signature) for signature, _ in table)
    data += b"".join(struct.pack("<I", row) for _, row in table)
    data += struct.pack(f"<{len(columns)}I", *columns)
    data += b"".join(struct.pack("<II", start, row) for row, (_, start) in enumerate(units))
    data += struct.pack("<II", 10, 5) * len(units)
    return PackageIndex(memoryview(data))


@pytest.mark.parametrize("version", [2, 5])
def test_parts_of_a_unit(version: int) -> None:
    made = index((0x1234, 100), (0x5678, 200), version=version)
    assert made.rows(0x1234) == {"info": (100, 10), "abbrev": (0, 5)}
    assert made.rows(0x5678) == {"info": (200, 10), "abbrev": (1, 5)}
    assert made.rows(0x9999) is None
    assert {"info", "abbrev"} < made.cut
    assert ("loc" in made.cut) is (version == 2)
    assert ("rnglists" in made.cut) is (version == 5)


def test_signatures_that_share_a_slot() -> None:
    signatures = [number << 32 | 3 for number in (1, 5, 9, 2, 7)]
    made = index(*((signature, at) for at, signature in enumerate(signatures)))
    assert [(made.rows(signature) or {})["info"][0] for signature in signatures] == [0, 1, 2, 3, 4]
    assert made.rows(11 << 32 | 3) is None


def test_a_full_index_ends_the_search() -> None:
    made = index(*((number, number) for number in range(1, 5)), slots=4)
    assert made.rows(9) is None


def test_a_package_without_an_index() -> None:
    made = PackageIndex(memoryview(b""))
    assert made.rows(1) is None
    assert made.cut == frozenset()


def test_an_index_without_slots() -> None:
    assert index(slots=0, columns=()).rows(1) is None


def test_an_unknown_version() -> None:
    with pytest.raises(DWARFError, match="version 7 of the index of a package is unknown"):
        index(version=7)


def test_a_column_that_is_unknown_is_no_section() -> None:
    assert index((1, 100), columns=(INFO, 99)).rows(1) == {"info": (100, 10), "": (0, 5)}


def test_names_stay_inside_the_root_of_their_process(tmp_path: Path) -> None:
    """``DW_AT_dwo_name`` of a process may have any number of ``..``."""
    path = _build(tmp_path / "d", "-gdwarf-5")
    name = "second.dwo"
    data = path.read_bytes()
    evil = b"/../../../../sys/kernel/x\0"
    folder = str(tmp_path / "d").encode() + b"\0"
    assert len(evil) <= len(folder)
    path.write_bytes(data.replace(folder, evil + bytes(len(folder) - len(evil))))
    root = f"/proc/{os.getpid()}/root"
    binary = Binary.open(f"{root}{path}", root=root)
    (path.parent / name).unlink()
    debug = binary.debug
    assert debug is not None
    debug.decoder.parameters("deep", UserBinaries().binary(str(path)).address_of("deep"))
    tried = [file for file in debug.decoder.files if file.endswith(name)]
    assert f"{root}/sys/kernel/x/{name}" in tried
    assert all(file.startswith(f"{root}/") for file in tried)
