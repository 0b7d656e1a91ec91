"""Printing and clearing in one step while programs on all CPUs update the map: each update is in exactly one print."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import pytrace
from pytrace.core.manifest import MapSpec
from pytrace.interface import compiled
from pytrace.runtime.load.map_reader import Block, MapReader
from tests.support.patience import patience
from tests.support.waiting import descendants, runs

CALLS = 200_000
"""Of each of two threads."""
PRINTS = 15
"""During which two threads make calls."""


def started(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytrace", "-q", "-f", "json", "-e", script, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def objects(script: str, *arguments: str) -> list[dict[str, Any]]:
    with started(script, *arguments) as process:
        stdout, stderr = process.communicate(timeout=patience(60))
    assert (process.returncode, stderr) == (0, "")
    return [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]


def printed_during_calls(programs: Path, script: str, name: str) -> tuple[list[dict[str, Any]], int]:
    """What a script printed whose command makes calls until a map is printed so often, and how many these were."""
    messages: list[dict[str, Any]] = []
    made = prints = 0
    with started(script, "-c", f"{programs}/flood 2000000000 2") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                made = int(line.split()[0]) if line.strip() else made
                continue
            messages.append(json.loads(line))
            prints += name in messages[-1]["data"]
            if prints == PRINTS and not made:
                for child in descendants(process.pid):
                    if runs(child, "flood"):
                        os.kill(child, signal.SIGUSR1)
        assert process.stderr is not None
        assert (process.wait(patience(60)), process.stderr.read()) == (0, "")
    return messages, made


def number(value: Any) -> int:
    """How many updates a value stands for."""
    if isinstance(value, dict):
        return sum(number(item) for name, item in value.items() if name not in ("average", "total", "min", "max"))
    if isinstance(value, list):
        return sum(number(item) for item in value)
    return int(value)


@pytest.mark.parametrize("update", ["@seen[tid] = count();", "@seen[tid] = sum(1);", "@seen[tid]++;"])
def test_a_loop_before_clear_takes_what_it_reads(programs: Path, update: str) -> None:
    """Updates between a loop and clear(), which takes milliseconds, were lost, or were read twice."""
    script = (
        f"tracepoint:syscalls:sys_enter_getppid /pid == cpid/ {{ {update} }}"
        ' interval:ms:10 { for ($kv : @seen) { row((seen=$kv.1), "seen"); } print_rows(10); clear(@seen); }'
        " interval:ms:10 { @passed++; print(@passed); } end { clear(@passed); }"
    )
    found, made = printed_during_calls(programs, script, "@passed")
    rows = [item["data"] for item in found if "seen" in item["data"]]
    left = [value for item in found for value in item["data"].get("@seen", {}).values()]
    total = sum(row["seen"] for row in rows) + sum(left)
    # Of one key, updates of some hundred nanoseconds between its read and its deletion.
    assert 0 <= made - total <= 0.001 * made


@pytest.mark.parametrize(
    "update",
    [
        "@seen[tid] = count();", "@seen[1] = count();", "@seen[tid] = sum(1);", "@seen[tid % 3] = hist(1);",
        "@seen[comm] = stats(1);", "@seen[tid]++;", "@seen[1] += 1;", "@seen++;", "@seen = lhist(1, 0, 10, 1);",
    ],
)  # fmt: skip
def test_each_update_is_in_one_print(programs: Path, update: str) -> None:
    script = (
        f"tracepoint:syscalls:sys_enter_getppid /pid == cpid/ {{ {update} }} interval:ms:10 {{ print_clear(@seen); }}"
    )
    found, made = printed_during_calls(programs, script, "@seen")
    values = [item["data"]["@seen"] for item in found]
    assert number(values) == made


def test_print_followed_by_clear_is_one_step(programs: Path) -> None:
    script = (
        "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @a[tid] = count(); @b = count(); @c[1]++; } "
        'interval:ms:10 { time("%H"); print(@a); print(@b); print(@c); clear(@c); clear(@a); clear(@b); }'
    )
    found, made = printed_during_calls(programs, script, "@c")
    for name in ("@a", "@b", "@c"):
        values = [item["data"][name] for item in found if item["type"] == "map" and name in item["data"]]
        assert number(values) == made


def test_extremes_belong_to_one_print(programs: Path) -> None:
    script = (
        "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @low = min(nsecs); @high = max(nsecs); } "
        "interval:ms:10 { print_clear(@high); print_clear(@low); }"
    )
    found, _ = printed_during_calls(programs, script, "@high")
    highs = [item["data"]["@high"] for item in found if item["data"].get("@high")]
    assert highs == sorted(highs)
    assert len(highs) > 1


@pytest.mark.parametrize(
    "update",
    [
        "@n++;", "@n[1]++;", "@n[tid & 1]++;", "@n += 1;", "@n[comm] += 1;", "++@n[2];",
        "@n += (uint32)1;", "@n[1] += (uint32)1;", "@n[1] -= (int32)-1;",
    ],
)  # fmt: skip
def test_steps_on_all_cpus_add_up(programs: Path, update: str) -> None:
    script = f"tracepoint:syscalls:sys_enter_getppid /pid == cpid/ {{ {update} }}"
    found = objects(script, "-c", f"{programs}/flood {CALLS} 2")
    assert number(found[-1]["data"]["@n"]) == 2 * CALLS


def test_results_of_steps_are_all_different(programs: Path) -> None:
    script = "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @seen[@next++] = count(); }"
    found = objects(f"config = {{ max_map_keys = 100000 }} {script}", "-c", f"{programs}/flood 20000 2")
    counts = next(item["data"]["@seen"] for item in found if "@seen" in item["data"])
    assert set(counts.values()) == {1}
    assert len(counts) == 40_000


def test_kinds_of_programs_that_share_an_aggregate(programs: Path) -> None:
    """A tracepoint's program can come in between one of a user probe on the same CPU."""
    script = (
        "tracepoint:raw_syscalls:sys_enter /pid == cpid/ { @all[1] = count(); @t = count(); } "
        f"uprobe:{programs}/calls:* /pid == cpid/ {{ @all[1] = count(); @u = count(); }}"
    )
    found = {
        name: value for item in objects(script, "-c", f"{programs}/calls 4000") for name, value in item["data"].items()
    }
    assert found["@all"]["1"] == found["@t"] + found["@u"]


