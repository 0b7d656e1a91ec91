"""IFUNC symbols of programs and of the C library: the functions that stand for them, never their resolvers."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
from pathlib import Path

import pytest

from pytrace.core.kernel_info import IndirectFunction
from pytrace.runtime.binaries.user_binary import UserBinaries
from pytrace.runtime.load.live_kernel import LiveKernel
from tests.support.compile import SOURCES, compiled, tool

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="code of x86-64")


def library() -> str:
    """The C library of this process."""
    return LiveKernel().binaries("libc", os.getpid())[0]


def found(path: Path | str, name: str, pid: int | None = None) -> IndirectFunction:
    binaries = UserBinaries()
    symbol = next(item for item in binaries.symbols(str(path), name) if item.indirect)
    return binaries.implementations(str(path), symbol, pid)


def addresses(path: Path, *names: str) -> set[int]:
    return {item.address for name in names for item in UserBinaries().symbols(str(path), name)}


def of(function: IndirectFunction) -> set[int]:
    return {item.address for item in function.functions}


@pytest.mark.parametrize("options", [(), ("-static",), ("-no-pie",)], ids=["pie", "static", "no-pie"])
def test_resolvers_of_a_program(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Before it runs, what its resolver may return; then what that returned."""
    program = compiled(tmp_path, "program", SOURCES / "indirect_functions.c", "-O1", "-fno-builtin", *options)
    both = addresses(program, "first", "second")
    assert of(found(program, "own")) == both
    assert "resolver's code does not say" in found(program, "unknown").reason
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert of(found(program, "own", process.pid)) == addresses(program, "first")
        assert of(found(program, "own")) == addresses(program, "first")
        process.kill()


def test_functions_of_the_c_library_are_those_of_this_process() -> None:
    path = library()
    function = found(path, "strlen")
    (place,) = function.functions
    value = ctypes.cast(ctypes.CDLL(None)["strlen"], ctypes.c_void_p).value or 0
    with open("/proc/self/maps", encoding="utf-8") as maps:
        start, offset = next((int(row[0].split("-")[0], 16), int(row[2], 16)) for row in map(str.split, maps)
                             if int(row[0].split("-")[0], 16) <= value < int(row[0].split("-")[1], 16))  # fmt: skip
    assert place.offset == value - start + offset
    assert place.name == "strlen"
    assert place.size > 1
    assert "vdso" in found(path, "time").reason


def other_build(folder: Path) -> Path:
    """A copy of the C library of another build, without symbols: that of a container, as far as this process knows."""
    path = folder / "libc.so.6"
    tool("strip", "-o", path, library())
    data = path.read_bytes()
    build_id = bytes.fromhex(UserBinaries().binary(library()).elf.build_id)
    assert data.count(build_id) == 1
    path.write_bytes(data.replace(build_id, build_id[::-1]))
    path.chmod(0o755)
    return path


def test_a_c_library_that_this_process_does_not_have(tmp_path: Path) -> None:
    """A process that runs with it says which function; else there are all that its resolver may return."""
    path = other_build(tmp_path)
    program = compiled(tmp_path, "program", SOURCES / "indirect_functions.c", "-O1", "-fno-builtin", "-Wl,-z,now")
    (mine,) = of(found(library(), "strlen"))
    possible = of(found(path, "strlen"))
    assert mine in possible
    assert len(possible) > 1
    loader = next(Path(item) for item in ("/lib64/ld-linux-x86-64.so.2",) if Path(item).exists())
    command = [str(loader), "--library-path", str(tmp_path), str(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert of(found(path, "strlen", process.pid)) == {mine}
        assert of(found(path, "strlen")) == {mine}
        process.kill()


def test_names_of_one_function(tmp_path: Path) -> None:
    again = """
    static int (*again(void))(int) { __builtin_cpu_init(); return __builtin_cpu_supports("avx") ? first : second; }
    int twin(int) __attribute__((ifunc("again")));
    """
    text = (SOURCES / "indirect_functions.c").read_text().replace("int main", f"{again}int main")
    program = compiled(tmp_path, "program", text, "-O1", "-fno-builtin")
    assert found(program, "own").also == ("twin",)


def test_symbols_say_whether_they_are_resolvers(tmp_path: Path) -> None:
    program = compiled(tmp_path, "program", SOURCES / "indirect_functions.c", "-O1", "-fno-builtin")
    symbols = [UserBinaries().symbols(str(program), name)[0] for name in ("own", "main")]
    assert [item.indirect for item in symbols] == [True, False]
