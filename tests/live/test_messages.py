from __future__ import annotations

import msgspec
import pytest

from pytrace.live import messages
from pytrace.live.messages import Command, Incoming, Lines, Notice
from tests.support.live_samples import counts, histogram, state


def test_messages_arrive_as_they_were_sent_however_they_are_cut() -> None:
    sent = [Lines(b"a\n", 2), state(1, counts("@", {"a": 1}), histogram("@h", {None: {3: 4}})), Notice("x", error=True)]
    data = b"".join(map(messages.packed, sent))
    incoming = Incoming()
    found = [message for at in range(0, len(data), 7) for message in incoming.add(data[at : at + 7])]
    assert found == sent


def test_commands_are_lines_of_json() -> None:
    command = Command("clear", "@a\n")
    data = messages.line(command)
    assert data.count(b"\n") == 1
    assert messages.command(data[:-1]) == command


@pytest.mark.parametrize("data", [b"", b"{}", b'{"do": "run"}', b'{"do": "end", "used": "x"}', b"\x80\x04."])
def test_the_run_takes_no_other_commands(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        messages.command(data)
