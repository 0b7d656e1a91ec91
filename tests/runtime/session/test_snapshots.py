"""Values that a run shows its caller: maps, prints, stacks."""

from __future__ import annotations

import hashlib
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import pytrace
from pytrace.core.event_layout import PrintedMap
from pytrace.core.manifest import AheadOfTime, Parameters, ProgramSpec, Target
from pytrace.core.options import RunOptions
from pytrace.core.probe_kinds import NoTarget
from pytrace.core.types import (
    INT64,
    UINT64,
    Count,
    Hist,
    LHist,
    Max,
    Min,
    Record,
    Stack,
    StackMode,
    String,
    Sum,
    TSeries,
    Tuple,
    Type,
    Username,
    USym,
)
from pytrace.core.value_tables import RowTable, TableSchema
from pytrace.render.names import Names
from pytrace.results import snapshot
from pytrace.results.snapshot import StackTrace
from pytrace.runtime.machine.clocks import Clock
from pytrace.runtime.machine.host_names import HostNames
from pytrace.runtime.output.map_output import PrintKeeper
from pytrace.runtime.session import snapshots
from pytrace.runtime.session.snapshots import ReadMap, RowKeeper, Snapshots, StackTraces, prints
from tests.support.captured import Places, captured, forms
from tests.support.encode import PLACE, Frame, Run

# ---------------------------------------------------------------------------------------------- recording
# A run as snapshots tell of it.


OPTIONS = RunOptions(script="x.bt", text="begin { }\udcff", parameters=("1", "--n=2"))


def recording(
    run: Run, options: RunOptions = OPTIONS, rows: RowKeeper | None = None, **manifest: object
) -> Snapshots:
    """Snapshots of a run that lost events of a probe."""
    known = replace(run.renderer.manifest, **manifest)
    program = ProgramSpec("p", "kprobe", 0, (Target("kprobe:f", 0, NoTarget()),), PLACE)
    known = replace(known, programs=(program,))
    losses = SimpleNamespace(totals=lambda: {("lost", 0): 3}, gaps=[(15, 5)])
    symbols = Places()
    symbols.poll = lambda: None  # type: ignore[attr-defined]
    resources = SimpleNamespace(
        loaded=SimpleNamespace(manifest=known), options=options, renderer=run.renderer, symbols=symbols, rows=rows,
        costs=None, losses=losses, probes=SimpleNamespace(period=lambda: ((10, 20), (30, 40)), untraced={}),
        ring=SimpleNamespace(collect=lambda: False),
    )  # fmt: skip
    return Snapshots(cast(Any, resources))


def test_a_run() -> None:
    (run,) = recording(Run()).take().runs
    system = os.uname()
    assert (run.host, run.kernel, run.machine) == (system.nodename, system.release, system.machine)
    assert (run.start, run.start_monotonic, run.end, run.end_monotonic) == (10, 20, 30, 40)
    assert run.gaps == ((15, 5),)
    assert (run.script, run.parameters, run.version) == ("x.bt", ("1", "--n=2"), pytrace.__version__)
    assert run.script_hash == hashlib.sha256(b"begin { }\xff").hexdigest()


def test_snapshots_of_one_run_have_its_identity() -> None:
    first = recording(Run())
    other = recording(Run())
    assert first.take().runs[0].identity == first.take().runs[0].identity != other.take().runs[0].identity


def test_maps_rows_and_losses() -> None:
    run = Run()
    run.keyed("@a", INT64, Count(), {1: 2})
    run.scalar("@b", INT64, 5)
    rows = RowKeeper()
    rows.keep(RowTable(1, TableSchema.of(["n"], [INT64])), (7,))
    snapshot = recording(run, rows=rows).take()
    assert {name: data.entries for name, data in snapshot.maps.items()} == {"@a": {1: 2}, "@b": {None: 5}}
    assert [table.rows for table in snapshot.tables] == [{snapshot.runs[0].identity: [(7,)]}]
    assert snapshot.losses == {"lost": {"kprobe:f": 3}}
    assert (snapshot.start, snapshot.end) == (10, 30)


def test_an_ahead_of_time_file_has_its_script_and_parameters_with_it() -> None:
    parameters = Parameters(("1", "1", "1"), (("n", "2"), ("flag", None)), ("n", "flag", "more"))
    ahead = AheadOfTime(4, parameters=parameters, script_hash="abc")
    options = replace(OPTIONS, text="", parameters=("1", "1", "--more=3", "--n=2"))
    (run,) = recording(Run(), options, ahead=ahead).take().runs
    assert (run.script_hash, run.parameters) == ("abc", ("1", "1", "1", "--more=3", "--n=2", "--flag"))


