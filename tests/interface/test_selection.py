"""Arguments of the Python interface that select processes."""

from __future__ import annotations

import os

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.options.process_filters import ProcessFilters
from pytrace.interface.selection import filters, of_compiled


@pytest.mark.parametrize("pid", ["3", True, 3.0])
def test_a_process_is_an_integer(pid: object) -> None:
    with pytest.raises(TypeError, match="pid must be an int"):
        filters(pid, ())
    with pytest.raises(TypeError, match="pid must be an int"):
        filters(None, (1, pid))  # type: ignore[arg-type]


def test_one_or_several_values() -> None:
    assert filters(3, (), comm="a", uid=0) == ProcessFilters((3,), (0,), ("a",))
    own = os.stat("/proc/self/ns/net").st_ino
    found = filters(None, (3, 4, 3), comm=["a", "b"], uid=[1, "root"], netns="/proc/self/ns/net")
    assert found == ProcessFilters((3, 4), (1, 0), ("a", "b"), (), (own,))


def test_wrong_values() -> None:
    with pytest.raises(TraceError, match="cannot be used together"):
        filters(3, (4,))
    with pytest.raises(TraceError, match="there is no user"):
        filters(None, (), uid="no such user")


def test_a_compiled_script_takes_other_values_of_the_same_filters() -> None:
    options = CompileOptions(filters=ProcessFilters(pids=(7,), comms=("x",)))
    assert of_compiled(ProcessFilters((), (), ("b",)), options) == ProcessFilters((7,), (), ("b",))
    assert of_compiled(ProcessFilters((8,), (), ("b",)), options).pids == (8,)
    for other in (ProcessFilters(), ProcessFilters((8, 9), (), ("b",)), ProcessFilters((8,), (1,), ("b",))):
        with pytest.raises(TraceError, match="with other filters of processes"):
            of_compiled(other, options)
