"""Attaching to this kernel: every kind that it has, with cookies, filters, order, failures, misses."""

from __future__ import annotations

import ctypes
import glob
import json
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from msgspec.structs import replace

from pytrace.core.diagnostics import TraceError
from pytrace.core.probe_kinds import (
    CountedEventTarget,
    IteratorTarget,
    KernelFunctionTarget,
    RawTracepointTarget,
    StaticProbeTarget,
    TimerTarget,
    TracepointTarget,
    TypedFunctionTarget,
    UserTarget,
    WatchpointTarget,
)
from pytrace.runtime.load import attachments, features
from pytrace.runtime.load.attachments import AttachOptions
from pytrace.runtime.machine import bpf, perf
from pytrace.runtime.machine.kernel_functions import Kallsyms
from pytrace.runtime.machine.syscalls import string_memory
from pytrace.runtime.session import child
from tests.support.compile import compiled
from tests.support.loading import Loaded, program, target
from tests.support.machine import kernel_config, kernel_version, need
from tests.support.patience import patience
from tests.support.server import Server
from tests.support.waiting import sleeps, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures('no_leaks')]

def symbols(path: Path) -> dict[str, int]:
    """File offsets of the functions of a binary."""
    with open(path, "rb") as file:
        elf = ELFFile(file)
        loads = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
        found = {}
        for symbol in elf.get_section_by_name(".symtab").iter_symbols():
            for load in loads:
                inside = symbol["st_value"] - load["p_vaddr"]
                if 0 <= inside < load["p_filesz"] and symbol["st_info"]["type"] == "STT_FUNC":
                    found[symbol.name] = inside + load["p_offset"]
    return found


def attach_to(loaded: Loaded, stack: ExitStack, **options: object) -> attachments.Attachments:
    return attachments.attach_all(loaded.loaded, loaded.programs, AttachOptions(**options), stack)  # type: ignore[arg-type]


def run(*command: str | Path) -> None:
    subprocess.run([str(item) for item in command], check=True, stdout=subprocess.DEVNULL)


# ---------------------------------------------------------------------------------------------- uprobes


WAYS = [
    pytest.param("uprobe_multi", frozenset(), id="multi"),
    pytest.param("", frozenset({"uprobe_multi"}), id="perf"),
    pytest.param("", frozenset({"uprobe_multi", "perf_link"}), id="ioctl"),
    pytest.param("", frozenset({"uprobe_multi", "perf_uprobe"}), id="tracefs"),
]


@pytest.mark.parametrize(("multi", "disabled"), WAYS)
def test_uprobes_count_and_have_cookies(programs: Path, multi: str, disabled: frozenset[str]) -> None:
    need("uprobe_multi" if multi else "uprobe")
    calls = programs / "calls"
    offsets = symbols(calls)
    names = ["add", "six", "greet"]
    spec = program(
        "count_multi" if multi else "count_kprobe",
        "uprobe",
        *(target(UserTarget(str(calls), offsets[name], symbol=name), 10 + n) for n, name in enumerate(names)),
        multi=multi,
    )
    with ExitStack() as stack:
        loaded = Loaded(stack, spec, disabled=disabled)
        done = attach_to(loaded, stack, disabled=disabled)
        assert len(done.attached) == 3
        assert not done.failures
        run(calls, "7")
        if "perf_link" in disabled:
            assert loaded.counts == {0: 21}
        else:
            assert loaded.counts == {10: 7, 11: 7, 12: 7}
        assert loaded.percpu_counts == loaded.counts
        assert loaded.hits == 21


@pytest.mark.parametrize(("multi", "disabled"), WAYS)
def test_uretprobe(programs: Path, multi: str, disabled: frozenset[str]) -> None:
    need("uprobe_multi" if multi else "uprobe")
    calls = programs / "calls"
    place = target(UserTarget(str(calls), symbols(calls)["negative"], symbol="negative"), 3)
    symbol = "count_multi" if multi else "count_return"
    with ExitStack() as stack:
        loaded = Loaded(stack, program(symbol, "uretprobe", place, multi=multi), disabled=disabled)
        attach_to(loaded, stack, disabled=disabled)
        run(calls, "5")
        assert loaded.hits == 5


