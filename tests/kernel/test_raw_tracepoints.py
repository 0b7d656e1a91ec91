"""Tracepoints and system calls by way of the raw ones show the same events as the plain ones."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from pytrace.runtime.machine import fingerprints
from tests.support.machine import kernel_version, need
from tests.support.patience import patience
from tests.support.server import Server
from tests.support.two_ways import Tracer, end, grouped, of_one_program
from tests.support.workloads.block import perform, scattered, sequential, synchronize
from tests.support.workloads.storage import loop_disk

# Both trace one workload at the same time. The tables here say which fields are read from the raw tracepoint's
# arguments and which are not, so that a field that moves from one to the other is seen.

_WAKEUP = "comm pid prio target_cpu"
_REQUEST = "dev sector nr_sector bytes ioprio comm"
_PACKET = "skbaddr len name"
RAW = {
    "sched:sched_switch": "prev_comm prev_pid prev_prio next_comm next_pid next_prio",
    "sched:sched_wakeup": _WAKEUP,
    "sched:sched_wakeup_new": _WAKEUP,
    "sched:sched_waking": _WAKEUP,
    "sched:sched_migrate_task": "comm pid prio orig_cpu dest_cpu",
    "sched:sched_stat_runtime": "comm pid runtime",
    "sched:sched_process_fork": "parent_comm parent_pid child_comm child_pid",
    "sched:sched_process_exec": "filename pid old_pid",
    "sched:sched_process_exit": "comm pid prio group_dead",
    "sched:sched_process_free": "comm pid prio",
    "sched:sched_process_wait": "comm pid prio",
    "block:block_rq_insert": _REQUEST,
    "block:block_rq_issue": _REQUEST,
    "block:block_rq_merge": _REQUEST,
    "block:block_io_start": _REQUEST,
    "block:block_io_done": _REQUEST,
    "block:block_rq_complete": "dev sector nr_sector ioprio",
    "net:net_dev_queue": _PACKET,
    "net:netif_receive_skb": _PACKET,
    "net:netif_rx": _PACKET,
    "net:net_dev_start_xmit": "name queue_mapping skbaddr vlan_proto vlan_tci protocol len data_len",
    "net:net_dev_xmit": "skbaddr len rc name",
    "skb:kfree_skb": "skbaddr location rx_sk protocol reason",
    "skb:consume_skb": "skbaddr location",
}
"""Fields that are read by way of the raw tracepoints, on each kernel whose tracepoint has them."""
PLAIN = {
    "sched:sched_switch": "prev_state",
    "sched:sched_stat_runtime": "vruntime",
    **dict.fromkeys((name for name in RAW if name.startswith("block:")), "rwbs cmd error"),
    "net:net_dev_start_xmit": "vlan_tagged ip_summed network_offset transport_offset_valid transport_offset tx_flags "
    "gso_size gso_segs gso_type",
}
"""Fields that are not, as the kernel computes them by rules that type information does not tell."""
_OWN = 'strncmp(str(args.comm), "hot ", 4) == 0'
TOLD = dict.fromkeys(("sched:sched_waking", "sched:sched_wakeup", "sched:sched_migrate_task"), _OWN)
"""Predicates that leave out what the tracers do themselves."""
SINCE = {"block:block_io_start": (6, 5), "block:block_io_done": (6, 5)}
"""Kernels that first had a tracepoint; the others are older than any that pytrace supports."""


def names_of(category: str) -> list[str]:
    """The tracepoints of a category that this kernel has."""
    return [name for name in RAW if name.startswith(f"{category}:") and kernel_version() >= SINCE.get(name, (0, 0))]


def fields_of(name: str) -> dict[str, str]:
    """The tracepoint's own fields as the kernel declares them, by name."""
    text = Path(fingerprints.tracefs_root(), "events", *name.split(":"), "format").read_text()
    lines = [line.split(";")[0].removeprefix("\tfield:") for line in text.splitlines() if "\tfield:" in line]
    return {line.split()[-1].partition("[")[0]: line for line in lines if " common_" not in line}


