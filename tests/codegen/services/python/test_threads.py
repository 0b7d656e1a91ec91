"""The thread's state is found in the same way for stacks and for calls."""

from __future__ import annotations

from pytrace.codegen.walkers import python_calls, python_stacks
from pytrace.codegen.walkers.python_threads import Thread


def test_who_uses_it() -> None:
    assert issubclass(python_stacks._Walk, Thread)
    assert issubclass(python_calls._Call, Thread)
