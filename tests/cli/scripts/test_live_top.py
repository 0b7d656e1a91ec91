from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytrace.cli.scripts import live_top
from pytrace.cli.scripts.live_top import QUESTIONS, expand, script
from pytrace.core.diagnostics import TraceError

EVENTS = {event for question in QUESTIONS for events, _ in question.answers for event in events}


def test_each_question_has_a_map_of_its_own() -> None:
    text, missing = script(lambda _event: True)
    assert missing == []
    assert [name for name in ("@cpu[", "@calls[", "@files[", "@disk[", "@tcp[") if name in text] == [
        "@cpu[", "@calls[", "@files[", "@disk[", "@tcp[",
    ]  # fmt: skip


def test_what_a_kernel_lacks_is_left_out_and_told() -> None:
    text, missing = script(lambda event: not event.startswith(("block:", "sock:sock_")))
    assert missing == ["block I/O"]
    assert "@disk" not in text
    assert "inet_sock_set_state" in text, "an older way"
    text, missing = script(lambda _event: False)
    assert missing == ["system calls", "files", "block I/O", "TCP"]
    assert text.count("{ @") == 1


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for event in EVENTS - {"block:block_rq_issue"}:
        folder = tmp_path / "events" / event.replace(":", "/")
        os.makedirs(folder)
        (folder / "format").touch()
    monkeypatch.setattr(live_top.tracefs, "root", lambda: str(tmp_path))
    words = expand(["-p", "12", "--duration", "3"])
    assert words[:3] == ["--live", "--no-self", "-e"]
    assert "sock_send_length" in words[3]
    assert words[4:] == ["-p", "12", "--duration", "3"]
    assert capsys.readouterr().err == "Not shown, as this kernel has no tracepoints for it: block I/O\n"
    assert expand(["--self"])[:2] == ["--live", "-e"]


def test_it_takes_options_only() -> None:
    with pytest.raises(TraceError, match="takes options only, not 'biotop'"):
        expand(["biotop"])
    with pytest.raises(SystemExit):
        expand(["--help"])
