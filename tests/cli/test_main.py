"""Tests of the command line's entry point: exit statuses, messages, imports."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

import pytrace
from pytrace import pipeline
from pytrace.cli import debugging, info, main
from pytrace.cli.options import read
from pytrace.cli.request import Script
from pytrace.codegen.lower import generator
from pytrace.core.diagnostics import Diagnostics, InternalError, Interrupted, ScriptError, TraceError
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
from pytrace.core.options import CompileOptions, Config, RunOptions
from pytrace.core.probe_kinds import NoTarget, TimerTarget
from pytrace.core.source import Source
from pytrace.frontend.syntax import parser
from pytrace.pipeline import Compilation, Watch
from pytrace.runtime.binaries import kernel_types
from pytrace.runtime.load import features
from pytrace.runtime.machine import libbpf, privileges
from tests.support.facts import RecordedKernel
from tests.support.rows import each_row


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test run keeps its own name."""
    monkeypatch.setattr(main, "_name_process", lambda: None)
    monkeypatch.delenv("PYTRACE_TRACEBACK", raising=False)


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(_line: object) -> int:
        raise error

    monkeypatch.setattr(main, "run", run)


def test_help_and_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--help"]) == 0
    assert "--aot" in capsys.readouterr().out
    assert main.main(["-V"]) == 0
    assert capsys.readouterr().out == f"pytrace {pytrace.__version__}\n"
    monkeypatch.setattr(sys, "argv", ["/opt/bin/bpftrace", "--version"])
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out == f"bpftrace v0.27.1 (pytrace {pytrace.__version__})\n"


@each_row(
    ("error", "status", "said"),
    [
        (TraceError("it failed", hints=("do this", "or that")), 1, r"ERROR: it failed\nHINT: do this\nHINT: or that\n"),
        (ScriptError(), 1, ""),
        (KeyboardInterrupt(), 130, ""),
        (Interrupted(signal.SIGTERM), 143, ""),
        (Interrupted(signal.SIGHUP), 129, ""),
        (InternalError("x"), 2, "BUG: "),
        (ValueError("odd"), 2, r"BUG: ValueError: odd \(test_main.py:(?!(?s:.*)Traceback)"),
    ],
)
def test_exit_statuses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, status: int, said: str
) -> None:
    failing(monkeypatch, error)
    assert main.main(["-e", "begin { }"]) == status
    assert re.match(said, capsys.readouterr().err)


def test_files_of_the_package_that_are_gone_are_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, ModuleNotFoundError("No module named 'pytrace.render.text'"))
    assert main.main(["-q"]) == 1
    text = capsys.readouterr().err
    assert text.startswith("ERROR: a part of pytrace is missing: No module named 'pytrace.render.text'\n")
    assert "upgraded or removed" in text
    monkeypatch.setitem(sys.modules, "pytrace.base.cgroups", None)
    monkeypatch.delattr("pytrace.base.cgroups", raising=False)
    failing(monkeypatch, MemoryError())
    assert main.main(["-q"]) == 1
    assert "a part of pytrace is missing: " in capsys.readouterr().err


