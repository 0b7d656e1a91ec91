"""System calls that the standard library lacks: bpf, perf_event_open, device events, and libbpf's functions."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.base import kernel_files
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.machine import bpf, libbpf, perf, privileges, syscalls
from pytrace.runtime.machine.bpf import Command, MapBatch
from pytrace.runtime.machine.libbpf import DEBUG, INFO, WARN, Library, Messages
from pytrace.runtime.machine.syscalls import Memory, string_memory
from tests.support.fake_maps import FakeMaps, install
from tests.support.waiting import open_descriptors, until

# ---------------------------------------------------------------------------------------------- bpf
# Commands of bpf(2), without a kernel that answers them.


@pytest.mark.parametrize("signals", [0, 1, 20])
def test_a_load_that_signals_break_off_is_tried_again(signals: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([errno.EAGAIN] * signals + [0])

    def call(name: str, number: int, address: int, size: int) -> int:
        assert (name, number) == ("bpf", bpf.Command.PROG_LOAD)
        code = next(answers)
        if code:
            raise OSError(code, "")
        return 5

    monkeypatch.setattr(syscalls, "call", call)
    assert bpf.prog_load(bpf.ProgramType.KPROBE, bytes(16)) == 5
    assert not list(answers)


@pytest.mark.parametrize(("code", "wanted"), [(errno.EINVAL, 1), (errno.EAGAIN, 100)])
def test_a_load_that_fails_for_good(code: int, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def call(name: str, number: int, address: int, size: int) -> int:
        nonlocal made
        made += 1
        raise OSError(code, "")

    monkeypatch.setattr(syscalls, "call", call)
    with pytest.raises(OSError, match=r"bpf\(PROG_LOAD\)") as failure:
        bpf.prog_load(bpf.ProgramType.KPROBE, bytes(16))
    assert (failure.value.errno, made) == (code, wanted)


# ---------------------------------------------------------------------------------------------- bpf maps
# pytrace.runtime.machine.bpf: single elements and batches, also on kernels without these.


HASH = 1


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaps]:
    made = install(monkeypatch)
    yield made
    made.close()


def key(number: int) -> bytes:
    return number.to_bytes(4, "little")


def filled(maps: FakeMaps, count: int, *, bucket: int = 1) -> int:
    """A map with keys and values from 0 on."""
    descriptor = maps.add(4, 8, bucket=bucket)
    maps.maps[descriptor].pairs = {key(number): number.to_bytes(8, "little") for number in range(count)}
    return descriptor


def test_what_is_asked_for_a_map(maps: FakeMaps) -> None:
    inner = bpf.map_create(HASH, 4, 8, 100, flags=1, name="a_name_that_is_far_too_long")
    made = maps.maps[inner]
    assert (made.kind, made.key_size, made.value_size, made.entries, made.flags) == (HASH, 4, 8, 100, 1)
    assert made.name == "a_name_that_is_"
    assert maps.maps[bpf.map_create(12, 4, 4, 1, inner=inner)].inner == inner


def test_single_elements(maps: FakeMaps) -> None:
    descriptor = maps.add(4, 8)
    assert bpf.map_lookup(descriptor, key(1), 8) is None
    assert not bpf.map_delete(descriptor, key(1))
    bpf.map_update(descriptor, key(1), b"12345678")
    assert bpf.map_lookup(descriptor, key(1), 8) == b"12345678"
    assert bpf.map_delete(descriptor, key(1))
    assert maps.maps[descriptor].pairs == {}


def test_keys_one_after_another(maps: FakeMaps) -> None:
    descriptor = filled(maps, 3)
    assert bpf.map_next_key(descriptor, None, 4) == key(0)
    assert bpf.map_next_key(descriptor, key(1), 4) == key(2)
    assert bpf.map_next_key(descriptor, key(2), 4) is None
    assert bpf.map_next_key(maps.add(4, 8), None, 4) is None


def test_other_errors_stay_errors(maps: FakeMaps, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    descriptor = maps.add(4, 8)
    monkeypatch.setattr(syscalls, "call", refuse)
    for ask in (
        lambda: bpf.map_lookup(descriptor, key(1), 8),
        lambda: bpf.map_delete(descriptor, key(1)),
        lambda: bpf.map_next_key(descriptor, None, 4),
        lambda: MapBatch(descriptor, 4, 8, 10).read(),
        lambda: bpf.map_update_all(descriptor, [key(1)], bytes(8)),
    ):
        with pytest.raises(PermissionError):
            ask()


# ---------------------------------------------------------------------------------------------- batches


def walked(batch: MapBatch, *, delete: bool = False) -> tuple[list[int], list[int]]:
    """Numbers of keys, and of elements of each call."""
    found: list[int] = []
    counts = []
    end = False
    while not end:
        count, end = batch.read(delete=delete)
        counts.append(count)
        assert [batch.keys.data[4 * at : 4 * at + 4] for at in range(count)] == [
            batch.values.data[8 * at : 8 * at + 4] for at in range(count)
        ]
        found += [int.from_bytes(batch.keys.data[4 * at : 4 * at + 4], "little") for at in range(count)]
    return found, counts


@pytest.mark.parametrize(
    ("count", "capacity", "counts"), [(0, 4, [0]), (3, 4, [3]), (4, 4, [4]), (10, 4, [4, 4, 2])]
)
def test_a_walk_goes_on_where_it_was(maps: FakeMaps, count: int, capacity: int, counts: list[int]) -> None:
    assert walked(MapBatch(filled(maps, count), 4, 8, capacity)) == (list(range(count)), counts)


def test_elements_are_taken_out_in_the_same_step(maps: FakeMaps) -> None:
    descriptor = filled(maps, 10)
    assert walked(MapBatch(descriptor, 4, 8, 4), delete=True)[0] == list(range(10))
    assert maps.maps[descriptor].pairs == {}
    assert set(maps.calls) == {Command.MAP_LOOKUP_AND_DELETE_BATCH}


def test_a_bucket_that_is_fuller_than_a_batch(maps: FakeMaps) -> None:
    batch = MapBatch(filled(maps, 6, bucket=3), 4, 8, 2)
    with pytest.raises(OSError, match="No space left") as raised:
        batch.read()
    assert raised.value.errno == errno.ENOSPC
    batch.grow()
    assert batch.capacity == 4
    assert (len(batch.keys.data), len(batch.values.data)) == (16, 32)
    assert walked(batch)[0] == list(range(6))


def test_growing_in_the_middle_of_a_walk(maps: FakeMaps) -> None:
    batch = MapBatch(filled(maps, 8), 4, 8, 2)
    assert batch.read() == (2, False)
    batch.grow()
    assert walked(batch)[0] == list(range(2, 8))


@pytest.mark.parametrize("number", [0, errno.EINVAL, errno.EOPNOTSUPP, syscalls.ENOTSUPP])
def test_many_keys_get_one_value(maps: FakeMaps, number: int) -> None:
    descriptor = filled(maps, 3)
    maps.batches = number
    bpf.map_update_all(descriptor, [key(1), key(7)], b"x" * 8)
    pairs = maps.maps[descriptor].pairs
    assert (pairs[key(1)], pairs[key(7)]) == (b"x" * 8, b"x" * 8)
    assert pairs[key(0)] == bytes(8)
    assert len(pairs) == 4
    assert maps.calls.count(Command.MAP_UPDATE_ELEM) == (2 if number else 0)


def test_a_batch_that_is_refused_is_not_tried_key_by_key(maps: FakeMaps) -> None:
    maps.batches = errno.EPERM
    with pytest.raises(PermissionError):
        bpf.map_update_all(filled(maps, 3), [key(1)], b"x" * 8)
    assert Command.MAP_UPDATE_ELEM not in maps.calls


def test_no_keys_need_no_call(maps: FakeMaps) -> None:
    bpf.map_update_all(maps.add(4, 8), [], bytes(8))
    assert maps.calls == []


@pytest.mark.kernel
def test_the_kernel_answers_alike() -> None:
    descriptor = bpf.map_create(HASH, 4, 8, 100, name="pytrace_test")
    try:
        bpf.map_update_all(descriptor, [key(number) for number in range(50)], b"x" * 8)
        bpf.map_update(descriptor, key(7), b"y" * 8)
        assert bpf.map_lookup(descriptor, key(7), 8) == b"y" * 8
        assert bpf.map_lookup(descriptor, key(99), 8) is None
        assert bpf.map_delete(descriptor, key(7))
        assert not bpf.map_delete(descriptor, key(7))
        first = bpf.map_next_key(descriptor, None, 4)
        assert first is not None
        batch = MapBatch(descriptor, 4, 8, 64)
        count, end = batch.read(delete=True)
        assert (count, end) == (49, True)
        assert bpf.map_next_key(descriptor, None, 4) is None
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------------------------------------- perf
# pytrace.runtime.machine.perf: what is said where the kernel keeps perf events for root.


EVENT = perf.EventAttr(perf.EventType.SOFTWARE, perf.SOFTWARE_DUMMY)


@pytest.mark.parametrize(("level", "held", "said"), [
    ("3\n", {"CAP_PERFMON"}, "kernel.perf_event_paranoid is 3; 2 allows them"),
    ("4\n", set(), "reserves perf events for CAP_SYS_ADMIN"),
    ("3\n", {"CAP_SYS_ADMIN"}, "of the kernel's own"),
    ("2\n", {"CAP_PERFMON"}, "of the kernel's own"),
    ("-1\n", set(), "of the kernel's own"),
    ("", set(), "of the kernel's own"),
])  # fmt: skip
def test_events_that_are_refused(monkeypatch: pytest.MonkeyPatch, level: str, held: set[str], said: str) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "of the kernel's own")

    monkeypatch.setattr(syscalls, "call", refuse)
    monkeypatch.setattr(kernel_files, "read_text", lambda path: level)
    monkeypatch.setattr(privileges, "effective_capabilities", lambda: frozenset(held))
    with pytest.raises(PermissionError, match=said) as caught:
        perf.open_event(EVENT)
    # The attachers have words of their own for EACCES.
    assert caught.value.errno == (errno.EACCES if "own" in said else errno.EPERM)


def test_other_errors_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENODEV, "no such device")

    monkeypatch.setattr(syscalls, "call", refuse)
    with pytest.raises(OSError, match="no such device"):
        perf.open_event(EVENT)


# ---------------------------------------------------------------------------------------------- syscalls
# pytrace.runtime.machine.syscalls: errors of raw calls, and the memory that is handed to them.


PTRACE_PEEKUSER = 3


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The machine that this claims to be."""
    names = SimpleNamespace(machine="x86_64")
    monkeypatch.setattr(os, "uname", lambda: names)
    syscalls.number.cache_clear()
    yield names
    syscalls.number.cache_clear()


