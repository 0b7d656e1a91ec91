from __future__ import annotations

from pytrace.core.options.script_options import Value
from pytrace.multitools import common_options as common
from pytrace.multitools import funccount
from pytrace.multitools.translation import Options


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
    assert common.cpu_condition(options()) == ""
    assert common.cpu_condition(options(cpu=0)) == "cpu == 0"
    assert common.cpu_condition(options(cpu=3)) == "cpu == 3"
