"""A script is loaded: objects, linking, lines, session data, rates."""

from __future__ import annotations

import errno
import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.event_layout import EventSpec, Exit, Formatted, Location
from pytrace.core.manifest import (
    EXITED,
    RATE_LINE,
    STOPPED,
    CompiledScript,
    Manifest,
    MapSpec,
    MapType,
    ProgramSpec,
    RateLimits,
    SessionData,
    Target,
)
from pytrace.core.options import NOT_YET, Config, ProcessFilters, Rate, RunOptions
from pytrace.core.probe_kinds import (
    IteratorTarget,
    KernelFunctionTarget,
    NoTarget,
    ProbeTarget,
    RawTracepointTarget,
    TracepointTarget,
    TypedFunctionTarget,
    UserTarget,
)
from pytrace.core.types import BOOL, INT8, INT32, UINT32, UINT64, VOID, Enum, Pointer, Struct
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.load import loader, object_files
from pytrace.runtime.load.loaded_script import (
    HITS_AHEAD,
    Generations,
    LoadedScript,
    LoadError,
    Quiescence,
    limits_of_blocks,
)
from pytrace.runtime.load.loader import LoadOptions
from pytrace.runtime.load.object_files import LineTable
from pytrace.runtime.machine import bpf, libbpf
from pytrace.runtime.machine.bpf import AttachType, Command, ProgramType
from tests.codegen.running import compiled
from tests.support.fake_maps import FakeMap, FakeMaps, install
from tests.support.fake_run import HERE as RATES_HERE
from tests.support.fake_run import program
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- loader
# pytrace.runtime.load.loader: settings of each program and map in libbpf. tests/kernel/test_loader.py loads.


HERE = Location("script.bt", 1, 1)
OBJECT = 1
PROGRAMS, MAPS = 100, 200


@dataclass
class FakeLibrary:
    """An opened object with programs and maps, by name; notes what it is told of them."""

    programs: list[str] = field(default_factory=list)
    maps: dict[str, MapType] = field(default_factory=dict)
    told: dict[str, list[Any]] = field(default_factory=dict)
    target_error: int = 0
    load_error: int = 0
    warning: bytes = b""
    closed: int = 0

    def _tell(self, item: int, *what: Any) -> int:
        name = self.programs[item - PROGRAMS] if item < MAPS else list(self.maps)[item - MAPS]
        self.told.setdefault(name, []).append(what if len(what) > 1 else what[0])
        return 0

    def libbpf_set_print(self, callback: Any) -> None: ...

    def bpf_object__open_mem(self, _data: bytes, _size: int, _options: Any) -> int:
        return OBJECT

    def bpf_object__close(self, _handle: int) -> None:
        self.closed += 1

    def bpf_object__load(self, _handle: int) -> int:
        if self.load_error:
            raise OSError(self.load_error, os.strerror(self.load_error))
        return 0

    def bpf_object__next_program(self, _handle: int, before: int | None) -> int | None:
        following = PROGRAMS if before is None else before + 1
        return following if following < PROGRAMS + len(self.programs) else None

    def bpf_object__next_map(self, _handle: int, before: int | None) -> int | None:
        following = MAPS if before is None else before + 1
        return following if following < MAPS + len(self.maps) else None

    def bpf_program__name(self, item: int) -> bytes:
        return self.programs[item - PROGRAMS].encode()

    def bpf_program__fd(self, item: int) -> int:
        return item

    def bpf_program__set_type(self, item: int, value: int) -> int:
        return self._tell(item, "type", value)

    def bpf_program__set_expected_attach_type(self, item: int, value: int) -> int:
        return self._tell(item, "attach", value)

    def bpf_program__set_attach_target(self, item: int, descriptor: int, name: bytes) -> int:
        if self.target_error:
            raise OSError(self.target_error, os.strerror(self.target_error))
        return self._tell(item, "target", descriptor, name)

    def bpf_program__set_autoload(self, item: int, value: bool) -> int:
        return self._tell(item, "autoload", value)

    def bpf_program__set_flags(self, item: int, flags: int) -> int:
        return self._tell(item, "flags", flags)

    def bpf_program__set_log_buf(self, item: int, _address: int, size: int) -> int:
        return self._tell(item, "log", size)

    def bpf_map__name(self, item: int) -> bytes:
        return list(self.maps)[item - MAPS].encode()

    def bpf_map__is_internal(self, item: int) -> bool:
        return ".data" in list(self.maps)[item - MAPS]

    def bpf_map__type(self, item: int) -> int:
        return list(self.maps.values())[item - MAPS]

    def bpf_map__fd(self, item: int) -> int:
        return item

    def bpf_map__set_max_entries(self, item: int, value: int) -> int:
        return self._tell(item, "entries", value)

    def bpf_map__set_inner_map_fd(self, item: int, descriptor: int) -> int:
        return self._tell(item, "inner", descriptor)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    made = FakeLibrary()
    monkeypatch.setattr(libbpf, "library", lambda: made)
    return made


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaps]:
    made = install(monkeypatch)
    yield made
    made.close()


