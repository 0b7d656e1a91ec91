"""How tests start pytrace, alone, together with others or as a forked child, and compile for the test machine."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytrace.cli import main
from pytrace.cli.request import Script
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions, RunOptions
from pytrace.core.source import Source
from tests.support import compile_guest, forked, server
from tests.support.patience import patience
from tests.support.programs import build
from tests.support.server import Server

SETS = (
    ("-q", "-f", "json", "-e", 'config = { max_strlen = 9 } begin { @m = str("0123456789abcdef"); exit(); }'),
    ("-q", "-e", 'begin { @m = str("0123456789abcdef"); print(@m); exit(); }'),
    ("-q", "--unsafe", "-e", 'begin { system("echo from a shell"); exit(3); }'),
    ("-q", "-e", 'begin { system("echo from a shell"); exit(); }'),
    ("-q", "-e", "macro one(x) { x + 1 } begin { print(one(1)); exit(); }"),
    ("-q", "-e", "begin { print(one(1)); exit(); }"),
    ("--no-warnings", "-e", "begin { print(-1 > (uint64)2); exit(); }"),
    ("-e", "begin { print(-1 > (uint64)2); exit(); }"),
    ("-q", "-e", 'begin { print($1); exit(); } end { printf("%d\\n", $#); }', "7"),
    ("-q", "-e", "begin { $x = $1; print($x); exit(); }"),
    ("-e", "struct task_struct { int own; } begin { print(sizeof(struct task_struct)); exit(); }"),
    ("-e", "begin { print(sizeof(struct task_struct) > 4); exit(); }"),
    ("--nonsense",),
)
"""Each sets something that the next would show if it stayed."""


def test_runs_in_one_process_leave_nothing_to_the_next(server: Server, tmp_path: Path) -> None:
    alone = [server.run(argv, environment={"XDG_CACHE_HOME": str(tmp_path / "alone")}) for argv in SETS]
    for order in (SETS, SETS[::-1]):
        results = server.run_together(order, cache=tmp_path / "together")
        assert dict(zip(order, results, strict=True)) == dict(zip(SETS, alone, strict=True))


def test_a_run_that_ends_its_process_leaves_the_rest_to_others(server: Server, tmp_path: Path) -> None:
    ends = ("-q", "--unsafe", "-e", 'begin { system("kill -9 $PPID"); exit(); }')
    first, *rest = server.run_together([SETS[1], ends, SETS[1]], cache=tmp_path)
    assert first is not None
    assert first.stdout
    assert rest == [None, None]
    again = server.run_together([SETS[1]], cache=tmp_path)
    assert again == [first]


def test_a_forked_child_is_as_a_process_of_its_own(tmp_path: Path) -> None:
    own = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "ONLY_HERE": "yes"}
    shell = ("-q", "--unsafe", "-e", 'begin { system("echo $ONLY_HERE; pwd; ls /proc/self/fd"); exit(); }')
    for argv in (*SETS[::3], shell):
        results = [
            run(
                [sys.executable, "-m", "pytrace", *argv],
                capture_output=True, text=True, env=own, cwd=tmp_path, timeout=patience(20),
            )
            for run in (forked.run, _run_process)
        ]  # fmt: skip
        first, second = ((done.returncode, done.stdout, done.stderr) for done in results)
        assert first == second, argv
    assert "ONLY_HERE" not in os.environ


def _run_process(*words: object, **named: object) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", forked.Popen.__bases__[0])
        done: subprocess.CompletedProcess[str] = subprocess.run(*words, check=False, **named)  # type: ignore[call-overload]
        return done


def test_a_forked_child_belongs_to_the_test(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pytrace", "-e", "interval:s:100 { }"]
    with forked.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True) as run:
        assert run.stderr is not None
        assert run.stderr.readline().startswith("Attached")
        stat = Path(f"/proc/{run.pid}/stat").read_text().rpartition(")")[2].split()
        assert (int(stat[1]), int(stat[2]), int(stat[3])) == (os.getpid(), run.pid, run.pid)
        assert run.poll() is None
        run.terminate()
        assert run.wait(patience(30)) in (0, -15)


def test_an_action_that_hangs_is_the_fault_of_its_run_alone(server: Server) -> None:
    words = ("-e", "begin { } interval:s:60 { }")
    began: list[int] = []
    for timeout in (0.5, 5.0, 50.0):  # of a run that is not attached by then the action never begins
        hung = server.run(
            words, while_attached=lambda run: began.append(run.pid), when_attached=("exec sleep 60",), timeout=timeout
        )
        assert hung.timed_out
        if began:
            break
    assert began
    assert not server.run(("-e", "begin { exit(); }")).status


def test_a_process_that_cannot_be_ended_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that waits for a file system (state D): it is named once, and what comes later is ended as before."""
    monkeypatch.setattr(server, "ENDING", 0.1)

    def orphans() -> list[int]:
        return [pid for pid in children if pid not in server._stuck and os.path.exists(f"/proc/{pid}")]

    monkeypatch.setattr(server, "_orphans", orphans)
    immortal, other = children = [subprocess.Popen(["sleep", "60"]).pid for _ in range(2)]
    real = os.kill
    monkeypatch.setattr(os, "kill", lambda pid, number: None if pid == immortal else real(pid, number))
    try:
        left = server._clear()
        assert left[0] == f"{immortal} sleep 60 (it cannot be ended)"
        assert left[1:] == [f"{other} sleep 60"]
        assert server._clear() == []
    finally:
        real(immortal, signal.SIGKILL)
        os.waitpid(immortal, 0)
        server._stuck.discard(immortal)


