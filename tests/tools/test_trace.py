"""Cases of ``trace``, ``argdist``, ``stackcount`` and ``tplist``: calls with known arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tools import check_columns
from tests.tools.conftest import Tool


@pytest.mark.tool("trace", kernel="uprobe")
def test_filter_and_format(tool: Tool, programs: Path) -> None:
    entry = f'{programs}/calls:add (arg1 > 2) "%d and %#x", arg1, arg2'
    run = tool("trace", entry, f'r:{programs}/calls:add "= %d", retval', command=f"{programs}/calls 5")
    check_columns(run)
    assert [row["-"] for row in run.rows] == ["= 0", "= 3", "= 6", "3 and 0x6", "= 9", "4 and 0x8", "= 12"]
    assert {(row["COMM"], row["FUNC"], row["PID"] == row["TID"]) for row in run.rows} == {("calls", "add", True)}


@pytest.mark.tool("trace", kernel="uprobe")
def test_text_signature_and_strcmp(tool: Tool, programs: Path) -> None:
    predicate = '(STRCMP("round 3", text) || STRCMP(text, "round 4"))'
    spec = f'p:{programs}/calls:greet(const char *text) {predicate} "<%-8s>", text'
    run = tool("trace", "-t", "-C", spec, command=f"{programs}/calls 6", form="text")
    assert [line.split("greet", 1)[1].strip() for line in run.lines if "greet" in line] == ["<round 3 >", "<round 4 >"]
    assert run.lines[0].split() == ["TIME", "CPU", "PID", "TID", "COMM", "FUNC", "-"]


@pytest.mark.tool("trace", kernel="usdt syscalls")
def test_usdt_and_tracepoints_share_a_table(tool: Tool, programs: Path) -> None:
    probe = f'u:{programs}/usdt:four "%d %s %d", arg1, arg3, arg4'
    event = 't:syscalls:sys_enter_exit_group "%d", args->error_code'
    run = tool("trace", probe, event, command=f"{programs}/usdt 2")
    assert [(row["FUNC"], row["-"]) for row in run.rows] == [
        ("four", "0 text 0 42"), ("four", "-1 text 1 42"), ("sys_enter_exit_group", "0"),
    ]  # fmt: skip
    assert {message["table"] for message in run.messages if message["type"] == "row"} == {1}


@pytest.mark.tool("trace", kernel="uprobe")
def test_most_events_and_counts_of_lines(tool: Tool, programs: Path) -> None:
    run = tool("trace", "-M", "3", f'{programs}/calls:six "%d", arg6', command=f"{programs}/calls 9")
    assert [row["-"] for row in run.rows] == ["0", "1", "2"]
    run = tool("trace", "-A", f'{programs}/calls:six "%d", arg6 % 2', command=f"{programs}/calls 9")
    assert run.maps["@lines"] == {"calls,six,1": 4, "calls,six,0": 5}


@pytest.mark.each_kernel
@pytest.mark.tool("trace", kernel="kprobe")
def test_kernel_functions_with_a_signature(tool: Tool, programs: Path) -> None:
    signature = "(struct file *file, char __user *to, size_t count)"
    spec = f'p::vfs_read{signature} (count > 0) "%d %s", count, file->f_path.dentry->d_name.name'
    run = tool("trace", spec, command="cat /etc/hostname")
    assert any(str(row["-"]).endswith(" hostname") for row in run.rows)
    run = tool("trace", 'r::vfs_read "%d", retval', command="cat /etc/hostname")
    assert any(int(row["-"]) == Path("/etc/hostname").stat().st_size for row in run.rows)


@pytest.mark.tool("argdist", kernel="uprobe")
def test_counts_and_histograms(tool: Tool, programs: Path) -> None:
    run = tool("argdist", "-H", f"p:{programs}/calls:six(long a, long b, long c, long d, long e, long f):u32:f:f >= 8",
               "-C", f"r:{programs}/calls:greet(char *text):char*,int:$entry(text),$retval#texts",
               "-C", f"r:{programs}/calls:add(int a, int b):int:$entry(b):$latency > 0",
               "-C", f"{programs}/calls:move()", command=f"{programs}/calls 16")  # fmt: skip
    assert run.maps["@values1"] == [{"min": 8, "max": 15, "count": 8}]
    assert run.maps["@values2"] == {f"round {n},{len(f'round {n}')}": 1 for n in range(16)}
    assert run.maps["@values3"] == {str(2 * n): 1 for n in range(16)}
    assert run.maps["@values4"] == 16
    assert "texts\\n" in run.stdout


@pytest.mark.tool("argdist", kernel="uprobe")
def test_entries_of_recursive_calls_are_told_apart(tool: Tool, programs: Path) -> None:
    run = tool("argdist", "-C", f"r:{programs}/nested:work_again(int n):int,int:$entry(n),$retval",
               command=f"{programs}/nested 1")  # fmt: skip
    assert run.maps["@values"] == {f"{n},{n}": 1 for n in range(4)}


@pytest.mark.tool("argdist", kernel="syscalls")
def test_outputs_tracepoints_and_top(tool: Tool) -> None:
    run = tool("argdist", "-n", "2", "-T", "3", "-C", "t:syscalls:sys_enter_openat():int:args->flags",
               interrupt=False)  # fmt: skip
    outputs = [message for message in run.messages if message["type"] == "time"]
    assert len(outputs) == 2
    assert all(len(message["data"]["@values"]) <= 3 for message in run.messages if message["type"] == "map")


@pytest.mark.tool("argdist", kernel="kprobe")
def test_sizes_of_reads(tool: Tool) -> None:
    run = tool("argdist", "-C", "p::vfs_read(struct file *file, char *to, size_t count):size_t:count:count == 131072",
               command="cat /etc/hostname")  # fmt: skip
    assert run.maps["@values"]["131072"] >= 2


# Kernels before 6.10 miss the caller at the first instruction of a function.
FRAMES = ("inner", "outer", "main")


@pytest.mark.each_kernel
@pytest.mark.tool("stackcount", kernel="uprobe")
def test_stacks_lead_to_a_function(tool: Tool, programs: Path) -> None:
    run = tool("stackcount", "-P", f"{programs}/calls:inner", command=f"{programs}/calls 7")
    assert list(run.maps["@stacks"].values()) == [7]
    key = next(iter(run.maps["@stacks"]))
    assert ",calls," in key
    places = [key.index(f"{name}+") for name in FRAMES]
    assert places == sorted(places)


@pytest.mark.tool("stackcount", kernel="uprobe")
def test_folded(tool: Tool, programs: Path) -> None:
    run = tool("stackcount", "--folded", f"{programs}/calls:inner", command=f"{programs}/calls 7", form="text")
    assert len(run.lines) == 1
    stack, _, count = run.lines[0].rpartition(" ")
    names = stack.split(";")
    assert (names[-1], count) == ("inner", "7")
    assert [name for name in names if name in FRAMES] == ["main", "outer", "inner"]


@pytest.mark.tool("stackcount", kernel="kprobe")
def test_kernel_stacks(tool: Tool, programs: Path) -> None:
    run = tool("stackcount", "-K", "do_nanosleep", command=f"{programs}/nested 1")
    assert sum(run.maps["@stacks"].values()) == 8
    assert all("hrtimer_nanosleep" in key for key in run.maps["@stacks"])


@pytest.mark.tool("tplist", kernel="usdt")
def test_probes_of_a_file(tool: Tool, programs: Path) -> None:
    run = tool("tplist", "-l", f"{programs}/usdt", interrupt=False, form="text")
    assert {line.rpartition(":")[2] for line in run.lines} == {"plain", "one", "four", "guarded"}
    run = tool("tplist", "-l", f"{programs}/usdt", "on*", interrupt=False, form="text")
    assert len(run.lines) == 1
    run = tool("tplist", "block:block_rq_issue", "-v", interrupt=False, form="text")
    assert run.lines[0] == "tracepoint:block:block_rq_issue"
    assert any("nr_sector" in line for line in run.lines)