def spec(symbol: str, kind: str, place: ProbeTarget | None = None, **options: Any) -> ProgramSpec:
    targets = () if place is None else (Target(f"{kind}:x", 0, place),)
    return ProgramSpec(symbol, kind, 0, targets, HERE, **options)


def loaded(
    library: FakeLibrary,
    *programs: ProgramSpec,
    maps: tuple[MapSpec, ...] = (),
    stack: ExitStack | None = None,
    features: tuple[str, ...] = (),
    **options: Any,
) -> LoadedScript:
    library.programs = library.programs or [item.symbol for item in programs if not item.part_of]
    script = CompiledScript(b"", Manifest(programs, maps, (), (), Config(log_size=100, perf_rb_pages=1)))
    wanted = LoadOptions(feature=features.__contains__, **options)
    with stack or ExitStack() as owner:
        return loader.load(script, options=wanted, stack=owner)


# ---------------------------------------------------------------------------------------------- programs


@pytest.mark.parametrize(
    ("program", "features", "told"),
    [
        (spec("p", "begin", NoTarget()), (), [("type", ProgramType.RAW_TRACEPOINT)]),
        (spec("p", "kprobe", KernelFunctionTarget("f")), ("uprobe_multi",), [("type", ProgramType.KPROBE)]),
        (spec("p", "kprobe", KernelFunctionTarget("f"), multi="kprobe_multi"), (),
         [("type", ProgramType.KPROBE), ("attach", AttachType.TRACE_KPROBE_MULTI)]),
        (spec("p", "uprobe", UserTarget("/a", 1)), (), [("type", ProgramType.KPROBE)]),
        (spec("p", "uprobe", UserTarget("/a", 1)), ("uprobe_multi",),
         [("type", ProgramType.KPROBE), ("attach", AttachType.TRACE_UPROBE_MULTI)]),
        (spec("p", "uretprobe", UserTarget("/a", 1), multi="uprobe_session"), ("uprobe_multi",),
         [("type", ProgramType.KPROBE), ("attach", AttachType.TRACE_UPROBE_SESSION)]),
        (spec("p", "fentry", TypedFunctionTarget("f", "vmlinux")), (),
         [("type", ProgramType.TRACING), ("attach", AttachType.TRACE_FENTRY), ("target", 0, b"f")]),
        (spec("p", "rawtracepoint", RawTracepointTarget("e", "vmlinux")), (),
         [("type", ProgramType.TRACING), ("attach", AttachType.TRACE_RAW_TP), ("target", 0, b"e")]),
        (spec("p", "iter", IteratorTarget("task")), (),
         [("type", ProgramType.TRACING), ("attach", AttachType.TRACE_ITER), ("target", 0, b"task")]),
        (spec("p", "profile", NoTarget()), (), [("type", ProgramType.PERF_EVENT)]),
        (spec("p", "usdt", UserTarget("/a", 1), sleepable=True), (),
         [("type", ProgramType.KPROBE), ("flags", bpf.SLEEPABLE)]),
    ],
)  # fmt: skip
def test_what_libbpf_is_told_of_a_program(
    library: FakeLibrary, program: ProgramSpec, features: tuple[str, ...], told: list[Any]
) -> None:
    made = loaded(library, program, features=features)
    assert library.told == {"p": [*told, ("log", 100)]}
    assert made.symbols == ["p"]
    assert made.program_fd("p") == PROGRAMS
    multi = dict(item for item in told if len(item) == 2).get("attach", 0)
    assert bool(made.multi("p")) is (multi in {48, 57, 42})


def test_a_feature_that_is_not_wanted_is_not_used(library: FakeLibrary) -> None:
    options: dict[str, Any] = {"features": ("uprobe_multi",), "disabled": frozenset({"uprobe_multi"})}
    made = loaded(library, spec("p", "uprobe", UserTarget("/a", 1)), **options)
    assert made.multi("p") == ""