# ---------------------------------------------------------------------------------------------- rows


PROCESS = RowTable(2, TableSchema.of(["pid", "comm"], [INT64, String(8)]))
USER = RowTable(1, TableSchema.of(["user"], [Username()]))


def test_rows_are_kept_by_table_in_the_order_of_arrival() -> None:
    keeper = RowKeeper()
    keeper.keep(PROCESS, (1, b"init"))
    keeper.keep(USER, (0,))
    keeper.keep(PROCESS, (2, b"a\xff"))
    first, second = keeper.tables("run", forms(Run()))
    assert first.type == Record(("pid", "comm"), (INT64, String(8)))
    assert (first.rows, first.dropped, first.number) == ({"run": [(1, "init"), (2, "a\udcff")]}, 0, 2)
    assert (second.type, second.rows) == (Record(("user",), (Username(),)), {"run": [("root",)]})
    assert second.number == 1


def test_the_newest_rows_are_kept_and_the_others_counted() -> None:
    keeper = RowKeeper(3)
    for number in range(10):
        keeper.keep(PROCESS, (number, b""))
    keeper.keep(USER, (0,))
    first, second = keeper.tables("run", forms(Run()))
    assert [row[0] for row in first.rows["run"]] == [7, 8, 9]
    assert (first.dropped, second.dropped) == (7, 0)


def test_no_rows_make_no_tables() -> None:
    assert RowKeeper().tables("run", forms(Run())) == ()


# ---------------------------------------------------------------------------------------------- maps
# Maps as plain data: what prints is what a snapshot has.


def test_a_map_without_keys_has_one_entry_without_a_key() -> None:
    run = Run()
    run.scalar("@n", Count(), 3, 4)
    run.scalar("@text", String(8), b"x")
    assert captured(run, "@n").entries == {None: 7}
    assert captured(run, "@text").entries == {None: "x"}
    found = captured(run, "@n")
    assert (found.name, found.key, found.value, found.times, found.help) == ("@n", None, Count(), None, "")


def test_a_map_that_was_never_written_is_empty() -> None:
    run = Run()
    spec = run.scalar("@n", INT64, 0)
    run.reader.slots.clear()
    assert captured(run, spec.name).entries == {}
    run.keyed("@k", INT64, INT64, {})
    run._made = None
    assert captured(run, "@k").entries == {}


def test_copies_of_all_cpus_are_merged() -> None:
    run = Run()
    run.keyed("@c", INT64, Count(), {1: [2, 3], 2: [0, 1]})
    run.keyed("@s", Tuple((INT64, String(4))), Sum(), {(1, b"a"): [-2, -3]})
    assert captured(run, "@c").entries == {1: 5, 2: 1}
    assert captured(run, "@s").entries == {(1, "a"): -5}


def test_a_least_value_that_was_never_set_is_left_out() -> None:
    run = Run()
    run.keyed("@l", INT64, Min(), {1: [(0, 0), (9, 1)], 2: [(0, 0), (0, 0)]})
    run.keyed("@g", INT64, Max(), {1: [(0, 0), (-9, 1)], 2: [(0, 0), (0, 0)]})
    run.scalar("@one", Max(), (0, 0))
    assert captured(run, "@l").entries == {1: 9}
    assert captured(run, "@g").entries == {1: -9}
    assert captured(run, "@one").entries == {}


def test_buckets_by_key() -> None:
    run = Run()
    run.bucketed("@h", INT64, Hist(0), {1: {3: 2, 5: 1}, 2: {0: 4}})
    run.bucketed("@l", INT64, LHist(0, 10, 5), {7: {0: 2, 3: 1}})
    run.bucketed("@t", INT64, TSeries(10**9, 5, "sum"), {7: {0: (11, 5, 1), 1: (12, 6, 1)}})
    assert captured(run, "@h").entries == {1: {3: 2, 5: 1}, 2: {0: 4}}
    assert captured(run, "@l").entries == {7: {0: 2, 3: 1}}
    assert captured(run, "@t").entries == {7: {10: (5, 1), 11: (6, 1)}}