# ---------------------------------------------------------------------------------------------- compile outside
# Scripts of the test machine that are compiled outside of it: here this machine is its own guest.


ROOT = Path(__file__).resolve().parents[2]
Outside = Callable[..., tuple[bytes, bytes]]


def to_bytes(script: CompiledScript) -> bytes:
    """Without the facts about a folder that is another one for each user's cache."""
    facts = tuple(fact for fact in script.manifest.facts if "debuginfod_client" not in "".join(fact))
    return replace(script, manifest=replace(script.manifest, facts=facts)).to_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a compiler answers requests."""
    folder = tmp_path_factory.mktemp("outside")
    command = [sys.executable, "-m", "tests.support.compile_host", str(folder), "/lib/modules"]
    with subprocess.Popen(command, cwd=ROOT) as process:
        yield folder
        process.terminate()


@pytest.fixture
def both(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Outside:
    """Compiles outside and here; what both gave, as bytes (nothing for an answer that there was not)."""

    def compile_both(*words: str) -> tuple[bytes, bytes]:
        made = []
        real = main.compile_script

        def compile_script(
            script: Script, options: CompileOptions, run: RunOptions, *, tool: bool = False
        ) -> CompiledScript:
            outside = compile_guest.compiled_outside(folder, script, options, run)
            made.append(to_bytes(outside) if outside else b"")
            here = real(script, options, run, tool=tool)
            made.append(to_bytes(here))
            return here

        with monkeypatch.context() as patch:
            patch.setattr(main, "compile_script", compile_script)
            patch.setenv("XDG_CACHE_HOME", str(tmp_path))
            main.main([*words, "--no-cache", "--dry-run"])
        return made[0], made[1] if made[1:] else b""

    return compile_both


@pytest.mark.parametrize(
    "words",
    [
        ("opensnoop", "-p", "1", "-x"), ("biosnoop",), ("fsslower", "5"), ("cachestat", "1", "1"),
        ("-e", "uprobe:libc:malloc { @[ustack(1)] = count(); }"),
        ("-e", "t:sched:* { @[probe] = count(); } begin { print(kaddr(\"vfs_read\")); }"),
    ],
    ids=lambda words: words[0] if len(words[0]) > 2 else words[1].split()[0],
)  # fmt: skip
def test_the_script_is_the_same(both: Outside, words: tuple[str, ...]) -> None:
    outside, here = both(*words)
    assert outside
    assert outside == here


def test_what_only_the_guest_knows(both: Outside) -> None:
    outside, here = both("-e", "uprobe:libc:malloc { @ = count(); }", "-p", str(os.getpid()))
    assert not outside
    assert here


def test_a_file_of_a_process(both: Outside) -> None:
    """Both sides have it, if the process sees it by the same path."""
    words = ("-e", f"uprobe:{build()}/family:born {{ @ = count(); }}", "-p")
    outside, here = both(*words, str(os.getpid()))
    assert outside
    assert outside == here
    moved = "mount -t tmpfs none /mnt && echo && exec sleep 60"
    with subprocess.Popen(["unshare", "-m", "sh", "-c", moved], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        outside, here = both(*words, str(process.pid))
        process.kill()
    assert not outside
    assert here


def test_a_script_with_errors(both: Outside, capsys: pytest.CaptureFixture[str]) -> None:
    assert both("-e", "begin { print(nothing); }") == (b"", b"")
    assert "nothing" in capsys.readouterr().err


def test_a_file_that_has_changed(both: Outside, tmp_path: Path) -> None:
    """As one of the guest that is another one outside."""
    library = tmp_path / "lib.bt"
    library.write_text("begin { print(1); }")
    script = tmp_path / "script.bt"
    script.write_text('import "./lib.bt"; end { print(2); }')
    assert both(str(script))[0]
    compiled = ("file", str(library), "3", "1", "1")
    assert compile_guest.still_the_same(compiled) is None


def test_folders_that_only_the_guest_has(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory of a test, and its copies of programs. Without them, all is compiled in the guest."""
    guest = Path("/tmp/only the guest")
    copy = guest / "programs"
    monkeypatch.setenv(compile_guest.VARIABLE, str(folder))
    compile_guest.copied(copy, build())
    try:
        script = Source("stdin", f'uprobe:"{copy}/family":born {{ @ = count(); }}')
        facts = compile_guest._facts(folder)
        request = compile_guest.Request(script, CompileOptions(), RunOptions(), facts, str(guest / "test0"), {})
        answer = compile_guest.exchange(folder, pickle.dumps(request))
    finally:
        for path in folder.glob("*.copy"):
            path.unlink()
    status = (build() / "family").stat()
    known = {fact[:4] for fact in CompiledScript.from_bytes(answer).manifest.facts}
    assert ("file", f"{copy}/family", str(status.st_size), str(status.st_mtime_ns)) in known
    assert not guest.exists()


def test_nobody_answers(tmp_path: Path) -> None:
    (tmp_path / "gone").touch()
    assert compile_guest.exchange(tmp_path, b"request") == b""
