"""Tests of the command line's entry point: exit statuses, messages, imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pytrace
from pytrace.cli import commands, main
from pytrace.core.diagnostics import InternalError, Interrupted, ScriptError, TraceError


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test run keeps its own name."""
    monkeypatch.setattr(main, "_name_process", lambda: None)
    monkeypatch.delenv("PYTRACE_TRACEBACK", raising=False)


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(_line: object) -> int:
        raise error

    monkeypatch.setattr(commands, "run", run)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "--aot FILE" in text or "--aot" in text
    assert main.main(["-V"]) == 0
    assert capsys.readouterr().out == f"pytrace {pytrace.__version__}\n"


def test_the_version_under_the_name_of_bpftrace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/bin/bpftrace", "--version"])
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out == f"bpftrace v0.27.1 (pytrace {pytrace.__version__})\n"


def test_unknown_options_are_mistakes_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--no-such-option"]) == 1
    assert capsys.readouterr().err.startswith("ERROR: ")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (TraceError("no"), 1),
        (ScriptError(), 1),
        (KeyboardInterrupt(), 130),
        (Interrupted(signal.SIGTERM), 143),
        (Interrupted(signal.SIGHUP), 129),
        (InternalError("x"), 2),
        (KeyError(1), 2),
    ],
)
def test_exit_statuses(monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int) -> None:
    failing(monkeypatch, error)
    assert main.main(["-e", "begin { }"]) == status


def test_hints_follow_the_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failing(monkeypatch, TraceError("it failed", hints=("do this", "or that")))
    main.main(["-q"])
    assert capsys.readouterr().err == "ERROR: it failed\nHINT: do this\nHINT: or that\n"


def test_bugs_say_where_and_show_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, ValueError("odd"))
    main.main(["-q"])
    text = capsys.readouterr().err
    assert text.startswith("BUG: ValueError: odd (test_main.py:")
    assert "Traceback" not in text


def test_files_of_the_package_that_are_gone_are_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, ModuleNotFoundError("No module named 'pytrace.render.text'"))
    assert main.main(["-q"]) == 1
    text = capsys.readouterr().err
    assert text.startswith("ERROR: a part of pytrace is missing: No module named 'pytrace.render.text'\n")
    assert "upgraded or removed" in text
    monkeypatch.setitem(sys.modules, "pytrace.core.limits", None)
    monkeypatch.delattr("pytrace.core.limits", raising=False)
    failing(monkeypatch, ValueError("odd"))
    assert main.main(["-q"]) == 1
    assert "a part of pytrace is missing: " in capsys.readouterr().err


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
