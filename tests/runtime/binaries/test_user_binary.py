"""pytrace.runtime.binaries.user_binary: functions, variables and lines of compiled programs."""

from __future__ import annotations

import lzma
import re
import shutil
import struct
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.types import INT32
from pytrace.runtime.binaries import user_binary
from pytrace.runtime.binaries.elf_file import EM_AARCH64, EM_X86_64, ElfFile, Section, Symbol
from pytrace.runtime.binaries.user_binary import Binary, UserBinaries, stubs
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.support.compile import compiled, tool
from tests.support.pace import unit
from tests.support.small_program import TEXT, addresses, another_build, built, split


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("elf"))


def test_functions_have_the_addresses_of_nm(program: Path) -> None:
    known = addresses(program)
    binary = Binary.open(str(program))
    for name in ("helper", "help", "hidden", "main"):
        (symbol,) = binary.functions(name)
        assert (symbol.name, symbol.address) == (name, known[name])
        assert symbol.size > 0
    assert binary.functions("counter") == [], "a variable is no function"
    assert binary.functions("atoi") == [], "only what is defined here"
    assert binary.variable_address("counter") == known["counter"]
    assert binary.variable_address("nothing") is None


def test_patterns(program: Path) -> None:
    binary = Binary.open(str(program))
    assert {symbol.name for symbol in binary.functions("hel*")} == {"helper", "help"}
    assert list(binary.function_names("h*")) == ["help", "helper", "hidden"]
    assert binary.functions("elper") == [], "the tail of another name"


def test_code_is_found_by_address(program: Path) -> None:
    binary = Binary.open(str(program))
    (symbol,) = binary.functions("helper")
    assert binary.covering(symbol.address + symbol.size - 1) == symbol
    assert binary.covering(0) is None
    offset = binary.elf.file_offset(symbol.address)
    assert offset is not None
    assert binary.elf.address_at(offset) == symbol.address
    # The code at that offset of the file is that of the function.
    dump = subprocess.run(
        ["objdump", "-d", "--disassemble=helper", str(program)], capture_output=True, text=True, check=True
    )
    first = next(line for line in dump.stdout.splitlines() if f" {symbol.address:x}:" in f" {line.strip()}")
    octets = bytes.fromhex("".join(first.split("\t")[1].split()))
    assert program.read_bytes()[offset : offset + len(octets)] == octets


def test_mini_debug_info(program: Path, tmp_path: Path) -> None:
    stripped, mini, packed = tmp_path / "mini-program", tmp_path / "mini", tmp_path / "mini.xz"
    tool("objcopy", "--only-keep-debug", "--keep-symbol=hidden", "--strip-debug", program, mini)
    packed.write_bytes(lzma.compress(mini.read_bytes()))
    tool("objcopy", "--strip-all", f"--add-section=.gnu_debugdata={packed}", program, stripped)
    binary = UserBinaries((str(tmp_path / "none"),)).binary(str(stripped))
    assert [symbol.address for symbol in binary.functions("hidden")] == [addresses(program)["hidden"]]


def test_a_replaced_binary_is_read_again(tmp_path: Path) -> None:
    path = compiled(tmp_path, "changing", "int one(void) { return 1; } int main(void) { return one(); }\n")
    binaries = UserBinaries()
    assert binaries.symbols(str(path), "one")
    path.unlink()
    compiled(tmp_path, "changing", "int two(void) { return 2; } int main(void) { return two(); }\n")
    assert not binaries.symbols(str(path), "one")
    assert binaries.symbols(str(path), "two")


def test_a_large_library_is_quick() -> None:
    binding = pytest.importorskip("llvmlite.binding.ffi")
    path = str(Path(binding.__file__).parent / "libllvmlite.so")
    start = time.process_time()
    names = list(UserBinaries().binary(path).function_names("*"))
    spent = time.process_time() - start
    assert len(names) > 100_000
    assert names == sorted(set(names))
    assert spent < 500 * unit()


# ---------------------------------------------------------------------------------------------- one binary


