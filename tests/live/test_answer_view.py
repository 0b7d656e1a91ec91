"""The live view of an answer, without a process. tests/kernel/test_fleet.py has one, on a terminal."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest

from pytrace.live import answer_view
from pytrace.live.answer_view import AnswerView
from pytrace.live.messages import Command, Lines, Message, Notice, Start, State
from pytrace.remote.top_keys import trimmed
from pytrace.results import file_form
from pytrace.results.snapshot import SnapshotData
from tests.support.snapshots import COUNT, STRING, map_data, snapshot


class Process:
    """In place of the process: keeps what it is sent, and has the commands that a test gives."""

    def __init__(self, _streams: object, _confine: object, collect: object, _stack: object) -> None:
        self.sent: list[Message] = []
        self.commands: SimpleQueue[Command] = SimpleQueue()
        self.states, self.gone, self.error, self.room = 0, False, "", True
        self.collect = collect

    def begin(self, start: Start) -> None:
        self.sent.append(start)

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def flush(self) -> bool:
        return self.room


def of(count: int) -> SnapshotData:
    made = snapshot(map_data("@", STRING, COUNT, {"a": count, "b": 1, "c": 2}))
    made.losses = {"lost events": {"web1: t:x:y": count}, "hosts without an answer": {"silent": 3}}
    return made


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> AnswerView:
    monkeypatch.setattr(answer_view, "ViewProcess", Process)
    monkeypatch.setattr(answer_view, "Streams", lambda _stack: None)
    counts = iter(range(10, 100, 10))
    made = AnswerView(
        "x.bt", lambda: of(next(counts)), partial(trimmed, most=2), lambda: "1 of 2 hosts answered", lambda: None,
        ExitStack(),
    )  # fmt: skip
    made.begin()
    return made


def process(view: AnswerView) -> Process:
    made = view._view
    assert isinstance(made, Process)
    return made


def test_states_have_the_largest_keys_and_who_answered(view: AnswerView) -> None:
    view._log.append(b"attached on 2 of 2 hosts\n")
    view.work()
    start, lines, state = process(view).sent
    assert isinstance(start, Start)
    assert start.title == "x.bt"
    assert lines == Lines(b"attached on 2 of 2 hosts\n")
    assert isinstance(state, State)
    assert state.snapshot.maps["@"].entries == {"a": 10, "c": 2}
    assert state.others == {"@": 1}
    assert (state.meters.answered, state.meters.lost) == ("1 of 2 hosts answered", 10)
    view._next = 0
    view.work()
    assert len(process(view).sent) == 3, "the view has not shown the last one"
    process(view).states = 1
    view.work()
    assert len(process(view).sent) == 4
    process(view).states, process(view).room, view._next = 2, False, 0
    view.work()
    assert len(process(view).sent) == 4, "there is no room for more"


def test_commands(view: AnswerView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    view._next = float("inf")
    for name in ("clear", "save", "report"):
        process(view).commands.put(Command(name))  # type: ignore[arg-type]
    view.work()
    notices = [message for message in process(view).sent if isinstance(message, Notice)]
    assert notices[0] == Notice("maps of hosts are not reset", error=True)
    assert all(notice.text.startswith("written: pytrace-") for notice in notices[1:])
    (saved,) = tmp_path.glob("*.pts")
    assert file_form.read(str(saved)).maps["@"].entries == {"a": 10, "b": 1, "c": 2}
    assert next(tmp_path.glob("*.html")).read_bytes().startswith(b"<!DOCTYPE html>")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    process(view).commands.put(Command("save"))
    view.work()
    notice = process(view).sent[-1]
    assert isinstance(notice, Notice)
    assert notice.error
    assert "cannot be written" in notice.text
