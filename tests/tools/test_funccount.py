"""Cases of ``funccount``: programs that make a known number of calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kernel_features import needs
from tests.support.tools import ToolRun, check_columns
from tests.tools.conftest import Tool

pytestmark = pytest.mark.tool("funccount")


def counts(run: ToolRun) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in run.rows:
        found[row["FUNC"]] = found.get(row["FUNC"], 0) + row["COUNT"]
    return found


def test_user_functions(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    run = tool("funccount", f"{programs}/calls:*e*", command=f"{programs}/calls 7")
    check_columns(run)
    own = counts(run)
    assert {name: own.get(name) for name in ("greet", "negative", "leaf", "inner", "outer", "move")} == dict.fromkeys(
        ("greet", "negative", "leaf", "inner", "outer", "move"), 7
    )
    assert [row["COUNT"] for row in run.rows] == sorted((row["COUNT"] for row in run.rows), reverse=True)


def test_the_letter_u_is_a_function_where_there_is_no_probe(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    run = tool("funccount", f"u:{programs}/calls:six", command=f"{programs}/calls 7")
    assert counts(run) == {"six": 7}


def test_text_has_the_columns(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    run = tool("funccount", f"{programs}/calls:six", command=f"{programs}/calls 7", form="text")
    check_columns(run)
    assert run.lines[-1].split() == ["six", "7"]


def test_regular_expressions(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    run = tool("funccount", "-r", f"{programs}/calls:^(six|greet)$", command=f"{programs}/calls 3")
    assert counts(run) == {"six": 3, "greet": 3}


def test_a_function_with_several_names_is_counted_once(tool: Tool) -> None:
    needs("uprobe")
    run = tool("funccount", "c:*getrlimit*", command="/bin/ls /")
    assert len(run.rows) <= 1


def test_no_call_is_lost_between_intervals(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    run = tool("funccount", "-i", "1", "-T", f"{programs}/nested:work_*", command=f"{programs}/nested 30")
    assert len(run.rows) > 6, "there was more than one output"
    assert counts(run) == {"work_upper": 30, "work_lower": 60, "work_again": 120, "work_jump": 30, "work_catch": 30,
                           "work_leave": 30}  # fmt: skip


def test_tracepoints(tool: Tool, programs: Path) -> None:
    needs("syscalls")
    run = tool("funccount", "t:syscalls:sys_enter_clock_nanosleep", command=f"{programs}/nested 1")
    assert counts(run) == {"sys_enter_clock_nanosleep": 1 + 2 + 4 + 1}
    run = tool("funccount", "t:syscalls:sys_enter_*sleep", command=f"{programs}/nested 1")
    assert counts(run) == {"syscalls:sys_enter_clock_nanosleep": 1 + 2 + 4 + 1}


def test_usdt(tool: Tool, programs: Path) -> None:
    needs("usdt")
    run = tool("funccount", f"u:{programs}/usdt:*", command=f"{programs}/usdt 6")
    assert counts(run) == {f"sample:{name}": 6 for name in ("plain", "one", "four", "guarded")}


@pytest.mark.core
def test_kernel_functions(tool: Tool, programs: Path) -> None:
    needs("kprobe")
    run = tool("funccount", "vfs_r*", command="cat /etc/hostname")
    assert counts(run)["vfs_read"] >= 2
    run = tool("funccount", "p::do_nanosleep", command=f"{programs}/nested 1")
    assert counts(run) == {"do_nanosleep": 8}


def test_a_kernel_without_functions_says_what_works(tool: Tool) -> None:
    run = tool("funccount", "vfs_*", "--duration", "1", interrupt=False, status=0 if _kernel_functions() else 1)
    if not _kernel_functions():
        assert "neither kprobes" in run.stderr
        assert "HINT: tracepoints" in run.stderr


def _kernel_functions() -> bool:
    from pytrace.runtime.load.live_kernel import LiveKernel

    kernel = LiveKernel()
    return kernel.feature("kprobe") or kernel.feature("fentry")