def test_names_of_all_tables_come_once_and_sorted(program: Path) -> None:
    binary = Binary.open(str(program))
    names = list(binary.function_names("*"))
    assert len(binary.tables) == 2, "a program has .dynsym beside .symtab"
    assert len(binary.tables[0]) > len(binary.tables[1])
    assert names == sorted(set(names))
    assert {symbol.name for symbol in binary.functions("*")} == set(names)
    assert not list(binary.function_names("no_such*"))
    starts = [symbol.address for symbol in binary.functions("*")]
    assert starts == sorted(starts)


def test_starts_of_functions(program: Path) -> None:
    binary = Binary.open(str(program))
    known = addresses(program)
    assert binary.address_of("helper") == known["helper"]
    assert binary.function_start(known["helper"] + 1) == known["helper"]
    assert binary.address_of("counter") is binary.address_of("nothing") is binary.function_start(1) is None


def test_stubs_by_any_address_inside(program: Path) -> None:
    binary = Binary.open(str(program))
    (stub,) = stubs(binary.elf)
    assert binary.plt_entry(stub.address) == binary.plt_entry(stub.address + 15) == stub
    assert binary.plt_entry(stub.address - 1) is None
    after = binary.plt_entry(stub.address + 16)
    assert after is None or after.name == "__cxa_finalize@plt", "that of .plt.got, which has 8 bytes"


@pytest.mark.parametrize("options", [(), ("-fcf-protection",), ("-static",), ("-Wl,-z,now",), ("-fno-plt",)])
@pytest.mark.parametrize("stripped", [False, True])
def test_stubs_have_the_names_of_their_functions(tmp_path: Path, options: tuple[str, ...], stripped: bool) -> None:
    """As objdump names them, and not ``_init``, which has no size and is before them."""
    text = "#include <stdlib.h>\n#include <string.h>\nint main(int c, char **v) { return atoi(*v) + strlen(*v); }\n"
    path = compiled(tmp_path, "stubs", text, "-O0", *options)
    if stripped:
        tool("strip", path)
    binary = Binary.open(str(path))
    dump = subprocess.run(["objdump", "-d", str(path)], capture_output=True, text=True, check=True).stdout
    listed = {int(place, 16): name for place, name in re.findall(r"^([0-9a-f]+) <([^*\n]+@plt)>:", dump, re.MULTILINE)}
    assert listed or options in {("-static",), ("-fno-plt",)}
    for place, name in listed.items():
        for address in (place, place + 5):
            assert binary.covering(address) is None
            stub = binary.plt_entry(address)
            assert stub is not None
            assert (stub.name, stub.address) == (name, place)
    section = binary.elf.section(".plt")
    if options == ("-static",) and section is not None and not stripped:
        names = {stub.name for place in range(section.address, section.address + section.size, 8)
                 if (stub := binary.plt_entry(place)) is not None}
        assert "strlen@plt" in names

def test_variables_of_a_stripped_binary_are_in_its_debug_file(program: Path, tmp_path: Path) -> None:
    stripped, debug = split(program, tmp_path)
    binary = Binary.open(str(stripped), ("",))
    known = addresses(program)
    assert binary.variable_address("counter") == known["counter"]
    found = binary.variable("counter")
    assert found is not None
    assert found.size == 4
    assert str(debug) in binary.files
    assert Binary.open(str(stripped), ()).variable("counter") is None


def test_a_file_with_another_build_in_its_place_has_no_lines(program: Path, tmp_path: Path) -> None:
    place = tmp_path / "tool"
    place.write_bytes(program.read_bytes())
    binary = Binary.open(str(place), ())
    place.unlink()
    place.write_bytes(another_build(tmp_path).read_bytes())
    assert binary.debug is None
    assert Binary.open(str(place), ()).debug is not None


def test_a_file_that_went_has_no_lines(program: Path, tmp_path: Path) -> None:
    place = tmp_path / "tool"
    place.write_bytes(program.read_bytes())
    binary = Binary.open(str(place), ())
    place.unlink()
    assert binary.debug is None
    assert binary.functions("helper"), "what is mapped stays"


