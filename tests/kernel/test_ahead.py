"""Ahead-of-time files on a real kernel: run with parameters, imports, moved binaries, a kernel other than their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pytrace.core.manifest import _HEADER, INTERPRETER, CompiledScript, file_form
from pytrace.core.probe_kinds import UserTarget
from pytrace.runtime.machine import fingerprints
from tests.support.compile import compiled
from tests.support.patience import patience
from tests.support.programs import BUILT, build

AHEAD = Path(__file__).resolve().parent.parent / "programs" / "ahead"
ELSEWHERE = BUILT / "ahead"
"""Files that scripts/test compiled on its own kernel before it started the test machine."""


def run(*command: str | Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patience(60), check=False)


def pytrace(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "pytrace", *arguments)


def ahead(folder: Path, text: str, *options: str) -> Path:
    """Compile *text* to a file."""
    script, made = folder / "script.bt", folder / "tool"
    script.write_text(text)
    done = pytrace("--aot", made, *options, script)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def programs() -> Path:
    return build()


TOOL = """
begin { printf("%d %s %d\\n", $1, str($2), $#); }
tracepoint:syscalls:sys_enter_getppid /pid == cpid && comm == str($2)/ {
  @calls = count();
  if (@total < getopt("most", 3, "stop counting here")) { @total += $1; }
  if (getopt("names")) { @names[curtask->comm, ((struct task_struct *)curtask)->tgid == pid] = count(); }
}
"""


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ahead(tmp_path_factory.mktemp("ahead"), TOOL)


def test_each_run_has_its_parameters(tool: Path, programs: Path) -> None:
    command = f"{programs}/syscalls 10"
    first = pytrace("-q", "-c", command, tool, "1", "syscalls").stdout.split("\n")
    assert [line for line in first if line] == ["1 syscalls 2", "@calls: 10", "@total: 3"]
    second = pytrace("-q", "-c", command, tool, "0x2", "syscalls", "x", "--", "--most=7", "--names").stdout
    assert second.split("\n")[0] == "2 syscalls 3"
    assert "@total: 8" in second
    assert "@names[syscalls, true]: 10" in second
    assert "@calls" not in pytrace("-q", "-c", command, tool, "1", "other").stdout


def test_json_and_help(tool: Path) -> None:
    done = pytrace(tool, "--", "--help")
    assert "--most=N  stop counting here (default: 3)" in done.stdout
    assert '{"type": "printf", "data": "5 x 2\\n"}' in pytrace("-f", "json", "-c", "true", tool, "5", "x").stdout


def test_the_file_is_a_program(tool: Path, tmp_path: Path) -> None:
    command = tmp_path / "pytrace"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m pytrace "$@"\n')
    command.chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run(tool, "--", "--help", environment=path)
    assert "--names" in done.stdout, done.stderr


def test_a_run_needs_no_compiler(tmp_path: Path) -> None:
    made = ahead(tmp_path, "begin { print((curtask->pid == pid, ncpus > 0)); exit(); }")
    code = (
        "import sys\n"
        "class Forbidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('llvmlite', 'ply', 'clang') or name.startswith(('pytrace.frontend',"
        " 'pytrace.codegen')):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Forbidden())\n"
        "from pytrace.cli import main as cli\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    done = run(sys.executable, "-c", code, "-q", made)
    assert (done.returncode, done.stdout.strip()) == (0, "(true, true)"), done.stderr


def test_a_light_installation_runs_files_and_says_what_it_lacks(tool: Path, programs: Path, tmp_path: Path) -> None:
    """Beside pytrace only msgspec: no site-packages (-S), and a folder with these two."""
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    (tmp_path / "pytrace").symlink_to(Path(__file__).resolve().parents[2] / "pytrace")
    start = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from pytrace.cli import main; sys.exit(main.main(sys.argv[1:]))"
    )
    light = [sys.executable, "-S", "-c", start]
    done = run(*light, "-q", "-c", f"{programs}/syscalls 4", tool, "1", "syscalls")
    assert (done.returncode, "@calls: 4" in done.stdout) == (0, True), done
    assert run(*light, "agent", "--help").returncode == 0
    done = run(*light, "-e", "begin { exit(); }")
    assert (done.returncode, done.stderr.splitlines()[1].endswith("pip install ply llvmlite")) == (1, True), done
    assert "this installation has no compiler" in done.stderr


def test_pid_filters_are_those_of_the_run(tmp_path: Path, programs: Path) -> None:
    over = "interval:s:1 { if (has_key(@, (uint32)$1) && has_key(@, (uint32)$2)) { exit(); } }"
    made = ahead(tmp_path, f"tracepoint:syscalls:sys_enter_getppid {{ @[pid] = count(); }} {over}")
    child = subprocess.Popen([programs / "syscalls", "100000000"])
    other = subprocess.Popen([programs / "syscalls", "100000000"])
    try:
        one = pytrace("-q", "-p", str(child.pid), made, str(child.pid), str(child.pid)).stdout
        both = pytrace("-q", made, str(child.pid), str(other.pid)).stdout
    finally:
        for process in (child, other):
            process.kill()
            process.wait()
    assert re.findall(r"@\[(\d+)\]", one) == [str(child.pid)]
    assert {str(child.pid), str(other.pid)} <= set(re.findall(r"@\[(\d+)\]", both))


def test_addresses_are_those_of_this_boot(tmp_path: Path) -> None:
    made = ahead(tmp_path, 'begin { printf("%llx\\n", kaddr("vfs_read")); exit(); }')
    script = CompiledScript.from_bytes(made.read_bytes())
    (fact,) = [item for item in script.manifest.facts if item[0] == "boot"]
    other = edited(made, fact[1], "0" * len(fact[1]))
    first = pytrace("-q", made).stdout
    made.write_bytes(other)
    assert pytrace("-q", made).stdout == first
    with open("/proc/kallsyms") as file:
        assert f"{int(first, 16):016x} T vfs_read\n" in file.read()


SOURCE = """
%s
__attribute__((noinline)) int work(int n) { __asm__ volatile(""); return n + 1; }
int main(void) { return work(1) + work(2) == 5 ? 0 : 1; }
"""


def test_functions_of_a_rebuilt_binary_are_found_again(tmp_path: Path) -> None:
    program = compiled(tmp_path, "app", SOURCE % "", "-O1")
    made = ahead(tmp_path, f"uprobe:{program}:work {{ @calls = count(); @n[arg0] = count(); }}")
    run = ("-q", "-c", str(program), made)
    assert "@calls: 2" in pytrace(*run).stdout
    before = CompiledScript.from_bytes(made.read_bytes()).manifest.programs[0].targets[0].of(UserTarget).offset
    more = '__attribute__((noinline)) int more(void) { __asm__ volatile(".skip 4096, 0x90"); return 1; }'
    compiled(tmp_path, "app", SOURCE % more, "-O1")
    now = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    assert f"{before:x} T work" not in now
    assert {"@calls: 2", "@n[1]: 1", "@n[2]: 1"} <= set(pytrace(*run).stdout.split("\n"))
    compiled(tmp_path, "app", "int main(void) { return 0; }")
    done = pytrace(*run)
    assert done.returncode == 1
    assert "no longer has a function 'work'" in done.stderr


def changed(made: Path, folder: Path) -> Path:
    """A copy of *made* that another kernel build seems to have compiled."""
    script = CompiledScript.from_bytes(made.read_bytes())
    build_text = script.manifest.facts[0][4]
    copy = folder / "copy"
    copy.write_bytes(edited(made, build_text, "f" * len(build_text)))
    return copy


def edited(made: Path, old: str, new: str) -> bytes:
    """The bytes of a file with another text in its manifest."""
    script = CompiledScript.from_bytes(made.read_bytes())
    whole = script.to_bytes()
    head = whole[: len(whole) - len(script.elf)]
    assert old.encode() in head
    return INTERPRETER + file_form(head[_HEADER.size :].replace(old.encode(), new.encode()), script.elf)


def test_a_kernel_of_another_build_with_the_same_layout(tool: Path, tmp_path: Path) -> None:
    done = pytrace("-q", "-c", "true", changed(tool, tmp_path), "5", "x")
    assert done.stdout.startswith("5 x 2\n"), done.stderr


def test_a_layout_that_differs_is_refused_with_the_reason(tmp_path: Path) -> None:
    made = ahead(tmp_path, "tracepoint:syscalls:sys_enter_openat { print(args.flags); }")
    copy = changed(made, tmp_path)
    copy.write_bytes(edited(copy, '"sys_enter_openat","flags","32"', '"sys_enter_openat","flags","40"'))
    done = pytrace(copy)
    assert done.returncode == 1
    assert "does not fit this one" in done.stderr
    assert "field flags has 8 bytes at offset 32 here, it had 8 at offset 40" in done.stderr


def foreign(name: str) -> Path:
    """A file that was compiled on another kernel than this one."""
    path = ELSEWHERE / name
    if not path.exists():
        pytest.skip("only where scripts/test compiled files on another kernel (scripts/test vm)")
    if CompiledScript.from_bytes(path.read_bytes()).manifest.facts[0] == fingerprints.kernel_fact():
        pytest.skip("this is the kernel that the files were compiled on")
    return path


@pytest.mark.each_kernel
def test_members_that_moved_are_followed(programs: Path) -> None:
    done = pytrace("-q", "-c", f"{programs}/syscalls 10", foreign("moving"), "3")
    assert done.returncode == 0, done.stderr
    assert {"@comm[syscalls]: 10", "@same: true", "@parent: true", "@n: 3", "@system: Linux"} <= set(
        done.stdout.split("\n")
    )


@pytest.mark.each_kernel
def test_layouts_that_cannot_move_are_refused() -> None:
    done = pytrace(foreign("fixed"))
    assert done.returncode == 1
    assert f"does not fit this one, {os.uname().release}" in done.stderr
    assert re.search(r"struct task_struct: member pid is at offset \d+ here, it was at offset \d+", done.stderr)


@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm")
@pytest.mark.parametrize("name", ["moving", "fixed"])
def test_the_scripts_for_other_kernels_run_here(name: str, programs: Path, tmp_path: Path) -> None:
    made = ahead(tmp_path, (AHEAD / f"{name}.bt").read_text())
    assert pytrace("-q", "-c", f"{programs}/syscalls 10", made, "3").returncode == 0


@pytest.mark.needs("clang")
def test_object_files_are_part_of_the_file(tmp_path: Path) -> None:
    source, made = tmp_path / "add.c", tmp_path / "add.bpf.o"
    source.write_text("__attribute__((noinline)) long add_two(long a, long b) { return a * 2 + b; }\n")
    subprocess.run(["clang", "-g", "-O2", "-target", "bpf", "-c", source, "-o", made], check=True)
    tool = ahead(tmp_path, 'import "add.bpf.o"; begin { print((add_two(5, $1), str($2))); exit(); }')
    made.unlink()
    assert pytrace("-q", tool, "1", "x").stdout.strip() == "(11, x)"


@pytest.mark.parametrize("mode", ["--test", "--bench"])
def test_tests_and_benchmarks_ahead_of_time(tmp_path: Path, mode: str) -> None:
    made = ahead(tmp_path, "test:one { return $1; } bench:two { $a = 1; $a += 2; }", mode)
    done = pytrace(mode, made, "1")
    assert ("[  FAILED  ] one" if mode == "--test" else "two") in done.stdout
    assert pytrace(made).returncode == 1