@pytest.mark.parametrize(("multi", "disabled"), WAYS)
@pytest.mark.parametrize("kind", ["uprobe", "uretprobe"])
def test_functions_that_do_not_return(programs: Path, kind: str, multi: str, disabled: frozenset[str]) -> None:
    need("uprobe_multi" if multi else "uprobe")
    faults = programs / "faults"
    offsets = symbols(faults)
    places = [target(UserTarget(str(faults), offsets[name], symbol=name)) for name in ("main", "fault", "handled")]
    symbol = "count_multi" if multi else {"uprobe": "count_kprobe", "uretprobe": "count_return"}[kind]
    with ExitStack() as stack:
        loaded = Loaded(stack, program(symbol, kind, *places, multi=multi), disabled=disabled)
        attach_to(loaded, stack, disabled=disabled)
        run(faults)
        assert loaded.hits == {"uprobe": 3, "uretprobe": 1}[kind]


@pytest.mark.parametrize(("multi", "disabled"), WAYS)
def test_uprobe_of_one_process(programs: Path, multi: str, disabled: frozenset[str]) -> None:
    need("uprobe_multi" if multi else "uprobe")
    calls = programs / "calls"
    place = target(UserTarget(str(calls), symbols(calls)["add"], symbol="add"), 3)
    symbol = "count_multi" if multi else "count_kprobe"
    with ExitStack() as stack:
        loaded = Loaded(stack, program(symbol, "uprobe", place, multi=multi), disabled=disabled)
        process = child.start(f"{calls} 9", stack)
        attach_to(loaded, stack, disabled=disabled, pids=(process.pid,))
        run(calls, "50")
        assert loaded.hits == 0
        process.release()
        os.waitid(os.P_PIDFD, process.descriptors[0], os.WEXITED | os.WNOWAIT)
        assert loaded.hits == 9


@pytest.mark.parametrize(("multi", "disabled"), WAYS)
def test_usdt_semaphore_is_raised(programs: Path, multi: str, disabled: frozenset[str]) -> None:
    need("uprobe_multi" if multi else "usdt")
    usdt = programs / "usdt"
    probes = _usdt_probes(usdt)
    spec = program(
        "count_multi" if multi else "count_kprobe",
        "usdt",
        *(
            target(StaticProbeTarget(str(usdt), offset, provider="sample", name=name, semaphore_offset=semaphore), n)
            for n, (name, offset, semaphore) in enumerate(probes)
            if name in {"guarded", "one"}
        ),
        multi=multi,
    )
    with ExitStack() as stack:
        loaded = Loaded(stack, spec, disabled=disabled)
        attach_to(loaded, stack, disabled=disabled)
        text = subprocess.run([str(usdt), "6"], capture_output=True, text=True, check=True).stdout
        assert text == "guarded 6\n"
        assert loaded.hits == 12
    text = subprocess.run([str(usdt), "6"], capture_output=True, text=True, check=True).stdout
    assert text == "guarded 0\n"


