"""Stacks of PHP, Ruby, Java and .NET, whose functions are compiled at run time: those that called, and no others.

The programs of tests/programs/languages compile their functions, say so, and then call a system call from a known
chain of functions, each as often. They run where there is the language with its compiler.
"""

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
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.server import Running, Server

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="unwind tables are for x86-64")

PROGRAMS = Path(__file__).parent.parent / "programs/languages"
CALLS = 600
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


def stacks(server: Server, process: subprocess.Popen[str], probe: str = "getsid", hint: str = "") -> dict[Stack, int]:
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
            found = stacks(server, process)
        assert sum(found.values()) == CALLS
        assert {(stack[0], *stack[2:]) for stack in found} == {("getsid", name)}, found


@pytest.mark.needs("php")
def test_code_that_a_traced_command_makes_executable(server: Server, php: list[str]) -> None:
    """PHP's memory for code becomes executable after tables were read: the kernel reports it, and stacks get to it."""
    need("bpf_loop")
    body = "@[ustack] = count(); if (len(ustack(9)) > 2) { exit(); }"
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
        found = stacks(server, process)
    assert sum(found.values()) == CALLS
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
        found = stacks(server, process, EXECUTABLE, "rows; functions that it compiles need -XX:+PreserveFramePointer")
    assert sum(found.values()) == CALLS
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
            found = stacks(server, process)
        assert sum(found.values()) == CALLS
        chain = DOTNET_CHAIN if named == "1" else ("getsid", "[JIT]", "[JIT]", "[JIT]")
        callers = (*chain, "CallDescrWorkerInternal")
        assert {stack[: len(callers)] for stack in found} == {callers}, found
        assert all(stack[-1] == "_start" for stack in found), found
