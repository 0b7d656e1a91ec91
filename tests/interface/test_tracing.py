"""Traces from Python: running, events, errors, compiled scripts, stacks."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import pytrace
from pytrace.core import types
from pytrace.core.diagnostics import Diagnostics, InternalError, TraceError
from pytrace.core.event_layout import Location
from pytrace.core.manifest import ProgramSpec
from pytrace.core.options import CompileOptions, Config, ProcessFilters
from pytrace.core.types import Stack, StackMode, Tuple
from pytrace.interface import compiled, tracing
from pytrace.interface.compiled import filters
from pytrace.interface.errors import LossWarning, ScriptError, TraceWarning, placed, warn
from pytrace.interface.events import (
    FOLLOWED_BY_TEXT,
    OVERHEAD,
    Collector,
    Event,
    EventSource,
    EventSources,
    event_handlers,
)
from pytrace.interface.listing import Argument, _argument, features, probes
from pytrace.interface.tracing import Trace, _checked, _close, _forgotten, _is_loss, of_compiled
from pytrace.remote.fleet import StackNames
from pytrace.remote.messages import Function, NamedPlace, Place
from pytrace.results.snapshot import Frame, SnapshotData, StackTrace
from pytrace.runtime.binaries import debug_files
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.output.handlers import HANDLERS
from pytrace.runtime.stacks.image_places import Detail
from tests.support import small_program
from tests.support.snapshots import COUNT, STRING, map_data, snapshot
from tests.support.snapshots import table as stack_names_table

# ---------------------------------------------------------------------------------------------- tracing
# What of a trace needs no kernel; the rest is in tests/kernel/test_python_interface.py and test_python_host.py.


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("Lost 3 events", True), ("script:1:1-2: WARNING: @a is full (2 keys): the update was dropped", True),
        ("3 map updates dropped (@a 3)", True), ("1 event lost (begin 1)", True), ("cat: cannot read 'x'", False),
        ("4 kernel stacks could not be unwound (x 4)", True), ("kernel 5.4 is older than 5.15", False),
    ],
)  # fmt: skip
def test_which_warnings_tell_of_losses(text: str, loss: bool) -> None:
    assert _is_loss(text) is loss


def test_an_interrupted_close_goes_on() -> None:
    """A Ctrl-C between two callbacks, in the code of ExitStack itself, would end its loop."""
    closed: list[str] = []

    class Interrupted(ExitStack):
        def close(self) -> None:
            signal.raise_signal(signal.SIGINT)
            super().close()

    stack = Interrupted()
    stack.callback(closed.append, "closed")
    with pytest.raises(KeyboardInterrupt):
        _close(stack)
    assert closed == ["closed"]


def test_a_forgotten_trace_is_closed_by_its_own_process_only() -> None:
    closed: list[str] = []
    stack = ExitStack()
    stack.callback(closed.append, "closed")
    _forgotten(stack, "x", os.getpid() + 1)
    assert not closed
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _forgotten(stack, "x", os.getpid())
    assert (closed, [str(item.message) for item in caught]) == (["closed"], ["the trace of x was not closed"])


@pytest.mark.parametrize("turns", range(8))
def test_no_cancellation_is_lost(turns: int) -> None:
    """However many turns of the loop are between what is waited for and the cancellation."""

    async def main() -> None:
        reading, writing = os.pipe()
        trace = cast(Trace, SimpleNamespace(fileno=lambda: reading, _session=SimpleNamespace(busy=False)))
        task = asyncio.create_task(Trace._readable(trace, asyncio.get_running_loop()))
        await asyncio.sleep(0.001)
        os.write(writing, b"x")
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled = task.cancel()
        await asyncio.wait([task])
        os.close(reading)
        os.close(writing)
        assert task.cancelled() is cancelled

    asyncio.run(main())


# ---------------------------------------------------------------------------------------------- running
# .


@pytest.mark.parametrize("function", [compiled.compile, tracing.open, tracing.run])
def test_arguments_of_other_names_are_refused(function: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'pidd'"):
        function("begin { exit(); }", pidd=1)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (None, None), ("ls /", "ls /"), (["ls", "a b"], "ls 'a b'"), ([Path("/bin/ls"), "'"], "/bin/ls ''\"'\"''"),
    ],
)  # fmt: skip
def test_commands_are_one_text(command: compiled.Command | None, text: str | None) -> None:
    assert _checked(False, command, False) == text


@pytest.mark.parametrize(
    ("pids", "command", "follow", "message"),
    [
        (True, "ls", False, "pid and command cannot be used together"), (False, "  ", False, "command is empty"),
        (False, [], False, "command is empty"), (False, None, True, "follow needs pid or command"),
    ],
)  # fmt: skip
def test_what_makes_no_sense(pids: bool, command: compiled.Command | None, follow: bool, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        _checked(pids, command, follow)


def test_a_compiled_script_has_its_options_already() -> None:
    script = compiled.compile("begin { exit(); }", cached=False)
    for options in ({"unsafe": True}, {"parameters": [1]}, {"includes": ["x.h"]}, {"probe_filter": "x"}):
        with pytest.raises(TraceError, match=rf"compiled already; give {next(iter(options))} to compile"):
            tracing.open(script, **options)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------- events
# .


LOCATION = Location("script", 1, 1, 2, "x")


def source(calls: list[str]) -> EventSource:
    def text(record: bytes) -> bytes:
        calls.append("text")
        return record + b"\xff\n\n"

    def values(record: bytes) -> tuple[bytes, ...]:
        calls.append("values")
        return (record,)

    return EventSource("printf", LOCATION, ("name",), text, values, lambda _record: "begin", True)


def test_an_event_is_decoded_once_and_when_it_is_asked() -> None:
    calls: list[str] = []
    event = Event(source(calls), b"abc")
    assert (event.kind, event.probe, event.location, event.names, calls) == (
        "printf", "begin", LOCATION, ("name",), [],
    )  # fmt: skip
    assert (event.raw_text, event.text, str(event)) == (b"abc\xff\n\n", "abc\udcff\n", "abc\udcff\n")
    assert (event.values, event.values) == ((b"abc",), (b"abc",))
    assert sorted(calls) == ["text", "values"]


def test_an_event_that_was_decoded_at_once() -> None:
    calls: list[str] = []
    event = Event(source(calls), b"abc")
    event.decode()
    assert sorted(calls) == ["text", "values"]
    assert (event.values, event.text) == ((b"abc",), "abc\udcff\n")
    assert len(calls) == 2


def test_texts_that_a_handler_wrote() -> None:
    event = Event(source([]), b"r", b"written\n", ("written",))
    assert (event.text, event.values, event.size) == ("written", ("written",), 9)
    assert repr(event) == "Event(kind='printf', probe='begin', values=('written',), text='written')"


# ---------------------------------------------------------------------------------------------- errors
# .


def test_a_warning_is_of_the_line_that_called() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn("text", LossWarning)
    assert [(item.filename, str(item.message)) for item in caught] == [(__file__, "text")]
    assert issubclass(LossWarning, TraceWarning)


def test_errors_have_places_and_hints() -> None:
    with pytest.raises(ScriptError) as caught:
        pytrace.compile("begin {\n  nothing(1);\n  other(2);\n}", cached=False)
    first, second = caught.value.diagnostics
    assert (first.span.source.name, first.span.first.line, first.span.first.column) == ("script", 2, 3)
    assert (second.span.first.line, second.message) == (3, "unknown function 'other'")
    assert str(caught.value).startswith("script:2:3-13: ERROR: unknown function 'nothing'")


def test_all_have_one_base() -> None:
    assert issubclass(pytrace.ScriptError, pytrace.Error)
    assert issubclass(pytrace.TraceError, pytrace.Error)
    assert not issubclass(InternalError, pytrace.Error)
    with pytest.raises(pytrace.Error, match="unknown function 'other'"):
        pytrace.compile("begin { other(2); }", cached=False)
    with pytest.raises(pytrace.Error, match="No such file"):
        pytrace.compile(Path("/nonexistent.bt"), cached=False)


def test_other_errors_pass() -> None:
    with pytest.raises(InternalError), placed(Diagnostics()):
        raise InternalError("a bug")


# ---------------------------------------------------------------------------------------------- collector
# .


def program() -> ProgramSpec:
    return ProgramSpec("iter_0", "iter", 0, (), LOCATION)


def collector_source(kind: str = "printf") -> EventSource:
    return EventSource(kind, LOCATION, (), bytes, lambda record: (record,), lambda _record: "begin", True)


def test_the_oldest_events_are_dropped_and_counted() -> None:
    collector = Collector((program(),), most=3)
    for number in range(10):
        collector.add(Event(collector_source(), bytes([number])))
    assert (collector.dropped, collector.accepted, len(collector.events)) == (7, 10, 3)
    assert [collector.take().values for _ in range(3)] == [(b"\x07",), (b"\x08",), (b"\x09",)]
    assert (collector.accepted, collector.dropped) == (10, 7)


def test_their_bytes_are_bounded_too() -> None:
    collector = Collector((program(),), most_bytes=3 * (1000 + OVERHEAD))
    for _ in range(10):
        collector.add(Event(collector_source(), bytes(1000)))
    assert (len(collector.events), collector.dropped) == (3, 7)
    collector.add(Event(collector_source(), bytes(100_000)))
    assert (len(collector.events), collector.dropped) == (1, 10)
    collector.take()
    collector.add(Event(collector_source(), bytes(1000)))
    assert (len(collector.events), collector.dropped) == (1, 10)


def test_texts_belong_to_the_event_that_is_handled() -> None:
    collector = Collector((program(),))
    with collector.during(collector_source("system"), b"record"):
        collector.write(b"out\n\n")
    with collector.during(collector_source("cat"), b"record"):
        collector.extend([b"a\n", b"\xff"])
    collector.write(b"of an iterator\n")
    found = [(event.kind, event.values) for event in collector.events]
    assert found == [
        ("system", ("out\n",)), ("cat", ("a\n",)), ("cat", ("\udcff",)), ("iter", ("of an iterator\n",)),
    ]  # fmt: skip


def test_nothing_is_printed(capfd: object) -> None:
    collector = Collector((program(),))
    collector.message("WARNING: odd\n")
    collector.write(b"text\n")
    collector.flush()
    collector.end_batch()
    collector.close()
    assert collector.messages == ["WARNING: odd\n"]
    assert collector.advance()
    assert not collector.congested


def test_each_kind_of_event_is_handled() -> None:
    rows = event_handlers(Collector((program(),)), EventSources((program(),), cast(Any, None)))
    assert set(rows) == set(HANDLERS)
    replaced = {kind for kind in rows if rows[kind] is not HANDLERS[kind]}
    assert replaced == {"printf", "heading", "errorf", "warnf", "print_value", "print_map", "row", *FOLLOWED_BY_TEXT}


# ---------------------------------------------------------------------------------------------- listing
# .


@pytest.mark.parametrize(
    ("text", "name", "type_"),
    [
        ("int fd", "fd", "int"), ("const char * filename", "filename", "const char *"),
        ("struct file *f", "f", "struct file *"), ("unsigned long name[8]", "name", "unsigned long[8]"),
        ("char comm[16];", "comm", "char[16]"), ("u64 a_1", "a_1", "u64"),
    ],
)  # fmt: skip
def test_names_and_types_of_arguments(text: str, name: str, type_: str) -> None:
    assert _argument(text) == Argument(name, type_)


@pytest.mark.kernel
def test_probes_that_match() -> None:
    found = list(probes("tracepoint:syscalls:sys_enter_open*"))
    names = [probe.name for probe in found]
    assert "tracepoint:syscalls:sys_enter_openat" in names
    assert len(names) == len(set(names))
    openat = found[names.index("tracepoint:syscalls:sys_enter_openat")]
    assert (openat.kind, str(openat)) == ("tracepoint", openat.name)
    assert Argument("filename", "const char *") in openat.arguments


@pytest.mark.kernel
def test_features_are_tried_out() -> None:
    assert features()["ringbuf"] is True


# ---------------------------------------------------------------------------------------------- selection
# Arguments of the Python interface that select processes.


@pytest.mark.parametrize("pid", ["3", True, 3.0])
def test_a_process_is_an_integer(pid: object) -> None:
    with pytest.raises(TypeError, match="pid must be an int"):
        filters(pid, ())
    with pytest.raises(TypeError, match="pid must be an int"):
        filters(None, (1, pid))  # type: ignore[arg-type]


def test_one_or_several_values() -> None:
    assert filters(3, (), comm="a", uid=0) == ProcessFilters((3,), (0,), ("a",))
    own = os.stat("/proc/self/ns/net").st_ino
    found = filters(None, (3, 4, 3), comm=["a", "b"], uid=[1, "root"], netns="/proc/self/ns/net")
    assert found == ProcessFilters((3, 4), (1, 0), ("a", "b"), (), (own,))


def test_wrong_values() -> None:
    with pytest.raises(TraceError, match="cannot be used together"):
        filters(3, (4,))
    with pytest.raises(TraceError, match="there is no user"):
        filters(None, (), uid="no such user")


def test_a_compiled_script_takes_other_values_of_the_same_filters() -> None:
    options = CompileOptions(filters=ProcessFilters(pids=(7,), comms=("x",)))
    assert of_compiled(ProcessFilters((), (), ("b",)), options) == ProcessFilters((7,), (), ("b",))
    assert of_compiled(ProcessFilters((8,), (), ("b",)), options).pids == (8,)
    for other in (ProcessFilters(), ProcessFilters((8, 9), (), ("b",)), ProcessFilters((8,), (1,), ("b",))):
        with pytest.raises(TraceError, match="with other filters of processes"):
            of_compiled(other, options)


# ---------------------------------------------------------------------------------------------- stack names
# Functions that hosts could not name, named by files of this machine.


class Stripped:
    """A stripped program, and a folder with its debug file."""

    def __init__(self, folder: Path) -> None:
        self.whole, self.debuginfo = small_program.built(folder), folder / "debug"
        self.path, debug = small_program.split(self.whole, folder)
        self.build_id = Binary.open(str(self.whole)).elf.build_id
        self.helper = small_program.addresses(self.whole)["helper"]
        place = self.debuginfo / ".build-id" / self.build_id[:2] / f"{self.build_id[2:]}.debug"
        place.parent.mkdir(parents=True)
        debug.rename(place)

    def frame(self, module: str = "", build_id: str = "") -> Frame:
        """What a host says of a place in ``helper``."""
        address = self.helper + 4
        return Frame("", address, module or str(self.path), build_id or self.build_id, address=address)


@pytest.fixture(scope="module")
def stripped(tmp_path_factory: pytest.TempPathFactory) -> Stripped:
    return Stripped(tmp_path_factory.mktemp("stripped"))


def of(*frames: Frame, mode: StackMode = StackMode.BPFTRACE) -> SnapshotData:
    key = Tuple((STRING, Stack(True, mode=mode)))
    stack = StackTrace(frames)
    rows = stack_names_table(["s"], [Stack(True, mode=mode)], [(stack,)])
    return snapshot(map_data("@", key, COUNT, {("a", stack): 3}), tables=(rows,))


def named(names: StackNames, before: SnapshotData) -> list[str]:
    """The names of the functions of the only stack, which the table has, too."""
    after = names.named(before)
    ((_, stack),) = after.maps["@"].entries
    assert after.tables[0].rows["run-1"] == [(stack,)]
    return [frame.function for frame in stack.frames]


def test_a_debug_file_has_the_names(stripped: Stripped) -> None:
    known = Frame("main", 3, "/bin/x", "ab" * 20, address=8)
    names = StackNames([str(stripped.debuginfo)])
    assert named(names, of(stripped.frame(), known)) == ["helper", "main"]
    assert named(names, of(stripped.frame("/only/there"))) == ["helper"]
    ((_, stack),) = names.named(of(stripped.frame())).maps["@"].entries
    assert stack.frames == (Frame("helper", 4, str(stripped.path), stripped.build_id, address=stripped.helper + 4),)


def test_the_same_binary_is_here(stripped: Stripped) -> None:
    assert named(StackNames(["/nowhere"]), of(stripped.frame(str(stripped.whole)))) == ["helper"]


def test_the_cache_of_debuginfod(stripped: Stripped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / stripped.build_id
    folder.mkdir(mode=0o700)
    shutil.copy(stripped.whole, folder / "debuginfo")
    (folder / "debuginfo").chmod(0o600)
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path))
    assert named(StackNames(["/nowhere"]), of(stripped.frame("/only/there"))) == ["helper"]


def test_servers_are_asked_for_the_final_answer(stripped: Stripped, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, and none after one that fails, or when the user does not wait."""
    fetched: list[str] = []
    answers: dict[str, tuple[str | None, list[str]]] = {stripped.build_id: (str(stripped.whole), [])}

    def fetch(build_id: str, stop: Callable[[], bool]) -> tuple[str | None, list[str]]:
        assert not stop()
        fetched.append(build_id)
        return answers.get(build_id, (None, []))

    monkeypatch.setattr(debug_files, "fetch", fetch)
    names = StackNames(["/nowhere"])
    other, third = "ab" * 20, "cd" * 20
    answer = names.named(of(stripped.frame("/a", other), stripped.frame("/b"), stripped.frame("/c", third)))
    assert names.final(answer, lambda: False) == answer
    assert not fetched, "no server is named"
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:1")
    assert names.final(answer, lambda: True) == answer
    assert not fetched, "the user does not wait"
    for problems, asked in ([], [other, stripped.build_id, third]), (["no answer"], [other]):
        answers[other] = None, problems
        fetched.clear()
        after = StackNames(["/nowhere"]).final(answer, lambda: False)
        ((_, stack),) = after.maps["@"].entries
        assert [frame.function for frame in stack.frames] == ["", "" if problems else "helper", ""]
        assert fetched == asked


