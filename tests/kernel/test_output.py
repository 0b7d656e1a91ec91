"""Output of real runs: snapshots, policies at the end of a pipe, hot probes, files that a run writes."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machine import need
from tests.support.patience import patience
from tests.support.programs import build

pytestmark = pytest.mark.usefixtures("no_leaks")

CALLS = 40_000


def tracer(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytrace", *arguments]


@pytest.fixture(scope="module")
def syscalls() -> Path:
    return build() / "syscalls"


def test_print_and_clear_counts_each_update_once(syscalls: Path) -> None:
    maps = {"@count": "count()", "@sum": "sum(1)", "@hist": "hist(1)", "@stats": "stats(1)"}
    updates = " ".join(f"{name} = {value};" for name, value in maps.items())
    script = (
        f"tracepoint:syscalls:sys_enter_getppid /pid == cpid/ {{ {updates} }} "
        f"interval:ms:2 {{ {' '.join(f'print_clear({name});' for name in maps)} }}"
    )
    done = subprocess.run(
        tracer("-q", "-f", "json", "-e", script, "-c", f"{syscalls} {CALLS}"),
        capture_output=True, text=True, timeout=patience(60), check=True,
    )  # fmt: skip
    printed: dict[str, list[int]] = {name: [] for name in maps}
    for line in done.stdout.splitlines():
        for name, value in json.loads(line)["data"].items():
            if name == "@hist":
                printed[name].append(sum(bucket["count"] for bucket in value))
            else:
                printed[name].append(value["count"] if name == "@stats" else value)
    assert {name: sum(counts) for name, counts in printed.items()} == dict.fromkeys(maps, CALLS)
    assert min(map(len, printed.values())) > 1, "something was printed while calls were counted"


def test_the_line_policy_shows_sparse_output_at_once() -> None:
    """A line is there before anything else happens that could take it along."""
    program = f't:syscalls:sys_enter_getppid /pid == {os.getpid()}/ {{ printf("tick %d\\n", @n); @n++; }}'
    child = subprocess.Popen(tracer("-e", program), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        assert child.stderr.readline() == "Attached 1 probe\n"
        for number in range(4):
            os.getppid()
            assert select.select([child.stdout], [], [], patience(30))[0]
            assert child.stdout.readline() == f"tick {number}\n"
    finally:
        child.terminate()
        rest, _ = child.communicate(timeout=patience(20))
    assert rest == "\n\n@n: 4\n"


EVIL = """
import ctypes, os
ctypes.CDLL(None).prctl(15, b"\\x1b[2J\\x07\\xc2\\x9b\\x9bx", 0, 0, 0)
os.path.exists(b"/nowhere/\\x1b]0;x\\x07\\xff\\x9b\\n")
"""
ON_A_TERMINAL = """
t:syscalls:sys_enter_newfstatat /pid == cpid && strncmp(str(args.filename), "/nowhere", 8) == 0/ {
  printf("\\x1b[1m%s|%-30s|%c\\n", comm, str(args.filename), 27);
  print((comm, 1));
  @[comm] = str(args.filename);
  row((name=comm, path=str(args.filename)));
  warnf("%s", comm);
  cat("FILE");
}
"""


def on_terminal(*arguments: str) -> bytes:
    """What a run writes to a terminal, which both streams are."""
    main, terminal = os.openpty()
    child = subprocess.Popen(tracer("-q", *arguments), stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal)
    os.close(terminal)
    found = b""
    try:
        while part := os.read(main, 1 << 16):
            found += part
    except OSError:  # EIO: all who had it open have ended
        pass
    os.close(main)
    assert child.wait(timeout=patience(20)) == 0
    return found.replace(b"\r\n", b"\n")


HISTOGRAM = "begin { @ = hist(5); @ = hist(40); @ = hist(41); @l[1] = lhist(3, 0, 10, 5); exit(); }"


def histogram_on_terminal(monkeypatch: pytest.MonkeyPatch, *options: str, **environment: str) -> str:
    """A map of histograms as a terminal gets it, with *environment* in place of what says how it is shown."""
    for name in ("NO_COLOR", "PYTRACE_COLOR", "BPFTRACE_COLOR", "LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", "LANG": "en_US.UTF-8", **environment}.items():
        monkeypatch.setenv(name, value)
    return on_terminal(*options, "-e", HISTOGRAM).decode()


def test_a_terminal_gets_bars_of_blocks_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    found = histogram_on_terminal(monkeypatch)
    assert f"[4, 8)                 1 |\x1b[36m{'█' * 26:<52}\x1b[0m|\n" in found
    assert f"[32, 64)               2 |\x1b[36m{'█' * 52}\x1b[0m|\n" in found
    assert f"[0, 5)                 1 |\x1b[36m{'█' * 52}\x1b[0m|\n" in found


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (("--plain",), {}), ((), {"NO_COLOR": "1"}), ((), {"LC_ALL": "C"}), ((), {"LANG": ""}), ((), {"TERM": "dumb"}),
    ],
)  # fmt: skip
def test_a_plain_terminal_gets_the_text_of_a_pipe(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], environment: dict[str, str]
) -> None:
    piped = subprocess.run(tracer("-q", "-e", HISTOGRAM), capture_output=True, check=True).stdout.decode()
    assert "[4, 8)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n" in piped
    assert histogram_on_terminal(monkeypatch, *options, **environment) == piped


@pytest.fixture
def evil(tmp_path: Path) -> tuple[str, str]:
    """A script, and a command whose name and paths a terminal would obey."""
    (tmp_path / "evil.py").write_text(EVIL)
    (tmp_path / "content").write_bytes(b"two\x1b[2J\nlines\n")
    return ON_A_TERMINAL.replace("FILE", f"{tmp_path}/content"), f"{sys.executable} {tmp_path}/evil.py"


def test_traced_data_does_not_control_a_terminal(evil: tuple[str, str]) -> None:
    script, command = evil
    text = on_terminal("-e", script, "-c", command)
    name, path = b"\\x1b[2J\\x07\\x9b\\x9bx", b"/nowhere/\\x1b]0;x\\x07\\xff\\x9b\\x0a"
    assert b"\x1b[1m%s|%s|\\x1b\n(%s, 1)\n" % (name, path, name) in text
    assert b"@[%s]: %s" % (name, path) in text
    assert b"two\\x1b[2J\nlines\n" in text
    for sign in (b"\x1b[2J", b"\x07", b"\xc2\x9b", b"\x9b"):
        assert sign not in text


def test_json_and_csv_do_not_control_a_terminal(evil: tuple[str, str]) -> None:
    script, command = evil
    for form, path in (
        ("json", b'"/nowhere/\\u001b]0;x\\u0007\\uffffffff\\uffffff9b\\n"'),
        ("csv", b'"/nowhere/\\x1b]0;x\\x07\\xff\\x9b\n"'),
    ):
        text = on_terminal("-f", form, "-e", script, "-c", command)
        assert path in text
        for sign in (b"\x1b[2J", b"\x1b]", b"\x07", b"\xc2\x9b", b"\x9b"):
            assert sign not in text


def test_raw_output_on_a_terminal_is_that_of_a_pipe(evil: tuple[str, str]) -> None:
    script, command = evil
    text = on_terminal("--raw", "-e", script, "-c", command)
    assert b"@[\x1b[2J\x07\xc2\x9b\x9bx]: /nowhere/\x1b]0;x\x07\xff\x9b" in text
    assert b"two\x1b[2J\nlines\n" in text
    piped = subprocess.run(tracer("-q", "-e", script, "-c", command), capture_output=True, check=True).stdout
    assert b"@[\x1b[2J\x07\xc2\x9b\x9bx]: /nowhere/\x1b]0;x\x07\xff\x9b" in piped


def test_snapshots_of_runs_on_terminals_have_the_bytes(evil: tuple[str, str], tmp_path: Path) -> None:
    script, command = evil
    saved = str(tmp_path / "x.pts")
    on_terminal("--save", saved, "-e", script, "-c", command)
    shown = subprocess.run(tracer("show", saved), capture_output=True, check=True).stdout
    assert b"@[\x1b[2J\x07\xc2\x9b\x9bx]: /nowhere/\x1b]0;x\x07\xff\x9b" in shown
    assert b"\x1b" not in _shown_on_terminal(saved)


def _shown_on_terminal(saved: str) -> bytes:
    main, terminal = os.openpty()
    subprocess.run(tracer("show", saved), stdout=terminal, check=True)
    os.close(terminal)
    text = os.read(main, 1 << 16)
    os.close(main)
    return text


# ---------------------------------------------------------------------------------------------- hot probes
# The question before probes that are hit very often, at a terminal and elsewhere.


HOT_CALLS = 100
SCRIPT = "tracepoint:raw_syscalls:sys_enter /pid == cpid && args.id == 110/ { @ = count(); }"
"""Number 110 is getppid on x86-64; the trial counts the calls of all processes."""
QUESTION = re.compile(r"1 probe \(all system calls\): [\d,]+ hits per second in a trial of .*, which cost about \d+%")


@pytest.fixture
def busy(no_leaks: None) -> Iterator[None]:
    """A process that makes very many system calls."""
    process = subprocess.Popen(
        ["timeout", "60", "dd", "if=/dev/zero", "of=/dev/null", "bs=1"], stderr=subprocess.DEVNULL
    )
    yield
    process.terminate()
    process.wait()


def at_terminal(programs: Path, answer: str, *words: str) -> tuple[int, str, str]:
    """Run pytrace with a terminal as standard input and error. Returns status, output, and what the terminal shows."""
    leader, follower = pty.openpty()
    argv = [sys.executable, "-m", "pytrace", *words, "-e", SCRIPT, "-c", f"{programs}/flood {HOT_CALLS}"]
    tracer = subprocess.Popen(argv, stdin=follower, stdout=subprocess.PIPE, stderr=follower, text=True)
    os.close(follower)
    shown, end = b"", time.monotonic() + patience(60)
    while time.monotonic() < end:
        try:
            data = os.read(leader, 4096)
        except OSError:  # the other end is closed
            break
        shown += data
        if b"[y/N] " in shown and answer:
            os.write(leader, answer.encode())
            answer = ""
    output, _ = tracer.communicate(timeout=patience(20))
    os.close(leader)
    return tracer.returncode, output, shown.decode()


@pytest.mark.usefixtures("busy")
def test_yes_traces_and_nothing_of_the_trial_is_in_the_results(programs: Path) -> None:
    status, output, shown = at_terminal(programs, "y\n")
    assert QUESTION.search(shown), shown
    assert (status, output.splitlines()[-1]) == (0, f"@: {HOT_CALLS}")


@pytest.mark.usefixtures("busy")
def test_no_traces_nothing(programs: Path) -> None:
    status, output, shown = at_terminal(programs, "n\n")
    assert QUESTION.search(shown), shown
    assert (status, output) == (1, "")
    assert "nothing was traced" in shown
    assert "Attached" not in shown


@pytest.mark.usefixtures("busy")
def test_yes_on_the_command_line(programs: Path) -> None:
    status, output, shown = at_terminal(programs, "", "--yes")
    assert "Trace them" not in shown
    assert (status, output.splitlines()[-1]) == (0, f"@: {HOT_CALLS}")


@pytest.mark.usefixtures("busy")
def test_without_a_terminal_there_is_no_question(programs: Path) -> None:
    """Scripts and services run as they do with bpftrace."""
    argv = [sys.executable, "-m", "pytrace", "-e", SCRIPT, "-c", f"{programs}/flood {HOT_CALLS}"]
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience(60), check=True
    )
    assert done.stdout.splitlines()[-1] == f"@: {HOT_CALLS}"
    assert done.stderr == "Attached 1 probe\n"


# ---------------------------------------------------------------------------------------------- written files
# What a run writes, seen from outside: it runs on an overlay of the root file system, which keeps what is written.


ROOT = Path(__file__).resolve().parents[2]
OVERLAY = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs {folder}
cd {folder}
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
for place in proc sys dev; do mount --rbind /$place root/$place; done
chroot root env -u XDG_CACHE_HOME PYTHONDONTWRITEBYTECODE=1 HOME=/root sh -c {command}
cd upper
find . -not -type d
"""
"""Prints what the command prints, and then the files that it changed, made or removed."""


