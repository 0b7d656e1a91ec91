"""Filters, following of processes, gates and other services of a run."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from elftools.elf.elffile import ELFFile

from pytrace.codegen.walkers.program_filters import FOLLOWED
from pytrace.codegen.walkers.service_programs import FOLLOWED_ENTRIES
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelFunction
from pytrace.core.manifest import RATE_LINE, MapType
from pytrace.core.options import PROCESS_MAP, CompileOptions, ProcessFilters
from pytrace.core.probe_kinds import INTERVAL, PROBE_KINDS, RAW_TRACEPOINT
from pytrace.core.types import Pointer
from tests.codegen.running import compiled, helpers, machine
from tests.codegen.test_generator import FORKS, TASK
from tests.codegen.walkers.test_unwinding import PLAIN, STACK, TABLED, Process, stack
from tests.support.bpf_machine import GID, PID, UID, BpfMap, Machine
from tests.support.facts import RecordedKernel, function

COMM = "task"
SWITCH = "tracepoint:sched:sched_switch { @n++; }"


def filtered(filters: ProcessFilters, text: str = SWITCH) -> Machine:
    """A machine whose session has the values of *filters*."""
    options = CompileOptions(filters=filters)
    found = machine(text, RecordedKernel(), options)
    memory = bytearray(filters.shape.size)
    filters.pack(memory, 0)
    session = found.script.manifest.session
    assert session is not None
    found.write(found.section(session.section) + session.filters, bytes(memory))
    return found


def hits(filters: ProcessFilters) -> int:
    found = filtered(filters)
    assert found.run() == 1
    return int(found.slot("@n"))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (ProcessFilters(pids=(PID,)), 1),
        (ProcessFilters(pids=(PID + 1,)), 0),
        (ProcessFilters(pids=(1, 2, PID)), 1),
        (ProcessFilters(pids=(1, 2, 3)), 0),
        (ProcessFilters(uids=(UID,)), 1),
        (ProcessFilters(uids=(GID,)), 0),
        (ProcessFilters(comms=("x", COMM)), 1),
        (ProcessFilters(comms=(COMM[:-1], COMM + "x")), 0),
        (ProcessFilters(cgroups=((1, 100),)), 1),
        (ProcessFilters(cgroups=((2, 200),)), 1),
        (ProcessFilters(cgroups=((2, 100),)), 0),
        (ProcessFilters(cgroups=((3, 200), (1, 100))), 1),
        (ProcessFilters(pids=(PID,), uids=(UID,), comms=(COMM,), cgroups=((1, 100),)), 1),
        (ProcessFilters(pids=(PID,), uids=(UID,), comms=("x",), cgroups=((1, 100),)), 0),
        (ProcessFilters(pids=(1,), uids=(UID,)), 0),
    ],
)
def test_values_of_one_kind_are_alternatives_and_all_kinds_must_hold(filters: ProcessFilters, expected: int) -> None:
    assert hits(filters) == expected
    found = filtered(filters, "tracepoint:sched:sched_switch /in_scope/ { @n++; }")
    found.run()
    assert found.slot("@n") == expected
    # A script that asks runs for all tasks.
    found = filtered(filters, "tracepoint:sched:sched_switch { @n++; @in += in_scope; }")
    found.run()
    assert (found.slot("@n"), found.slot("@in")) == (1, expected)


def test_many_processes_are_looked_up() -> None:
    filters = ProcessFilters(pids=tuple(range(100, 120)))
    options = CompileOptions(filters=filters)
    found = machine(SWITCH, RecordedKernel(), options)
    wanted = found.maps[found.names[PROCESS_MAP]] = BpfMap(MapType.HASH, 4, 4, 32)
    found.run()
    assert found.slot("@n") == 0
    wanted.entries[struct.pack("<I", PID), 0] = found.region(4)
    found.run()
    assert found.slot("@n") == 1


def test_the_cheapest_filter_is_first_and_ends_the_program() -> None:
    found = filtered(ProcessFilters(pids=(1,), uids=(UID,), comms=(COMM,), cgroups=((1, 100),)))
    found.run()
    assert helpers(found) == [14]


@pytest.mark.parametrize("text", ["begin { @n++; }", "end { @n++; }", "interval:s:1 { @n++; }"])
def test_programs_without_a_process_have_no_filter(text: str) -> None:
    options = CompileOptions(filters=ProcessFilters((7,), (0, 1), ("x",), ((1, 100),)))
    assert code(text, options) == code(text)


@pytest.mark.parametrize("probe", ["tracepoint:sched:sched_switch", "profile:hz:99", "uprobe:/bin/app:main"])
def test_without_filters_in_scope_is_nothing(probe: str) -> None:
    plain = code(f"{probe} {{ @n++; }}")
    assert code(f"{probe} /in_scope/ {{ @n++; }}") == plain
    assert code(f"{probe} {{ if (in_scope) {{ @n++; }} }}") == plain
    assert code(f"{probe} {{ if comptime (in_scope) {{ @n++; }} else {{ fail(1) }} }}") == plain


def test_values_are_no_part_of_the_code() -> None:
    one = CompileOptions(filters=ProcessFilters((7,), (0,)))
    other = CompileOptions(filters=ProcessFilters((8,), (0,)))
    assert compiled(SWITCH, RecordedKernel(), one).elf == compiled(SWITCH, RecordedKernel(), other).elf


def code(text: str, options: CompileOptions | None = None) -> list[int]:
    """Sizes of the programs."""
    script = compiled(text, RecordedKernel(), options)
    sections = ELFFile(io.BytesIO(script.elf)).iter_sections()
    return [len(section.data()) for section in sections if section.name.startswith("pytrace/")]


# ---------------------------------------------------------------------------------------------------- process following

FOLLOW = CompileOptions(filters=ProcessFilters((7,)), follow=True)
FORK, FREE = "follow_sched_process_fork", "follow_sched_process_free"


EVENTS = ("sched_process_fork", "sched_process_free", "sched_process_exec")
TYPED = replace(
    FORKS,
    structs={**FORKS.structs, **{("typedef", f"btf_trace_{name}"): TASK for name in EVENTS}},
    raw={
        "sched_process_fork": function("sched_process_fork", ("parent", Pointer(TASK)), ("child", Pointer(TASK))),
        "sched_process_free": function("sched_process_free", ("p", Pointer(TASK))),
    },
)
"""The same tracepoints where raw ones have types."""
KERNELS = pytest.mark.parametrize("kernel", [FORKS, TYPED], ids=["plain", "raw"])


def following(kernel: RecordedKernel, root: int = 0) -> Machine:
    found = machine("tracepoint:sched:sched_switch { @n++; }", kernel, FOLLOW)
    found.maps[found.names[FOLLOWED]] = BpfMap(MapType.HASH, 4, 4, FOLLOWED_ENTRIES)
    session = found.script.manifest.session
    assert session is not None
    found.write(found.section(session.section) + session.root, struct.pack("<Q", root))
    return found


def followed(found: Machine) -> set[int]:
    return {int.from_bytes(key, "little") for key, _ in found.maps[found.names[FOLLOWED]].entries}


def run(found: Machine, symbol: str, record: bytes, *tasks: int) -> None:
    """Run a program with the record of a tracepoint, or with pointers to tasks."""
    spec = next(item for item in found.script.manifest.programs if item.symbol == symbol)
    if spec.multi:
        # The pid is the first member of TASK.
        addresses = [found.region(struct.pack("<I", task) + bytes(TASK.size)) for task in tasks]
        record = b"".join(struct.pack("<Q", address) for address in addresses)
    assert found.run(symbol, record) == 1


def fork(found: Machine, child: int) -> None:
    run(found, FORK, bytes(20) + struct.pack("<I", child) + bytes(40), PID, child)


@KERNELS
@pytest.mark.parametrize(("root", "hits"), [(PID, 1), (1, 0)])
def test_the_process_itself(kernel: RecordedKernel, root: int, hits: int) -> None:
    found = following(kernel, root)
    assert found.run() == 1
    assert found.slot("@n") == hits


@KERNELS
def test_children_of_followed_processes_are_followed(kernel: RecordedKernel) -> None:
    found = following(kernel, PID)
    fork(found, 50)
    assert followed(found) == {50}
    other = following(kernel, 1)
    fork(other, 50)
    assert followed(other) == set()
    # Now its own number is in the set.
    other.maps[other.names[FOLLOWED]].entries[struct.pack("<I", PID), 0] = other.region(4)
    fork(other, 51)
    other.run()
    assert (followed(other), other.slot("@n")) == ({PID, 51}, 1)


@KERNELS
def test_numbers_are_given_back(kernel: RecordedKernel) -> None:
    found = following(kernel, PID)
    fork(found, 50)
    run(found, FREE, bytes(12) + struct.pack("<I", 50) + bytes(40), 50)
    assert followed(found) == set()


@KERNELS
def test_a_number_that_is_used_again_by_others(kernel: RecordedKernel) -> None:
    found = following(kernel, 1)
    found.maps[found.names[FOLLOWED]].entries[struct.pack("<I", 50), 0] = found.region(4)
    fork(found, 50)
    assert followed(found) == set()


@KERNELS
def test_a_full_set_is_counted(kernel: RecordedKernel) -> None:
    found = following(kernel, PID)
    found.maps[found.names[FOLLOWED]].most = 0
    fork(found, 50)
    assert found.counts()["unfollowed"] == 1


def test_kernels_without_the_tracepoints() -> None:
    with pytest.raises(TraceError, match="--follow needs the tracepoint sched:sched_process_fork"):
        compiled("tracepoint:sched:sched_switch { }", RecordedKernel(), FOLLOW)


def ways(kernel: RecordedKernel, options: CompileOptions, config: str = "") -> set[str]:
    """How the programs of tracepoints are attached."""
    script = compiled(f"{config} tracepoint:syscalls:sys_enter_openat {{ }}", kernel, options)
    services = [item for item in script.manifest.programs if item.service and item.kind == "tracepoint"]
    assert len(services) == 2 + bool(options.filters.exec_wait)
    return {item.multi for item in services}


RENAMED = {**TYPED.raw, "sched_process_free": function("sched_process_free", ("task", Pointer(TASK)))}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda kernel: kernel, {RAW_TRACEPOINT}),
        (lambda kernel: replace(kernel, has_btf=False), {""}),
        (lambda kernel: replace(kernel, features=kernel.features - {"rawtracepoint"}), {""}),
        (lambda kernel: replace(kernel, raw=RENAMED), {RAW_TRACEPOINT, ""}),
        (lambda kernel: replace(kernel, raw={}), {""}),
    ],
)  # fmt: skip
def test_no_perf_event_where_raw_tracepoints_have_types(
    change: Callable[[RecordedKernel], RecordedKernel], expected: set[str]
) -> None:
    assert ways(change(TYPED), CompileOptions(child=True, follow=True)) == expected


def test_which_end_of_a_process_is_awaited() -> None:
    without = frozenset({"rawtracepoint"})
    assert ways(TYPED, CompileOptions(child=True, follow=True, no_features=without)) == {""}
    assert ways(TYPED, CompileOptions(child=True, follow=True), "config = { raw_tracepoints = plain; }") == {""}
    assert ways(TYPED, CompileOptions(follow=True, ahead=True)) == {""}
    options = CompileOptions(follow=True, filters=ProcessFilters(exec_wait="x"))
    assert ways(TYPED, options) == {RAW_TRACEPOINT}
    events = {**FORKS.events, ("sched", "sched_process_exec"): ()}
    assert ways(replace(FORKS, events=events), options) == {""}


# ---------------------------------------------------------------------------------------------------------------- gates

LIMITED = CompileOptions(limited=True)
KTIME = 5


def limited(text: str, each: int, ahead: int, *, block: int = 0) -> tuple[Machine, int]:
    """A machine whose blocks have limits, and the address of one limit."""
    found = machine(text, RecordedKernel(), LIMITED)
    limits = found.script.manifest.limits
    assert limits is not None
    line = found.section(limits.section) + limits.offset + RATE_LINE * block
    found.write(line, struct.pack("=QQ", each, ahead))
    return found, line


def due(found: Machine, line: int) -> int:
    return found.load(line + 16, 8)


def test_scripts_without_limits_have_no_gate() -> None:
    assert compiled(SWITCH, RecordedKernel()).manifest.limits is None
    assert compiled("begin { @n++; } interval:s:1 { @n++; }", RecordedKernel(), LIMITED).manifest.limits is None
    assert KTIME not in helpers(ran_once(SWITCH))


def ran_once(text: str) -> Machine:
    found = machine(text, RecordedKernel())
    found.run()
    return found


def test_hits_that_are_too_fast_are_dropped_and_counted() -> None:
    found, line = limited(SWITCH, each=1 << 62, ahead=0)
    assert [found.run() for _ in range(3)] == [1, 1, 1]
    assert found.slot("@n") == 1
    assert found.counts() == {"skipped": 0, "limited": 2}
    assert due(found, line) > 1 << 62


def test_a_burst_runs_until_it_is_ahead() -> None:
    each = 1 << 50
    found, line = limited(SWITCH, each, ahead=2 * each)
    for _ in range(10):
        found.run()
    # The first one moves the time on from now, and two more may be ahead of it.
    assert found.slot("@n") == 3
    assert found.counts() == {"skipped": 0, "limited": 7}
    assert due(found, line) // each == 3


def test_limits_and_conditions() -> None:
    found, line = limited(SWITCH, each=0, ahead=0)
    for _ in range(5):
        found.run()
    assert (found.slot("@n"), due(found, line), found.counts()) == (5, 0, {"skipped": 0, "limited": 0})
    assert KTIME not in helpers(found)
    found, line = limited("tracepoint:sched:sched_switch /pid == 77/ { @n++; }", each=1 << 62, ahead=0)
    found.run()
    assert (due(found, line), found.counts()) == (0, {"skipped": 0, "limited": 0})


def test_each_block_has_a_limit_of_its_own() -> None:
    text = f"{SWITCH} tracepoint:sched:sched_switch {{ @m++; }}"
    found, line = limited(text, each=1 << 62, ahead=0, block=1)
    for program in found.script.manifest.programs * 3:
        found.run(program.symbol)
    assert (found.slot("@n"), found.slot("@m")) == (3, 1)
    assert due(found, line)
    assert not due(found, line - RATE_LINE)


def test_the_configuration_limits_as_well() -> None:
    assert compiled(f"config = {{ max_rate = 5; }} {SWITCH}", RecordedKernel()).manifest.limits is not None


@pytest.mark.parametrize("kind", [row.name for row in PROBE_KINDS if row.special] + [INTERVAL])
def test_what_the_tracer_runs_is_never_left_out(kind: str) -> None:
    texts = {"interval": "interval:s:1", "self": "self:signal:SIGUSR1", "test": "test:x", "bench": "bench:x"}
    options = CompileOptions(limited=True, mode=kind if kind in ("test", "bench") else "run")
    found = machine(f"{texts.get(kind, kind)} {{ @n++; }} {SWITCH}", RecordedKernel(), options)
    found.run()
    assert KTIME not in helpers(found)


# ------------------------------------------------------------------------------------------------------------- watchdog

JIFFIES = 118
NOW = 55
"""The tick of the machine of tests."""


def at(deadline: int, text: str = SWITCH, filters: ProcessFilters | None = None) -> Machine:
    """A machine whose tracer has moved the deadline to a tick."""
    options = CompileOptions(filters=filters or ProcessFilters())
    found = machine(text, RecordedKernel(), options)
    session = found.script.manifest.session
    assert session is not None
    found.write(found.section(session.section) + session.deadline, deadline.to_bytes(8, "little"))
    return found


def skipped(found: Machine) -> int:
    """The counter of skipped hits."""
    counters = found.script.manifest.counters
    assert counters is not None
    place = found.section(counters.section) + counters.offset + 8 * counters.names.index(("skipped", 0))
    return found.load(place, 8)


@pytest.mark.parametrize(("deadline", "runs"), [(NOW - 1, False), (NOW, True), (NOW + 1, True), ((1 << 64) - 1, True)])
def test_a_program_runs_up_to_its_deadline(deadline: int, runs: bool) -> None:
    found = at(deadline)
    assert found.run() == 1
    assert (found.slot("@n"), skipped(found)) == ((1, 0) if runs else (0, 1))


def test_skipped_hits() -> None:
    found = at(0, "tracepoint:sched:sched_switch /comm == \"task\"/ { @[kstack] = count(); }")
    found.run()
    assert set(helpers(found)) == {JIFFIES, 8}, "the time, and the CPU of the counter"
    found = at(0, filters=ProcessFilters(pids=(PID + 1,)))
    found.run()
    assert skipped(found) == 0


@pytest.mark.parametrize(
    "text",
    ["begin { @n++; }", "end { @n++; }", "self:signal:SIGUSR1 { @n++; }", "iter:task { @n++; }", "profile:hz:9 { }"],
)
def test_programs_that_nobody_else_runs_have_no_watchdog(text: str) -> None:
    script = machine(text, RecordedKernel()).script
    assert script.manifest.counters is None or all(kind != "skipped" for kind, _ in script.manifest.counters.names)


@pytest.mark.parametrize(
    ("probe", "runs"),
    [
        ("kprobe:__x64_sys_exit", False),
        ("fentry:__x64_sys_exit", False),
        # The cookie is 0: that of the first function.
        ("kprobe:__x64_sys_exit,kprobe:__x64_sys_close", False),
        ("kprobe:__x64_sys_close,kprobe:__x64_sys_exit", True),
        ("kprobe:__x64_sys_close", True),
        ("kprobe:__x64_sys_exit_group", True),
        ("kretprobe:__x64_sys_exit", True),
    ],
)
@pytest.mark.parametrize("own", [True, False])
def test_functions_of_exit_are_not_seen_of_the_own_threads(probe: str, runs: bool, own: bool) -> None:
    """They do not return: a map of calls that have begun would keep each."""
    names = ("__x64_sys_exit", "__x64_sys_exit_group", "__x64_sys_close")
    kernel = RecordedKernel(
        prototypes=tuple(map(function, names)), traceable=tuple(map(KernelFunction, names))
    )
    found = machine(f"{probe} {{ @n++; }}", kernel)
    session = found.script.manifest.session
    assert session is not None
    found.write(found.section(session.section) + session.deadline, b"\xff" * 8)
    found.write(found.section(session.section) + session.own, (PID if own else PID + 1).to_bytes(4, "little"))
    found.run()
    assert found.slot("@n") == int(runs or not own)


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("process", ["picture", "inspector"])
def test_the_view_is_not_seen(process: str, live: bool) -> None:
    found = machine(SWITCH, RecordedKernel(), CompileOptions(live=live))
    session = found.script.manifest.session
    assert session is not None
    found.write(found.section(session.section) + session.deadline, b"\xff" * 8)
    place = session.own + (4 if process == "picture" else 8)
    found.write(found.section(session.section) + place, PID.to_bytes(4, "little"))
    found.run()
    assert found.slot("@n") == int(not live)


# ----------------------------------------------------------------------------------------------------------- code ahead

OUTER = 0x600
"""Where rbp of the caller points to, from the stack pointer."""

FIND = {
    # name: code, distance of the return address from the stack pointer
    "V8, at the first instruction": ("55 4889e5 56 57 50 4883ec18", 0),
    "V8, after push": ("4889e5 56 57 50", 8),
    "V8, before the check of deoptimization": ("488b59e0 f6433701 0f8512345600 55 4889e5", 0),
    "V8, last instruction": ("c21800", 0),
    "V8, number of arguments": ("4883f903 7f03 c21800", 0),
    "V8, as many arguments as there are": ("4883f902 7f03 c21800 415a 488d24cc 4152 c3", 0),
    "V8, more of them": ("415a 488d24cc 4152 c3", 0),
    "V8, interpreted": ("59 4803e3 51 c3", 0),
    "V8, arguments removed": ("c3", 0),
    "V8, before interpretation": (
        ("4c8b5717 4d8b6207 4d8b5424ff 6641817a0bf500 0f84b8020000 6641817a0b9f00 7505 4d8b642407 4d8b5424ff"
        "6641817a0bbf00 0f8562010000 488b5f27 488b5b07 488b4bff 6681790bf900 0f851c000000 0fb74b15 f6c13e"
        "0f8573010000 448a5314 4180e208 44885314 ff430b 55 4889e5"),
        0,
    ),
    "HotSpot, at the first instruction": ("89842400c0feff 55 488bec 4883ec20", 0),
    "HotSpot, the check of a class": ("448b5608 4d3bd0 0f8501020304 89842400c0feff 55 488bec", 0),
    "HotSpot, frame removed": ("5d 493ba738030000 0f8700010000 c3", 8),
    "HotSpot, a leaf without frame pointers": ("8bc6 4883c410 5d 493ba738030000 0f8700010000 c3", 0x18),
    ".NET, at the first instruction": ("55 4157 4156 53 4883ec18 488d6c2430", 0),
    ".NET, between": ("53 4883ec18 488d6c2430", 0x18),
    ".NET, many variables": ("4881ec00010000 488dac2400010000", 8),
    ".NET, a function without frame": ("8d46ff 85c0 7403 ffc8 0fafc6 c3", 0),
    ".NET, floating point": ("c5fb10442408 c5f877 f20f58c1 c3", 0),
    "rsp moved": ("488d642418 c3", 0x18),
    "rsp moved far": ("488da42418010000 4881c408000000 c3", 0x120),
    "a jump": ("eb02 ffff 6a00 68ffffffff 4883c410 f3c3", 0),
    "numbers of all widths": ("66b81234 48b80011223344556677 b901020304 f7c101020304 f7d8 b001 c3", 0),
    "no operands and all of them": ("488b05ffffffff 8b848801020304 8b0c2511223344 66c70102ff 4883780801 c3", 0),
}

STAY = {
    "a function with a frame": "4889ec 5d c3",
    "leave": "c9 c3",
    "a call": "e800000000 4889e5",
    "a call by register": "ffd0 c3",
    "a jump by register": "ffe0 c3",
    "V8, another register is pushed": "415a 488d24cc 4150 c3",
    "V8, no return address is pushed": "415a 488d24cc c3",
    "rsp from elsewhere": "488b6110 c3",
    "rsp from a register": "4889cc c3",
    "rsp aligned": "4883e4f0 c3",
    "rsp from rbp": "488d65e8 5b 5d c3",
    "rbp from elsewhere": "488b6c2408 c3",
    "rsp popped": "5c c3",
    "more pushes than pops": "53 c3",
    "V8, the return address is in a register": "488d24cc 4152 c3",
    "an unknown instruction": "62f1fe486f02 c3",
    "a frame that is not the caller's": "90 488d6c2450 c3",
    "a jump out of what was read": "e900010000",
    "a jump back": "ebfe",
    "no end": "90" * 40 + "c3",
    "much code": "48b8" + "00" * 8 + "48b80011223344556677" * 20 + "c3",
    "zeros": "00" * 192,
}


CALLER, LAST = PLAIN + 0x200, TABLED + 0x900


def process(code: str, place: int = 0, ip: int = PLAIN + 0x100, *, saved: bool = False) -> Process:
    """A return address at a place of the stack, below it the caller's rbp (in the register, too, unless *saved*).

    The frame of the caller, of code without a table, has the other return address.
    """
    words = {STACK + OUTER: 0, STACK + OUTER + 8: LAST, STACK + place - 8: STACK + OUTER, STACK + place: CALLER}
    return Process(ip, 7 if saved else STACK + OUTER, words, code=bytes.fromhex(code))


@pytest.mark.parametrize("name", FIND)
def test_code_that_says_it(name: str) -> None:
    assert stack(process(*FIND[name]).run()) == [PLAIN + 0x100, CALLER, LAST]


def test_the_callers_rbp_is_popped() -> None:
    for name in ("HotSpot, frame removed", "HotSpot, a leaf without frame pointers"):
        assert stack(process(*FIND[name], saved=True).run()) == [PLAIN + 0x100, CALLER, LAST]


@pytest.mark.parametrize("name", STAY)
def test_code_that_does_not_say_it(name: str) -> None:
    assert stack(process(STAY[name]).run()) == [PLAIN + 0x100, LAST]


def test_code_ahead_of_frames() -> None:
    assert stack(process("4154 415c c3", ip=PLAIN + 0xFFB).run()) == [PLAIN + 0xFFB, CALLER, LAST]
    one = process("c3")
    one.words[STACK] = 12345
    assert stack(one.run()) == [PLAIN + 0x100]


def test_only_the_innermost_frame() -> None:
    """The caller is in its function, where the frame pointer is its own."""
    one = process("4889ec 5d c3")
    one.words.update({STACK + OUTER: STACK + OUTER + 64, STACK + OUTER + 8: CALLER})
    one.words.update({STACK + OUTER + 64: 0, STACK + OUTER + 72: LAST})
    assert stack(one.run()) == [PLAIN + 0x100, CALLER, LAST]


# ----------------------------------------------------------------------------------------------------- service programs

def test_a_service_comes_after_the_programs_of_the_script_and_has_no_block() -> None:
    options = CompileOptions(filters=ProcessFilters((7,)), follow=True)
    script = compiled("tracepoint:sched:sched_switch { @n++; }", FORKS, options)
    found = [(spec.service, spec.index) for spec in script.manifest.programs]
    assert found[0] == (False, 0)
    assert set(found[1:]) == {(True, -1)}
    assert len({spec.symbol for spec in script.manifest.programs}) == len(found)