def test_what_was_printed_and_cleared_is_over() -> None:
    run = Run()
    run.scalar("@n", Count(), 3)
    cleared = run.event("clear", map="@n")
    run.send(cleared)
    assert captured(run, "@n").entries == {}
    run.scalar("@n", Count(), 10)
    run.maps.pop()
    assert captured(run, "@n").entries == {None: 7}


def test_a_snapshot_changes_nothing_that_prints() -> None:
    run = Run()
    run.scalar("@n", Count(), 3)
    run.keyed("@k", INT64, UINT64, {1: 2, 3: 4})
    printed = [run.event("print_map", map=name) for name in ("@n", "@k")]
    for identity in printed:
        run.send(identity)
    before = run.printed()
    for name in ("@n", "@k"):
        captured(run, name)
    for identity in printed:
        run.send(identity)
    assert run.printed() == before


KNOWN = {0x1000: [Frame("work", 4, "/bin/a")], 0x2000: [Frame("work", 4, "/bin/a")]}


def test_equal_stacks_of_several_processes_are_one_key() -> None:
    symbols = Places(KNOWN, moved={8: 0x1000})
    run = Run(symbols=symbols)
    run.keyed("@c", Stack(True, 2), Count(), {(7, (0x1000,), 0): 5, (8, (0x2000,), 0): 6, (9, (0x2000,), 0): 1})
    run.bucketed("@h", Stack(True, 2), Hist(0), {(7, (0x1000,), 0): {1: 2, 3: 1}, (8, (0x2000,), 0): {1: 5}})
    run.keyed("@last", Stack(True, 2), INT64, {(7, (0x1000,), 0): 9, (8, (0x2000,), 0): 4})
    assert sorted(captured(run, "@c", symbols).entries.values()) == [1, 11]
    assert list(captured(run, "@h", symbols).entries.values()) == [{1: 7, 3: 1}]
    assert list(captured(run, "@last", symbols).entries.values()) == [9]


def test_equal_functions_are_one_key() -> None:
    run = Run(symbols=Places(KNOWN))
    run.keyed("@c", USym(), Count(), {(7, 0x1000): 5, (8, 0x2000): 6, (9, 0x5): 1})
    assert captured(run, "@c").entries == {"work": 11, "0x5": 1}


def test_others_have_their_turn_while_it_takes_long() -> None:
    run = Run()
    run.keyed("@k", INT64, INT64, dict.fromkeys(range(3 * snapshots.SLICE), 1))
    (view,) = run.renderer.views()
    turns: list[None] = []
    data = snapshots.map_data(ReadMap.of(view), forms(run), lambda: turns.append(None))
    assert len(data.entries) == 3 * snapshots.SLICE
    assert len(turns) >= 3


# ---------------------------------------------------------------------------------------------- prints
# What is printed of maps, as snapshots have it. tests/kernel/test_reports.py prints in a real run.


HIST = Hist(0)


def test_prints_are_kept_with_what_they_showed() -> None:
    run, keeper = Run(), PrintKeeper()
    run.keyed("@n", INT64, Count(), {1: 20, 2: 30})
    run.renderer.state.prints = keeper
    maps = run.renderer.maps
    for static in (PrintedMap("@n"), PrintedMap("@n", top=1), PrintedMap("@n", div=10, clear=True), PrintedMap("@n")):
        text = maps.printer(static)()
        assert text.startswith(b"@n[") or not text
    maps.clear("@n")
    maps.printer(PrintedMap("@n"))()
    assert [(item.number, item.cleared, item.entries) for item in prints(keeper, forms(run))] == [
        (1, False, {1: 20, 2: 30}), (2, False, {2: 30}), (3, True, {1: 2, 2: 3}), (4, True, {}), (5, False, {}),
    ]  # fmt: skip