def written(folder: Path, *words: str) -> tuple[list[str], list[str]]:
    """Lines of the command's output, and files that it left."""
    need("overlay")
    command = f"cd {ROOT} && exec {shlex.join([sys.executable, '-m', 'pytrace', '-q', *words])}"
    script = OVERLAY.format(folder=folder, command=shlex.quote(command))
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=True, timeout=patience(60)
    )
    lines = done.stdout.split()
    return [line for line in lines if line[0] != "."], [line[1:] for line in lines if line[0] == "."]


def test_a_run_writes_what_it_was_asked_for_and_its_cache(tmp_path: Path) -> None:
    """Loading, tracing, stacks with names, a command, and the end."""
    script = 't:syscalls:sys_enter_getpgid { @[ustack(3), kstack(3), comm] = count(); } begin { print("begins"); }'
    output, files = written(tmp_path, "-e", script, "-c", "true", "-o", "/srv/out", "--save", "/srv/run.pts")
    assert output == []
    asked = {"/srv/out", "/srv/run.pts"}
    assert asked <= set(files)
    assert all(file.startswith("/root/.cache/pytrace/") for file in set(files) - asked), files


def test_an_ahead_of_time_file_is_all_that_its_compilation_writes(tmp_path: Path) -> None:
    output, files = written(tmp_path, "--aot", "/srv/script.aot", "-e", "begin { exit(); }")
    assert output == []
    assert "/srv/script.aot" in files
    assert all(file.startswith("/root/.cache/pytrace/") for file in set(files) - {"/srv/script.aot"}), files


def test_without_a_cache_nothing_is_written(tmp_path: Path) -> None:
    script = 't:syscalls:sys_enter_getpgid { @ = count(); } begin { print("begins"); }'
    output, files = written(tmp_path, "--no-cache", "-e", script, "-c", "true")
    assert output == ["begins"]
    assert not [file for file in files if "/pytrace/scripts/" in file or not file.startswith("/root/.cache/pytrace/")]