def test_programs_that_the_manifest_does_not_have_are_not_loaded(library: FakeLibrary) -> None:
    library.programs = ["other", "p"]
    made = loaded(library, spec("p", "begin", NoTarget()))
    assert library.told["other"] == [("autoload", False)]
    assert made.symbols == ["p"]


def test_programs_that_the_file_does_not_have_are_a_bug(library: FakeLibrary) -> None:
    library.programs = ["p"]
    with pytest.raises(InternalError, match="not in the ELF file: a, b"):
        loaded(library, spec("p", "begin"), spec("a", "begin"), spec("b", "begin"))


def test_the_return_part_of_a_session_is_in_its_entry(library: FakeLibrary) -> None:
    entry = spec("e", "kprobe", KernelFunctionTarget("f"), multi="kprobe_session")
    leaving = spec("r", "kretprobe", KernelFunctionTarget("f"), multi="kprobe_session", part_of="e")
    made = loaded(library, entry, leaving)
    assert made.symbols == ["e"]
    assert made.multi("r") == "kprobe_session"
    assert made.gone == set()


CALL = TracepointTarget("syscalls", "sys_enter_read")


def test_system_calls_are_programs_of_a_raw_tracepoint(library: FakeLibrary) -> None:
    loaded(library, spec("p", "tracepoint", CALL, multi="system_calls"))
    raw = [("type", ProgramType.TRACING), ("attach", AttachType.TRACE_RAW_TP)]
    assert library.told["p"][:3] == [*raw, ("target", 0, b"sys_enter")]


def test_a_tracepoint_by_way_of_the_raw_one(library: FakeLibrary) -> None:
    place = TracepointTarget("sched", "sched_switch")
    loaded(library, spec("p", "tracepoint", place, multi="raw_tracepoint"))
    raw = [("type", ProgramType.TRACING), ("attach", AttachType.TRACE_RAW_TP)]
    assert library.told["p"][:3] == [*raw, ("target", 0, b"sched_switch")]


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESRCH])
def test_a_function_that_the_kernel_does_not_know(library: FakeLibrary, number: int) -> None:
    library.target_error = number
    program = spec("p", "fentry", TypedFunctionTarget("f", "vmlinux"))
    with pytest.raises(LoadError, match=r"^fentry:x: the kernel has no type information for 'f'$") as raised:
        loaded(library, program)
    assert raised.value.program is program
    assert library.closed == 1


@pytest.mark.parametrize(
    ("number", "hints"),
    [(errno.EPERM, ("types of modules and of BPF programs need CAP_SYS_ADMIN",)), (errno.EINVAL, ())],
)
def test_a_target_that_is_refused(library: FakeLibrary, number: int, hints: tuple[str, ...]) -> None:
    library.target_error = number
    with pytest.raises(LoadError) as raised:
        loaded(library, spec("p", "fentry", TypedFunctionTarget("f", "nf")))
    assert (raised.value.message, raised.value.hints) == (f"fentry:x: {os.strerror(number)}", hints)