# ---------------------------------------------------------------------------------------------- binaries by path


def test_a_binary_is_opened_once(program: Path) -> None:
    binaries = UserBinaries()
    assert binaries.binary(str(program)) is binaries.binary(str(program))


def test_a_binary_that_went_is_known_from_before(program: Path, tmp_path: Path) -> None:
    place = tmp_path / "tool"
    place.write_bytes(program.read_bytes())
    binaries = UserBinaries()
    known = binaries.binary(str(place))
    place.unlink()
    assert binaries.binary(str(place)) is known
    assert binaries.can_open(str(place))
    assert not UserBinaries().can_open(str(place))
    with pytest.raises(TraceError, match=f"^cannot read {place}: No such file or directory$"):
        UserBinaries().binary(str(place))


def test_what_is_no_binary_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    assert not UserBinaries().can_open(str(tmp_path / "script"))
    assert not UserBinaries().executable(str(tmp_path / "script"))


def test_questions_about_a_file_of_others_take_no_longer_than_they_may(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of another file is answered all the same, and one of our own has no limit."""
    hostile, known = tmp_path / "hostile", UserBinaries()
    for path in (hostile, tmp_path / "ours", tmp_path / "third"):
        shutil.copy(program, path)
        path.chmod(0o755 if path.name == "ours" else 0o757)
    real = Binary.functions

    def endless(self: Binary, pattern: str) -> list[Symbol]:
        end = time.process_time() + (0.2 if self.path.endswith(("hostile", "ours")) else 0)
        while time.process_time() < end:
            sum(range(100))
        return real(self, pattern)

    monkeypatch.setattr(Binary, "functions", endless)
    monkeypatch.setattr(user_binary, "FILE_SECONDS", 0.05)
    for _ in range(2):
        with pytest.raises(TraceError, match=r"hostile is not read: others can write it, and it takes more than 0\.05"):
            known.symbols(str(hostile), "main")
    assert [item.name for item in known.symbols(str(tmp_path / "ours"), "main")] == ["main"]
    assert [item.name for item in known.symbols(str(tmp_path / "third"), "main")] == ["main"]
    monkeypatch.setattr(user_binary, "MOST_MEMORY", 64 << 20)
    with monkeypatch.context() as changed:
        changed.setattr(Binary, "functions", lambda *_: [bytearray(1 << 28)])
        with pytest.raises(TraceError, match=r"third is not read: .* 64 MiB of memory"):
            known.symbols(str(tmp_path / "third"), "main")
    assert [item.name for item in known.symbols(str(tmp_path / "third"), "main")] == ["main"]
    monkeypatch.setattr(user_binary, "ALL_SECONDS", 0.001)
    with pytest.raises(TraceError, match=r"all such files 0\.001"):
        known.symbols(str(tmp_path / "third"), "*")


def test_functions_have_file_offsets(program: Path) -> None:
    binaries = UserBinaries()
    (found,) = binaries.symbols(str(program), "helper")
    (symbol,) = binaries.binary(str(program)).functions("helper")
    assert (found.name, found.address, found.size) == ("helper", symbol.address, symbol.size)
    assert binaries.offset(str(program), found.address) == found.offset
    assert binaries.address_at(str(program), found.offset) == found.address
    assert binaries.offset(str(program), 1 << 40) is binaries.address_at(str(program), 1 << 40) is None


def test_functions_outside_the_file_are_left_out(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binaries = UserBinaries()
    monkeypatch.setattr(binaries.binary(str(program)).elf, "segments", ())
    assert binaries.symbols(str(program), "*") == []


def test_lines_are_named_by_their_functions(program: Path, tmp_path: Path) -> None:
    binaries = UserBinaries()
    line = 1 + next(number for number, text in enumerate(TEXT.splitlines()) if "int help(" in text)
    found = binaries.lines(str(program), "program.c", line, None)
    assert found
    assert {item.name for item in found} == {"help"}
    assert all(binaries.offset(str(program), item.address) == item.offset for item in found)
    assert binaries.lines(str(program), "other.c", line, None) == []
    stripped, _ = split(program, tmp_path)
    assert UserBinaries(("/nowhere",)).lines(str(stripped), "program.c", line, None) == []


def test_answers_of_a_binary_without_dwarf(program: Path, tmp_path: Path) -> None:
    stripped, debug = split(program, tmp_path)
    binaries, path = UserBinaries(("/nowhere",)), str(stripped)
    assert binaries.parameters(path, "helper") is binaries.result(path, "helper") is None
    assert binaries.named_type(path, "struct", "point") is None
    assert binaries.problems(path) == binaries.all_problems() == []
    assert binaries.files(path)[0] == path
    assert str(debug) not in binaries.files(path)
    assert len(binaries.files(path)) > 1, "files that are not there may come"


def test_a_type_that_is_nowhere_is_not_looked_for_in_units(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going through the units of a large library takes seconds."""
    binaries, path = UserBinaries(), str(program)
    decoder = binaries.binary(path).debug
    assert decoder is not None
    monkeypatch.setattr(decoder.decoder, "_units", None)
    assert binaries.named_type(path, "struct", "no_such_type") is None


def test_answers_from_dwarf(program: Path) -> None:
    binaries, path = UserBinaries(), str(program)
    found = binaries.parameters(path, "helper")
    assert found is not None
    assert [(item.name, item.type) for item in found] == [("n", INT32)]
    assert binaries.result(path, "helper") == INT32
    assert binaries.parameters(path, "missing") is binaries.result(path, "missing") is None


# ---------------------------------------------------------------------------------------------- C++

CLASSES = """
struct Cat { int walk(int n) const; int walk(long n) const; };
int Cat::walk(int n) const { return n; }
int Cat::walk(long n) const { return (int)n; }
extern "C" int walk(int n) { return n; }
int main(int argc, char **argv) { (void)argv; return Cat().walk(argc) + Cat().walk(2L) + walk(1); }
"""


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("Cat::walk", ["Cat::walk(int) const", "Cat::walk(long) const"]),
        ("Cat::walk(int)*", ["Cat::walk(int) const"]),
        ("*::walk(*", ["Cat::walk(int) const", "Cat::walk(long) const"]),
        ("walk", []),
        ("Cat", []),
    ],
)
def test_functions_by_demangled_names(pattern: str, expected: list[str], tmp_path: Path) -> None:
    path = compiled(tmp_path, "cats", CLASSES, language="c++")
    found = UserBinaries().cpp_symbols(str(path), pattern)
    assert sorted(text for _, text in found) == expected
    assert all(symbol.name.startswith("_ZNK3Cat4walkE") for symbol, _ in found)