@pytest.mark.parametrize("csv", [False, True])
def test_what_an_end_probe_prints_and_empties_is_the_result(csv: bool) -> None:
    """In any order of the events of ``end``; maps that it only empties are helpers, and stay empty."""
    run, keeper = Run(csv=csv), PrintKeeper()
    names = ("@printed", "@top", "@zeroed", "@quantiles", "@helper", "@interval")
    for name in names:
        run.keyed(name, INT64, HIST if name == "@quantiles" else Count(), {} if name == "@quantiles" else {1: 2, 2: 3})
    run.bucketed("@stacks", Stack(False), HIST, {(0, (0x1000,), 0): {4: 2}})
    run.renderer.state.prints = keeper
    maps = run.renderer.maps
    maps.printer(PrintedMap("@interval", clear=True))()
    run.renderer.state.resumed = True
    maps.printer(PrintedMap("@printed", clear=True))()
    maps.printer(PrintedMap("@stacks", clear=True))()
    maps.printer(PrintedMap("@top", top=1, div=10))()
    maps.printer(PrintedMap("@zeroed"))()
    maps.quantiles("@quantiles")(["50"])
    assert keeper.results == {"@printed", "@stacks", "@top", "@zeroed", "@quantiles"}
    maps.zero("@zeroed")
    for name in ("@top", "@helper", "@quantiles", "@printed"):
        maps.clear(name)
    held = {key: {1: 2, 2: 3} for key in ("@printed", "@top", "@zeroed")}
    assert {name: dict(entries) for name, entries in keeper.at_end.items() if name != "@stacks"} == held
    assert len(keeper.at_end["@stacks"]) == 1
    assert not maps.view("@printed").contents()
    kept = [item.cleared for item in prints(keeper, forms(run)) if item.map != "@interval"]
    assert kept == [False] * (0 if csv else 3)


def test_histograms_and_numbers_are_kept_but_not_those_by_stack() -> None:
    run, keeper = Run(), PrintKeeper()
    maps: dict[str, tuple[Type, Type, bool]] = {
        "@hist": (INT64, HIST, True), "@max": (INT64, Max(), True), "@text": (INT64, String(16), False),
        "@stacks": (Stack(False), Count(), False),
    }  # fmt: skip
    for name, (key, value, _) in maps.items():
        run.keyed(name, key, value, {})
    views = run.renderer.views()
    assert {view.name: keeper.keeps(view) for view in views} == {name: kept for name, (_, _, kept) in maps.items()}


def test_the_oldest_go_when_there_are_too_many() -> None:
    run, keeper = Run(), PrintKeeper(most=10)
    run.keyed("@n", INT64, Count(), dict.fromkeys(range(3), 1))
    view = run.renderer.maps.view("@n")
    for _ in range(5):
        keeper.keep(view, view.entries(), div=1, clear=False)
    assert [item.number for item in prints(keeper, forms(run))] == [4, 5]


# ---------------------------------------------------------------------------------------------- stack traces
# Stacks as functions: the same that output prints, and where they are.


STACK_TRACES_KNOWN = {
    0x1000: [Frame("do_work", 16)],
    0x2000: [Frame("helper", 4, "/bin/prog", "src/a.c", 12, True), Frame("main", 8, "/bin/prog", "src/b.c", 30)],
    0x3000: [Frame("start", 0, "/bin/prog", "src/b.c", 40)],
    0x4000: [Frame("", module="/bin/stripped")],
    0x5000: [Frame("called", 5, "/bin/prog", "src/c.c", 50)],
}
CALLS = {
    0x2000: [Frame("main", 8, "/bin/prog", "src/b.c", 29)],
    0x3000: [Frame("abort", 20, "/bin/prog", "src/b.c", 9)],
    0x5000: [Frame("called", 5, "/bin/prog", "src/c.c", 49)],
}


def text(trace: StackTrace) -> bytes:
    """The default form of :meth:`pytrace.render.names.Names.stack`, without indent."""
    lines = [""]
    for frame in trace.frames:
        place = f"@{frame.file}:{frame.line}" if frame.file else ""
        if not frame.function:
            lines.append(f"0x{frame.address:x}")
        elif frame.inlined:
            lines.append(f"[inlined] {frame.function}{place}")
        else:
            lines.append(f"{frame.function}+{frame.offset}{place}")
    return "".join(f"{line}\n" for line in lines).encode()


@given(
    st.booleans(),
    st.lists(st.sampled_from((*STACK_TRACES_KNOWN, 0x7000, 0x8000)), max_size=8),
    st.sets(st.sampled_from((0x7000, 0x1000, 0x5000))),
)
def test_frames_are_those_that_print(user: bool, addresses: list[int], trampolines: set[int]) -> None:
    symbols = Places(STACK_TRACES_KNOWN, CALLS)
    symbols.trampolines = trampolines
    kind = Stack(user, 127)
    printed = Names(symbols, Clock(), (), HostNames()).stack(kind, b"")
    value = (7, tuple(addresses), 0)
    found = StackTraces(symbols).form(kind)(value)
    assert text(found) == printed(value)
    assert found.user is user


