"""pytrace.runtime.abi.seccomp: the filter run by hand, for each machine, and by the kernel."""

from __future__ import annotations

import errno
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pytrace.runtime.abi import seccomp, syscalls
from pytrace.runtime.abi.bpf import Command
from pytrace.runtime.abi.seccomp import Family, Rules

ROOT = Path(__file__).resolve().parents[3]
ALLOWED = 0x7FFF0000
NEVER, NO_SUCH = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS


def decided(code: list[bytes], machine: str, number: int, *arguments: int) -> int:
    """What the filter returns for one call: classic BPF, as far as it is used."""
    data = struct.pack("=iIQ6Q", number, seccomp.ARCHITECTURES[machine], 0, *arguments, *[0] * (6 - len(arguments)))
    place = accumulator = 0
    while True:
        kind, when, otherwise, value = struct.unpack("=HBBI", code[place])
        place += 1
        match kind:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x06:
                return int(value)
            case 0x54:
                accumulator &= value
            case 0x15:
                place += when if accumulator == value else otherwise
            case 0x45:
                place += when if accumulator & value else otherwise
            case 0x35:
                place += when if accumulator >= value else otherwise
            case _:
                raise AssertionError(hex(kind))


def asked(rules: Rules, machine: str, name: str, *arguments: int) -> int:
    numbers = {**seccomp.numbers(machine), "read": 0 if machine == "x86_64" else 63}
    return decided(seccomp.program(rules, machine), machine, numbers[name], *arguments)


MACHINES = list(seccomp.ARCHITECTURES)


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_that_are_never_allowed(machine: str) -> None:
    for name in ("ptrace", "execve", "perf_event_open", "mount", "unshare", "setns", "init_module", "io_uring_setup"):
        for rules in (Rules(), Rules(tuple(Family), new_files=True, existing_files=True)):
            assert asked(rules, machine, name) == NEVER, name
    for name in ("clone3", "openat2"):
        assert asked(Rules(), machine, name) == NO_SUCH
    assert asked(Rules(), machine, "read") == ALLOWED


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_that_depend_on_an_argument(machine: str) -> None:
    assert asked(Rules(), machine, "bpf", Command.MAP_LOOKUP_BATCH) == ALLOWED
    assert asked(Rules(), machine, "bpf", Command.PROG_TEST_RUN) == ALLOWED
    for command in (Command.PROG_LOAD, Command.MAP_CREATE, Command.LINK_CREATE, Command.MAP_GET_FD_BY_ID, 99):
        assert asked(Rules(), machine, "bpf", command) == NEVER
    assert asked(Rules(), machine, "clone", 0x3D0F00) == ALLOWED  # a thread
    assert asked(Rules(), machine, "clone", 17) == ALLOWED  # fork()
    assert asked(Rules(), machine, "clone", 0x10000011) == NEVER  # CLONE_NEWUSER
    again = Rules(cpu_events=True)
    assert asked(again, machine, "bpf", Command.LINK_CREATE) == ALLOWED
    assert asked(again, machine, "bpf", Command.PROG_LOAD) == NEVER
    assert asked(again, machine, "perf_event_open", 0x1000, (1 << 64) - 1, 3) == ALLOWED
    assert asked(again, machine, "perf_event_open", 0x1000, 1234, (1 << 64) - 1) == NEVER
    assert asked(Rules(), machine, "socket", Family.UNIX) == NEVER
    assert asked(Rules((Family.UNIX,)), machine, "socket", Family.UNIX) == ALLOWED
    assert asked(Rules((Family.UNIX,)), machine, "socket", Family.INET) == NEVER


READ, WRITE, APPEND, NEW, UNNAMED, PATH = 0o2000000, 0o1, 0o2001, 0o301, 0o20200002, 0o12000000


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("rules", "opened"), [
    (Rules(), (READ, PATH)),
    (Rules(new_files=True), (READ, PATH, NEW, UNNAMED)),
    (Rules(existing_files=True), (READ, PATH, NEW, UNNAMED, WRITE, APPEND, 0o1101)),
])  # fmt: skip
def test_opening_of_files(machine: str, rules: Rules, opened: tuple[int, ...]) -> None:
    for flags in (READ, WRITE, APPEND, NEW, UNNAMED, PATH, 0o1101, 0o1000):
        allowed = flags in opened or rules.existing_files
        assert asked(rules, machine, "openat", 0, 0, flags) == (ALLOWED if allowed else NEVER), oct(flags)
        if machine == "x86_64":
            assert asked(rules, machine, "open", 0, flags) == (ALLOWED if allowed else NEVER), oct(flags)
    assert asked(rules, machine, "renameat2") == (ALLOWED if rules.new_files else NEVER)
    assert asked(rules, machine, "symlinkat") == NEVER


def test_calls_of_other_interfaces_do_not_exist() -> None:
    code = seccomp.program(Rules(), "x86_64")
    assert decided(code, "x86_64", 0x40000000) == NO_SUCH
    assert decided(seccomp.program(Rules(), "aarch64"), "x86_64", 0) == NO_SUCH


@pytest.mark.parametrize(("machine", "header"), [
    ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "/usr/include/asm-generic/unistd.h"),
])  # fmt: skip
def test_the_numbers_are_those_of_the_headers(machine: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"{header} is not installed")
    defined = dict(re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", Path(header).read_text()))
    known = {name: int(defined[name]) for name in seccomp.numbers(machine) if name in defined}
    assert len(known) > 60
    assert known == {name: seccomp.numbers(machine)[name] for name in known}


CHILD = """
import errno, os, socket, subprocess, threading
from pytrace.runtime.abi import bpf_maps, capabilities, seccomp
from pytrace.runtime.abi.seccomp import Rules
def refused(call, *arguments, error=errno.EPERM):
    try:
        call(*arguments)
    except OSError as found:
        assert found.errno == error, found
        return
    raise SystemExit(f"allowed: {arguments}")
capabilities.gain_no_more()
seccomp.install(Rules())
refused(bpf_maps.create, 2, 4, 4, 1)
refused(socket.socket)
refused(open, "/dev/null", "w")
refused(os.mkdir, "/tmp/pytrace-never")
refused(os.execv, "/bin/true", ["true"])
open("/proc/self/status").close()
thread = threading.Thread(target=print, args=("a thread ran",))
thread.start()
thread.join()
if os.fork() == 0:
    os._exit(0)
os.wait()
"""


def test_a_filtered_process() -> None:
    if not seccomp.available():
        pytest.skip("there is no filter for this machine")
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a thread ran\n", "")


def test_machines_without_a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "machine", lambda: "s390x")
    assert not seccomp.available()
