"""Counts by stack as samples of a profiler, read back with Perfetto's messages."""

from __future__ import annotations

from typing import Any

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results.timeline import stack_packets
from pytrace.results.values import Frame, StackTrace
from tests.support.snapshots import COUNT, STRING, TWO_TASKS, map_data, snapshot, stack, two_tasks
from tests.support.traces import run, trace

pytest.importorskip("perfetto")


def samples(read: Any) -> dict[tuple[Any, ...], int]:
    """How often each stack was seen: process, thread, and functions from the outermost."""
    counts: dict[tuple[Any, ...], int] = {}
    interned: dict[int, Any] = {}
    for packet in read.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.HasField("interned_data"):
            interned[sequence] = packet.interned_data
        if packet.HasField("perf_sample"):
            known = interned[sequence]
            names = {item.iid: item.str.decode() for item in known.function_names}
            frames = {item.iid: names[item.function_name_id] for item in known.frames}
            stacks = {item.iid: tuple(frames[number] for number in item.frame_ids) for item in known.callstacks}
            sample = packet.perf_sample
            key = (sample.pid, sample.tid, *stacks[sample.callstack_iid])
            counts[key] = counts.get(key, 0) + 1
    return counts


def test_counts_by_stack_are_samples() -> None:
    plain = map_data("@", types.Stack(True), COUNT, {stack("f", "main"): 2, stack("g", "main"): 3})
    key = types.Record(("pid", "comm", "cpu", "k", "u"), (
        types.UINT32, STRING, types.INT32, types.Stack(False), types.Stack(True),
    ))  # fmt: skip
    both = map_data("@both", key, COUNT, {(7, "cat", 1, stack("vfs_read", user=False), stack("read", "main")): 4})
    read = trace(snapshot(plain, both, of=run()))
    assert samples(read) == {
        (1 << 22, 1 << 22, "main", "f"): 2, (1 << 22, 1 << 22, "main", "g"): 3,
        (7, 7, "1", "main", "read", "vfs_read"): 4,
    }  # fmt: skip
    processes = {
        item.pid: item.cmdline[0] for packet in read.packet for item in packet.process_tree.processes
    }  # fmt: skip
    assert processes == {1 << 22: "@", 7: "cat"}
    threads = {item.tid: (item.name, item.tgid) for packet in read.packet for item in packet.process_tree.threads}
    assert threads[7] == ("cat", 7)


def test_frames_have_their_binaries_and_lines() -> None:
    frames = (Frame("f", 4, "/usr/bin/x", "00ff", "x.c", 7, False, 0x10), Frame("", address=0x20))
    read = trace(snapshot(map_data("@", types.Stack(True), COUNT, {StackTrace(frames): 1}), of=run()))
    known = next(packet.interned_data for packet in read.packet if packet.HasField("interned_data"))
    paths = {item.iid: item.str for item in known.mapping_paths}
    builds = {item.iid: item.str for item in known.build_ids}
    mappings = {
        item.iid: (builds[item.build_id], [paths[part] for part in item.path_string_ids]) for item in known.mappings
    }
    names = {item.iid: item.str for item in known.function_names}
    sources = {item.iid: item.str for item in known.source_paths}
    assert [(names[item.function_name_id], item.rel_pc, mappings[item.mapping_id]) for item in known.frames] == [
        (b"0x20", 0x20, (b"", [])), (b"f", 0x10, (b"\0\xff", [b"usr", b"bin", b"x"])),
    ]  # fmt: skip
    assert (sources[known.frames[1].source_path_iid], known.frames[1].line_number) == (b"x.c", 7)


def test_many_counts_are_scaled_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_packets, "MOST_SAMPLES", 1000)
    read = trace(snapshot(map_data("@", types.Stack(True), COUNT, {stack("f"): 3000, stack("g"): 1}), of=run()))
    counts = samples(read)
    assert sorted(counts.values()) == [1, 750]
    titles = [packet.trace_packet_defaults.perf_sample_defaults.timebase.name for packet in read.packet]
    assert "@ (a sample stands for 4)" in titles


def test_negative_numbers_are_an_error() -> None:
    with pytest.raises(TraceError, match="@ has negative numbers"):
        trace(snapshot(map_data("@", types.Stack(True), types.INT64, {stack("f"): -3})))


def test_stacks_of_two_tasks() -> None:
    assert samples(trace(snapshot(two_tasks(), of=run()))) == {(1 << 22, 1 << 22, *TWO_TASKS.split(";")): 4}
