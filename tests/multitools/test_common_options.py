from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.script_options import Value
from pytrace.multitools import common_options as common
from pytrace.multitools import funccount
from pytrace.multitools.translation import Options
from tests.support.facts import RecordedKernel

KERNEL = RecordedKernel(possible_cpus=4)


def options(**values: Value) -> Options:
    return Options(funccount.OPTIONS, values)


def test_processes() -> None:
    assert common.pids(options(pid="1,2\n3")) == (1, 2, 3)
    assert common.only_pid(options(pid="1,2")) is None
    assert common.only_pid(options(pid="7")) == 7
    assert common.run_arguments(options(pid="1\n2", duration=2_500_000_000), "x$") == (
        "--pid", "1,2", "--duration", "2.5", "--probe-filter", "x$",
    )  # fmt: skip
    assert common.run_arguments(options()) == ()


def test_cpu() -> None:
    assert common.cpu_condition(options(), KERNEL) == ""
    assert common.cpu_condition(options(cpu="0"), KERNEL) == "cpu == 0"
    assert common.command(options(cpu="0")) == common.command(options()) == ()
    assert common.cpu_condition(options(cpu="ls -l"), KERNEL) == ""
    assert common.command(options(cpu="ls -l")) == ("--cmd", "ls -l")


def test_a_cpu_that_is_not_there_is_refused() -> None:
    assert common.cpu_condition(options(cpu="3"), KERNEL) == "cpu == 3"
    with pytest.raises(TraceError, match="there is no CPU 4") as found:
        common.cpu_condition(options(cpu="4"), KERNEL)
    assert found.value.hints == ("CPUs of this machine are 0-3",)


def test_notes() -> None:
    assert common.notes(options()) == ()
    assert "-v" in common.notes(options(verbose=True))[0]
