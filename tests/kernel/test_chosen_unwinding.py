"""Stacks of programs that nobody selected before, of compiled languages among them."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import downloads
from tests.support.compile import SOURCES, compiled
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.server import Result, Running, Server

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="unwind tables are for x86-64")

CONFIG = "config = { stack_unwinding = auto; show_debug_info = false } "
CALLS = 3000


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program without frame pointers, but for code that it makes at run time, that sorts through the C library."""
    need("bpf_loop")
    folder = tmp_path_factory.mktemp("choice")
    return compiled(folder, "sorting", SOURCES / "sorted.c", "-O2", "-fomit-frame-pointer")


def stacks(text: str) -> dict[tuple[str, ...], int]:
    """Functions of each stack of the map ``@``, outermost last, and how often it was."""
    found: dict[tuple[str, ...], int] = {}
    for line in text.splitlines():
        row = json.loads(line)
        for key, count in row["data"]["@"].items() if row["type"] == "map" and "@" in row["data"] else ():
            names = tuple(re.sub(r"\+\d+$", "", frame.strip()) for frame in key.strip().split("\n"))
            found[names] = found.get(names, 0) + count
    return found


def is_whole(names: tuple[str, ...]) -> bool:
    """Whether a stack has each frame from the system call to the program's start, in order and no other."""
    mine = [name for name in names if not re.match(r"msort|_*qsort|_*quicksort|intro", name)]
    generated = mine[2] if len(mine) > 2 else ""
    callers = ["compare", "sorts", "main", "__libc_start_call_main", "__libc_start_main", "_start"]
    return mine == ["syscall", "leaf", generated, *callers] and generated in ("[JIT]", "made by map", "made by dump")


SCRIPT = (
    CONFIG
    + "t:syscalls:sys_enter_getsid /MINE && args.pid == 1000000/ { @[ustack] = count(); } "
    + 't:syscalls:sys_enter_getsid /MINE && args.pid == 1000001 && len(ustack) > 8/ { printf("whole\\n"); } '
)


def traced(server: Server, script: str, program: Path, way: str, folder: Path, *options: str) -> Result:
    """A run with the program, which goes on when its stacks are whole; without ``-c`` the program is started here."""
    told = folder / "told"
    command = [str(program), str(CALLS), way, str(told)]
    started_by_it = ("-c", " ".join(command)) if "cpid" in script else ()

    def work(run: Running) -> None:
        process = None if started_by_it else subprocess.Popen(command)
        run.until_printed("whole", seconds=60)
        told.touch()
        if process is not None:
            process.wait(patience(60))

    return server.run(("-f", "json", *options, "-e", script, *started_by_it), timeout=60, while_attached=work)


def test_all_stacks_of_a_command_are_whole(server: Server, program: Path, tmp_path: Path) -> None:
    result = traced(server, SCRIPT.replace("MINE", "pid == cpid"), program, "plain", tmp_path)
    assert result.status == 0, result
    found = stacks(result.stdout)
    wrong = {names: count for names, count in found.items() if not is_whole(names)}
    assert sum(found.values()) == CALLS
    # The code that is made at run time is mapped after the tables were read: the first stack may end before it.
    assert wrong in ({}, {("syscall", "leaf"): 1})


def test_processes_that_the_programs_meet(server: Server, program: Path, tmp_path: Path) -> None:
    """Nothing was selected: tables are asked for, and read while the program runs."""
    script = SCRIPT.replace("MINE", 'comm == "sorting"')
    script += 't:syscalls:sys_enter_exit_group /comm == "sorting"/ { exit(); }'
    result = traced(server, script, program, "plain", tmp_path, "-v")
    assert result.status == 0, result
    found = stacks(result.stdout)
    assert sum(found.values()) == CALLS
    assert sum(count for names, count in found.items() if is_whole(names)) >= CALLS - 1, found
    assert re.search(r"ustack of \S+/sorting: unwind tables, \d+ rows", result.stderr)
    assert re.search(r"ustack of \S+/libc\.so\.6: unwind tables, \d+ rows", result.stderr)
    assert re.search(r"\d+ user stacks followed frame pointers, before", result.stderr)


