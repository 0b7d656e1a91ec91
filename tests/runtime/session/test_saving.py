"""What a run leaves: saved snapshots, reading ahead, its end."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import MapSpec, SessionData
from pytrace.core.options import NOT_YET, ProcessFilters, RunOptions
from pytrace.core.types import UINT64, Array, Count, Stack, StackMode, String, Tuple, Type, USym
from pytrace.results import file_form
from pytrace.results.snapshot import SnapshotData
from pytrace.runtime.session import saving, stack_rows, watches
from pytrace.runtime.session.opening import has_user_stacks
from pytrace.runtime.session.saving import Export, Saving
from pytrace.runtime.session.services import EndOfRun
from pytrace.runtime.session.stack_rows import KeyPeriods, Place, ReadingAhead, collect, places
from pytrace.runtime.session.watches import EXEC_EVERY, RunEnd
from tests.support.encode import Run as ReadingAheadRun
from tests.support.encode import encode
from tests.support.snapshots import COUNT, STRING, map_data, snapshot, stack

# ---------------------------------------------------------------------------------------------- saving
# Snapshots of a run in files.


def written(snapshot: SnapshotData, path: str) -> None:
    Path(path).write_text(repr(snapshot.losses))


Writing = Callable[[SnapshotData, str], None]


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Writing], None]:
    """Sets what writes snapshots to files."""

    def use(function: Writing) -> None:
        monkeypatch.setattr(file_form, "write", function)

    use(written)
    return use


class Clock:
    """Stands for :func:`time.monotonic`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(saving.time, "monotonic", lambda: self.now)


class Run:
    """A run whose snapshots are numbered; *said* are its warnings."""

    def __init__(self, options: RunOptions) -> None:
        self.taken = 0
        self.said: list[str] = []
        saving.check(options)
        self.saving = Saving(options, (), self.take, self.said.append)

    def finish(self) -> str:
        """Finish; gives the errors."""
        end = EndOfRun(print_maps=True)
        self.saving.finish(end)
        assert end.print_maps, "nothing was written in their place"
        return "; ".join(end.errors)

    def take(self) -> SnapshotData:
        self.taken += 1
        return SnapshotData((), losses={"lost": {"x": self.taken}})


def full(_snapshot: SnapshotData, path: str) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def test_one_file_at_the_end(tmp_path: Path, writing: Callable[[Writing], None]) -> None:
    run = Run(RunOptions(save=str(tmp_path / "out")))
    run.saving.attached()
    run.saving.work(0)
    assert run.saving.pause(1.0) == 1.0
    assert os.listdir(tmp_path) == []
    assert run.finish() == ""
    assert (tmp_path / "out").read_text() == "{'lost': {'x': 1}}"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("place", ["missing/out", "folder", "file/out"])
def test_what_cannot_be_written_is_told_before_the_run(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match=f"{place}"):
        Run(RunOptions(save=str(tmp_path / place)))


def test_a_directory_that_cannot_be_made_is_told_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "file/folder"):
        with pytest.raises(TraceError, match="cannot be saved"):
            Run(RunOptions(save_every=(1.0, str(tmp_path / name))))


