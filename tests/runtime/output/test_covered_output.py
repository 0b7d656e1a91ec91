from __future__ import annotations

import os
import pty
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pytrace.base.interruption import EndRequests
from pytrace.runtime.output.covered_output import CoveredOutput
from pytrace.runtime.output.streams import Flush


class Terminal:
    """A terminal, and an output that goes to it or to a file."""

    def __init__(self, path: Path | None = None) -> None:
        self._theirs, self._ours = pty.openpty()
        os.set_blocking(self._theirs, False)
        self.output = CoveredOutput(
            self._ours if path is None else os.open(path, os.O_WRONLY | os.O_CREAT), messages=self._ours,
            flush=Flush.LINE, json=False, csv=False, colour=False, raw=False, requests=EndRequests(),
            owned=path is not None,
        )  # fmt: skip

    def shown(self) -> str:
        data = b""
        with suppress(BlockingIOError):
            while True:
                data += os.read(self._theirs, 1 << 16)
        return data.decode().replace("\r\n", "\n")

    def close(self) -> None:
        self.output.close()
        os.close(self._theirs)
        os.close(self._ours)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def test_the_terminal_gets_what_nobody_has_seen_and_all_messages(terminal: Terminal) -> None:
    output = terminal.output
    output.write(b"before\n")
    output.flush()
    output.cover()
    output.write(b"one\n")
    output.message("WARNING: first\n")
    output.end_batch()
    assert terminal.shown() == "before\n"
    assert output.take() == (b"before\none\nWARNING: first\n", 0)
    assert output.take() == (b"", 0)
    output.seen(1)
    output.write(b"two\n")
    output.end_batch()
    assert output.take() == (b"two\n", 0)
    output.collect(b"of a child\n")
    output.message("WARNING: second\n")
    output.end_batch()
    output.uncover()
    assert terminal.shown() == "two\nof a child\nWARNING: first\nWARNING: second\n"
    output.uncover()
    output.write(b"after\n")
    output.flush()
    assert terminal.shown() == "after\n"
    assert output.accepted == 5, "each part counts once, and what was not seen again"


def test_a_message_waits_for_the_end_of_a_line(terminal: Terminal) -> None:
    output = terminal.output
    output.cover()
    output.write(b"half ")
    output.message("WARNING: x\n")
    output.write(b"whole\n")
    output.flush()
    assert output.take() == (b"half whole\nWARNING: x\n", 0)


def test_the_log_begins_with_what_was_printed_before(terminal: Terminal) -> None:
    output = terminal.output
    output.write(b"PID COMM\n")
    output.message("Attached 1 probe\n")
    output.message("WARNING: x\n")
    output.flush()
    output.cover()
    assert terminal.shown() == "PID COMM\nAttached 1 probe\nWARNING: x\n"
    assert output.take() == (b"PID COMM\nWARNING: x\n", 0)
    output.uncover()
    assert terminal.shown() == "", "it has been printed"


def test_the_log_is_bounded(terminal: Terminal) -> None:
    output = terminal.output
    output.cover()
    for _ in range(100):
        output.write(b"x" * 9_999 + b"\n")
        output.flush()
    data, dropped = output.take()
    assert len(data) + dropped == 1_000_000
    assert len(data) <= 1 << 17


def test_a_file_gets_its_output_while_the_terminal_is_covered(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "out")
    terminal.output.cover()
    terminal.output.write(b"line\n")
    terminal.output.message("WARNING: x\n")
    terminal.output.flush()
    assert (tmp_path / "out").read_text() == "line\n"
    assert terminal.shown() == ""
    terminal.output.uncover()
    assert terminal.shown() == "WARNING: x\n"
    terminal.close()
