"""The thread's state is found in the same way for stacks and for calls."""

from __future__ import annotations

from pytrace.codegen.services.python import calls as python_calls
from pytrace.codegen.services.python import stacks as python_stacks
from pytrace.codegen.services.python.threads import Thread


def test_who_uses_it() -> None:
    assert issubclass(python_stacks._Walk, Thread)
    assert issubclass(python_calls._Call, Thread)