def test_a_file_every_so_often(
    tmp_path: Path, writing: Callable[[Writing], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "snapshots" / "today"
    clock = Clock(monkeypatch)
    run = Run(RunOptions(save=str(tmp_path / "out"), save_every=(10.0, str(folder))))
    clock.now = 150.0
    run.saving.attached()
    run.saving.work(0)
    assert run.saving.pause(60.0) == 10.0
    assert os.listdir(folder) == []
    stamps = iter(range(1_795_387_606_000_000_000, 1 << 62, 10_001_000_000))
    monkeypatch.setattr(saving.time, "time_ns", lambda: next(stamps))
    for clock.now in (159.9, 160.0, 160.1, 171.0, 195.0, 199.9):
        run.saving.work(0)
    assert run.taken == 3
    assert run.saving.pause(60.0) == pytest.approx(0.1)
    assert run.finish() == ""
    names = sorted(os.listdir(folder))
    moments = ("224646.000", "224656.001", "224706.002", "224716.003")
    assert names == [f"20261122T{moment}Z{file_form.SUFFIX}" for moment in moments]
    assert [(folder / name).read_text() for name in names] == [f"{{'lost': {{'x': {n}}}}}" for n in (1, 2, 3, 4)]
    assert (tmp_path / "out").read_text() == "{'lost': {'x': 4}}"


def test_a_full_disk_is_a_warning_told_once(
    tmp_path: Path, writing: Callable[[Writing], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    run = Run(RunOptions(save_every=(1.0, str(tmp_path))))
    run.saving.attached()
    monkeypatch.setattr(run.saving, "_dated", lambda: f"{tmp_path}/{clock.now}")
    writing(full)
    for clock.now in (101.0, 102.0):
        run.saving.work(0)
    assert run.said == [f"the snapshot '{tmp_path}/101.0' could not be saved: No space left on device; the run goes on"]
    assert os.listdir(tmp_path) == []
    writing(written)
    clock.now = 103.0
    run.saving.work(0)
    writing(full)
    clock.now = 104.0
    run.saving.work(0)
    assert len(run.said) == 2
    assert (run.taken, os.listdir(tmp_path)) == (4, ["103.0"])
    assert "No space left" in run.finish()


def test_the_last_one_that_fails_is_told(tmp_path: Path, writing: Callable[[Writing], None]) -> None:
    options = RunOptions(save=str(tmp_path / "out"))
    writing(full)
    run = Run(options)
    assert run.finish() == f"the snapshot '{tmp_path}/out' could not be saved: No space left on device"


def test_a_run_that_is_broken_off_tells_that_nothing_was_saved(
    tmp_path: Path, writing: Callable[[Writing], None]
) -> None:
    run = Run(RunOptions(save=str(tmp_path / "out")))
    run.saving.break_off()
    assert run.said == ["no snapshot was saved at the end because of the interrupt"]
    run.finish()
    run.saving.break_off()
    assert len(run.said) == 1


# ---------------------------------------------------------------------------------------------- exporting

USTACK = types.Stack(True)
STACKS = map_data("@", USTACK, COUNT, {stack("f", "main"): 3})
NAMES = map_data("@names", STRING, COUNT, {"x": 1})


def export(path: Path | None, wanted: str = "folded", maps: tuple[Any, ...] = (STACKS,), rows: bool = False) -> Export:
    events = [SimpleNamespace(kind="printf"), *([SimpleNamespace(kind="row")] if rows else [])]
    manifest = SimpleNamespace(maps=maps, events=events)
    return Export(cast(Any, manifest), RunOptions(format=wanted, output=None if path is None else str(path)))


def test_the_file_is_written_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    made = export(path, "folded:stacks")
    assert path.read_text() == "old"
    said: list[str] = []
    assert made.write(snapshot(STACKS), said.append) == ""
    assert (path.read_text(), said, os.listdir(tmp_path)) == ("main;f 3\n", [], ["out"])
    assert made.written == [f"{path} (1 kB)"]


def test_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert export(None).write(snapshot(STACKS), print) == ""
    assert capfdbinary.readouterr() == (b"main;f 3\n", b"")


def test_what_the_format_does_not_show_is_told_where_there_is_something(tmp_path: Path) -> None:
    said: list[str] = []
    made = export(tmp_path / "out", maps=(STACKS, NAMES))
    made.write(snapshot(STACKS, replace(NAMES, entries={})), said.append)
    assert said == []
    made.write(snapshot(STACKS, NAMES), said.append)
    assert said == ["format folded cannot show @names (numbers)"]


@pytest.mark.parametrize(
    ("maps", "rows", "message"),
    [
        ((NAMES,), False, r"format folded cannot show @names \(numbers\)"),
        ((), True, "format folded cannot show rows"),
        ((), False, "the script has no maps and no rows that could be written"),
    ],
)
def test_a_script_without_anything_to_show_is_refused_before_the_run(
    tmp_path: Path, maps: tuple[Any, ...], rows: bool, message: str
) -> None:
    with pytest.raises(TraceError, match=message):
        export(tmp_path / "out", maps=maps, rows=rows)


def test_what_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "out", tmp_path):
        with pytest.raises(TraceError, match="cannot write output to"):
            export(path)


def test_a_terminal_gets_no_binary_format(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "isatty", lambda _descriptor: True)
    with pytest.raises(TraceError, match="format pprof is nothing for a terminal") as found:
        export(None, "pprof")
    assert found.value.hints == ("-o FILE writes it to a file, for example -o profile.pb.gz",)
    export(None, "folded")
    export(tmp_path / "out", "pprof")


def test_what_fails_at_the_end_is_a_sentence(tmp_path: Path) -> None:
    sums = map_data("@", USTACK, types.Sum(), {stack("f"): -1})
    made = export(tmp_path / "out", maps=(sums,))
    assert made.write(snapshot(sums), print) == "format folded has no negative numbers, and @ has -1; format pprof has"
    assert not (tmp_path / "out").exists()
    if Path("/dev/full").exists():
        assert "No space left" in export(Path("/dev/full")).write(snapshot(STACKS), print)


@pytest.mark.parametrize(("value", "exported"), [(3, True), (-3, False)])
def test_maps_that_could_not_be_written_are_left_to_be_printed(tmp_path: Path, value: int, exported: bool) -> None:
    sums = map_data("@", USTACK, types.Sum(), {stack("f"): value})

    def take() -> SnapshotData:
        return snapshot(sums)

    made = Saving(RunOptions(format="folded"), [export(tmp_path / "out", maps=(sums,))], take, print)
    end = EndOfRun(print_maps=True)
    made.finish(end)
    assert (bool(end.errors), end.print_maps) == (not exported, not exported)


# ---------------------------------------------------------------------------------------------- reading ahead
# pytrace.runtime.session.stack_rows: which addresses are read, when, and in how long pieces.


STACK = Stack(True, 4)
FIRST, SECOND = (7, (0x1000, 0x2000), 0), (8, (0x1000,), 0)


class _Lines:
    """Notes what is prepared; each address takes a step."""

    def __init__(self) -> None:
        self.wanted: list[list[tuple[int, int]]] = []
        self.read = 0
        self.awaited: list[str] = []
        self.over = False
        self.followed: list[int] = []
        self.periods: list[dict[tuple[int, int], tuple[int, int]]] = []

    def keyed(
        self, periods: Mapping[tuple[int, int], tuple[int, int]], searched: int, *, over: bool = False
    ) -> None:
        assert searched
        self.over = over
        self.periods.append(dict(periods))

    def follow_code(self, pid: int) -> bool:
        self.followed.append(pid)
        return pid == 8

    def prepare(self, addresses: Collection[tuple[int, int]]) -> Iterator[None]:
        self.wanted.append(sorted(addresses))
        return self._steps(len(addresses))

    def _steps(self, count: int) -> Iterator[None]:
        for _ in range(count):
            self.read += 1
            yield

    def wait_for(self, steps: Iterator[None], what: str) -> None:
        self.awaited.append(what)
        for _ in steps:
            pass


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock: a list with the time."""
    time = [100.0]
    monkeypatch.setattr(stack_rows.time, "monotonic", lambda: time[0])
    monkeypatch.setattr(stack_rows.time, "thread_time", lambda: time[0])
    return time


def _ahead(run: ReadingAheadRun, lines: _Lines) -> ReadingAhead:
    specs = [spec for spec in run.maps if has_user_stacks(spec)]
    return ReadingAhead(specs, run.reader, lines)


def _stacks(entries: dict[Any, Any], key: Any = STACK) -> ReadingAheadRun:
    run = ReadingAheadRun()
    run.keyed("@", key, Count(), entries)
    run.keyed("@kernel", Stack(False, 4), Count(), {(0, (1, 2), 0): [1, 0]})
    return run


def test_addresses_are_read_in_pieces_while_nothing_else_is_to_be_done(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_rows, "SLICE", -1.0)
    lines = _Lines()
    ahead = _ahead(_stacks({FIRST: [1, 0], SECOND: [1, 1]}), lines)
    ahead.work(0)
    assert not lines.wanted, "the maps are empty at first"
    assert ahead.pause(9.0) == stack_rows.FIRST
    now[0] += stack_rows.FIRST
    ahead.work(0)
    assert lines.wanted == [[(7, 0x1000), (7, 0x2000), (8, 0x1000)]]
    assert ahead.pause(9.0) == stack_rows.REST
    for count in (1, 2, 3):
        ahead.work(0)
        assert lines.read == count, "a step at a time"
    ahead.work(0)
    assert ahead.pause(9.0) == stack_rows.FIRST
    now[0] += stack_rows.FIRST
    ahead.work(0)
    assert lines.wanted[1:] == [[]], "they were read before"


def test_the_end_reads_the_rest_and_says_what_it_waits_for() -> None:
    lines = _Lines()
    ahead = _ahead(_stacks({(FIRST, b"a"): [1, 0], (SECOND, b"b"): [1, 1]}, Tuple((STACK, String(8)))), lines)
    ahead.finish(EndOfRun(print_maps=True))
    assert lines.awaited == ["3 addresses in stacks"]
    assert lines.read == 3


def test_nothing_is_said_where_there_are_no_stacks() -> None:
    lines = _Lines()
    _ahead(_stacks({}), lines).finish(EndOfRun(print_maps=True))
    assert lines.awaited == []


def test_large_maps_are_not_looked_at_again_before_the_end(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _Lines()
    run = _stacks({FIRST: [1, 0]})
    blocks = run.reader.blocks

    def slow(spec: Any, *, clear: bool = False) -> Iterator[tuple[bytes, bytes, int]]:
        now[0] += 1.0
        return blocks(spec, clear=clear)

    monkeypatch.setattr(run.reader, "blocks", slow)
    ahead = _ahead(run, lines)
    now[0] += 5.0
    ahead.work(0)
    ahead.work(0)
    now[0] += 1000.0
    assert ahead.pause(9.0) == 9.0
    ahead.finish(EndOfRun(print_maps=True))
    assert len(lines.wanted) == 2


def test_nothing_is_read_while_events_come(now: list[float]) -> None:
    lines = _Lines()
    ahead = _ahead(_stacks({FIRST: [1, 0]}), lines)
    now[0] += stack_rows.FIRST
    ahead.work(1)
    assert not lines.wanted
    ahead.work(0)
    assert lines.wanted


@pytest.mark.parametrize("saved", [False, True])
def test_the_rest_is_read_for_a_snapshot_whose_maps_are_not_printed(saved: bool) -> None:
    run, lines = _stacks({FIRST: [1, 0]}), _Lines()
    specs = [spec for spec in run.maps if has_user_stacks(spec)]
    ReadingAhead(specs, run.reader, lines, saved=saved).finish(EndOfRun(print_maps=False))
    assert bool(lines.awaited) is saved


# ---------------------------------------------------------------------------------------------- addresses in maps

def spec(key: Type, value: Type = Count()) -> MapSpec:  # noqa: B008
    return MapSpec("@", "m", "hash", key, value, 10)


def test_places() -> None:
    assert places(spec(Tuple((UINT64, Tuple((Stack(True, 3),)))))) == [Place(False, 8, 3)]
    assert places(spec(USym(), Stack(True, 4))) == [Place(False, 0, 0), Place(True, 0, 4)]
    assert places(spec(Stack(False, 3), Stack(True, 3, StackMode.BUILD_ID))) == []
    assert places(spec(Array(USym(), 2))) == []


def test_collecting() -> None:
    kind = Tuple((Stack(True, 3), USym()))
    rows = [((7, (1, 2), 0), (8, 5)), ((7, (2, 3, 4), 0), (7, 9)), ((6, (), -14), (8, 6))]
    keys = b"".join(encode(kind, row) for row in rows)
    found: dict[int, set[int]] = {}
    wanted = places(spec(kind))
    periods = KeyPeriods(lambda process: process == 8)
    periods.begin()
    collect([(keys, struct.pack("=3Q", 1, 1, 1), 3)], wanted, found, periods, b"@")
    assert found == {7: {1, 2, 3, 4, 9}, 8: {5, 6}, 6: set()}
    assert set(periods.addresses) == {(8, 5), (8, 6)}


def test_searches_say_when_stacks_of_compiled_code_were_taken(now: list[float]) -> None:
    lines = _Lines()
    ahead = _ahead(_stacks({FIRST: [1, 0], SECOND: [1, 1]}), lines)
    ahead.begin()
    now[0] += stack_rows.FIRST
    ahead.work(0)
    assert lines.followed == [7, 8]
    assert not lines.over
    ahead.finish(EndOfRun(print_maps=True))
    assert lines.over
    assert [set(periods) for periods in lines.periods] == [set(), {(8, 0x1000)}, {(8, 0x1000)}]


# ---------------------------------------------------------------------------------------------- run end
# What ends a run: all processes have ended, the program of --exec-wait has, or the time is over.


PLACES = SessionData("session", 0, 8, 16, 24, 32, 40, 44, 48, 56, 72)


class Loop:
    """The descriptors that are watched."""

    def __init__(self) -> None:
        self.watched: list[int] = []
        self.watch, self.unwatch = self.watched.append, self.watched.remove


@contextmanager
def ending(options: RunOptions, memory: bytearray | None = None) -> Iterator[tuple[RunEnd, Loop]]:
    loaded = SimpleNamespace(manifest=SimpleNamespace(session=PLACES), section=lambda _: memory)
    with ExitStack() as stack:
        loop = Loop()
        made = RunEnd(options, (), cast(Any, loaded), cast(Any, loop), stack)
        made.begin()
        for descriptor in made.descriptors:
            loop.watch(descriptor)
        yield made, loop


def reached(made: RunEnd, *ready: int) -> bool:
    """Whether the run is over when *ready* descriptors can be read."""
    made.woken(list(ready))
    return made.over


def test_the_last_process_ends_the_run() -> None:
    options = RunOptions(filters=ProcessFilters((os.getpid(), os.getppid())))
    with ending(options) as (made, loop):
        first, second = loop.watched
        assert not reached(made)
        assert not reached(made, first)
        assert loop.watched == [second]
        assert reached(made, second)


def test_there_is_no_such_process() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    options = RunOptions(filters=ProcessFilters((process.pid,)))
    with pytest.raises(TraceError, match=f"there is no process {process.pid}"), ending(options):
        pass


def test_a_thread_is_no_process() -> None:
    numbers: list[int] = []
    stop = threading.Event()
    thread = threading.Thread(target=lambda: (numbers.append(threading.get_native_id()), stop.wait(60)))
    thread.start()
    try:
        while not numbers:
            time.sleep(0.001)
        message = f"{numbers[0]} is a thread of process {os.getpid()}, and -p takes a process"
        options = RunOptions(filters=ProcessFilters((numbers[0],)))
        with pytest.raises(TraceError, match=message) as found, ending(options):
            pass
    finally:
        stop.set()
        thread.join()
    assert found.value.hints[0].startswith(f"-p {os.getpid()} traces its process")


def test_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(watches.time, "monotonic", lambda: now)
    with ending(RunOptions(duration=2.5)) as (made, _):
        assert (made.pause(1.0), reached(made)) == (1.0, False)
        now = 102.0
        assert (made.pause(1.0), reached(made)) == (0.5, False)
        now = 102.5
        assert (made.pause(1.0), reached(made)) == (0.0, True)


def test_the_program_that_is_awaited() -> None:
    memory = bytearray(128)
    struct.pack_into("=Q", memory, PLACES.root, NOT_YET)
    with ending(RunOptions(filters=ProcessFilters(exec_wait="x")), memory) as (made, loop):
        assert (made.pause(1.0), reached(made), loop.watched) == (EXEC_EVERY, False, [])
        struct.pack_into("=Q", memory, PLACES.root, os.getpid())
        assert not reached(made)
        assert made.pause(1.0) == 1.0
        (descriptor,) = loop.watched
        assert reached(made, descriptor)


def test_the_program_that_is_awaited_has_ended_already() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    memory = bytearray(128)
    struct.pack_into("=Q", memory, PLACES.root, process.pid)
    with ending(RunOptions(filters=ProcessFilters(exec_wait="true")), memory) as (made, _):
        assert reached(made)