@pytest.mark.parametrize("state", ["missing", "empty"])
def test_a_kernel_without_type_information_is_named(
    state: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    types = tmp_path / "vmlinux"
    if state == "empty":
        types.write_bytes(b"")
    monkeypatch.setattr(kernel_types, "SYSTEM_BTF", str(types))
    monkeypatch.setattr(kernel_types, "_SEARCH", ())
    for variable in ("PYTRACE_BTF", "BPFTRACE_BTF"):
        monkeypatch.delenv(variable, raising=False)

    def said(text: str, *, tool: bool) -> tuple[str, str]:
        script = Script(Source("x.bt", text), (), (), False)
        with pytest.raises((TraceError, ScriptError)) as caught:
            main.compile_script(script, CompileOptions(), RunOptions(), tool=tool)
        return str(caught.value), capsys.readouterr().err

    uses_type = "begin { print(((struct open_how *)0)->flags); }"
    message, diagnostics = said(uses_type, tool=True)
    assert f"{types} is {state}" in message
    assert "CONFIG_DEBUG_INFO_BTF=y" in message
    assert diagnostics == ""
    message, diagnostics = said(uses_type, tool=False)
    assert f"{types} is {state}" in message
    assert "unknown struct 'open_how'" in diagnostics
    assert said("begin { foo(", tool=False)[0] == ""
    # As programs that trace by a script of pytrace's own: why, calls.
    with pytest.raises(TraceError, match=f"{types} is {state}"):
        pytrace.compile(uses_type, cached=False)
    assert not features.task_work()
    monkeypatch.setenv("PYTRACE_BTF", str(types))
    assert said(uses_type, tool=False)[0].startswith("PYTRACE_BTF names a")


def test_a_live_view_needs_textual(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("pytrace.live.terminal.check", lambda: None)
    monkeypatch.setattr("pytrace.live.terminal.find_spec", lambda _: None)
    assert main.main(["--live", "-e", "begin { }"]) == 1
    assert capsys.readouterr().err.startswith("ERROR: --live needs the Python package textual\nHINT: ")


def test_tracebacks_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTRACE_TRACEBACK", "1")
    failing(monkeypatch, ValueError("odd"))
    with pytest.raises(ValueError, match="odd"):
        main.main(["-q"])


def imported(*arguments: str) -> set[str]:
    """Names of the packages that a command line imports."""
    code = (
        "import sys; from pytrace.cli import main as cli; cli.main(sys.argv[1:]); "
        "print('\\n'.join(sorted({'.'.join(name.split('.')[:2]) for name in sys.modules})), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=Path(__file__).parent.parent.parent, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return set(done.stderr.split())


def test_help_imports_no_room() -> None:
    packages = {name for name in imported("--help") if name.startswith(("pytrace.", "llvmlite", "ply"))}
    assert not packages & {"pytrace.frontend", "pytrace.codegen", "pytrace.runtime", "llvmlite", "ply"}


def test_the_formatter_needs_no_code_generator() -> None:
    packages = imported("--fmt", "-e", "begin { }")
    assert "pytrace.frontend" in packages
    assert not {"pytrace.codegen", "pytrace.runtime", "llvmlite"} & packages


SLOW_TO_IMPORT = {"pathlib", "difflib", "llvmlite", "ply", "clang"}
"""Modules that would cost every start milliseconds, and that no start from the cache and no listing needs."""


@pytest.mark.parametrize("operand", ["interval:*", "kprobe:vfs_read"])
def test_a_listing_imports_nothing_slow(operand: str) -> None:
    assert not SLOW_TO_IMPORT & imported("-l", operand)


def command(*arguments: str, out: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """The installed command in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-c", "from pytrace.cli import main; main.command()", *arguments],
        cwd=Path(__file__).parent.parent.parent, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        env=environment,
    )  # fmt: skip


def test_the_command_ends_with_its_status_and_all_that_was_printed() -> None:
    done = command("--version")
    assert (done.returncode, done.stdout) == (0, f"pytrace {pytrace.__version__}\n")
    assert command("--no-such-option").returncode == 1


def test_output_that_cannot_be_written_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        for arguments in (("--version",), ("-l", "interval:*")):
            done = command(*arguments, out=full.fileno())
            assert done.returncode == 1
            assert done.stderr == "ERROR: cannot write output: No space left on device\n"


# ---------------------------------------------------------------------------------------------- entry
# pytrace.cli.entry: Ctrl-C from the first statement on, and a start without memory.


ROOT = Path(__file__).resolve().parents[2]

WATCH = """
import signal
from pytrace.cli import main
main.command = lambda *_: print(signal.getsignal(signal.SIGINT).name)
"""


def run(text: str) -> subprocess.CompletedProcess[str]:
    """Run Python code, and then the command line."""
    code = f"{text}\nfrom pytrace.cli.entry import command\ncommand()\n"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("before", "action"),
    [("", "SIG_DFL"), ("signal.signal(signal.SIGINT, signal.SIG_IGN)", "SIG_IGN")],
    ids=["default", "ignored"],
)
def test_an_interrupt_ends_the_process_unless_it_was_ignored(before: str, action: str) -> None:
    done = run(f"{WATCH}\n{before}")
    assert done.stdout == f"{action}\n", done.stderr


def test_nothing_of_the_library_is_imported_before_an_interrupt_is_silent() -> None:
    """Ctrl-C inside of Python's `signal` and `enum` showed a traceback."""
    code = "import sys; before = set(sys.modules); import pytrace.cli.entry; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["__future__", "pytrace", "pytrace.cli", "pytrace.cli.entry"], done.stderr


def test_no_memory_at_all() -> None:
    done = run("from pytrace.cli import main\ndef command(*_):\n    raise MemoryError\nmain.command = command")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "ERROR: out of memory\n")


@pytest.mark.parametrize("words", [("-m", "pytrace"), ("-c", "from pytrace.cli.entry import command; command()")])
def test_ways_to_start_it(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, *words, "--version"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("pytrace ")


def test_the_package_installs_the_command() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"] == {
        "pytrace": "pytrace.cli.entry:command"
    }


# ---------------------------------------------------------------------------------------------- pages


@pytest.mark.parametrize(
    ("words", "pager", "output"),
    [
        (("--help",), "sed s/^pytrace/paged/", r"paged traces"),
        (("help", "why"), "head -n 1", r".*\r\n"),
        (("lsp", "--help"), "sed s/^pytrace/paged/", r"usage: pytrace lsp"),  # it fits
        (("--help",), "no-such-pager", r".*not found\r\npytrace traces"),
        (("--help",), "", r"pytrace traces"),
    ],
    ids=["long", "ends early", "short", "missing", "no terminal"],
)
def test_help_that_does_not_fit_the_terminal_goes_to_the_pager(words: tuple[str, ...], pager: str, output: str) -> None:
    environment = dict(os.environ, PAGER=pager or "sed s/^pytrace/paged/", TERM="xterm")
    command = [sys.executable, "-m", "pytrace", *words]
    if not pager:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
        assert re.match(output, done.stdout)
        return
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        written = b""
        with suppress(OSError):  # the other end is closed
            while data := os.read(ours, 1 << 16):
                written += data
    os.close(ours)
    assert child.returncode == 0
    assert re.match(output, written.decode())
    assert words[0] != "help" or written.count(b"\n") == 1


# ---------------------------------------------------------------------------------------------- stages
# Tests of the stages that ``-d`` shows.


TEXT = "tracepoint:sched:sched_wakeup /pid > 1/ { $x = args.pid; @m[$x] = count(); }"


def compilation(watch: Watch | None = None) -> Compilation:
    return Compilation(Source("stdin", TEXT), CompileOptions(), RecordedKernel(), Diagnostics(), watch)


def test_the_tree_shows_one_node_a_line() -> None:
    lines = debugging.tree(parser.parse(Source("stdin", TEXT), Diagnostics())).splitlines()
    assert lines[0].startswith("Program")
    assert "    AttachPoint text='tracepoint:sched:sched_wakeup' name=None options=()" in lines
    assert any(line.strip() == "Variable name='x'" for line in lines)
    assert not any("span" in line for line in lines)


def test_children_are_indented_below_their_node() -> None:
    lines = debugging.tree(parser.parse(Source("stdin", TEXT), Diagnostics())).splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip().startswith("MapIndex"))
    indent = len(lines[at]) - len(lines[at].lstrip())
    assert lines[at + 1] == " " * (indent + 2) + "MapRef name='@m'"


def test_the_typed_tree_has_types_of_expressions_and_maps() -> None:
    text = debugging.typed(pipeline.front_end(compilation()).checked)
    assert "map @m[int64]: count_t (percpuhash, 4096)" in text or "map @m[int32]: count_t (percpuhash, 4096)" in text
    assert "Identifier name='pid' : uint32" in text
    assert "(tracepoint:sched:sched_wakeup)" in text


def test_only_the_stages_that_were_asked_for_are_shown() -> None:
    out = io.StringIO()
    pipeline.front_end(compilation(debugging.front_end_watch(frozenset({"types"}), out)))
    assert out.getvalue().count("== ") == 1
    assert "== programs with types" in out.getvalue()


def test_code_of_the_back_end() -> None:
    found, out = compilation(), io.StringIO()
    texts = generator.llvm_texts(pipeline.front_end(found).checked, found.kernel, found.options, verify=True)
    debugging.show_back_end(texts, frozenset({"ir", "ir-opt", "asm"}), out)
    first, second, third = out.getvalue().split("\n== ")[1:]
    assert first.startswith("LLVM code\n")
    assert "alloca" in first
    assert second.startswith("LLVM IR, optimised\n")
    assert len(second) < len(first)
    assert third.startswith("BPF code\n")
    assert "\n\texit\n" in third


def test_stages_stay_out_of_json() -> None:
    assert debugging.shown_on(RunOptions()) is sys.stdout
    assert debugging.shown_on(RunOptions(format="json")) is sys.stderr


# ---------------------------------------------------------------------------------------------- commands
# Tests of the run modes that need no kernel.


def test_formatting(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    script = tmp_path / "a.bt"
    script.write_text("begin{print(1)}")
    assert main.run(read(["--fmt", str(script)])) == 0
    text = capsysbinary.readouterr().out
    assert b"begin" in text
    assert b"print(1)" in text
    assert main.run(read(["--fmt", "-o", str(script), str(script)])) == 0
    assert script.read_bytes() == text


def test_formatting_a_wrong_script(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ScriptError):
        main.run(read(["--fmt", "-e", "begin {"]))
    assert "ERROR" in capsys.readouterr().err


def test_help_of_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "a.bt"
    script.write_text('begin { print(getopt("least", 5, "the least")); }')
    assert main.run(read([str(script), "--", "--help"])) == 0
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
    assert main.run(read([path, "--", "--help"])) == 0
    assert capsys.readouterr().out == f"parameters of {path}:\n  --x\n"


@pytest.mark.parametrize("options", [["--aot", "y"], ["--emit-elf", "y"], ["-I", "/x"], ["-k"], ["--include", "x.h"]])
def test_compiling_a_compiled_file(tmp_path: Path, options: list[str]) -> None:
    with pytest.raises(TraceError, match=f"already compiled; give {options[0]}"):
        main.run(read([*options, compiled(tmp_path)]))


@pytest.mark.parametrize(
    "options", [["--fmt"], ["--mode", "codegen"], ["--mode", "compiler-bench"], ["--verify-llvm-ir"], ["-d", "ast"]]
)
def test_a_compiled_file_has_no_text(tmp_path: Path, options: list[str]) -> None:
    """What needs the script says so, and nothing is written over the file."""
    path = compiled(tmp_path)
    before = Path(path).read_bytes()
    with pytest.raises(TraceError, match=" needs the script that it was made from"):
        main.run(read([*options, "-o", path, path]))
    assert Path(path).read_bytes() == before


def test_probes_of_a_compiled_file_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begin = Target("begin", 0, NoTarget())
    timers = tuple(Target(f"interval:s:{n}", n - 1, TimerTarget(period_ns=n * 10**9)) for n in (1, 2))
    place = Location("x", 1, 1)
    programs = (ProgramSpec("p0", "begin", 0, (begin,), place), ProgramSpec("p1", "interval", 1, timers, place))
    path = tmp_path / "listed"
    path.write_bytes(CompiledScript(b"ELF", Manifest(programs, (), (), (), Config())).to_bytes())
    assert main.run(read(["-l", str(path)])) == 0
    assert capsys.readouterr().out == "begin\ninterval:s:1\ninterval:s:2\n"


def test_a_program_is_no_script(tmp_path: Path) -> None:
    """Who forgot -c is not shown the program's bytes."""
    path = tmp_path / "program"
    path.write_bytes(b"\x7fELF" + bytes(100))
    with pytest.raises(TraceError, match="is not a script") as refused:
        main.run(read([str(path)]))
    assert refused.value.hints == (f"-c {path} runs a program and traces it",)
    path.write_bytes(b"\x89PNG\r\n" + bytes(100))
    with pytest.raises(TraceError, match="is not a script"):
        main.run(read([str(path)]))


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
    assert main.run(read(["-l", os.fsdecode(b"sched.\xd4")])) == 0
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
    (text,) = main._unattachable(pattern, none) if warned else ("",)
    assert text == (f"this kernel has no {warned} probes: they are listed, but cannot be attached" if warned else "")
    assert not list(main._unattachable(pattern, every))


# ---------------------------------------------------------------------------------------------- info
# Tests of the report of ``--info``.


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(features, "has", lambda name: name != "kprobe")
    return info.report(frozenset({"fentry"}))


def test_every_feature_is_there_once(report: str) -> None:
    assert {name: report.count(f"  {name}: ") for name in features.FEATURES} == dict.fromkeys(features.FEATURES, 1)
    listed = [name for _, names in info._SECTIONS for name in names]
    assert len(listed) == len(set(listed))
    assert set(listed) <= set(features.FEATURES)


def test_it_begins_with_a_verdict(report: str) -> None:
    title, works, lacks, needs, _ = report.split("\n", 4)
    assert title == "What can be traced here"
    assert works.startswith("  works: tracepoints, functions of the kernel (kprobe), functions and USDT probes of ")
    assert lacks == "  does not work: the same with typed arguments (fentry)"
    assert needs.startswith("  what it takes: fentry: a kernel with CONFIG_DEBUG_INFO_BTF")
    last = report.splitlines()[-1]
    assert last.startswith("In short: all works here but fentry")
    assert last.endswith(("; no command changes that", "; next: mount -t tracefs tracefs /sys/kernel/tracing"))


def test_nothing_is_traced_without_privileges(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel lacks is not known then: rights come first, and are all that is named."""
    def refuse() -> None:
        raise TraceError("root is needed", hints=("sudo",))

    monkeypatch.setattr(features, "has", lambda _: False)
    monkeypatch.setattr(privileges, "check", refuse)
    _, works, lacks, needs, rest = info.report().split("\n", 4)
    assert rest.endswith("\nIn short: nothing can be traced: root is needed; sudo\n")
    assert works == "  works: compiling, formatting and editing scripts; results that were saved"
    assert lacks == "  does not work: root is needed"
    assert needs == "  what it takes: sudo"


def test_json_has_the_same_answers(monkeypatch: pytest.MonkeyPatch, report: str) -> None:
    message = json.loads(info.json_report(frozenset({"fentry"})))
    assert message["type"] == "info"
    data = message["data"]
    assert list(data) == [
        "what_can_be_traced_here", "system", "privileges", "build", "kernel_helpers", "kernel_features", "probe_types",
    ]  # fmt: skip
    assert (data["probe_types"]["kprobe"], data["probe_types"]["uprobe"]) == (False, True)
    assert data["probe_types"]["fentry"] == "switched off"
    words = {True: "yes", False: "no"}
    assert data["system"]["CPUs"] == os.cpu_count()
    rows = [row for section in data.values() for row in section.items()]
    lines = [f"  {name}: {words[value] if isinstance(value, bool) else value}" for name, value in rows]
    assert lines == [line for line in report.splitlines() if line.startswith("  ")]


@pytest.mark.parametrize(("held", "answer"), [
    ({"CAP_BPF", "CAP_PERFMON"}, "no (tracing needs root, or CAP_DAC_READ_SEARCH, which "), (None, "yes"),
])  # fmt: skip
def test_privileges_say_what_is_missing(monkeypatch: pytest.MonkeyPatch, held: set[str] | None, answer: str) -> None:
    monkeypatch.setattr(features, "has", lambda name: True)
    names = privileges.CAPABILITIES if held is None else held
    monkeypatch.setattr(privileges, "effective_capabilities", lambda: frozenset(names))
    monkeypatch.setattr(privileges, "check_bpf", lambda: None)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    report = info.report()
    assert f"  tracing: {answer}" in report
    enough = "yes" if held is None else "no (lacks CAP_DAC_READ_SEARCH)"
    assert f"  every run (CAP_BPF, CAP_PERFMON, CAP_DAC_READ_SEARCH): {enough}\n" in report
    assert f"  CAP_SYSLOG: {'yes' if held is None else 'no'}\n" in report
    assert held is None or "CAP_DAC_READ_SEARCH" in report.split("  tracing: ")[1]


def test_a_machine_without_libbpf(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise TraceError("libbpf.so.1 is not there")

    monkeypatch.setattr(libbpf, "version", missing)
    monkeypatch.setattr(features, "has", lambda name: False)
    assert "  libbpf: libbpf.so.1 is not there\n" in info.report()


@pytest.mark.parametrize(("machine", "answer"), [("x86_64", "yes"), ("aarch64", "no (x86-64 only)")])
def test_the_unwinder_knows_one_machine(monkeypatch: pytest.MonkeyPatch, machine: str, answer: str) -> None:
    monkeypatch.setattr(features, "has", lambda name: True)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert f"  dwunwind (DWARF stack unwinding): {answer}\n" in info.report()


LINES = [
    "kprobe: no", "libdw (DWARF support): yes", "libsystemd (systemd notify support): yes", "bfd: no",
    "libdebuginfod (debuginfod support): yes", "blazesym (advanced symbolization): yes",
    "dpath: yes", "get_tai_ns: yes", "get_func_ip: yes", "lookup_percpu_elem: yes", "get_boot_ns: yes",
    "get_ktime_ns: yes", "bcc library path resolution: yes",
    "probe_read_kernel: yes", "send_signal: yes", "override_return: yes", "jiffies64: yes", "skboutput: yes",
    "Instruction limit: 1000000", "Loop support: yes", "btf: yes", "module btf: yes", "map batch: yes",
    "kprobe_multi: yes", "uprobe_multi: yes", "kprobe_session: yes", "iter: yes", "uprobe: yes", "fentry: switched off",
]  # fmt: skip


def test_lines_that_suites_and_reports_look_for(report: str) -> None:
    """By these bpftrace's own test suite and others decide what to run."""
    assert [line for line in LINES if report.count(f"  {line}\n") != 1] == []
    assert "\nBuild\n  version: " in report
    assert "  llvmlite: " in report


def test_other_names_follow_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "has", lambda name: False)
    text = info.report()
    for line in ("dpath: no", "Instruction limit: 4096", "Loop support: no", "module btf: no", "kprobe_multi: no"):
        assert f"  {line}\n" in text
    assert {name for rows in info._BPFTRACE_NAMES.values() for _, name in rows} <= set(features.FEATURES)