def test_everything_works_on_maps_that_are_there_twice() -> None:
    script = """
        let @lru = percpulruhash(10);
        begin {
            @k[1] = 5; @k[2] = 6; @k[3]++; @s = "text"; @lru[1] = count();
            @t[(1, "x")] = sum(2); @m = max(3); @h[1] = hist(5);
            _ = delete(@k, 1);
            if (has_key(@k, 2) && !has_key(@k, 1) && len(@k) == 2 && (uint64)@m == 3) { @ok = 1; }
            for ($kv : @k) { @sum += $kv.1; }
            for ($i : 0..3) { @k[10 + $i] = $i; }
            print_clear(@k); print_clear(@s); print_clear(@lru); print_clear(@t); print_clear(@m); print_clear(@h);
            print_clear(@k); exit();
        }
        end { @k[7] = 8; @s = "new"; @lru[2] = count(); @h[1] = hist(1); _ = delete(@h, 1); }
    """
    found = [item["data"] for item in objects(script)]
    assert found == [
        {"@k": {"10": 0, "3": 1, "11": 1, "12": 2, "2": 6}},
        {"@s": "text"},
        {"@lru": {"1": 1}},
        {"@t": {"1,x": 2}},
        {"@m": 3},
        {"@h": {"1": [{"min": 4, "max": 7, "count": 1}]}},
        {"@k": {"7": 8}},
        {"@lru": {"2": 1}},
        {"@ok": 1},
        {"@s": "new"},
        {"@sum": 7},
    ]


COUNTED = "@a[tid] = count(); @b[1] = hist(1); @c[comm]++; @d++; @e[tid, 1] = sum(1); @f += 1; @l[tid] = count();"
"""Maps of one number for each call in several forms, all of which have to be double-buffered."""


