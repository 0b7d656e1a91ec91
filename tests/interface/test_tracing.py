"""What of a trace needs no kernel; the rest is in tests/kernel/test_python_interface.py and test_python_host.py."""

from __future__ import annotations

import asyncio
import os
import warnings
from contextlib import ExitStack
from types import SimpleNamespace
from typing import cast

import pytest

from pytrace.interface.tracing import Trace, _close, _forgotten, _is_loss


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("Lost 3 events", True), ("script:1:1-2: WARNING: @a is full (2 keys): the update was dropped", True),
        ("3 map updates dropped (@a 3)", True), ("1 event lost (begin 1)", True), ("cat: cannot read 'x'", False),
        ("4 kernel stacks could not be unwound (x 4)", True), ("kernel 5.4 is older than 5.15", False),
    ],
)  # fmt: skip
def test_which_warnings_tell_of_losses(text: str, loss: bool) -> None:
    assert _is_loss(text) is loss


def test_an_interrupted_close_goes_on() -> None:
    """A Ctrl-C between two callbacks, in the code of ExitStack itself, ends its loop."""
    closed: list[str] = []

    class Interrupted(ExitStack):
        interrupted = False

        def close(self) -> None:
            if not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt
            super().close()

    stack = Interrupted()
    stack.callback(closed.append, "closed")
    with pytest.raises(KeyboardInterrupt):
        _close(stack)
    assert closed == ["closed"]


def test_a_forgotten_trace_is_closed_by_its_own_process_only() -> None:
    closed: list[str] = []
    stack = ExitStack()
    stack.callback(closed.append, "closed")
    _forgotten(stack, "x", os.getpid() + 1)
    assert not closed
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _forgotten(stack, "x", os.getpid())
    assert (closed, [str(item.message) for item in caught]) == (["closed"], ["the trace of x was not closed"])


@pytest.mark.parametrize("turns", range(8))
def test_no_cancellation_is_lost(turns: int) -> None:
    """However many turns of the loop are between what is waited for and the cancellation."""

    async def main() -> None:
        reading, writing = os.pipe()
        trace = cast(Trace, SimpleNamespace(fileno=lambda: reading, _session=SimpleNamespace(busy=False)))
        task = asyncio.create_task(Trace._readable(trace, asyncio.get_running_loop()))
        await asyncio.sleep(0.001)
        os.write(writing, b"x")
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled = task.cancel()
        await asyncio.wait([task])
        os.close(reading)
        os.close(writing)
        assert task.cancelled() is cancelled

    asyncio.run(main())