@pytest.mark.parametrize("way", ["map", "dump"])
def test_names_of_generated_code(server: Server, program: Path, way: str, tmp_path: Path) -> None:
    script = SCRIPT.replace("MINE", "pid == cpid") + "t:syscalls:sys_enter_exit_group /pid == cpid/ { @pid = pid; }"
    result = traced(server, script, program, way, tmp_path)
    (pid,) = (row["data"]["@pid"] for row in map(json.loads, result.stdout.splitlines()) if "@pid" in row["data"])
    (Path("/tmp") / (f"perf-{pid}.map" if way == "map" else f"jit-{pid}.dump")).unlink()
    whole = [names for names in stacks(result.stdout) if is_whole(names)]
    assert whole, result
    assert {names[2] for names in whole} == {f"made by {way}"}


def test_the_first_and_last_instructions_of_generated_code(server: Server, program: Path, tmp_path: Path) -> None:
    result = traced(server, SCRIPT.replace("MINE", "pid == cpid"), program, "edges", tmp_path)
    assert result.status == 0, result
    found = {names: count for names, count in stacks(result.stdout).items() if names[0] != "syscall"}
    whole = ("[JIT]", "edge", "main", "__libc_start_call_main", "__libc_start_main", "_start")
    assert found == {whole: 3 * (CALLS - 1)}


def test_tables_alone(server: Server, program: Path) -> None:
    """As dw_ustack: it ends at code without a table, and says so."""
    script = CONFIG.replace("auto", "tables") + "t:syscalls:sys_enter_getsid /pid == cpid/ { @[ustack] = count(); }"
    result = server.run(("-f", "json", "-e", script, "-c", f"{program} {CALLS} plain /"), timeout=60)
    assert sum(stacks(result.stdout).values()) == CALLS
    assert all(names[:2] == ("syscall", "leaf") and len(names) == 3 for names in stacks(result.stdout))
    assert "stack_cut" in result.stdout


AUTO = "config = { stack_unwinding = auto } "
FORMS = (
    "profile:hz:99 /pid == cpid/ { @[ustack] = count(); }",
    "profile:hz:99 { @[ustack, kstack, comm] = count(); } software:page-faults:1 { @p[ustack(perf, 3)] = count(); }",
    AUTO + "t:syscalls:sys_enter_getsid /pid == cpid/ { print(ustack); @[pid, ustack] = count(); }",
    AUTO + "u:libc:getenv /pid == cpid/ { $s = ustack; @[$s] = count(); } ur:libc:getenv { print(ustack(9)); }",
    AUTO + "fn f($n : int64) : int64 { return len(ustack) + $n; } rt:sched_switch { @ = max(f(1)); }",
    "config = { python_frames = true } profile:hz:99 /pid == cpid/ { @[pystack, ustack(9)] = count(); print(ustack); }",
)


def test_the_verifier_accepts_all_forms(server: Server) -> None:
    need("bpf_loop")
    for form in FORMS:
        result = server.run(("--no-cache", "--dry-run", "-e", form, "-c", "/bin/true"))
        assert result.status == 0, (form, result)


def test_frames_that_registers_tell(server: Server, tmp_path: Path) -> None:
    need("bpf_loop")
    program = compiled(tmp_path, "registers", SOURCES / "frames_by_registers.c", "-O2", "-fno-inline")
    probes = "tracepoint:syscalls:sys_enter_getsid, tracepoint:syscalls:sys_enter_vfork, tracepoint:sched:sched_switch"
    script = f"{CONFIG}{probes} /pid == cpid/ {{ @[ustack(folded)] = count(); }}"
    done = server.run(("-q", "-e", script, "-c", str(program)), timeout=60)
    found = re.findall(r"@\[_start;.*;main;inner;(?:__)?(\w+)\]", done.stdout)
    assert {"by_rdi", "by_r10", "vfork"} <= set(found), done.stdout
    assert "@[vfork]" not in done.stdout