class Taken:
    """Counts what resets take out of maps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers: Counter[str] = Counter()
        self.resets: Counter[str] = Counter()
        blocks, slot = MapReader.blocks, MapReader.slot_and_clear

        def kept_blocks(reader: MapReader, spec: MapSpec, *, clear: bool = False) -> Iterator[Block]:
            for block in blocks(reader, spec, clear=clear):
                self._add(spec, block[1] if clear else b"")
                yield block

        def kept_slot(reader: MapReader, spec: MapSpec) -> tuple[bool, bytes]:
            written, data = slot(reader, spec)
            self._add(spec, data)
            return written, data

        monkeypatch.setattr(MapReader, "blocks", kept_blocks)
        monkeypatch.setattr(MapReader, "slot_and_clear", kept_slot)

    def _add(self, spec: MapSpec, data: bytes) -> None:
        value = sum(struct.unpack(f"={len(data) // 8}Q", data))
        self.numbers[spec.name] += value
        self.resets[spec.name] += value > 0


def test_resets_by_the_user_lose_and_repeat_nothing(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_options = compiled.compile_options
    monkeypatch.setattr(compiled, "compile_options", lambda given: replace(compile_options(given), live=True))
    taken = Taken(monkeypatch)
    script = (
        "let @l = percpulruhash(100); "
        f'tracepoint:syscalls:sys_enter_getppid /pid == cpid && comm == "flood"/ {{ {COUNTED} '
        "@sum = count(); @start[tid] = 1; @kept[1]++; if (@kept[1] == 0) { exit(); } @last = 3; }"
    )
    made, output = os.pipe()
    with ExitStack() as stack:
        stack.callback(os.close, made)
        command = f"sh -c 'exec {programs}/flood 2000000000 2 >/proc/{os.getpid()}/fd/{output}'"
        trace = stack.enter_context(pytrace.open(script, command=command, max_memory="1G"))
        specs = {spec.name: spec for spec in trace.script.prepared(trace._session._run.options).manifest.maps}
        names = [name for name, spec in specs.items() if spec.resettable]
        assert set(names) == {"@a", "@b", "@c", "@d", "@e", "@f", "@l", "@sum"}, "not what the script may read"
        counted = set(names) - {"@sum"}
        while not trace.ended:
            trace.batch(0.002)
            for name in names if not trace.ended else ():
                trace._session._run.snapshots.clear(name)
            if min(taken.resets[name] for name in counted) >= PRINTS and trace.child_pid:
                with suppress(ProcessLookupError):
                    os.kill(trace.child_pid, signal.SIGUSR1)
        end = {name: data.entries for name, data in trace._session.snapshot().maps.items()}
        os.close(output)
        calls = int(os.read(made, 100).split()[0])
    for name in counted:
        left = sum(number(value) for value in end[name].values())
        assert taken.numbers[name] + left == calls, name
    assert end["@kept"][1] == calls
    assert number(list(end["@sum"].values())) < calls, "what came after the last reset"


@pytest.mark.parametrize("place", ["@n", "@n[1]"])
@pytest.mark.parametrize(("setting", "clearing"), [("^= $bit", "^= $bit"), ("|= $bit", "&= ~$bit")])
def test_bits_of_two_threads_stay_apart(programs: Path, place: str, setting: str, clearing: str) -> None:
    """Each thread has a bit of its own, which nobody else may change."""
    script = (
        "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { $bit = tid == pid ? (uint64)1 : (uint64)2; "
        f"{place} {setting}; if (({place} & $bit) == 0) {{ @bad = count(); }} "
        f"{place} {clearing}; if (({place} & $bit) != 0) {{ @bad = count(); }} }}"
    )
    found = objects(script, "-c", f"{programs}/flood {CALLS} 2")
    data = {name: value for item in found for name, value in item["data"].items()}
    assert number(data["@n"]) == 0
    assert "@bad" not in data