def test_usdt_semaphore_by_hand(programs: Path) -> None:
    need("usdt")
    usdt = programs / "usdt"
    place = next(
        target(StaticProbeTarget(str(usdt), offset, provider="sample", name=name, semaphore_offset=semaphore), 1)
        for name, offset, semaphore in _usdt_probes(usdt)
        if name == "guarded"
    )
    process = subprocess.Popen([usdt, "4", "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process, ExitStack() as stack:
        until(lambda: sleeps(process.pid, "usdt"))
        old_kernel = frozenset({"semaphores", "uprobe_multi"})
        loaded = Loaded(stack, program("count_kprobe", "usdt", place), disabled=old_kernel)
        with pytest.raises(TraceError, match="semaphore"):
            attach_to(loaded, stack, disabled=old_kernel)
        attach_to(loaded, stack, disabled=old_kernel, pids=(process.pid,))
        assert process.communicate("go\n")[0] == "guarded 4\n"
        assert loaded.hits == 4


def _usdt_probes(path: Path) -> list[tuple[str, int, int]]:
    from pytrace.runtime.load.live_kernel import LiveKernel

    info = LiveKernel()
    return [(row.name, row.offset, row.semaphore_offset) for row in info.usdt_probes(str(path), "sample", "*")]


def test_one_bad_offset_among_many(programs: Path) -> None:
    """A multi link that the kernel refuses is taken apart until the culprit stands alone."""
    need("uprobe_multi")
    calls = programs / "calls"
    good = sorted(symbols(calls).values())[:5]
    places = [target(UserTarget(str(calls), offset), n, f"uprobe:{n}") for n, offset in enumerate([*good, 1 << 40])]
    spec = program("count_multi", "uprobe", *places, multi="uprobe_multi")
    with ExitStack() as stack:
        loaded = Loaded(stack, spec)
        with pytest.raises(TraceError, match=r"cannot attach uprobe:5: "), ExitStack() as inner:
            attach_to(loaded, inner)
        done = attach_to(loaded, stack, missing_probes="warn")
        assert [failure.target.cookie for failure in done.failures] == [5]
        assert len(done.attached) == 5


@pytest.mark.parametrize(("multi", "disabled"), WAYS[:3])
def test_another_tracer_has_another_counter(programs: Path, multi: str, disabled: frozenset[str]) -> None:
    """The kernel allows one reference counter for each offset of a file."""
    need("uprobe_multi" if multi else "uprobe")
    calls = programs / "calls"
    offset = symbols(calls)["add"]
    spec = program("count_multi" if multi else "count_kprobe", "uprobe",
                   target(UserTarget(str(calls), offset)), multi=multi)  # fmt: skip
    path = string_memory(str(calls))
    kind = perf.pmu_type("uprobe")
    assert kind is not None
    other = perf.open_event(perf.EventAttr(kind, config=0x300 << 32, config1=path.address, config2=offset), cpu=0)
    try:
        with ExitStack() as stack, pytest.raises(TraceError, match="another tracer has a probe at that offset"):
            attach_to(Loaded(stack, spec, disabled=disabled), stack, disabled=disabled)
    finally:
        os.close(other)
    with ExitStack() as stack:
        attach_to(Loaded(stack, spec, disabled=disabled), stack, disabled=disabled)


@pytest.mark.parametrize(("multi", "disabled"), WAYS[:2])
def test_missing_file(multi: str, disabled: frozenset[str]) -> None:
    need("uprobe_multi" if multi else "uprobe")
    spec = program("count_multi" if multi else "count_kprobe", "uprobe",
                   target(UserTarget("/nonexistent/file", 64)), multi=multi)  # fmt: skip
    with ExitStack() as stack, pytest.raises(TraceError, match="no such file"):
        attach_to(Loaded(stack, spec, disabled=disabled), stack, disabled=disabled)


@pytest.mark.parametrize(("multi", "disabled"), WAYS)
def test_files_that_went_since_a_pattern_found_them(programs: Path, multi: str, disabled: frozenset[str]) -> None:
    """A process ended, for example, through whose mounts its program was to be reached."""
    need("uprobe_multi" if multi else "uprobe")
    calls = programs / "calls"
    gone = target(UserTarget("/proc/0/root/program", 64, by_pattern=True), 0)
    there = target(UserTarget(str(calls), symbols(calls)["add"], by_pattern=True), 1)
    name = "count_multi" if multi else "count_kprobe"
    with ExitStack() as stack:
        loaded = Loaded(stack, program(name, "uprobe", gone, there, multi=multi), disabled=disabled)
        done = attach_to(loaded, stack, disabled=disabled)
        assert [item.target for item in done.attached] == [there]
        assert not done.failures
    spec = program(name, "uprobe", gone, multi=multi)
    with ExitStack() as stack, pytest.raises(TraceError, match="no such file"):
        attach_to(Loaded(stack, spec, disabled=disabled), stack, disabled=disabled)


def test_one_uprobe_takes_the_multi_link_too(programs: Path) -> None:
    """Perf's single uprobes are slow to detach."""
    need("uprobe_multi")
    calls = programs / "calls"
    spec = program("count_kprobe", "uprobe", target(UserTarget(str(calls), symbols(calls)["add"]), 9))
    with ExitStack() as stack:
        loaded = Loaded(stack, spec)
        assert loaded.loaded.multi("count_kprobe") == "uprobe_multi"
        attach_to(loaded, stack)
        run(calls, "2")
        assert loaded.counts == {9: 2}


def test_blocks_on_one_function_run_in_source_order(programs: Path) -> None:
    """The kernel runs the uprobe that came last first, so the last block has to be attached first."""
    need("uprobe")
    calls = programs / "calls"
    place = UserTarget(str(calls), symbols(calls)["add"])
    first = program("event_kprobe", "uprobe", target(place, 100), index=0)
    second = program("count_kprobe", "uprobe", target(place, 200), index=1)
    with ExitStack() as stack:
        loaded = Loaded(stack, first, second)
        attach_to(loaded, stack)
        run(calls, "1")
        # The event carries the number of hits so far: 1 when its program ran first.
        from pytrace.render.events import each
        from pytrace.runtime.output.ring import Handlers, RingReader

        seen: list[bytes] = []
        reader = RingReader(loaded.loaded.map_fd("events"), stack)
        reader.drain(Handlers([each(lambda data, offset: seen.append(data[offset : offset + 16]))]))
        assert loaded.hits == 2
        assert [int.from_bytes(event[8:16], "little") for event in seen] == [1]


def test_ten_thousand_uprobes(tmp_path: Path) -> None:
    """One link attaches them all: as links of their own they would take minutes, each waits for the kernel."""
    need("uprobe_multi")
    # The assembler makes them in a second; gcc takes ten, from C.
    each = "".join(f".globl f{n}; .type f{n}, %function; f{n}: nop; ret; .size f{n}, .-f{n}\\n" for n in range(10000))
    text = f'__asm__("{each}");\nvoid f0(void), f9999(void);\nint main(void) {{ f0(); f9999(); return 0; }}\n'
    compiled(tmp_path, "many", text)
    found = symbols(tmp_path / "many")
    offsets = [found[f"f{n}"] for n in range(10000)]
    assert len(offsets) == 10000
    places = [target(UserTarget(str(tmp_path / "many"), offset), n) for n, offset in enumerate(offsets)]
    with ExitStack() as outer:
        loaded = Loaded(outer, program("count_multi", "uprobe", *places, multi="uprobe_multi"))
        with ExitStack() as stack:
            before = open_links()
            done = attach_to(loaded, stack)
            assert len(done.attached) == 10000
            assert len(open_links()) == len(before) + 1
            run(tmp_path / "many")
            assert loaded.hits == 2


def open_links() -> list[str]:
    """Descriptors of this process that are BPF links."""
    paths = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    # The one that the folder was read by is closed.
    return [path for path in paths if os.path.lexists(path) and "bpf_link" in os.readlink(path)]


def test_programs_that_went_since_a_pattern_found_them() -> None:
    """Another tracer ended, for example."""
    need("tracepoint")
    place = TypedFunctionTarget("hit_tracing", program_id=2**31 - 1)
    gone = program("hit_tracing", "fentry", target(replace(place, by_pattern=True), 0, "fentry:bpf:gone"))
    there = program("count_tracepoint", "tracepoint", target(TracepointTarget("sched", "sched_switch"), 1), index=1)
    with ExitStack() as stack:
        done = attach_to(Loaded(stack, gone, there), stack)
        assert [item.spec for item in done.attached] == [there]
        assert not done.failures
    with ExitStack() as stack, pytest.raises(TraceError, match="fentry:bpf:gone: the program no longer exists"):
        attach_to(Loaded(stack, gone), stack)
    with ExitStack() as stack, pytest.raises(TraceError, match="no type information"):
        Loaded(stack, program("hit_tracing", "fentry", target(place, 0, "fentry:bpf:gone")))


# ---------------------------------------------------------------------------------------------- tracepoints


@pytest.mark.parametrize("disabled", [frozenset(), frozenset({"perf_link"})], ids=["link", "ioctl"])
def test_tracepoints(programs: Path, disabled: frozenset[str]) -> None:
    need("syscalls")
    spec = program(
        "count_tracepoint",
        "tracepoint",
        target(TracepointTarget("syscalls", "sys_enter_getppid"), 1),
        target(TracepointTarget("syscalls", "sys_enter_lseek"), 2),
    )
    with ExitStack() as stack:
        process = child.start(f"{programs / 'syscalls'} 11", stack)
        loaded = Loaded(stack, spec, pid=process.pid)
        attach_to(loaded, stack, disabled=disabled)
        process.release()
        os.waitid(os.P_PIDFD, process.descriptors[0], os.WEXITED | os.WNOWAIT)
        assert loaded.counts == ({0: 22} if disabled else {1: 11, 2: 11})


def test_unknown_tracepoint() -> None:
    need("tracepoint")
    spec = program("count_tracepoint", "tracepoint", target(TracepointTarget("a", "b"), 0, "tracepoint:a:b"))
    with ExitStack() as stack, pytest.raises(TraceError, match=r"cannot attach tracepoint:a:b: .*no tracepoint a:b"):
        attach_to(Loaded(stack, spec), stack)


@pytest.mark.parametrize("cookie", [0, 5])
def test_raw_tracepoint(programs: Path, cookie: int) -> None:
    need("rawtracepoint")
    cookies = kernel_version() >= (6, 10)
    symbol = "count_tracing" if cookies else "hit_tracing"
    spec = program(symbol, "rawtracepoint", target(RawTracepointTarget("sys_enter", ""), cookie))
    with ExitStack() as stack:
        process = child.start(f"{programs / 'syscalls'} 11", stack)
        loaded = Loaded(stack, spec, pid=process.pid)
        attach_to(loaded, stack)
        process.release()
        os.waitid(os.P_PIDFD, process.descriptors[0], os.WEXITED | os.WNOWAIT)
        assert loaded.hits >= 55
        assert not cookies or set(loaded.counts) == {cookie}


# ---------------------------------------------------------------------------------------------- perf events


def busy_until(condition: Callable[[], bool]) -> None:
    """Use the processor. How often it is sampled by then depends on what else it does: an emulated one, above all."""
    end = time.process_time() + patience(0.25)
    while not condition():
        assert time.process_time() < end


@pytest.mark.parametrize("place", [TimerTarget(frequency=1000), TimerTarget(period_ns=1_000_000)], ids=["hz", "ns"])
@pytest.mark.parametrize("mine", [False, True], ids=["all", "pid"])
def test_profile(place: TimerTarget, mine: bool) -> None:
    need("perf_events")
    with ExitStack() as stack:
        loaded = Loaded(stack, program("count_perf", "profile", target(place, 4)), pid=os.getpid())
        attach_to(loaded, stack, pids=(os.getpid(),) if mine else ())
        busy_until(lambda: loaded.hits > 20)
        assert set(loaded.counts) == {4}


FAULTS = target(CountedEventTarget("page-faults", 2, 1), 1)
"""Each page fault, which a process can have as often as it likes, on the processor and in the thread that it likes."""


@contextmanager
def page_faults(disabled: frozenset[str] = frozenset(), pids: Sequence[int] = (), pid: int = 0) -> Iterator[Loaded]:
    """Page faults of *pids* (without any: of each CPU), of which the program counts those of *pid* (0: all)."""
    need("perf_events")
    with ExitStack() as stack:
        loaded = Loaded(stack, program("count_perf", "software", FAULTS), pid=pid)
        attach_to(loaded, stack, pids=tuple(pids), disabled=disabled)
        yield loaded


def fault() -> None:
    """Have 512 pages of new memory."""
    with mmap.mmap(-1, 512 * mmap.PAGESIZE) as block:
        block.madvise(mmap.MADV_NOHUGEPAGE)
        for start in range(0, len(block), mmap.PAGESIZE):
            block[start] = 1


def test_events_of_one_process_only() -> None:
    with subprocess.Popen(["sleep", "100"]) as other:
        until(lambda: sleeps(other.pid, "sleep"))
        with page_faults(pids=[other.pid]) as loaded:
            fault()
            assert loaded.hits == 0
        other.kill()


def test_events_of_each_cpu() -> None:
    cpus = os.sched_getaffinity(0)
    try:
        with page_faults(pid=os.getpid()) as loaded:
            for number, cpu in enumerate(sorted(cpus), 1):
                os.sched_setaffinity(0, {cpu})
                fault()
                assert loaded.hits >= 512 * number
    finally:
        os.sched_setaffinity(0, cpus)


@pytest.mark.parametrize("disabled", [frozenset(), frozenset({"perf_link"})], ids=["link", "ioctl"])
@pytest.mark.parametrize("begins", ["before", "later"])
def test_events_of_threads(begins: str, disabled: frozenset[str]) -> None:
    """``-p`` means the process: threads are found at attach time, later ones inherit the event."""
    go = threading.Event()
    thread = threading.Thread(target=lambda: (go.wait(patience(30)), fault()))
    if begins == "before":
        thread.start()
    try:
        with page_faults(disabled, pids=[os.getpid()]) as loaded:
            if begins == "later":
                thread.start()
            before = loaded.hits
            go.set()
            thread.join()
            assert loaded.hits - before >= 512
    finally:
        go.set()
        thread.join()


def test_interval() -> None:
    """On one processor only; a machine that is busy may come late or leave one out, but none comes early."""
    need("perf_events")
    period = 10_000_000
    with ExitStack() as stack:
        loaded = Loaded(stack, program("count_perf", "interval", target(TimerTarget(period_ns=period), 4)))
        start = time.monotonic_ns()
        attach_to(loaded, stack)
        until(lambda: loaded.hits >= 20)
        hits = loaded.hits
        assert hits <= (time.monotonic_ns() - start) / period


def test_interval_of_a_frequency() -> None:
    need("perf_events")
    with ExitStack() as stack:
        loaded = Loaded(stack, program("count_perf", "interval", target(TimerTarget(frequency=1000), 4)))
        attach_to(loaded, stack)
        until(lambda: loaded.hits >= 50, 1)  # one a second would not do in the test machine, which has 24


def test_hardware_event() -> None:
    need("pmu")
    with ExitStack() as stack:
        spec = program("count_perf", "hardware", target(CountedEventTarget("cycles", 0, 100_000), 1))
        loaded = Loaded(stack, spec)
        attach_to(loaded, stack, pids=(os.getpid(),))
        busy_until(lambda: loaded.hits > 20)


def test_watchpoint() -> None:
    need("watchpoint")
    if not features.has("watchpoint"):
        pytest.skip("no hardware breakpoints")
    word = ctypes.c_uint64(0)
    with ExitStack() as stack:
        spec = program("count_perf", "watchpoint", target(WatchpointTarget(ctypes.addressof(word), 8, "w"), 1))
        loaded = Loaded(stack, spec)
        attach_to(loaded, stack, pids=(os.getpid(),))
        for value in range(5):
            word.value = value
        assert loaded.hits == 5


# ---------------------------------------------------------------------------------------------- iterators


def test_iterator_runs_when_read() -> None:
    need("iter")
    with ExitStack() as stack:
        loaded = Loaded(stack, program("hit_iter", "iter", target(IteratorTarget("task"))))
        done = attach_to(loaded, stack)
        assert loaded.hits == 0
        link = done.attached[0].iterator
        assert link is not None
        forked, before = forks(), tasks()
        assert b"".join(bpf.read_iterator(link)) == b""
        # Other tests start and end threads meanwhile. Some sandboxes hide the first process, of their own.
        there = {path for path in before & tasks() if not path.startswith("/proc/1/")}
        assert len(there) <= loaded.hits <= len(before) + forks() - forked + 1, "and once behind the last"


def tasks() -> set[str]:
    """All threads of all processes."""
    return set(glob.glob("/proc/[0-9]*/task/[0-9]*"))


def forks() -> int:
    """How many threads this machine has started."""
    return next(int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if "processes" in line)


def test_iterator_pin(tmp_path: Path) -> None:
    need("iter")
    with ExitStack() as stack:
        folder = tmp_path / "bpf"
        folder.mkdir()
        subprocess.run(["mount", "-t", "bpf", "bpf", folder], check=True)
        stack.callback(subprocess.run, ["umount", folder], check=True)
        pin = folder / "tasks"
        with ExitStack() as session:
            loaded = Loaded(session, program("hit_iter", "iter", target(IteratorTarget("task", str(pin)))))
            done = attach_to(loaded, session)
            assert str(pin) in done.attached[0].note
            assert done.attached[0].iterator is None
            pin.read_bytes()
            assert loaded.hits > 1
            with pytest.raises(TraceError, match="already exists"):
                attach_to(loaded, session)
        pin.unlink()


def test_iterator_pin_outside_bpffs(tmp_path: Path) -> None:
    need("iter")
    spec = program("hit_iter", "iter", target(IteratorTarget("task", str(tmp_path / "x"))))
    with ExitStack() as stack, pytest.raises(TraceError, match="bpffs"):
        attach_to(Loaded(stack, spec), stack)


# ---------------------------------------------------------------------------------------------- kernel functions


KPROBE_WAYS = [
    pytest.param("kprobe_multi", frozenset(), id="multi"),
    pytest.param("", frozenset(), id="perf"),
    pytest.param("", frozenset({"perf_link"}), id="ioctl"),
    pytest.param("", frozenset({"perf_kprobe"}), id="tracefs"),
]


@pytest.mark.parametrize(("multi", "disabled"), KPROBE_WAYS)
@pytest.mark.parametrize("kind", ["kprobe", "kretprobe"])
def test_kprobe(programs: Path, kind: str, multi: str, disabled: frozenset[str]) -> None:
    need(multi or "kprobe")
    if multi and not features.has("kprobe_multi"):
        pytest.skip("kprobe_multi: the kernel was built without CONFIG_FPROBE")
    places = [target(KernelFunctionTarget(f"__x64_sys_{name}"), at) for name, at in (("getppid", 6), ("lseek", 7))]
    symbol = {"kprobe": "count_kprobe", "kretprobe": "count_return"}[kind]
    with ExitStack() as stack:
        process = child.start(f"{programs / 'syscalls'} 11", stack)
        loaded = Loaded(stack, program(symbol, kind, *places, multi=multi), pid=process.pid)
        attach_to(loaded, stack, disabled=disabled)
        process.release()
        os.waitid(os.P_PIDFD, process.descriptors[0], os.WEXITED | os.WNOWAIT)
        assert loaded.counts == ({0: 22} if "perf_link" in disabled else {6: 11, 7: 11})


@pytest.mark.parametrize(("multi", "disabled"), KPROBE_WAYS)
@pytest.mark.parametrize("kind", ["kprobe", "kretprobe"])
def test_kernel_functions_that_do_not_return(
    programs: Path, kind: str, multi: str, disabled: frozenset[str]
) -> None:
    need(multi or "kprobe")
    if multi and not features.has("kprobe_multi"):
        pytest.skip("kprobe_multi: the kernel was built without CONFIG_FPROBE")
    symbol = {"kprobe": "count_kprobe", "kretprobe": "count_return"}[kind]
    with ExitStack() as stack:
        process = child.start("true", stack)
        spec = program(symbol, kind, target(KernelFunctionTarget("__x64_sys_exit_group")), multi=multi)
        loaded = Loaded(stack, spec, pid=process.pid)
        attach_to(loaded, stack, disabled=disabled)
        process.release()
        os.waitid(os.P_PIDFD, process.descriptors[0], os.WEXITED | os.WNOWAIT)
        assert loaded.hits == {"kprobe": 1, "kretprobe": 0}[kind]


def behind_the_hook() -> int:
    """The offset of the first instruction of a kernel function behind the call that ftrace may put there."""
    return 9 if kernel_config().get("X86_KERNEL_IBT") == "y" else 5


@pytest.fixture
def debugfs(tmp_path: Path) -> Iterator[Path]:
    """It lists where kprobes are."""
    folder = tmp_path / "debug"
    folder.mkdir()
    subprocess.run(["mount", "-t", "debugfs", "debugfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("disabled", [frozenset(), frozenset({"perf_kprobe"})], ids=["perf", "tracefs"])
@pytest.mark.parametrize("way", ["name", "offset", "address", "address and offset"])
def test_kprobe_places(programs: Path, debugfs: Path, way: str, disabled: frozenset[str]) -> None:
    need("kprobe")
    offset = behind_the_hook() if "offset" in way else 0
    address = Kallsyms().address("__x64_sys_getppid") or 0
    place = KernelFunctionTarget("__x64_sys_getppid", offset=offset)
    if "address" in way:
        # A place in tracefs is one number.
        place = KernelFunctionTarget(address=address + offset) if disabled else replace(
            place, function="", address=address
        )
    with ExitStack() as stack:
        process = child.start(f"{programs / 'syscalls'} 11", stack)
        loaded = Loaded(stack, program("count_kprobe", "kprobe", target(place, 1)), pid=process.pid, disabled=disabled)
        attach_to(loaded, stack, disabled=disabled)
        listed = (debugfs / "kprobes" / "list").read_text()
        assert f"{address + offset:x}  k " in listed
        process.release()
        os.waitid(os.P_PIDFD, process.descriptors[0], os.WEXITED | os.WNOWAIT)
        assert loaded.hits == 11


def test_kprobe_on_nothing() -> None:
    need("kprobe")
    spec = program("count_kprobe", "kprobe", target(KernelFunctionTarget("nothing_like_that"), 0, "kprobe:nothing"))
    with ExitStack() as stack, pytest.raises(TraceError, match=r"cannot attach kprobe:nothing: .*no function"):
        attach_to(Loaded(stack, spec), stack)


def test_kernel_without_kprobes_says_so() -> None:
    """What a kernel without the feature gives, shown with the feature switched off."""
    spec = program("count_kprobe", "kprobe", target(KernelFunctionTarget("vfs_read"), 0, "kprobe:vfs_read"))
    with ExitStack() as stack, pytest.raises(TraceError, match="no kprobes") as raised:
        attach_to(Loaded(stack, spec), stack, feature=lambda name: False)
    assert any("tracepoint" in hint for hint in raised.value.hints)


@pytest.mark.parametrize("kind", ["fentry", "fexit"])
def test_fentry(programs: Path, kind: str) -> None:
    need("fentry")
    cookies = features.has("tracing_get_attach_cookie")
    # System call entries have no type information, the functions behind them do.
    spec = program("count_tracing" if cookies else "hit_tracing", kind, target(TypedFunctionTarget("vfs_write"), 7))
    with ExitStack() as stack:
        process = child.start(f"{programs / 'syscalls'} 11", stack)
        loaded = Loaded(stack, spec, pid=process.pid)
        attach_to(loaded, stack)
        process.release()
        os.waitid(os.P_PIDFD, process.descriptors[0], os.WEXITED | os.WNOWAIT)
        assert loaded.hits == 11
        assert not cookies or loaded.counts == {7: 11}


# ---------------------------------------------------------------------------------------------- misses
# What the kernel left out: misses of kretprobes and of programs inside themselves.


SLEEPERS = """
import threading, time
gate = threading.Barrier(60)
def sleep():
    gate.wait()
    time.sleep(1)
threads = [threading.Thread(target=sleep) for _ in range(60)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_missed_returns_are_counted(server: Server) -> None:
    """A kretprobe remembers only so many calls at one time; more sleepers than that are missed."""
    need("kprobe")
    script = (
        "kprobe:do_nanosleep /pid == cpid/ { @in = count(); } kretprobe:do_nanosleep /pid == cpid/ { @out = count(); }"
    )
    argv = ("-q", "-f", "json", "-e", script, "-c", f"{sys.executable} -c '{SLEEPERS}'")
    done = server.run(argv, timeout=60)
    assert done.status == 0, done
    found = {name: value for line in done.stdout.splitlines() for name, value in json.loads(line)["data"].items()}
    missed = sum(found.get("missed", {}).values())
    assert found["@in"] >= 60
    # Sleepers of other processes may be missed as well.
    assert found["@in"] - found["@out"] <= missed
    assert missed > 0


def test_programs_inside_themselves_are_counted(server: Server, programs: Path) -> None:
    """Each debugf() in the second program hits that program again."""
    script = (
        'tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { debugf("x"); } '
        'rawtracepoint:bpf_trace_printk /pid == cpid/ { @ = count(); debugf("again"); }'
    )
    done = server.run(("-q", "-f", "json", "-e", script, "-c", f"{programs}/flood 100"), timeout=30)
    assert done.status == 0, done
    objects = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {"type": "map", "data": {"@": 100}} in objects
    losses = next(item["data"] for item in objects if item["type"] == "losses")
    assert list(losses["recursion"].values()) == [100]
