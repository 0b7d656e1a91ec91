"""Questions about processes: what ``/proc`` says, and the process that answers for a confined run."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytrace.live import inspector, processes
from pytrace.live.glyphs import Glyphs, columns
from pytrace.live.inquiry import function_rows, icicle
from pytrace.live.inspector import Inspector
from pytrace.live.messages import Answer, Command
from tests.support.live_samples import HOSTILE
from tests.support.rows import each_row
from tests.support.waiting import until

PID = os.getpid()


def asked(made: Inspector, question: str, pid: int, start: int) -> Answer:
    made.ask(Command("ask", question, pid=pid, start=start))
    found: list[Answer] = []
    until(lambda: found.extend(item for item in made.answers() if isinstance(item, Answer)) or found)
    return found[0]


def test_a_process_of_its_own_answers_questions_about_one_that_is_named_by_number_and_start() -> None:
    own = processes.read(PID)
    assert own is not None
    with ExitStack() as stack, open(__file__, "rb") as file, socket.create_server(("127.0.0.1", 0)) as server:
        made = Inspector(stack)
        pid = made.pid
        answer = asked(made, "threads", PID, own.start)
        assert (str(PID), own.name) in [(row[0], row[-1]) for row in answer.rows]
        assert (str(file.fileno()), "read", "0", __file__) in asked(made, "files", PID, own.start).rows
        rows = asked(made, "sockets", PID, own.start).rows
        port = server.getsockname()[1]
        assert (str(server.fileno()), "TCP", "LISTEN", f"127.0.0.1:{port}", "0.0.0.0:*") in rows
        assert asked(made, "files", PID, own.start + 1).error == f"process {PID} has ended", "another with its number"
        assert asked(made, "flame", 2**22 + 1, 0).error.endswith("has ended")
        made.ask(Command("ask", "what it has never heard of", pid=PID, start=own.start))
        assert asked(made, "threads", PID, own.start).error == ""
    assert not Path(f"/proc/{pid}").exists(), "it ends with the run"


def test_a_trace_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(inspector._COMMANDS, "calls", ["-e", "no program at all"])
    own = processes.read(PID)
    assert own is not None
    with ExitStack() as stack:
        made = Inspector(stack)
        begun = asked(made, "calls", PID, own.start)
        assert begun.begun
        assert begun.own
        found: list[object] = []
        until(lambda: found.extend(made.answers()) or found)
        (answer,) = found
        assert isinstance(answer, Answer)
        assert answer.error
        assert answer.error.isprintable()


def test_names_of_others_are_read_whatever_they_contain(tmp_path: Path) -> None:
    folder = tmp_path / "5"
    folder.mkdir()
    fields = ["S", "1", *("0" for _ in range(9)), "150", "50", *("0" for _ in range(4)), "3", "0", "777", "0", "10"]
    (folder / "stat").write_bytes(b"5 (a) R 9 (\x1b[31m\n) " + " ".join(fields).encode())
    (folder / "status").write_bytes(b"Name:\ta\nUid:\t12\t0\t0\t0\n")
    (folder / "cmdline").write_bytes(b"x\0" * 100_000)
    found = processes.read(5, str(tmp_path))
    assert found is not None
    assert (found.name, found.state, found.parent, found.uid) == ("a) R 9 (\x1b[31m\n", "S", 1, 12)
    assert (found.threads, found.start, found.memory) == (3, 777, 10 * os.sysconf("SC_PAGE_SIZE"))
    assert len(found.command) <= 4096
    (folder / "stat").write_bytes(b"5 (a")
    assert processes.read(5, str(tmp_path)) is None
    assert processes.read(6, str(tmp_path)) is None


def test_the_machine_says_how_busy_its_cpus_are(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 4000000 kB\nMemAvailable: 1000000 kB\n")
    (tmp_path / "loadavg").write_text("1.25 0 0 1/2 3\n")
    (tmp_path / "stat").write_text("cpu 100 0 100 700 100 0 0 0\ncpu0 50 0 0 100\ncpu3 50 0 0 100\nintr 1\n")
    machine = processes.Machine(str(tmp_path))
    assert machine.cores == []
    (tmp_path / "stat").write_text("cpu 160 0 115 725 100 0 0 0\ncpu0 100 0 0 100\ncpu3 60 0 0 130\nintr 1\n")
    machine.look()
    assert machine.text == "CPUs 75 %, memory 3.07 GB of 4.1 GB, load 1.25"
    assert machine.cores == [("0", 1.0), ("3", 0.25)]
    (tmp_path / "stat").write_text("cpu 160 0 115 725 100 0 0 0\ncpu3 60 0 0 130\n")
    with (tmp_path / "meminfo").open("a") as file:
        file.write("SwapTotal: 1000000 kB\nSwapFree: 750000 kB\n")
    machine.look()
    assert machine.text == "CPUs 75 %, memory 3.07 GB of 4.1 GB, swap 256 MB of 1.02 GB, load 1.25"
    assert machine.cores == [], "of one that did nothing, or was taken away, nothing is known"
    assert processes.Machine(str(tmp_path / "nothing")).text == ""


def test_why_a_process_cannot_be_read() -> None:
    said = inspector.refused(PermissionError(), 5)
    assert said == "process 5 belongs to another user: only root, or its user, may read it"
    assert inspector.refused(FileNotFoundError(), 5) == "process 5 has ended"


def test_what_traces_print_becomes_tables() -> None:
    stats = b'{"read": {"count": 1000, "average": 5000, "total": 5000000}}'
    lines = (b'{"type": "attached_probes", "data": {}}', b'{"type": "stats", "data": {"@calls_ns": %s}}' % stats)
    printed = b"\n".join((*lines, b'{"type": "map", "data": {"@errors": {"read": 7}}}', b"not JSON"))
    assert inspector._calls(printed) == ([("1,000", "5 ms", "5 us", "7", "read")], [], "1,000 calls in 5 s, 200/s")
    assert inspector._calls(b"")[2] == "none in 5 s"
    name = HOSTILE.strip().replace(";", "")
    folded = f"app;12;main;{name} 40\napp;12;main 59\n".encode()
    assert inspector._stacks(folded)[1:] == (
        [(("main", name), 40), (("main",), 59)], "1 s on CPU in 5 s (20 %), 99 samples",
    )  # fmt: skip
    assert "not on a CPU" in inspector._stacks(b"")[2]


STACKS = [(("main", "f", "f", "g"), 5), (("main", "f"), 3), (("main", "h"), 2)]


def test_functions_are_merged_with_self_and_total() -> None:
    assert function_rows(STACKS) == [
        ("50.0 %", "50.0 %", "g"), ("30.0 %", "80.0 %", "f"), ("20.0 %", "20.0 %", "h"), ("0.0 %", "100.0 %", "main"),
    ]  # fmt: skip


@each_row("width", [1, 9, 30, 80])
@each_row("colour", [False, True])
def test_a_flame_graph_has_its_root_above_and_fits(width: int, colour: bool) -> None:
    lines = ["".join(text for text, _ in line) for line in icicle(STACKS, width, 9, Glyphs(colour=colour))]
    assert all(columns(line) <= width for line in lines)
    if width == 30 and not colour:
        assert [line.rstrip() for line in lines] == ["|main", "|f                      |h", "|f > g"]
    assert icicle([], width, 9, Glyphs()) == []
    assert icicle(STACKS, width, 2, Glyphs())