def test_other_places_stay_as_they_are(stripped: Stripped, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    names = StackNames(["/nowhere"])
    for module, build_id in ((str(stripped.whole), "ab" * 20), (str(fifo), ""), ("relative", ""), ("\0", ""),
                             (str(stripped.path), "../../etc/passwd")):  # fmt: skip
        before = of(stripped.frame(module, build_id))
        assert names.named(before) == before
    chosen = of(stripped.frame(), mode=StackMode.RAW)
    assert StackNames([str(stripped.debuginfo)]).named(chosen) == chosen


def test_stacks_that_become_equal_are_joined(stripped: Stripped) -> None:
    """One process has run the binary from where its symbols could be read."""
    place = stripped.frame()
    whole = place._replace(function="helper", offset=4)
    key = Stack(True)
    before = snapshot(map_data("@", key, COUNT, {StackTrace((place,)): 3, StackTrace((whole,)): 4}),
                      map_data("@n", STRING, types.Hist(), {"x": {1: 2}}))  # fmt: skip
    after = StackNames([str(stripped.debuginfo)]).named(before)
    assert after.maps["@"].entries == {StackTrace((whole,)): 7}
    assert after.maps["@n"] is before.maps["@n"]


def answered(names: StackNames, place: Frame, said: NamedPlace | None = None) -> list[tuple[str, int, int]]:
    """Function, offset, line of the frames of the final answer with one place."""
    known = {} if said is None else {said.place: said}
    ((_, stack),) = names.final(of(place), lambda: False, known).maps["@"].entries
    return [(frame.function, frame.offset, frame.line) for frame in stack.frames]


def test_the_one_that_knows_more_names_a_place(stripped: Stripped) -> None:
    """This machine, or a host that was asked; the functions of hosts are only shown in their place."""
    place = stripped.frame("/only/there")
    inlined = Function("inlined", 4, "a.c", 3, inlined=True), Function("theirs", 4, "a.c", 9)
    said = NamedPlace(Place(stripped.build_id, stripped.helper + 4), Detail.SYMBOLS, inlined)
    nothing, whole = StackNames(["/nowhere"]), StackNames([str(stripped.debuginfo)])
    build_id = stripped.build_id
    assert nothing.detail(build_id, "/only/there") == Detail.NOTHING
    assert nothing.detail(build_id, str(stripped.path)) == Detail.BINARY
    assert whole.detail(stripped.build_id, str(stripped.path)) == Detail.LINES
    assert answered(nothing, place, said) == [("inlined", 4, 3), ("theirs", 4, 9)]
    assert answered(nothing, place) == [("", stripped.helper + 4, 0)]
    ((function, offset, line),) = answered(whole, place, said)
    assert (function, offset, bool(line)) == ("helper", 4, True)
    ((_, stack),) = whole.named(of(place)).maps["@"].entries
    assert [(frame.function, frame.line) for frame in stack.frames] == [("helper", 0)]
    assert answered(StackNames([str(stripped.debuginfo)], Config(show_debug_info=False)), place) == [("helper", 4, 0)]


def test_a_return_address_is_named_by_its_call(stripped: Stripped) -> None:
    """It may be that of the next function. Without a name, it is the place itself."""
    start = small_program.addresses(stripped.whole)["help"]
    calling = Frame("", start - 1, str(stripped.path), stripped.build_id, address=start)
    names = StackNames([str(stripped.debuginfo)])
    ((function, offset, _),) = answered(names, calling)
    assert function not in ("", "help")
    assert offset > 1
    ((begun, at, _),) = answered(names, calling._replace(offset=start))
    assert (begun, at) == ("help", 0)
    assert answered(StackNames(["/nowhere"]), calling) == [("", start, 0)]
    said = NamedPlace(Place(stripped.build_id, start - 1), Detail.SYMBOLS, (Function("caller", 7),))
    assert answered(StackNames(["/nowhere"]), calling, said) == [("caller", 8, 0)]
