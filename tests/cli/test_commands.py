"""Tests of the run modes that need no kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytrace.cli import commands
from pytrace.cli.options import read
from pytrace.core.config import Config
from pytrace.core.diagnostics import ScriptError, TraceError
from pytrace.core.event_layout import Location
from pytrace.core.manifest import (
    INTERPRETER,
    MAGIC,
    AheadOfTime,
    CompiledScript,
    Manifest,
    Parameters,
    ProgramSpec,
    Target,
    is_compiled,
)
from pytrace.core.probes.targets import NoTarget, TimerTarget
from tests.support.facts import RecordedKernel


def test_formatting(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    script = tmp_path / "a.bt"
    script.write_text("begin{print(1)}")
    assert commands.run(read(["--fmt", str(script)])) == 0
    text = capsysbinary.readouterr().out
    assert b"begin" in text
    assert b"print(1)" in text
    assert commands.run(read(["--fmt", "-o", str(script), str(script)])) == 0
    assert script.read_bytes() == text


def test_formatting_a_wrong_script(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ScriptError):
        commands.run(read(["--fmt", "-e", "begin {"]))
    assert "ERROR" in capsys.readouterr().err


def test_help_of_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "a.bt"
    script.write_text('begin { print(getopt("least", 5, "the least")); }')
    assert commands.run(read([str(script), "--", "--help"])) == 0
    out = capsys.readouterr().out
    assert "--least=N  the least (default: 5)" in out


def compiled(tmp_path: Path) -> str:
    ahead = AheadOfTime(1, parameters=Parameters(names=("x",), help="  --x\n"))
    script = CompiledScript(b"ELF", Manifest((), (), (), (), Config(), ahead=ahead))
    path = tmp_path / "tool"
    path.write_bytes(script.to_bytes(executable=True))
    return str(path)


def test_help_of_a_compiled_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = compiled(tmp_path)
    assert commands.run(read([path, "--", "--help"])) == 0
    assert capsys.readouterr().out == f"parameters of {path}:\n  --x\n"


@pytest.mark.parametrize("options", [["--aot", "y"], ["--emit-elf", "y"], ["-I", "/x"], ["-k"], ["--include", "x.h"]])
def test_compiling_a_compiled_file(tmp_path: Path, options: list[str]) -> None:
    with pytest.raises(TraceError, match=f"already compiled; give {options[0]}"):
        commands.run(read([*options, compiled(tmp_path)]))


@pytest.mark.parametrize(
    "options", [["--fmt"], ["--mode", "codegen"], ["--mode", "compiler-bench"], ["--verify-llvm-ir"], ["-d", "ast"]]
)
def test_a_compiled_file_has_no_text(tmp_path: Path, options: list[str]) -> None:
    """What needs the script says so, and nothing is written over the file."""
    path = compiled(tmp_path)
    before = Path(path).read_bytes()
    with pytest.raises(TraceError, match=" needs the script that it was made from"):
        commands.run(read([*options, "-o", path, path]))
    assert Path(path).read_bytes() == before


def test_probes_of_a_compiled_file_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begin = Target("begin", 0, NoTarget())
    timers = tuple(Target(f"interval:s:{n}", n - 1, TimerTarget(period_ns=n * 10**9)) for n in (1, 2))
    place = Location("x", 1, 1)
    programs = (ProgramSpec("p0", "begin", 0, (begin,), place), ProgramSpec("p1", "interval", 1, timers, place))
    path = tmp_path / "listed"
    path.write_bytes(CompiledScript(b"ELF", Manifest(programs, (), (), (), Config())).to_bytes())
    assert commands.run(read(["-l", str(path)])) == 0
    assert capsys.readouterr().out == "begin\ninterval:s:1\ninterval:s:2\n"


def test_a_program_is_no_script(tmp_path: Path) -> None:
    """Who forgot -c is not shown the program's bytes."""
    path = tmp_path / "program"
    path.write_bytes(b"\x7fELF" + bytes(100))
    with pytest.raises(TraceError, match="is not a script") as refused:
        commands.run(read([str(path)]))
    assert refused.value.hints == (f"-c {path} runs a program and traces it",)
    path.write_bytes(b"\x89PNG\r\n" + bytes(100))
    with pytest.raises(TraceError, match="is not a script"):
        commands.run(read([str(path)]))


def test_both_forms_of_a_compiled_file_are_known(tmp_path: Path) -> None:
    script = CompiledScript(b"ELF", Manifest((), (), (), ("s",), Config()))
    for data in (script.to_bytes(), script.to_bytes(executable=True)):
        assert is_compiled(data)
        assert CompiledScript.from_bytes(data) == script
    assert script.to_bytes(executable=True).startswith(INTERPRETER + MAGIC)
    assert not is_compiled(b"#!/usr/bin/env pytrace\nbegin { }")


def test_damaged_compiled_files() -> None:
    data = CompiledScript(b"ELF", Manifest((), (), (), (), Config())).to_bytes()
    with pytest.raises(TraceError, match="truncated"):
        CompiledScript.from_bytes(data[: len(MAGIC) + 30])
    with pytest.raises(TraceError, match="damaged"):
        CompiledScript.from_bytes(data[:-1])
    with pytest.raises(TraceError, match="not a compiled"):
        CompiledScript.from_bytes(b"ELF")
    other = MAGIC + b"\xff" + data[len(MAGIC) + 1 :]
    with pytest.raises(TraceError, match="another version"):
        CompiledScript.from_bytes(other)


def test_a_listing_of_a_name_that_is_no_utf8(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(read(["-l", os.fsdecode(b"sched.\xd4")])) == 0
    assert capsys.readouterr().err == (
        "WARNING: there is no file 'sched.\\xd4', so it is used as a pattern of probe names\n"
        "WARNING: nothing matches 'sched.\\xd4'\nHINT: * matches any text: '*sched.\\xd4*'\n"
    )


@pytest.mark.parametrize(
    ("pattern", "warned"),
    [("kprobe:vfs_read", "kprobe"), ("t:a:b,kr:vfs_*", "kretprobe"), ("fexit:vmlinux:x", "fexit"), ("vfs_*", ""),
     ("t:sched:*", ""), ("uprobe:libc:malloc", "")],
)  # fmt: skip
def test_listed_functions_that_cannot_be_probed_are_told(pattern: str, warned: str) -> None:
    none, every = RecordedKernel(features=frozenset()), RecordedKernel(features=frozenset({"kprobe", "fentry"}))
    (text,) = commands._unattachable(pattern, none) if warned else ("",)
    assert text == (f"this kernel has no {warned} probes: they are listed, but cannot be attached" if warned else "")
    assert not list(commands._unattachable(pattern, every))