@pytest.mark.parametrize(
    ("name", "bpf", "perf"),
    [("x86_64", 321, 298), ("aarch64", 280, 241), ("riscv64", 280, 241), ("s390x", 351, 331), ("ppc64le", 361, 319)],
)
def test_numbers_are_those_of_the_machine(machine: SimpleNamespace, name: str, bpf: int, perf: int) -> None:
    machine.machine = name
    assert (syscalls.number("bpf"), syscalls.number("perf_event_open")) == (bpf, perf)


def test_an_unknown_machine_is_named(machine: SimpleNamespace) -> None:
    machine.machine = "pdp11"
    with pytest.raises(OSError, match="no system call numbers for machine pdp11") as raised:
        syscalls.number("bpf")
    assert raised.value.errno == errno.ENOSYS


@pytest.mark.skipif(os.uname().machine not in syscalls.NUMBERS, reason="no numbers for this machine")
def test_a_call_that_fails_names_itself() -> None:
    with pytest.raises(OSError, match=r"^\[Errno \d+\] bpf: ") as raised:
        syscalls.call("bpf", 1 << 20, 0, 0)
    assert raised.value.errno in {errno.EINVAL, errno.EPERM, errno.E2BIG, errno.ENOSYS}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_files_are_no_missing_feature(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> int:
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(syscalls, "libc", lambda: SimpleNamespace(syscall=fail))
    with pytest.raises(TraceError, match="open files"):
        syscalls.call("bpf", 0)


def test_results_come_back_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    def answer(*arguments: ctypes.c_long) -> int:
        given.extend(item.value for item in arguments)
        return 1 << 40

    monkeypatch.setattr(syscalls, "libc", lambda: SimpleNamespace(syscall=answer))
    assert syscalls.call("bpf", -1, 1 << 63 - 1) == 1 << 40
    assert given == [syscalls.number("bpf"), -1, 1 << 62]


def test_tracing_a_process_that_is_not_there() -> None:
    with pytest.raises(ProcessLookupError, match="ptrace: No such process"):
        syscalls.ptrace(PTRACE_PEEKUSER, 1 << 22 | 1)


@pytest.mark.parametrize(("left", "failed"), [(0, False), (errno.EIO, True)])
def test_minus_one_may_be_a_word_of_the_traced_process(
    left: int, failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def peek(*_arguments: object) -> int:
        ctypes.set_errno(left)
        return -1

    ctypes.set_errno(errno.ENOENT)
    monkeypatch.setattr(syscalls, "libc", lambda: SimpleNamespace(ptrace=peek))
    if failed:
        with pytest.raises(OSError, match="ptrace: Input/output error"):
            syscalls.ptrace(PTRACE_PEEKUSER, 1)
    else:
        assert syscalls.ptrace(PTRACE_PEEKUSER, 1) == -1


def test_an_error_of_a_former_call_is_none_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ctypes.set_errno(errno.ENOENT)
    monkeypatch.setattr(syscalls, "libc", lambda: SimpleNamespace(ptrace=lambda *_: -1))
    # The call must clear what was there before: a good call leaves errno as it is.
    assert syscalls.ptrace(PTRACE_PEEKUSER, 1) == -1


CHILD = """
import time
from pytrace.runtime.machine import syscalls
syscalls.die_with_parent(9)
print("ready", flush=True)
time.sleep(600)
"""
PARENT = """
import subprocess, sys
process = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
process.stdout.readline()
print(process.pid, flush=True)
"""


def test_a_process_that_ends_with_its_parent() -> None:
    """The parent starts a child that asks for the signal, and ends."""
    done = subprocess.run([sys.executable, "-c", PARENT, CHILD], capture_output=True, text=True, timeout=60)
    pid = int(done.stdout)
    try:
        until(lambda: not _lives(pid))
    finally:
        if _lives(pid):
            os.kill(pid, signal.SIGKILL)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[0] != b"Z"
    except OSError:
        return False


def test_a_namespace_that_is_none() -> None:
    read, write = os.pipe()
    try:
        with pytest.raises(OSError, match="setns: Invalid argument"):
            syscalls.enter_namespace(read, 0)
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("content", [b"abc\0def", bytearray(b"abc\0def")])
def test_memory_has_a_copy_at_its_address(content: bytes | bytearray) -> None:
    memory = Memory(content)
    assert ctypes.string_at(memory.address, 7) == bytes(content)
    ctypes.memset(memory.address, ord("x"), 1)
    assert bytes(memory.data) == b"xbc\0def"
    assert content[:1] == b"a"
    assert memory.text() == "xbc"


def test_memory_by_size() -> None:
    assert Memory(5).data == bytes(5)
    assert (Memory(0).address, Memory(b"").address, Memory(0).text()) == (0, 0, "")
    assert Memory(b"all\xff").text() == "all\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(("text", "data"), [("a", b"a\0"), (b"a\xff", b"a\xff\0"), ("\udcff", b"\xff\0"), ("", b"\0")])
def test_strings_end_in_nul(text: str | bytes, data: bytes) -> None:
    memory = string_memory(text)
    assert bytes(memory.data) == data
    assert memory.address


# ---------------------------------------------------------------------------------------------- sorting


@pytest.mark.parametrize("size", [1, 3, 8, 16, 24, 40])
def test_records_sort_as_bytes_compare(size: int) -> None:
    assert syscalls.can_sort_records()
    rng = random.Random(size)
    records = [rng.randbytes(size) for _ in range(500)]
    data = bytearray(b"".join(records))
    syscalls.sort_records(data, size)
    assert bytes(data) == b"".join(sorted(records))
    data += b"x"


def test_nothing_to_sort() -> None:
    data = bytearray()
    syscalls.sort_records(data, 8)
    assert data == b""


# ---------------------------------------------------------------------------------------------- uevents
# pytrace.runtime.machine.syscalls: which messages are about CPUs, and what is refused.


def test_messages_of_cpus_and_modules() -> None:
    kernel, descriptor = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with kernel, descriptor:
        descriptor.setblocking(False)
        assert syscalls.read_device_events(descriptor.fileno()) == ([], [])
        for text in (
            b"offline@/devices/system/cpu/cpu1\0ACTION=offline\0", b"add@/devices/virtual/bdi/0:50\0ACTION=add\0",
            b"online@/devices/system/cpu/cpu12\0ACTION=online\0", b"online@/devices/system/memory/memory3\0", b"",
            b"online@/devices/system/cpu/cpu12/thermal_throttle\0", b"libudev\0\xfe\xed\xca\xfe",
            b"remove@/module/dummy\0ACTION=remove\0", b"add@/module/nf_tables\0", b"add@/module/x/holders\0",
        ):  # fmt: skip
            kernel.send(text)
        assert syscalls.read_device_events(descriptor.fileno()) == (
            [(1, False), (12, True)], [("dummy", False), ("nf_tables", True)],
        )  # fmt: skip


def test_the_kernel_is_asked() -> None:
    descriptor = syscalls.subscribe_device_events()
    try:
        with socket.socket(fileno=os.dup(descriptor)) as same:
            assert same.family == socket.AF_NETLINK
            assert same.getsockname()[1] == 1, "the group of the kernel's messages"
        assert not os.get_blocking(descriptor)
        assert not os.get_inheritable(descriptor)
        syscalls.read_device_events(descriptor)
    finally:
        os.close(descriptor)


def test_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "_NETLINK_KOBJECT_UEVENT", 99)
    with pytest.raises(OSError, match="socket: ") as caught:
        syscalls.subscribe_device_events()
    assert caught.value.errno == errno.EPROTONOSUPPORT
    before = open_descriptors()
    monkeypatch.undo()
    monkeypatch.setattr(syscalls, "_AF_NETLINK", 16 | 1 << 14)
    with pytest.raises(OSError):
        syscalls.subscribe_device_events()
    assert len(os.listdir("/proc/self/fd")) == len(before)


# ---------------------------------------------------------------------------------------------- libbpf
# pytrace.runtime.machine.libbpf: a library that is missing, broken or old, error policies, and captured messages.


@pytest.fixture
def anew() -> Iterator[None]:
    """The library is loaded anew in the test, and after it."""
    libbpf.library.cache_clear()
    yield
    libbpf.library.cache_clear()


def test_a_missing_library_names_the_package(anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libbpf, "LIBRARY", "libnothing.so.9")
    with pytest.raises(TraceError, match=r"^the library libnothing.so.9 is not installed\n") as raised:
        libbpf.library()
    assert "apt-get install libbpf1" in raised.value.hints[0]


def test_a_library_that_cannot_be_loaded_says_why(anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_name: str, **_options: object) -> ctypes.CDLL:
        raise OSError("libbpf.so.1: invalid ELF header")

    monkeypatch.setattr(ctypes, "CDLL", broken)
    with pytest.raises(TraceError, match=r"cannot be loaded: libbpf.so.1: invalid ELF header"):
        libbpf.library()


def test_a_library_that_lacks_a_function_is_too_old(anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_arguments, **_options: SimpleNamespace())
    with pytest.raises(TraceError, match=r"the installed libbpf.so.1 is too old: .*libbpf_version_string") as raised:
        libbpf.library()
    assert raised.value.hints == ("libbpf 1.1 or newer is needed",)


def test_a_function_that_is_not_declared_cannot_be_called() -> None:
    with pytest.raises(AttributeError, match="bpf_program__attach is not declared"):
        libbpf.library().bpf_program__attach(0)


def test_the_version() -> None:
    assert libbpf.version().startswith("v1.")


# ---------------------------------------------------------------------------------------------- policies


def named(name: str) -> Any:
    """Stands for the function of that name."""
    return SimpleNamespace(__name__=name)


def policy(name: str) -> Callable[[Any], Any]:
    check = libbpf.FUNCTIONS[name][2]
    return lambda result: check(result, named(name), ())


def test_negative_results_are_error_numbers() -> None:
    check = policy("bpf_object__load")
    assert (check(0), check(7)) == (0, 7)
    with pytest.raises(FileNotFoundError, match="bpf_object__load: No such file or directory"):
        check(-errno.ENOENT)


def test_null_is_an_error_that_errno_tells() -> None:
    check = policy("bpf_object__open_mem")
    assert check(0x1000) == 0x1000
    ctypes.set_errno(errno.ENOMEM)
    with pytest.raises(OSError, match="bpf_object__open_mem: Cannot allocate memory") as raised:
        check(None)
    assert raised.value.errno == errno.ENOMEM


def test_the_end_of_an_iteration_is_an_answer() -> None:
    assert policy("bpf_object__next_map")(None) is None


def test_functions_without_a_result_have_no_policy_to_break() -> None:
    assert all(
        row[2] is libbpf._as_is for row in libbpf.FUNCTIONS.values() if row[0] in (None, ctypes.c_char_p, ctypes.c_bool)
    )


def test_policies_are_those_of_the_loaded_functions() -> None:
    class Handle:
        def __getattr__(self, name: str) -> Any:
            found = named(name)
            setattr(self, name, found)
            return found

    made = Library(Handle())  # type: ignore[arg-type]
    for name, (result, arguments, check) in libbpf.FUNCTIONS.items():
        function = getattr(made, name)
        assert (function.restype, function.argtypes, function.errcheck) == (result, arguments, check), name


# ---------------------------------------------------------------------------------------------- messages


def test_what_cannot_be_opened_is_told_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with Messages() as messages, pytest.raises(OSError, match="bpf_object__open_mem"):
        libbpf.open_memory(b"no ELF file")
    assert messages.warnings
    assert not any(text.startswith("libbpf: ") or text.endswith("\n") for text in messages.warnings)
    assert capfd.readouterr() == ("", "")


def test_debug_text_is_taken_for_those_who_look_at_it() -> None:
    seen: list[str] = []
    for echo in (None, seen.append):
        with Messages(echo) as messages, pytest.raises(OSError, match="open_mem"):
            libbpf.open_memory(b"no ELF file")
        levels = {level for level, _ in messages.lines}
        assert WARN in levels
        assert INFO not in levels
        assert (DEBUG in levels) is (echo is not None)
    assert seen == [text for _, text in messages.lines]
    assert messages.warnings == [text.removeprefix("libbpf: ") for level, text in messages.lines if level == WARN]
    assert len(messages.warnings) < len(messages.lines)


def test_messages_go_back_to_whom_they_went_before() -> None:
    with Messages() as outer:
        with Messages() as inner, pytest.raises(OSError, match="open_mem"):
            libbpf.open_memory(b"x")
        assert inner.lines
        assert outer.lines == []
        with pytest.raises(OSError, match="open_mem"):
            libbpf.open_memory(b"x")
        assert outer.lines


def test_type_information_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[bytes, bytes | None, int]] = []

    def take(elf: bytes, size: int, options: Any) -> int:
        found = options._obj
        given.append((elf[:size], found.btf_custom_path, found.sz))
        return 7

    monkeypatch.setattr(libbpf, "library", lambda: SimpleNamespace(bpf_object__open_mem=take))
    assert libbpf.open_memory(b"data") == libbpf.open_memory(b"data", "/tmp/\udcff") == 7
    size = ctypes.sizeof(libbpf.OpenOptions)
    assert given == [(b"data", None, size), (b"data", os.fsencode("/tmp/\udcff"), size)]


def test_messages_of_several_threads_do_not_mix() -> None:
    """libbpf has one function that prints: a second thread that takes it over waits."""
    inside = threading.Event()

    def work() -> None:
        with Messages():
            inside.set()

    thread = threading.Thread(target=work)
    with Messages(), Messages():
        thread.start()
        assert not inside.wait(0.1)
    thread.join(30)
    assert inside.is_set()


def test_an_interrupt_within_a_message_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is raised in whatever Python code runs next, which may be what C code calls."""

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    hook = sys.unraisablehook
    libbpf.library()
    monkeypatch.setattr(ctypes, "create_string_buffer", interrupted)
    with pytest.raises(KeyboardInterrupt), Messages():
        libbpf.open_memory(b"no ELF file")
    assert sys.unraisablehook is hook
    with Messages():  # It is given back all the same.
        pass
