"""Tools about allocations: memleak, mallocs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.kernel_features import TRACING, needs, needs_tracepoint
from tests.support.tools import ToolRun, cannot
from tests.support.workloads import memory
from tests.tools.conftest import Tool

RECURSION = ("recursive probe hits", "recursion", "missed")
"""What events of the kernel inside of others say."""


def of(run: ToolRun, map_name: str, function: str) -> dict[str, int]:
    """Entries of a map whose stack has that function innermost."""
    found = run.maps.get(map_name, {})
    return {key: value for key, value in found.items() if re.match(rf"\s*{function}\+", key)}


def outstanding(run: ToolRun, what: str, *functions: str) -> tuple[int, int]:
    """Number and bytes of all entries of that kind whose stack has one of the functions."""
    number = size = 0
    for key, value in run.maps.get("@outstanding", {}).items():
        label = re.search(rf",(\d+) {what}, bytes:$", key)
        if label and re.search(rf"^\s*(?:{'|'.join(functions)})\+", key, re.MULTILINE):
            number, size = number + int(label[1]), size + value
    return number, size


def account(run: ToolRun) -> list[int]:
    """What the program ``accounts`` has printed about itself."""
    return next([int(word) for word in line.split()] for line in run.lines if re.fullmatch(r"[\d ]+", line))


def leaks(programs: Path, kept: int = 10, freed: int = 20, size: int = 1001) -> str:
    return f"{programs}/leaks {kept} {freed} {size}"


@pytest.mark.tool("memleak")
def test_a_known_leak(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    run = tool("memleak", "--older", 0, command=leaks(programs))
    [(key, value)] = of(run, "@outstanding", "keep").items()
    assert value == 10 * 1001
    assert "10 allocations" in key
    assert "main+" in key
    assert not of(run, "@outstanding", "use")
    ordered = tool("memleak", "--combined-only", "--sort", "count", "-T", 1, command=leaks(programs, 4000))
    assert list(of(ordered, "@outstanding", "keep").values()) == [4000]
    assert len(ordered.maps["@outstanding"]) == 1


@pytest.mark.tool("memleak")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_all_calls_of_threads_by_the_programs_own_account(tool: Tool, programs: Path, seed: int) -> None:
    needs("uprobe")
    threads, steps = (4, 1000) if seed == 1 else (8, 10_000)
    command = f"{programs}/accounts {threads} {steps} {seed}"
    run = tool("memleak", "--older", 0, "-T", 0, "--duration", 50, 60, command=command)
    number, size, ranges, mapped, by_allocator = account(run)
    assert outstanding(run, "allocations", "block", "work") == (number, size)
    assert outstanding(run, "mappings", "range", "range_for_all") == (ranges, mapped)
    assert run.maps["@mapped_by_allocator"] == by_allocator
    assert outstanding(run, "stacks of threads", "main")[0] == threads


@pytest.mark.tool("memleak")
def test_memory_ends_with_exec(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    script = f"exec {programs}/leaks 3 0 1001"
    run = tool("memleak", "--older", 0, "-T", 0, command=f"sh -c '{script}'")
    assert outstanding(run, "allocations", "keep") == (3, 3003)
    assert outstanding(run, "allocations", ".*")[0] == 3 + 2  # two buffers for input and output, and nothing of sh


@pytest.mark.tool("memleak")
def test_an_allocator_that_nothing_calls_is_told(tool: Tool, programs: Path, tmp_path: Path) -> None:
    """As that of the C library in programs that have another one."""
    (library,) = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so.6" in line}
    copy = shutil.copy(library, tmp_path / "unused.so")
    run = tool("memleak", "-O", copy, command=leaks(programs), troubles=("no allocation by",))
    (said,) = (message["msg"] for message in run.messages if message["type"] == "warnf")
    assert said == f"no allocation by {copy} was seen: if the program has another allocator, give its file by -O"


@pytest.mark.tool("memleak", "mallocs")
def test_what_finds_no_room_is_told_with_its_share(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    full = tool("memleak", "--older", 0, "--max-blocks", 1000, command=leaks(programs, 4000, 0), form="text")
    told = re.search(r"(\d+) of (\d+) allocations \((\d+)%\) found no room", full.stdout)
    assert told
    lost, every, share = map(int, told.groups())
    assert 3000 < lost < every < 4100
    assert share == lost * 100 // every
    many = f"{programs}/chains_of_calls 33000"
    stacks = tool("memleak", "--older", 0, "-z", 1001, "-Z", 1001, "-T", 1, command=many, form="text")
    assert f"{17_000 * 1001} bytes more are outstanding" in stacks.stdout
    folded = tool("memleak", "--older", 0, "-z", 1001, 1, 1, command=leaks(programs), form="folded")
    assert [line.rsplit(";", 1)[1] for line in folded.lines if line.endswith("keep 10010")] == ["keep 10010"]
    asked = tool("mallocs", "-z", 1001, "-Z", 1001, command=many, form="text")
    assert f"{1000 * 1001} of {33_000 * 1001} bytes (3%) were asked for by stacks beyond" in asked.stdout
    assert f"[other stacks]]: {1000 * 1001}" in asked.stdout


@pytest.mark.tool("memleak")
@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("-z", 1001, "-Z", 1001, "--wa-missing-free", "-O", "libc.so.6"), 10),
        (("-z", 1002), 0),
        (("-Z", 1000), 0),
        (("--older", 3_600_000), 0),
    ],
)
def test_only_some_allocations(tool: Tool, programs: Path, options: tuple[object, ...], found: int) -> None:
    needs("uprobe")
    run = tool("memleak", *(() if "--older" in options else ("--older", 0)), *options, command=leaks(programs))
    assert sum(of(run, "@outstanding", "keep").values()) == found * 1001


@pytest.mark.tool("memleak")
def test_a_sample_and_each_allocation(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    run = tool("memleak", "--older", 0, "-s", 10, command=leaks(programs, 4000))
    assert 0 < sum(of(run, "@outstanding", "keep").values()) < 2000 * 1001
    each = tool("memleak", "--older", 0, "-a", "-t", "-z", 1001, "-Z", 1001, command=leaks(programs, 3, 2))
    calls = [row["CALL"] for row in each.rows if "CALL" in row]
    assert calls == ["alloc"] * 3 + ["alloc", "free"] * 2
    assert [row["SIZE"] for row in each.rows if "STACK" in row] == [1001] * 3


@pytest.mark.tool("memleak")
def test_a_process_at_intervals(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    with memory.leaking(programs) as process:
        run = tool(
            "memleak", "-p", process.pid, 1, 2, form="text", interrupt=False, troubles=("no allocation by libc",)
        )
    assert len(re.findall(r"^\[\d\d:\d\d:\d\d\]$", run.stdout, re.MULTILINE)) == 2
    assert "keep+" not in run.stdout  # it was allocated before


@pytest.mark.tool("memleak")
def test_other_allocators_and_mistakes(tool: Tool) -> None:
    needs("uprobe")
    for words, message in (
        (("-O", "/bin/true"), "no function malloc in /bin/true"),
        (("--symbols-prefix", "je_"), "no function je_malloc in libc"),
        (("--percpu",), "--percpu is for allocations of the kernel"),
        (("--command", "ls"), "pytrace memleak -c 'ls'"),
    ):
        failed = tool("memleak", *words, command="true", interrupt=False, status=1)
        assert message in failed.stderr


@pytest.mark.tool("memleak")
def test_allocations_of_the_kernel(tool: Tool) -> None:
    needs_tracepoint("kmem:kmalloc")
    with memory.many_names(1):
        run = tool("memleak", "-T", 3, "--older", 0, 1, 1, interrupt=False, troubles=RECURSION)
    assert 0 < len(run.maps["@outstanding"]) <= 3
    assert all("+" in key for key in run.maps["@outstanding"])
    if not (TRACING / "events/percpu/percpu_alloc_percpu").exists():
        cannot("this kernel has no tracepoint percpu:percpu_alloc_percpu")
    tool("memleak", "--percpu", 1, 1, interrupt=False, troubles=RECURSION)


@pytest.mark.tool("mallocs")
def test_bytes_asked_of_malloc(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    run = tool("mallocs", "-z", 1001, "-Z", 1001, command=leaks(programs))
    assert list(of(run, "@bytes", "keep").values()) == [10 * 1001]
    assert list(of(run, "@bytes", "use").values()) == [20 * 1001]
    assert [(bucket["min"], bucket["count"]) for bucket in run.maps["@sizes"]] == [(512, 30)]
    all_sizes = tool("mallocs", "-O", "libc.so.6", command=leaks(programs))
    assert sum(all_sizes.maps["@bytes"].values()) > 30 * 1001


@pytest.mark.tool("mallocs")
def test_all_functions_of_the_allocator_and_no_failures(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    run = tool("mallocs", "-Z", 1 << 40, command=f"{programs}/accounts 2 400")
    lines = {int(place[1]) for key in run.maps["@bytes"] if (place := re.match(r"\s*block\+.*accounts\.c:(\d+)", key))}
    text = (Path(__file__).parents[1] / "programs/accounts.c").read_text().splitlines()
    called = " ".join(text[line - 1] for line in lines)
    for function in ("malloc(", "calloc(", "realloc(NULL", "realloc(item", "aligned_alloc(", "memalign(", "valloc(",
                     "pvalloc(", "posix_memalign("):  # fmt: skip
        assert function in called
    assert not any("too_much" in text[line - 1] for line in lines)


@pytest.mark.tool("mallocs")
def test_lines_for_flame_graphs(tool: Tool, programs: Path) -> None:
    needs("uprobe")
    run = tool("mallocs", "--folded", "-z", 1001, "-Z", 1001, command=leaks(programs), form="text")
    lines = dict(line.rsplit(" ", 1) for line in run.stdout.splitlines() if line.startswith("leaks;"))
    assert {key.rsplit(";", 1)[1]: int(value) for key, value in lines.items()} == {"keep": 10010, "use": 20020}