@pytest.mark.parametrize("lost", ["symbols", "lines", "variable"])
def test_a_debug_file_that_goes_after_it_was_found(lost: str, program: Path, tmp_path: Path) -> None:
    """That of a process in a container goes with the process."""
    stripped, debug_file = split(program, tmp_path)
    binary = Binary.open(str(stripped), ("",))
    assert binary.debug_path == str(debug_file)
    debug_file.unlink()
    if lost == "symbols":
        assert binary.functions("hidden") == []
    elif lost == "lines":
        assert binary.debug is None
    else:
        assert binary.variable("counter") is None
    if lost != "lines":  # whether it is there is asked before it is opened
        assert binary.problems == [f"{debug_file} cannot be read: No such file or directory"]


# ---------------------------------------------------------------------------------------------- linkage tables


def test_stubs_are_named(program: Path) -> None:
    names = [stub.name for stub in stubs(ElfFile.open(str(program)))]
    assert names == ["atoi@plt"]
    stub = stubs(ElfFile.open(str(program)))[0]
    dump = subprocess.run(["objdump", "-d", str(program)], capture_output=True, text=True, check=True).stdout
    assert f"{stub.address:016x} <atoi@plt>:" in dump


def linked(machine: int, table: str, *numbers: int, wide: bool = True, size: int = 16) -> Any:
    """A file with relocations for some symbols (``one``, ``two``), and a linkage table at 0x1000."""
    sections = {
        table: Section(table, 1, 0, 0x1000, 0, 32 + size * len(numbers), 0),
        ".rela.plt": Section(".rela.plt", 4, 0, 0, 0, 0, 0),
        ".dynsym": Section(".dynsym", 11, 0, 0, 0, 0, 0),
    }
    data = {
        ".rela.plt": b"".join(struct.pack("<QQq", 0, number << 32 | 7, 0) for number in numbers) + b"tail",
        ".dynsym": b"".join(struct.pack("<I20x", at) for at in (0, 1, 5)),
        ".dynstr": b"\0one\0two\0",
    }
    return SimpleNamespace(
        machine=machine,
        wide=wide,
        section=sections.get,
        linked=lambda _: Section(".dynstr", 3, 0, 0, 0, 0, 0),
        contents=lambda section, most=None: memoryview(data[section.name])[:most],
    )