def test_frames_say_where_they_are() -> None:
    symbols = Places(STACK_TRACES_KNOWN, CALLS, moved={7: 0x500})
    (first, second) = StackTraces(symbols).form(Stack(True))((7, (0x2000,), 0)).frames
    assert first == snapshot.Frame("helper", 4, "/bin/prog", "beef", "src/a.c", 12, True, 0x1B00)
    assert second == snapshot.Frame("main", 8, "/bin/prog", "beef", "src/b.c", 30, False, 0x1B00)
    trace = StackTraces(symbols).form(Stack(True))((7, (0x1000, 0x5000, 0x4000), 0))
    assert [(frame.line, frame.address) for frame in trace.frames] == [(0, 0xB00), (49, 0x4B00), (0, 0x3B00)]
    assert trace.frames[2] == snapshot.Frame("", 0, "/bin/stripped", "beef", address=0x3B00)


def test_functions_that_are_named_elsewhere() -> None:
    """Of a place in a file there is the address of its byte; what a signal interrupted is no caller."""
    file = [Frame("f", 1, "/bin/prog")]
    known = {**STACK_TRACES_KNOWN, **dict.fromkeys((0x20FF, 0x2100, 0x2FFF, 0x9000), file)}
    symbols = Places(known, moved={7: 0x500})
    symbols.trampolines = {0x9000}

    def frames(*addresses: int) -> list[snapshot.Frame]:
        return list(StackTraces(symbols, places=True).form(Stack(True))((7, addresses, 0)).frames)

    def place(byte: int, after: int = 0) -> snapshot.Frame:
        return snapshot.Frame("", byte, "/bin/prog", "beef", address=byte + after)

    assert frames(0x2100) == [place(0x1C00)]
    assert frames(0x1000, 0x2100) == [snapshot.Frame("do_work", 16, "", "beef", address=0xB00), place(0x1BFF, 1)]
    assert frames(0x3000, 0x9000, 0x2100, 0x3000) == [place(0x2B00), place(0x8B00), place(0x1C00), place(0x2AFF, 1)]
    kernel = StackTraces(symbols, places=True).form(Stack(False))((0, (0x1000,), 0)).frames
    assert kernel[0].function == "do_work"


def test_the_kernel_has_a_name() -> None:
    trace = StackTraces(Places({**STACK_TRACES_KNOWN, 0x1: [Frame("read", 1, "ext4")]})).form(Stack(False))(
        (0, (0x1000, 1, 9), 0)
    )
    assert [frame.module for frame in trace.frames] == ["[kernel]", "ext4", ""]
    assert trace.frames[0] == snapshot.Frame("do_work", 16, "[kernel]", "cafe", address=0x1000)
    assert trace.frames[2].address == 9


def test_modes_of_numbers_stay_numbers() -> None:
    traces = StackTraces(Places(STACK_TRACES_KNOWN))
    raw = traces.form(Stack(True, 127, StackMode.RAW))((7, (0x1000, 0x2000), 0))
    assert raw.frames == (snapshot.Frame("", address=0x1000), snapshot.Frame("", address=0x2000))
    rows = ((1, bytes(range(20)), 0x5), (2, bytes(20), 0x7F00))
    by_id = traces.form(Stack(True, 127, StackMode.BUILD_ID))((7, rows, 0))
    assert by_id.frames == (
        snapshot.Frame("", build_id=bytes(range(20)).hex(), address=5),
        snapshot.Frame("", address=0x7F00),
    )
    perf = traces.form(Stack(True, 127, StackMode.PERF))((7, (0x2000,), 0))
    assert [frame.function for frame in perf.frames] == ["helper", "main"]


@pytest.mark.parametrize(("error", "expected"), [(0, ""), (-14, ""), (-61, os.strerror(61)), (-22, os.strerror(22))])
def test_errors(error: int, expected: str) -> None:
    assert StackTraces(Places()).form(Stack(True))((7, (), error)) == StackTrace((), True, expected)


def test_a_stack_is_resolved_once() -> None:
    class Counting(Places):
        asked = 0

        def user(self, pid: int, address: int, *, caller: bool = False) -> list[Frame]:
            self.asked += 1
            return super().user(pid, address, caller=caller)

    symbols = Counting(STACK_TRACES_KNOWN)
    form = StackTraces(symbols).form(Stack(True))
    first = form((7, (0x1000, 0x1000), 0))
    assert symbols.asked == 2, "as the innermost frame, and as that of a call"
    assert form((7, (0x1000, 0x1000), 0)) is first
    assert form((8, (0x1000, 0x1000), 0)) == first
