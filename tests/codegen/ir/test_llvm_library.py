"""LLVM through its C functions and through llvmlite's package: the same results and errors."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from pytrace.codegen.ir import llvm_library, llvm_package, target
from pytrace.codegen.ir.llvm_library import Llvm, Machine
from tests.support.patience import patience

TEXT = """
target triple = "bpfel"
define i64 @f(ptr %p) section "text" {
  %slot = alloca i64
  store i64 5, ptr %slot
  %five = load i64, ptr %slot
  %n = load i64, ptr %p
  %sum = add i64 %n, %five
  ret i64 %sum
}
"""
INVALID = TEXT.replace("ret i64 %sum", "%x = add i64 %later, 1\n  %later = add i64 %x, 1\n  ret i64 %later")


@cache
def _llvm(name: str) -> Llvm:
    if name == "package":
        return llvm_package.Package()
    place = llvm_library.path()
    assert place is not None, "the release of llvmlite in scripts/requirements.txt is one that pytrace knows"
    return llvm_library.Library(place)


@cache
def _machine(name: str) -> Machine:
    return _llvm(name).machine(target.TRIPLE, target.CPU)


BOTH = pytest.mark.parametrize("name", ["library", "package"])


@BOTH
def test_the_stages(name: str) -> None:
    with _llvm(name).parse(TEXT) as module:
        module.verify()
        assert "alloca" in str(module)
        _machine(name).optimise(module)
        assert "alloca" not in str(module)
        assert "r0 += 5" in _machine(name).emit_assembly(module)
        assert _machine(name).emit_object(module).startswith(b"\x7fELF")


def test_both_give_the_same() -> None:
    results = []
    for name in ("library", "package"):
        with _llvm(name).parse(TEXT) as module:
            _machine(name).optimise(module)
            results.append((str(module), _machine(name).emit_assembly(module), _machine(name).emit_object(module)))
    assert results[0] == results[1]
    assert _llvm("library").version == _llvm("package").version


@BOTH
def test_errors(name: str) -> None:
    with pytest.raises(RuntimeError, match="parsing error"):
        _llvm(name).parse("define nothing")
    with _llvm(name).parse(INVALID) as module, pytest.raises(RuntimeError, match="dominate"):
        module.verify()
    with pytest.raises(RuntimeError, match="nowhere"):
        _llvm(name).machine("nowhere", "")


def test_other_releases_are_used_through_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = llvm_library.path()
    assert place is not None
    package = tmp_path / "llvmlite"
    (package / "binding").mkdir(parents=True)
    (package / "binding" / "libllvmlite.so").symlink_to(place)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert llvm_library.path() == place
    (package / "_version.py").write_text("version_version = '0.50.7'")
    assert llvm_library.path() == str(package / "binding" / "libllvmlite.so")
    (package / "_version.py").write_text("version_version = '0.51.0'")
    assert llvm_library.path() is None


def test_pages_of_its_start_do_not_stay() -> None:
    """Half of the memory of a small script."""
    code = (
        "from pytrace.codegen.ir import llvm_library\n"
        "def mapped():\n"
        "    with open('/proc/self/smaps') as file: lines = file.read().splitlines()\n"
        "    at = [n for n, line in enumerate(lines) if 'libllvmlite' in line and 'r-xp' in line]\n"
        "    return [int(next(line for line in lines[n:] if line.startswith('Rss:')).split()[1]) for n in at]\n"
        "library = llvm_library.Library(llvm_library.path())\n"
        "library.machine('bpfel', 'v3')\n"
        "assert 0 < sum(mapped()) < 4096, mapped()\n"
        "with library.parse('define void @f() { ret void }') as module: module.verify()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=patience(60))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_script_compiled_through_the_package() -> None:
    """In a process of its own: the options of LLVM can be set once."""
    code = (
        "from pytrace.codegen.ir import llvm_library, target\n"
        "import sys\n"
        "if sys.argv[1] == 'package': llvm_library.path = lambda: None\n"
        f"with target.parse({TEXT!r}) as module:\n"
        "    target.optimise(module)\n"
        "    sys.stdout.buffer.write(target.elf(module))\n"
        "assert ('llvmlite' in sys.modules) is (sys.argv[1] == 'package')\n"
    )
    made = [
        subprocess.run([sys.executable, "-c", code, name], capture_output=True, check=True, timeout=patience(60)).stdout
        for name in ("library", "package")
    ]
    assert made[0] == made[1]
    assert made[0].startswith(b"\x7fELF")


def test_the_library_is_used_by_several_threads() -> None:
    """Each call holds the lock; Python code of other threads runs between them."""
    from concurrent.futures import ThreadPoolExecutor

    def compiled(_number: int) -> bytes:
        with target.parse(TEXT) as module:
            return _machine("library").emit_object(module)

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(compiled, range(20)))) == 1
    assert os.getpid()
