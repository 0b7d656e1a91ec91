"""The runs of tools that cases share, with a script in the place of a tool."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from pytrace.multitools.table import TOOLS as MULTI_TOOLS
from tests.support import kernel_features, tools
from tests.support.expect import INTERRUPTED
from tests.support.kernel_features import Where, needs
from tests.support.server import Running, Server
from tests.support.tools import ToolRun, check_columns, run_tool
from tests.tools.columns import ALIASES, TOOLS, Output
from tests.tools.conftest import Tool

SCRIPT = """
    tracepoint:syscalls:sys_enter_exit_group /ppid == $1/ {
        row((pid=pid, comm=comm, code=args.error_code)); @exits[comm] = count();
    }
    interval:s:3600 { }
"""


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tool that shows how children of a process end."""
    needs("syscalls")
    path = tmp_path / "exits.bt"
    path.write_text(SCRIPT)
    monkeypatch.setattr(tools, "script", lambda name: path if name == "exits" else None)
    monkeypatch.setitem(TOOLS, "exits", Output(("rows",), ("PID", "COMM")))
    return "exits"


def three_children(running: Running) -> None:
    assert os.path.exists(f"/proc/{running.pid}")
    for code in range(3):
        subprocess.run(["sh", "-c", f"exit {code}"], check=False)


@pytest.mark.kernel
def test_rows_and_maps_of_a_workload(tool: Tool, example: str) -> None:
    run = tool(example, os.getpid(), work=three_children)
    assert [row["code"] for row in run.rows] == [0, 1, 2]
    assert run.maps == {"@exits": {"sh": 3}}
    assert run.of(COMM="sh", code=2)
    assert not run.of(comm="sh", code=3)
    with pytest.raises(KeyError, match="no column nosuch: pid, comm, code"):
        run.of(nosuch=1)
    check_columns(run)


@pytest.mark.kernel
def test_text(tool: Tool, example: str) -> None:
    run = tool(example, os.getpid(), work=three_children, form="text", until="sh", times=3)
    check_columns(run)
    assert [line.split()[1:] for line in run.lines[1:4]] == [["sh", "0"], ["sh", "1"], ["sh", "2"]]


@pytest.mark.kernel
def test_a_command_ends_the_run(tool: Tool, example: str) -> None:
    assert tool(example, os.getpid(), command="true").status == 0


@pytest.mark.kernel
def test_other_columns_are_told(tool: Tool, example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOOLS, "exits", Output(("rows",), ("PID", "CODE")))
    for form in ("json", "text"):
        run = tool(example, os.getpid(), work=three_children, form=form)
        with pytest.raises(AssertionError, match="PID CODE"):
            check_columns(run)


@pytest.mark.kernel
def test_what_a_workload_raises_ends_the_run_and_the_test(tool: Tool, example: str) -> None:
    def work(_running: Running) -> None:
        raise LookupError("no such luck")

    with pytest.raises(LookupError, match="no such luck"):
        tool(example, os.getpid(), work=work)


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ('interval:s:3600 { } begin { errorf("out of luck\\n"); }', "out of luck"),
        ("begin { nosuch(); }", "nosuch"),
    ],
)
def test_trouble_fails_the_case(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, complaint: str
) -> None:
    (tmp_path / "x.bt").write_text(script)
    monkeypatch.setattr(tools, "script", lambda name: tmp_path / "x.bt")
    with pytest.raises(AssertionError, match=complaint):
        run_tool(server, "troubled")


def test_trouble_of_text_output() -> None:
    for text in ("Lost 12 events\n", "WARNING: x\n", "ERROR: x\n", "3 updates of @ failed\n"):
        result = tools.Result(0, "", f"Attached 2 probes\n{text}")
        assert ToolRun("x", result).trouble == [text.strip()]
    assert not ToolRun("x", tools.Result(0, "", "Attached 2 probes\n")).trouble


def test_events_of_others_within_a_program_are_no_trouble() -> None:
    program = {"tracepoint:sock:inet_sock_set_state": 2}
    for losses, trouble in (
        ({"recursion": program}, False), ({"lost": program}, True), ({"recursion": program, "lost": program}, True),
    ):  # fmt: skip
        line = json.dumps({"type": "losses", "data": losses})
        assert (INTERRUPTED.fullmatch(line) is None) == trouble
    assert INTERRUPTED.fullmatch("WARNING: in total, 2 recursive probe hits skipped (tracepoint:a:b 2)\n")
    assert not INTERRUPTED.search("WARNING: 2 probe hits missed (tracepoint:a:b 2)\n")


def test_features_are_missing_for_a_reason_or_fail() -> None:
    kernel_features.decide(True, "anything")
    for where in (Where(since=(900, 1)), Where(before=(3, 0))):
        with pytest.raises(pytest.skip.Exception, match=r"anything: (came|went) with kernel"):
            kernel_features.decide(False, "anything", where)
    for where in (Where(), Where(since=(3, 0)), Where(before=(900, 1))):
        with pytest.raises(pytest.fail.Exception, match="should have anything"):
            kernel_features.decide(False, "anything", where)


@pytest.mark.kernel
def test_features_of_this_kernel() -> None:
    kernel_features.needs_tracepoint("sched:sched_switch")
    kernel_features.needs_type("struct task_struct")
    kernel_features.needs_member("struct task_struct", "pid")
    with pytest.raises(pytest.skip.Exception, match=r"struct task_struct\.bpf_ctx_none: came with"):
        kernel_features.needs_member("struct task_struct", "bpf_ctx_none", Where(since=(900, 0)))
    with pytest.raises(pytest.fail.Exception):
        kernel_features.needs_tracepoint("sched:nosuch")


def test_the_table_has_every_tool() -> None:
    missing = [name for name in shipped() if name not in TOOLS]
    assert not missing, f"tests/tools/columns.py lacks {missing}"
    assert all(name not in TOOLS and target in TOOLS for name, target in ALIASES.items())
    assert len(TOOLS) == 90
    assert all(bool(output.columns) == (output.kinds == ("rows",)) for output in TOOLS.values())


def test_every_tool_of_the_table_is_there() -> None:
    missing = sorted(set(TOOLS) - set(shipped()))
    assert not missing, f"{len(missing)} tools are missing: {' '.join(missing)}"


def shipped() -> list[str]:
    """Names of the scripts and modules of tools in this checkout."""
    scripts = [path.stem for path in tools.SCRIPTS.glob("*/*.bt") if path.parent.name != "lib"]
    return scripts + [name for name in TOOLS if name in MULTI_TOOLS]