@pytest.mark.parametrize(
    ("machine", "table", "first"),
    [(EM_X86_64, ".plt", 0x1010), (EM_X86_64, ".plt.sec", 0x1000), (EM_AARCH64, ".plt", 0x1020)],
)
def test_the_first_stub_follows_the_header(machine: int, table: str, first: int) -> None:
    assert stubs(linked(machine, table, 1, 2)) == [
        Symbol("one@plt", first, 16), Symbol("two@plt", first + 16, 16),
    ]  # fmt: skip


def test_the_order_is_that_of_the_relocations() -> None:
    """Some have no symbol (of functions that are chosen at run time), or one that is not there."""
    found = stubs(linked(EM_X86_64, ".plt", 2, 0, 9, 1))
    assert [(stub.name, stub.address) for stub in found] == [("two@plt", 0x1010), ("one@plt", 0x1040)]


def test_no_stub_is_outside_the_table() -> None:
    assert [stub.name for stub in stubs(linked(EM_AARCH64, ".plt", 1, 2, size=8))] == ["one@plt"]


@pytest.mark.parametrize(
    "file",
    [
        linked(243, ".plt", 1),
        linked(243, ".plt.sec", 1),
        linked(EM_X86_64, ".plt", 1, wide=False),
        linked(EM_X86_64, ".other", 1),
    ],
    ids=["machine", "machine with landing pads", "32 bits", "no table"],
)
def test_other_forms_have_no_stubs(file: Any) -> None:
    assert stubs(file) == []


# ---------------------------------------------------------------------------------------------- static tracepoints


def test_notes(programs: Path) -> None:
    path = str(programs / "usdt")
    found = LiveKernel().usdt_probes(path, "*", "*")
    assert [(probe.provider, probe.name) for probe in found] == [
        ("sample", "plain"), ("sample", "one"), ("sample", "four"), ("sample", "guarded"),
    ]  # fmt: skip
    assert found[0].arguments == ""
    assert found[2].arguments.split()[-1] == "-4@$42"
    code = Path(path).read_bytes()
    assert all(code[probe.offset] == 0x90 for probe in found), "each is at a nop"


def test_semaphore_offset(programs: Path) -> None:
    path = str(programs / "usdt")
    by_name = {probe.name: probe for probe in LiveKernel().usdt_probes(path, "sample", "*")}
    assert by_name["one"].semaphore_offset == 0
    sections = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout
    row = next(line for line in sections.splitlines() if " .probes " in line)
    offset = int(row.split("PROGBITS")[1].split()[1], 16)
    assert by_name["guarded"].semaphore_offset == offset


def test_patterns_of_static_tracepoints(programs: Path) -> None:
    kernel = LiveKernel()
    path = str(programs / "usdt")
    assert [probe.name for probe in kernel.usdt_probes(path, "", "*u*")] == ["four", "guarded"]
    assert kernel.usdt_probes(path, "other", "*") == []
    assert kernel.usdt_probes(str(programs / "calls"), "*", "*") == []