# ---------------------------------------------------------------------------------------------- compiled languages
# Stacks of PHP, Ruby, Java and .NET, whose functions are compiled at run time: those that called, and no others.
# The programs of tests/programs/languages compile their functions, say so, and then call a system call from a known
# chain of functions, each as often. They run where there is the language with its compiler.


PROGRAMS = Path(__file__).parent.parent / "programs/languages"
COMPILED_CALLS = 600
Stack = tuple[str, ...]


@contextmanager
def running(command: list[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A program whose functions are compiled: it has said its process id."""
    need("bpf_loop")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        try:
            assert said(process) == str(process.pid)
            yield process
        finally:
            process.kill()
            for name in (f"perf-{process.pid}.map", f"perfinfo-{process.pid}.map", f"jit-{process.pid}.dump"):
                (Path("/tmp") / name).unlink(missing_ok=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def compiled_stacks(
    server: Server, process: subprocess.Popen[str], probe: str = "getsid", hint: str = ""
) -> dict[Stack, int]:
    """Functions of the stacks of all calls, innermost first, and how often each was; *hint* is what ``-v`` says."""

    def work(_run: Running) -> None:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert said(process) == "done"

    script = "config = { stack_unwinding = auto; show_debug_info = false } "
    script += f"t:syscalls:sys_enter_{probe} {{ @[ustack] = count(); }}"
    words = ("-v", "-f", "json", "-p", str(process.pid), "-e", script)
    result = server.run(words, timeout=patience(60), while_attached=work, when_attached=("signal INT",))
    assert result.status == 0, result
    assert hint in result.stderr
    found: dict[Stack, int] = {}
    for line in result.stdout.splitlines():
        row = json.loads(line)
        for key, count in row["data"]["@"].items() if row["type"] == "map" and "@" in row["data"] else ():
            names = tuple(re.sub(r"\+\d+$", "", frame.strip()) for frame in key.strip().split("\n"))
            found[names] = found.get(names, 0) + count
    return found


@pytest.fixture(scope="module")
def php() -> list[str]:
    """PHP with the compiler."""
    options = ("opcache.enable_cli=1", "opcache.jit_buffer_size=16M", "opcache.jit=1205")
    command = ["php", *(word for option in options for word in ("-d", option))]
    test = "exit(function_exists('posix_getsid') && (opcache_get_status()['jit']['on'] ?? 0) ? 0 : 7);"
    if subprocess.run([*command, "-r", test], check=False, timeout=patience(30)).returncode:
        pytest.skip("this PHP has no compiler, or no posix_getsid")
    return command


@pytest.mark.needs("php")
def test_php(server: Server, php: list[str]) -> None:
    """Without names, by a perf map, by jitdump. Compiled code keeps no frames: stacks end at it."""
    for debug, name in ((0, "[JIT]"), (16, "JIT$leaf"), (32, "JIT$leaf")):
        with running([*php, "-d", f"opcache.jit_debug={debug}", str(PROGRAMS / "calls.php")]) as process:
            found = compiled_stacks(server, process)
        assert sum(found.values()) == COMPILED_CALLS
        assert {(stack[0], *stack[2:]) for stack in found} == {("getsid", name)}, found


@pytest.mark.needs("php")
def test_code_that_a_traced_command_makes_executable(server: Server, php: list[str]) -> None:
    """PHP's memory for code becomes executable after tables were read: the kernel reports it, and stacks get to it."""
    need("bpf_loop")
    # One walk: the tables that the stack needs may arrive between two.
    body = "$stack = ustack(); @[$stack] = count(); if (len($stack) > 2) { exit(); }"
    script = f"config = {{ stack_unwinding = auto }} t:syscalls:sys_enter_getsid /pid == cpid/ {{ {body} }}"
    command = shlex.join([*php, str(PROGRAMS / "calls.php"), "forever"])
    result = server.run(("-q", "-e", script, "-c", command), timeout=patience(60))
    assert result.status == 0, result
    assert result.stdout.count("[JIT]") == 1, result
    assert "WARNING" not in result.stderr


@pytest.mark.needs("ruby")
def test_ruby(server: Server) -> None:
    """YJIT of 3.1 names nothing and keeps no frames: a stack ends there, or leaves out what ran the code."""
    command = ["ruby", "--yjit", "--yjit-call-threshold=2"]
    if subprocess.run([*command, "-e", ""], check=False, capture_output=True, timeout=patience(30)).returncode:
        pytest.skip("this Ruby has no YJIT")
    with running([*command, str(PROGRAMS / "calls.rb")]) as process:
        found = compiled_stacks(server, process)
    assert sum(found.values()) == COMPILED_CALLS
    assert all(stack[0] == "getsid" and stack.index("[JIT]") == 2 for stack in found), found
    named = re.compile(r"(lib)?ruby[-.\d]*(so\S*)?\+0x|_*[a-z_]+$")
    assert all(named.match(name) for stack in found for name in stack[3:]), found
    assert all(stack[-1] in ("[JIT]", "_start") for stack in found), found


JAVA_CHAIN = (
    "access", "Java_java_io_UnixFileSystem_checkAccess",
    "boolean java.io.UnixFileSystem.checkAccess(java.io.File, int)", "boolean java.io.File.canExecute()",
    "int Calls.leaf(int)", "int Calls.total(int)", "int Calls.outer(Calls, int)", "int Calls.work(int)", "Interpreter",
)  # fmt: skip
JAVA = ("java", "-Xbatch", "-XX:-Inline", "-XX:TieredStopAtLevel=1")
EXECUTABLE = "access /args.mode == 1/"


@pytest.mark.needs("java")
def test_java(server: Server) -> None:
    """Frame pointers by an option; names of a perf map that the process writes when asked."""
    with running([*JAVA, "-XX:+PreserveFramePointer", str(PROGRAMS / "Calls.java")]) as process:
        ask = ["jcmd", str(process.pid), "Compiler.perfmap"]
        if subprocess.run(ask, check=False, capture_output=True, timeout=patience(60)).returncode:
            pytest.skip("Java before 17 writes no map when asked")
        found = compiled_stacks(
            server, process, EXECUTABLE, "rows; functions that it compiles need -XX:+PreserveFramePointer"
        )
    assert sum(found.values()) == COMPILED_CALLS
    assert {stack[: len(JAVA_CHAIN)] for stack in found} == {JAVA_CHAIN}, found
    assert all(stack[-1] == "clone3" and "StubRoutines (1)" in stack for stack in found), found


DOTNET_CHAIN = (
    "getsid", "int32 [calls] Order::Leaf(int32)[Optimized]", "instance int32 [calls] Order::Total(int32)[Optimized]",
    "int32 [calls] Order::Outer(class Order,int32)[Optimized]",
)  # fmt: skip


@pytest.mark.needs("dotnet", "mono")
def test_dotnet(server: Server, tmp_path: Path) -> None:
    """With names and without."""
    host = downloads.folder() / "dotnet/dotnetcore2/bin/dotnet"
    program = tmp_path / "calls.dll"
    subprocess.run(["mcs", f"-out:{program}", str(PROGRAMS / "calls.cs")], check=True, timeout=patience(60))
    runtime = {"name": "Microsoft.NETCore.App", "version": "3.1.0"}
    options = {"framework": runtime, "configProperties": {"System.Globalization.Invariant": True}}
    (tmp_path / "calls.runtimeconfig.json").write_text(json.dumps({"runtimeOptions": options}))
    for named in ("1", "0"):
        environment = {"COMPlus_TieredCompilation": "0", "COMPlus_PerfMapEnabled": named}
        with running([str(host), str(program)], **environment) as process:
            found = compiled_stacks(server, process)
        assert sum(found.values()) == COMPILED_CALLS
        chain = DOTNET_CHAIN if named == "1" else ("getsid", "[JIT]", "[JIT]", "[JIT]")
        callers = (*chain, "CallDescrWorkerInternal")
        assert {stack[: len(callers)] for stack in found} == {callers}, found
        assert all(stack[-1] == "_start" for stack in found), found