def shown(name: str) -> list[str]:
    """The fields that the test prints: those that are read from the raw tracepoint."""
    declared = fields_of(name)
    return [field for field in RAW[name].split() if field in declared]


def block(name: str, predicate: str = "") -> str:
    """A probe that prints thread, tracepoint and fields."""
    fields = fields_of(name)
    formats, values = [], []
    for field in shown(name):
        text, address = "char" in fields[field], "*" in fields[field]
        formats.append(f"{field}={'%s' if text else '%p' if address else '%d'}")
        values.append(f"args.{field}")
    known = f"/{predicate}/ " if predicate else ""
    return f'tracepoint:{name} {known}{{ printf("%d {name} {" ".join(formats)}\\n", tid, {", ".join(values)}); }}'


def script_of(way: str, script: str) -> str:
    """The script in one of the two ways."""
    return f"config = {{ raw_tracepoints = {way}; perf_rb_pages = 1024 }} {script}"


def by_thread(lines: Iterable[str]) -> dict[str, list[str]]:
    """What was printed of each thread and tracepoint, in order.

    The order of several tracepoints is no matter of the way: an interrupt may come between the two programs.
    """
    return grouped(lines, 2)


def told(messages: str, way: str) -> set[str]:
    """The tracepoints that ``-v`` says are traced in a way."""
    (line,) = [line for line in messages.splitlines() if f"tracepoints by way of {way}: " in line] or [""]
    names = line.partition(f"tracepoints by way of {way}: ")[2].removesuffix(" (config raw_tracepoints)")
    return {name.partition(" ")[0] for name in names.split(", ") if name}


def compare(raw: Mapping[str, Sequence[str]], plain: Mapping[str, Sequence[str]]) -> None:
    """All that was seen in the one way was seen in the other, in the same order.

    An interrupt that comes while a program runs passes tracepoints whose plain programs the kernel leaves out
    (``bpf_prog_active``), so a few lines may be only in *raw*: more of them, the busier the machine is.
    """
    assert plain.keys() <= raw.keys()
    for thread, lines in raw.items():
        left = iter(lines)
        for line in plain.get(thread, ()):
            assert line in left, f"{line}: not among what the raw way shows, or in another order: {lines}"
    seen, expected = (sum(map(len, found.values())) for found in (plain, raw))
    assert expected - seen <= 2 + expected // 20


def both_ways(folder: Path, script: str, names: Sequence[str], work: Sequence[object]) -> Counter[str]:
    """Trace a program of tests/programs in both ways; how often each tracepoint was passed."""
    messages, lines = of_one_program(folder, {way: script_of(way, script) for way in ("auto", "plain")}, work)
    assert told(messages["auto"], "raw tracepoints") == set(names)
    assert told(messages["plain"], "perf events") == set(names)
    raw, plain = (by_thread(lines[way]) for way in ("auto", "plain"))
    compare(raw, plain)
    return Counter(line.split()[1] for lines in raw.values() for line in lines)


def test_the_tables_are_complete() -> None:
    need("rawtracepoint")
    for name in (name for category in ("sched", "block", "net", "skb") for name in names_of(category)):
        known = {*RAW[name].split(), *PLAIN.get(name, "").split()}
        assert fields_of(name).keys() <= known, f"{name} has a field that the test does not know"
        assert shown(name), name


@pytest.mark.parametrize("category", ["sched", "block", "net", "skb"])
def test_each_field_goes_its_way(category: str, server: Server, tmp_path: Path) -> None:
    """Each by itself, so that no other field of the same tracepoint decides."""
    need("rawtracepoint")
    fields = [(name, field) for name in names_of(category) for field in fields_of(name)]
    runs = [("-v", "--dry-run", "-e", f"tracepoint:{name} {{ print(args.{field}); }}") for name, field in fields]
    for (name, field), done in zip(fields, server.run_together(runs, cache=tmp_path), strict=True):
        assert done is not None, (name, field)
        assert done.status == 0, (name, field, done)
        way = "raw tracepoints" if field in RAW[name].split() else "perf events"
        assert told(done.stderr, way) == {name}, (name, field, done)


