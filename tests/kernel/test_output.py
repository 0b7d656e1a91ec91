"""Output of real runs: snapshots that lose nothing, and policies seen from the other end of a pipe."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import patience
from tests.support.programs import build

pytestmark = pytest.mark.usefixtures("no_leaks")

CALLS = 40_000


def tracer(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytrace", *arguments]


@pytest.fixture(scope="module")
def syscalls() -> Path:
    return build() / "syscalls"


@pytest.mark.parametrize("update", ["@seen = count();", "@seen = sum(1);", "@seen = hist(1);", "@seen = stats(1);"])
def test_print_and_clear_counts_each_update_once(syscalls: Path, update: str) -> None:
    script = (
        f"tracepoint:syscalls:sys_enter_getppid /pid == cpid/ {{ {update} }} "
        "interval:ms:2 { print_clear(@seen); }"
    )
    done = subprocess.run(
        tracer("-q", "-f", "json", "-e", script, "-c", f"{syscalls} {CALLS}"),
        capture_output=True, text=True, timeout=patience(60), check=True,
    )  # fmt: skip
    values = [json.loads(line)["data"]["@seen"] for line in done.stdout.splitlines()]
    if "hist" in update:
        total = sum(bucket["count"] for value in values for bucket in value)
    elif "stats" in update:
        total = sum(value["count"] for value in values)
    else:
        total = sum(values)
    assert total == CALLS
    assert len(values) > 1, "something was printed while calls were counted"


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
            assert select.select([child.stdout], [], [], patience(10))[0]
            assert child.stdout.readline() == f"tick {number}\n"
    finally:
        child.terminate()
        rest, _ = child.communicate(timeout=patience(20))
    assert rest == "\n\n@n: 4\n"


def test_a_reader_that_closes_ends_the_run() -> None:
    child = subprocess.Popen(
        tracer("-q", "-e", 'interval:ms:10 { printf("tick\\n"); }'), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"tick\n"
    child.stdout.close()
    assert child.stderr is not None
    assert child.wait(timeout=patience(20)) == 0
    assert child.stderr.read() == b""
    child.stderr.close()


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


def test_raw_output_on_a_terminal(evil: tuple[str, str]) -> None:
    script, command = evil
    text = on_terminal("--raw", "-e", script, "-c", command)
    assert b"@[\x1b[2J\x07\xc2\x9b\x9bx]: /nowhere/\x1b]0;x\x07\xff\x9b" in text
    assert b"two\x1b[2J\nlines\n" in text


def test_pipes_get_the_bytes_as_they_are(evil: tuple[str, str]) -> None:
    script, command = evil
    text = subprocess.run(tracer("-q", "-e", script, "-c", command), capture_output=True, check=True).stdout
    assert b"@[\x1b[2J\x07\xc2\x9b\x9bx]: /nowhere/\x1b]0;x\x07\xff\x9b" in text


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