def test_a_program_to_trace_is_open_while_it_is_loaded(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def by_id(kind: str, number: int) -> int:
        assert (kind, number) == ("prog", 77)
        opened.append(os.open(os.devnull, os.O_RDONLY))
        return opened[-1]

    monkeypatch.setattr(bpf, "open_by_id", by_id)
    monkeypatch.setattr(library, "bpf_object__load", lambda _: os.fstat(opened[0]).st_size)
    loaded(library, spec("p", "fentry", TypedFunctionTarget("f", program_id=77)))
    assert ("target", opened[0], b"f") in library.told["p"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_a_program_to_trace_that_went(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_id(_kind: str, _number: int) -> int:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(bpf, "open_by_id", by_id)
    other = spec("begin_0", "begin", NoTarget())
    made = loaded(library, other, spec("p", "fentry", TypedFunctionTarget("f", program_id=77, by_pattern=True)))
    assert library.told["p"][-1] == ("autoload", False)
    assert made.gone == {"p"}
    with pytest.raises(LoadError, match="no type information for 'f'"):
        loaded(library, other, spec("p", "fentry", TypedFunctionTarget("f", program_id=77)))


def test_a_program_whose_type_is_known_is_not_looked_for(
    library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libbpf, "_handlers", [libbpf.HandlerOptions()])
    loaded(library, replace(spec("p", "fentry", TypedFunctionTarget("f")), type_id=5))
    (told,) = [told for told in library.told["p"] if told[0] == "target"]
    assert told[2] is None
    monkeypatch.setattr(libbpf, "_handlers", [])  # the process has a handler of somebody else
    loaded(library, replace(spec("p", "fentry", TypedFunctionTarget("f")), type_id=5))
    assert ("target", 0, b"f") in library.told["p"]


# ---------------------------------------------------------------------------------------------- maps


def test_names_of_data_sections_are_theirs_in_the_file(library: FakeLibrary) -> None:
    library.maps = {"counts": MapType.HASH, "pytrace.data.slots": MapType.ARRAY, ".data.settings": MapType.ARRAY}
    made = loaded(library, spec("p", "begin"))
    assert [made.map_fd(name) - MAPS for name in ("counts", ".data.slots", ".data.settings")] == [0, 1, 2]
    library.maps["odd.name"] = MapType.HASH
    assert loaded(library, spec("p", "begin")).map_fd("odd.name") == MAPS + 3
    with pytest.raises(InternalError, match=r"no map 'other' was loaded; there are \['.data.settings', '.data.slots'"):
        made.map_fd("other")
    with pytest.raises(InternalError, match=r"no program 'q' was loaded; there are \['p'\]"):
        made.program_fd("q")


def test_sizes_of_maps(library: FakeLibrary) -> None:
    library.maps = {"events": MapType.RINGBUF, "rows": MapType.ARRAY, "counts": MapType.HASH}
    loaded(library, spec("p", "begin"), entries={"rows": 5000})
    assert library.told["events"] == [("entries", mmap.PAGESIZE)]
    assert library.told["rows"] == [("entries", 5000)]
    assert "counts" not in library.told


def test_maps_that_are_double_buffered(library: FakeLibrary, maps: FakeMaps) -> None:
    library.maps = {"twice": MapType.ARRAY_OF_MAPS}
    twice = MapSpec("@twice", "twice", "hash", UINT64, UINT64, 100, inner=(1, 8, 8))
    # The loaded array is a map of the object, which libbpf would make.
    maps.maps[MAPS] = maps.maps[maps.add(4, 4)]
    made = loaded(library, spec("p", "begin"), maps=(twice,))
    del maps.maps[MAPS]
    generations = made.generations["twice"]
    assert library.told["twice"] == [("inner", generations.current)]


def test_a_map_that_cannot_be_made_is_named(library: FakeLibrary, maps: FakeMaps) -> None:
    library.maps = {"twice": MapType.ARRAY_OF_MAPS}
    maps.refused = errno.E2BIG
    twice = MapSpec("@twice", "twice", "hash", UINT64, UINT64, 100, inner=(1, 8, 8))
    with pytest.raises(LoadError, match=r"^@twice cannot be created with 100 keys"):
        loaded(library, spec("p", "begin"), maps=(twice,))
    assert library.closed == 1


# ---------------------------------------------------------------------------------------------- failures, sizes


def test_what_is_refused_leaves_nothing(library: FakeLibrary) -> None:
    library.load_error = errno.EPERM
    with pytest.raises(LoadError, match="the script cannot be loaded: Operation not permitted"):
        loaded(library, spec("p", "begin"))
    assert library.closed == 1


def test_a_file_that_libbpf_cannot_read(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(library, "bpf_object__open_mem", refuse)
    with pytest.raises(LoadError, match=r"^libbpf cannot read the compiled script: Invalid argument$"):
        loaded(library, spec("p", "begin"))
    assert library.closed == 0


PAGE = mmap.PAGESIZE


@pytest.mark.parametrize(("pages", "rounded"), [(1, 1), (2, 2), (3, 4), (64, 64), (65, 128)])
def test_a_ring_of_so_many_pages(pages: int, rounded: int) -> None:
    assert loader.ring_size(pages) == rounded * PAGE


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        (0, loader.RING_SMALLEST), (1 << 10, loader.RING_SMALLEST), (1 << 20, 1 << 20), ((1 << 20) + 1, 1 << 20),
        (3 << 19, 1 << 21), ((3 << 19) - 1, 1 << 20), (1 << 40, loader.RING_LARGEST),
    ],
)  # fmt: skip
def test_a_ring_by_free_memory(memory: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "available_memory", lambda: memory)
    assert loader.ring_size(0) == size


def test_available_memory() -> None:
    with open("/proc/meminfo") as file:
        total = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemTotal"))
    assert total >> 10 < loader.available_memory() <= total


# ---------------------------------------------------------------------------------------------- the event ring

EXIT = EventSpec(0, "exit", (), Exit(True), HERE)
PRINTF = EventSpec(1, "printf", (), Formatted("x"), HERE)


def sends(*events: EventSpec, pages: int = 0) -> Manifest:
    return Manifest((), (), events, (), Config(perf_rb_pages=pages))


@pytest.mark.parametrize("events", [(), (EXIT,), (EXIT, EXIT)])
def test_scripts_that_send_nothing_have_the_smallest_ring(events: tuple[EventSpec, ...]) -> None:
    assert loader.script_ring_size(sends(*events)) == loader.RING_SMALLEST


@pytest.mark.parametrize("events", [(PRINTF,), (EXIT, PRINTF)])
def test_other_rings_follow_the_memory(events: tuple[EventSpec, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "available_memory", lambda: 1 << 40)
    assert loader.script_ring_size(sends(*events)) == loader.RING_LARGEST


@pytest.mark.parametrize("events", [(EXIT,), (PRINTF,)])
def test_the_config_decides_for_all(events: tuple[EventSpec, ...]) -> None:
    assert loader.script_ring_size(sends(*events, pages=1024)) == 1024 * 4096


def test_events_that_wait_for_a_system_call_are_cancelled_at_the_end(
    library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the call returns they would keep programs and maps in the kernel."""
    keys = [b"12345678", b"abcdefgh"]
    deleted: list[tuple[int, bytes]] = []

    def delete(descriptor: int, key: bytes) -> bool:
        deleted.append((descriptor, key))
        keys.remove(key)
        return True

    monkeypatch.setattr(loader.bpf, "map_next_key", lambda *_: keys[0] if keys else None)
    monkeypatch.setattr(loader.bpf, "map_delete", delete)
    library.maps = {"pending_1072": MapType.HASH, "other": MapType.HASH}
    with ExitStack() as stack:
        loaded(library, spec("p", "begin", NoTarget()), stack=stack)
    assert [key for _, key in deleted] == [b"12345678", b"abcdefgh"]
    assert len({descriptor for descriptor, _ in deleted}) == 1


# ---------------------------------------------------------------------------------------------- loaded script
# pytrace.runtime.load.loaded_script: which map programs use, and waiting for those that run.


OUTER = FakeMap(int(MapType.ARRAY_OF_MAPS), 4, 4, 1)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def outer(maps: FakeMaps) -> int:
    return maps.add(4, 4)


def used(maps: FakeMaps, descriptor: int) -> int:
    """The map that an array of maps holds."""
    return int.from_bytes(maps.maps[descriptor].pairs[bytes(4)], "little")


def test_both_maps_are_alike_and_have_names_of_their_own(maps: FakeMaps, stack: ExitStack) -> None:
    Generations((MapType.HASH, 8, 16), 100, "a_long_name_of_a_map", stack)
    first, second = maps.maps.values()
    assert (first.key_size, first.value_size, first.entries) == (8, 16, 100)
    assert (second.key_size, second.value_size, second.entries) == (8, 16, 100)
    assert [first.name, second.name] == ["a_long_name_o_0", "a_long_name_o_1"]


def test_programs_get_the_other_map_in_turn(maps: FakeMaps, stack: ExitStack) -> None:
    made = Generations((MapType.HASH, 8, 8), 100, "counts", stack)
    first, second = maps.maps
    array = outer(maps)
    made.start(array)
    assert made.current == used(maps, array) == first
    assert made.flip() == first
    assert made.current == used(maps, array) == second
    assert made.flip() == second
    assert made.current == used(maps, array) == first


def test_whether_the_map_in_use_is_empty(maps: FakeMaps, stack: ExitStack) -> None:
    made = Generations((MapType.HASH, 8, 8), 100, "counts", stack)
    made.start(outer(maps))
    assert made.empty
    maps.maps[made.current].pairs[bytes(8)] = bytes(8)
    assert not made.empty
    made.flip()
    assert made.empty


def test_maps_are_closed_with_the_session(maps: FakeMaps) -> None:
    with ExitStack() as stack:
        Generations((MapType.HASH, 8, 8), 100, "counts", stack)
        opened = list(maps.maps)
        assert len(opened) == 2
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_map_that_cannot_be_made_leaves_none(maps: FakeMaps) -> None:
    maps.refused = errno.ENOMEM
    with ExitStack() as stack, pytest.raises(OSError, match="Cannot allocate"):
        Generations((MapType.HASH, 8, 8), 100, "counts", stack)
    assert maps.maps == {}


def test_waiting_makes_its_maps_once(maps: FakeMaps, stack: ExitStack) -> None:
    waiting = Quiescence(stack)
    assert not maps.maps, "most scripts never wait"
    for _ in range(3):
        waiting.wait()
    assert maps.calls.count(Command.MAP_UPDATE_ELEM) == 3, "it is this update that the kernel lets wait"
    held, array = maps.maps
    assert maps.maps[array].kind == MapType.ARRAY_OF_MAPS
    assert maps.maps[array].inner == held == used(maps, array)


@pytest.mark.kernel
def test_the_kernel_takes_both(stack: ExitStack) -> None:
    from pytrace.runtime.machine import bpf

    made = Generations((MapType.HASH, 8, 8), 100, "counts", stack)
    array = bpf.map_create(MapType.ARRAY_OF_MAPS, 4, 4, 1, name="pytrace_test", inner=made.current)
    stack.callback(os.close, array)
    made.start(array)
    bpf.map_update(made.current, bytes(8), bytes(8))
    assert not made.empty
    before = made.flip()
    assert made.empty
    assert bpf.map_lookup(before, bytes(8), 8) == bytes(8)
    Quiescence(stack).wait()


# ---------------------------------------------------------------------------------------------- linker
# Object files that scripts import: their functions, and linking.


LINKER_OBJECT = Path(__file__).resolve().parents[2] / "programs" / "imported" / "arith.bpf.o"


def test_functions_and_their_types() -> None:
    functions = object_files.object_functions(str(LINKER_OBJECT), LINKER_OBJECT.read_bytes())
    found = {item.prototype.name: item for item in functions}
    assert [name for name, item in found.items() if item.static] == ["twice"]
    triple, weigh = found["triple"].prototype, found["weigh"].prototype
    assert (triple.parameters, triple.result) == ((("n", INT32),), INT32)
    assert weigh.parameters == (("n", UINT64), ("factor", UINT32), ("more", BOOL))
    assert found["add_calls"].prototype.result == VOID
    (_, text), = found["first_byte"].prototype.parameters
    assert isinstance(text, Pointer)
    assert text.target == INT8
    shape, pair = found["shape_of"].prototype.result, found["a_pair"].prototype.result
    assert isinstance(shape, Enum)
    assert dict(shape.members) == {"ROUND": 1, "SQUARE": 4}
    assert isinstance(pair, Pointer)
    assert isinstance(pair.target, Struct)
    assert list(pair.target.names()) == ["first", "second"]


def test_without_type_information() -> None:
    data = LINKER_OBJECT.read_bytes().replace(b".BTF\0", b".XTF\0")
    with pytest.raises(TraceError, match="no type information"):
        object_files.object_functions("x.bpf.o", data)


def test_link_joins_symbols() -> None:
    whole = ElfFile(object_files.link_objects(LINKER_OBJECT.read_bytes(), []), "linked")
    assert whole.section(".BTF") is not None
    assert whole.any_symbol("triple") is not None


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(LoadError, match="does not fit the script"):
        object_files.link_objects(LINKER_OBJECT.read_bytes(), [LINKER_OBJECT.read_bytes()])


# ---------------------------------------------------------------------------------------------- line table
# pytrace.runtime.load.object_files: positions of instructions, also of the functions that a program calls.


SCRIPT = """fn twice($x: uint64): uint64 {
    return $x * 2;
}
begin {
    @a = twice(rand());
    for $i : 0..10 {
        @b += twice(rand());
    }
}
"""
LINE_TABLE_CALL, ADDRESS, SIZE = 0x85, 0x18, 8


def text(elf: bytes, name: str) -> bytes:
    table = LineTable(elf)
    return table._bytes(name)


def symbol(script: CompiledScript) -> str:
    """The program of ``begin``."""
    return next(spec.symbol for spec in script.manifest.programs if spec.kind == "begin")


def joined(elf: bytes, symbol: str) -> bytes:
    """What libbpf makes of a program: its functions follow it, in the order of first calls."""
    table = LineTable(elf)
    code = bytearray()
    begins: dict[object, int] = {}

    def add(function: object) -> None:
        begin = begins[function] = len(code) // SIZE
        section, start, size = function.section, function.start, function.size  # type: ignore[attr-defined]
        code.extend(table._bytes(section)[SIZE * start : SIZE * (start + size)])
        for number in range(size):
            operation, registers, offset, _ = struct.unpack_from("<BBhi", code, SIZE * (begin + number))
            if operation != ADDRESS and (operation, registers >> 4) != (LINE_TABLE_CALL, 1):
                continue
            callee = table._callee(function, number)  # type: ignore[arg-type]
            if callee is None:
                assert operation == ADDRESS, "the address of data"
                continue
            if callee not in begins:
                add(callee)
            if operation == ADDRESS:
                registers |= 4 << 4  # libbpf says that it is the address of a function
            distance = begins[callee] - begin - number - 1
            struct.pack_into("<BBhi", code, SIZE * (begin + number), operation, registers, offset, distance)

    add(table._function(symbol))
    return bytes(code)


def test_lines_of_a_program_and_of_its_functions() -> None:
    script = compiled(SCRIPT)
    elf, program = script.elf, symbol(script)
    code = joined(elf, program)
    positions = LineTable(elf).positions(program, code)
    assert list(positions) == sorted(positions)
    assert max(positions) < len(code) // SIZE
    lines = {place.line: place.text for place in positions.values() if place.line}
    assert {2, 5, 7} <= set(lines)
    for line, shown in lines.items():
        assert shown == SCRIPT.split("\n")[line - 1]
    assert min(number for number, place in positions.items() if place.line == 2) > min(
        number for number, place in positions.items() if place.line == 5
    )


def test_columns() -> None:
    script = compiled("begin { @a = rand();   @b = rand(); }")
    elf, program = script.elf, symbol(script)
    places = LineTable(elf).positions(program, text(elf, f"pytrace/{program}"))
    assert {place.column for place in places.values()} >= {9, 24}


def test_a_file_without_positions() -> None:
    script = compiled("begin { @ = 1; }")
    elf = script.elf.replace(b".BTF.ext\0", b".BTF.non\0")
    assert LineTable(elf).positions(symbol(script), text(elf, f"pytrace/{symbol(script)}")) == {}


def test_instructions_of_libbpf() -> None:
    with libbpf.Messages():
        handle = libbpf.open_memory(compiled("begin { @ = 1; }").elf)
        try:
            lib = libbpf.library()
            program = lib.bpf_object__next_program(handle, None)
            data = libbpf.instructions(program)
            assert len(data) == 8 * lib.bpf_program__insn_cnt(program) > 0
        finally:
            lib.bpf_object__close(handle)


# ---------------------------------------------------------------------------------------------- session data
# Session values that are written before programs run.


class WithMemory(LoadedScript):
    """A script of which only one data section is there."""

    def __init__(self, manifest: object, memory: bytearray | memoryview = bytearray()) -> None:  # noqa: B008
        self.manifest = cast(Any, manifest)
        self._memory = memoryview(memory)

    def section(self, name: str) -> memoryview:
        return self._memory


PLACES = SessionData(
    "session", start=0, cpid=8, tai=16, wall=24, root=32, exit=40, stopped=44, deadline=48, own=56, filters=72
)
CLOCKS = {time.CLOCK_BOOTTIME: 0, time.CLOCK_TAI: 37_000_000_000, time.CLOCK_REALTIME: 1_000_000_000}


@each_row("stalled", range(40))
def test_clocks_are_read_at_one_moment_however_busy_the_machine(stalled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process gets the processor for a second before one of the readings."""
    readings = iter(range(1000))
    late = 0

    def read(clock: int) -> int:
        nonlocal late
        number = next(readings)
        late += 1_000_000_000 if number == stalled else 0
        return CLOCKS[clock] + 100 * number + late

    memory = bytearray(128)
    manifest = SimpleNamespace(programs=(), session=PLACES, ahead=None)
    loaded = WithMemory(manifest, memory)
    monkeypatch.setattr(time, "clock_gettime_ns", read)
    loaded.fill_session_data(RunOptions(), None)
    monkeypatch.undo()
    _, _, tai, wall, _ = struct.unpack_from("=5q", memory)
    assert abs(tai - CLOCKS[time.CLOCK_TAI]) < 1000
    assert abs(wall - CLOCKS[time.CLOCK_REALTIME]) < 1000


def test_values_of_filters_are_in_the_session_data() -> None:
    memory = bytearray(128)
    loaded = WithMemory(SimpleNamespace(programs=(), session=PLACES, ahead=None), memory)
    options = RunOptions(filters=ProcessFilters(pids=(7, 8, 9), uids=(3,)))
    loaded.fill_session_data(options, None)
    assert struct.unpack_from("=5Q", memory, PLACES.filters) == (7, 8, 9, 7, 3)
    assert struct.unpack_from("=Q", memory, PLACES.root) == (7,)
    waits = RunOptions(filters=ProcessFilters(exec_wait="ls"))
    loaded.fill_session_data(waits, None)
    assert struct.unpack_from("=Q", memory, PLACES.root) == (NOT_YET,)
    assert bytes(memory[PLACES.filters : PLACES.filters + 16]) == b"ls".ljust(16, b"\0")


@pytest.mark.parametrize("before", [0, EXITED, STOPPED])
def test_programs_are_stopped(before: int) -> None:
    memory = bytearray(128)
    struct.pack_into("=II", memory, PLACES.exit, 8, before)
    loaded = WithMemory(SimpleNamespace(session=PLACES), memory)
    assert loaded.has_exited() is (before == EXITED)
    loaded.stop_programs()
    assert struct.unpack_from("=II", memory, PLACES.exit) == (8, STOPPED)
    assert loaded.exit_status() == 7
    assert not loaded.has_exited()
    nothing = WithMemory(SimpleNamespace(session=None))
    nothing.stop_programs()
    assert nothing.exit_status() is None
    assert not nothing.has_exited()


# ---------------------------------------------------------------------------------------------- rates
# Limits of ``--max-rate``: which block has which, and what is written for programs.


def block(index: int, *probes: str) -> ProgramSpec:
    targets = tuple(Target(probe, at, NoTarget()) for at, probe in enumerate(probes))
    return ProgramSpec(f"p{index}", probes[0].partition(":")[0], index, targets, RATES_HERE)


RATES_PROGRAMS = (
    program("begin"),
    block(1, "uprobe:/bin/a:f", "uprobe:/bin/a:g"),
    block(2, "tracepoint:sched:sched_switch"),
    block(3, "interval:s:1"),
    replace(block(4, "tracepoint:sched:sched_process_fork"), service=True),
)


def manifest(rate: int = 0) -> Manifest:
    return Manifest(RATES_PROGRAMS, (), (), (), Config(max_rate=rate), limits=RateLimits("shared", 8))


@pytest.mark.parametrize(
    ("config", "given", "expected"),
    [
        (0, [], [0, 0]),
        (7, [], [7, 7]),
        (7, [Rate(5)], [5, 5]),
        (0, [Rate(5), Rate(6)], [6, 6]),
        (7, [Rate(5, "uprobe:*:g")], [5, 7]),
        (0, [Rate(5, "u:/bin/a:f"), Rate(9)], [5, 9]),
        (0, [Rate(5, "*"), Rate(0.5, "T:sched:*")], [5, 0.5]),
        (0, [Rate(0.5, "t:sched:sched_switch"), Rate(5, "*")], [5, 5]),
    ],
)
def test_a_pattern_counts_before_the_limit_of_all(config: int, given: list[Rate], expected: list[float]) -> None:
    assert limits_of_blocks(manifest(config), given) == dict(zip((1, 2), expected, strict=True))


def test_a_pattern_without_probe_is_an_error() -> None:
    with pytest.raises(TraceError, match="--max-rate uprobe:/bin/a:h: no probe of the script") as caught:
        limits_of_blocks(manifest(), [Rate(5, "uprobe:/bin/a:h")])
    assert "'uprobe:/bin/a:g'" in caught.value.hints[0]
    with pytest.raises(TraceError) as caught:
        limits_of_blocks(manifest(), [Rate(5, "zzz")])
    assert caught.value.hints[0] == "it has tracepoint:sched:sched_switch"


def test_nanoseconds_of_a_hit_are_written() -> None:
    memory = memoryview(bytearray(8 + 3 * RATE_LINE))
    loaded = WithMemory(manifest(), memory)
    loaded.limit_rates([Rate(1000), Rate(0.5, "tracepoint:*")])
    assert struct.unpack_from("=QQ", memory, 8 + RATE_LINE) == (1_000_000, HITS_AHEAD)
    assert struct.unpack_from("=QQ", memory, 8 + 2 * RATE_LINE) == (2_000_000_000, HITS_AHEAD)
    assert not any(memory[: 8 + RATE_LINE])


def test_a_script_without_gates_cannot_be_limited() -> None:
    loaded = WithMemory(replace(manifest(), limits=None))
    loaded.limit_rates([])
    with pytest.raises(TraceError, match="compiled without --max-rate"):
        loaded.limit_rates([Rate(5)])
    # One with begin and timers alone has nothing to limit.
    loaded = WithMemory(replace(manifest(), limits=None, programs=()))
    loaded.limit_rates([Rate(5)])
    with pytest.raises(TraceError, match="--max-rate zzz: no probe of the script has such a name"):
        loaded.limit_rates([Rate(5, "zzz")])