def test_scheduler(tmp_path: Path, programs: Path) -> None:
    need("rawtracepoint")
    names = [name for name in names_of("sched") if name != "sched:sched_process_free"]
    # Both tracers wake themselves by what they print, which the other one sees earlier or later.
    script = " ".join(block(name, TOLD.get(name, "")) for name in names)
    counted = both_ways(tmp_path, script, names, [programs / "hot", "sched"])
    least = {"sched:sched_process_exec": 4, "sched:sched_process_fork": 8, "sched:sched_process_exit": 8}
    least |= {"sched:sched_process_wait": 8, "sched:sched_wakeup_new": 8, "sched:sched_switch": 60}
    least |= {"sched:sched_waking": 60, "sched:sched_wakeup": 30, "sched:sched_stat_runtime": 30}
    least["sched:sched_migrate_task"] = 10 if (os.cpu_count() or 1) > 1 else 0
    assert all(counted[name] >= number for name, number in least.items()), counted


def test_network(tmp_path: Path, programs: Path) -> None:
    need("rawtracepoint")
    names = [*names_of("net"), *names_of("skb")]
    counted = both_ways(tmp_path, " ".join(map(block, names)), names, [programs / "hot", "net"])
    assert all(counted[name] >= 100 for name in names), counted


def test_block_devices(tmp_path: Path) -> None:
    """Requests are completed by others, so all processes are traced and one disk is selected."""
    need("rawtracepoint")
    names = [name for name in names_of("block") if name != "block:block_rq_merge"]
    tracers: dict[str, Tracer] = {}
    with loop_disk() as disk:
        major, minor = disk.number
        script = " ".join(block(name, f"args.dev == {major << 20 | minor}") for name in names)
        try:
            for way in ("auto", "plain"):
                tracers[way] = Tracer(tmp_path / way, script_of(way, script))
            perform(disk, [*sequential(20), *scattered(20, write=True)])
            synchronize(disk.path)
            for tracer in tracers.values():
                tracer.process.send_signal(signal.SIGINT)
            raw, plain = (_unthreaded(tracers[way].lines()) for way in ("auto", "plain"))
        finally:
            end(tracer.process for tracer in tracers.values())
    assert told(tracers["auto"].messages, "raw tracepoints") == set(names)
    assert told(tracers["plain"].messages, "perf events") == set(names)
    assert not plain - raw
    assert (raw - plain).total() <= 2
    counted = Counter(line.split()[0] for line in raw.elements())
    assert counted["block:block_rq_issue"] >= 40, counted
    assert counted["block:block_rq_complete"] >= 40, counted


def _unthreaded(lines: Iterable[str]) -> Counter[str]:
    return Counter(line.partition(" ")[2] for line in lines)


# ---------------------------------------------------------------------------------------------- system calls
# System call tracepoints by way of the raw ones show the same events as the plain ones, field by field, in order.
# Both trace one process and what it forks at the same time: `tests/programs/callmix.c` makes system calls of all kinds.


_CALLS = """
read write close newfstat lseek pread64 pwrite64 readv writev dup3 fcntl ioctl flock fsync ftruncate fchdir fchmod
fchown getpid getppid getuid sched_yield getpriority sendto recvfrom connect bind getsockopt openat mkdirat unlinkat
readlinkat faccessat utimensat epoll_ctl epoll_pwait signalfd4 timerfd_settime fallocate mprotect madvise newuname
statfs sendfile64 splice copy_file_range fadvise64 getdents64 newfstatat statx getpgid rt_sigreturn clock_nanosleep
restart_syscall clone clone3 execve wait4 kill
"""
CALLS = _CALLS.split()
"""Calls of the program whose arguments are compared."""

SCRIPTS = {
    "arguments": " ".join(
        f'tracepoint:syscalls:sys_enter_{name} {{ printf("%d ", tid); print(args); }}' for name in CALLS
    ),
    "entries": 'tracepoint:syscalls:sys_enter_* { printf("%d %s %d\\n", tid, probe, args.__syscall_nr); }',
    "results": 'tracepoint:syscalls:sys_exit_* { printf("%d %s %d %d\\n", tid, probe, args.__syscall_nr, args.ret); }',
    "both, and stacks": (
        'tracepoint:syscalls:sys_*_getp* { printf("%d %s %s %s\\n", tid, probe, comm, ustack(raw)); } '
        'tracepoint:syscalls:sys_enter_getp* { printf("%d again\\n", tid); }'
    ),
    "loops and predicates": (
        "tracepoint:syscalls:sys_enter_openat, tracepoint:syscalls:sys_enter_mkdirat "
        '/args.dfd > 1000/ { for ($i : 0..2) { printf("%d %d %s\\n", tid, args.dfd + $i, probe); } } '
        'tracepoint:syscalls:sys_exit_openat /args.ret >= 0/ { printf("%d %d\\n", tid, args.ret); return; }'
    ),
}

PROGRAM32 = """
static void call(long number) { __asm__ volatile("int $0x80" : : "a"(number), "b"(0) : "memory"); }
void _start(void) { for (int n = 0; n < 5; n++) { call(64); call(20); call(146); } call(1); }
"""
"""64 and 20 are getppid and getpid there, semget and writev in 64-bit programs."""


@pytest.fixture(scope="module")
def program32(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A 32-bit program, where the compiler can make one."""
    folder = tmp_path_factory.mktemp("program32")
    (folder / "calls.c").write_text(PROGRAM32)
    command = ["gcc", "-m32", "-nostdlib", "-static", "-O1", "-o", f"{folder}/calls", f"{folder}/calls.c"]
    made = shutil.which("gcc") and subprocess.run(command, capture_output=True, check=False).returncode == 0
    return [f"{folder}/calls"] if made else []


@pytest.mark.parametrize("name", SCRIPTS)
def test_both_ways_are_equal(tmp_path: Path, programs: Path, program32: list[str], name: str) -> None:
    need("raw_syscalls")
    scripts = {way: f"config = {{ syscall_tracepoints = {way} }} {SCRIPTS[name]}" for way in ("raw", "plain")}
    messages, lines = of_one_program(tmp_path, scripts, [programs / "callmix", *program32])
    assert "by one program of the raw tracepoint (" in messages["raw"]
    assert "by programs of their own (" in messages["plain"]
    raw, plain = (grouped(lines[way], 1) for way in ("raw", "plain"))
    assert raw == plain
    assert len(raw) >= 2
    _check_coverage(name, raw)


def _check_coverage(name: str, found: dict[str, list[str]]) -> None:
    """What the program is known to do must be there, or the comparison proves nothing."""
    lines = [line for thread in found.values() for line in thread]
    if name == "results":
        counted = Counter(re.findall(r"sys_exit_(\w+) \d+ (-?\d+)", "\n".join(lines)))
        # Each call of the process whose filter denies them, and the return of clone or fork in the child.
        assert sum(count for (_, result), count in counted.items() if result == "-33") > 250
        assert counted["restart_syscall", "0"]
        assert any(made in counted for made in (("clone", "0"), ("clone3", "0"), ("fork", "0")))
        assert not any(call == "rt_sigreturn" and result != "-33" for call, result in counted)
    if name == "entries":
        counted_calls = Counter(re.findall(r"sys_enter_(\w+)", "\n".join(lines)))
        assert counted_calls["rt_sigreturn"] == counted_calls["restart_syscall"] == 1
        assert not counted_calls["semget"]
        assert counted_calls["readv"] == 2


@pytest.mark.parametrize("way", ["raw", "plain"])
def test_a_kernel_stack_is_that_of_the_plain_tracepoint(programs: Path, way: str) -> None:
    need("raw_syscalls")
    script = (
        f"config = {{ syscall_tracepoints = {way} }} "
        "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { print(kstack); exit(); }"
    )
    command = [sys.executable, "-m", "pytrace", "-v", "-e", script, "-c", f"{programs}/flood 10"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(30), check=True)
    assert "1 by programs of their own" in done.stderr
    assert "bpf_trace_run" not in done.stdout
