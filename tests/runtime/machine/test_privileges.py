"""Privileges and what confines a process: capabilities, BPF tokens, Landlock, seccomp."""

from __future__ import annotations

import errno
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.machine import bpf, confine, libbpf, privileges, syscalls
from pytrace.runtime.machine.bpf import Command
from pytrace.runtime.machine.confine import AccessLimits, CallRules, Family
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- privileges
# pytrace.runtime.machine.privileges: what is said of missing rights, by texts and error numbers made by hand.


@pytest.mark.parametrize(("number", "said"), [
    (errno.EPERM, "does not allow the bpf system call"),
    (errno.EACCES, "does not allow the bpf system call"),
    (errno.ENOSYS, "this kernel cannot run BPF programs: Function not implemented"),
])  # fmt: skip
def test_a_refused_system_call(monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    def refuse(*_: int) -> int:
        raise OSError(number, "Function not implemented")

    monkeypatch.setattr(bpf, "map_create", refuse)
    with pytest.raises(TraceError, match=said):
        privileges.check_bpf()


def test_limits_are_not_taken_for_missing_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(bpf, "map_create", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        privileges.check_bpf()


@pytest.mark.parametrize(("held", "missing"), [
    ({"CAP_BPF", "CAP_PERFMON", "CAP_DAC_READ_SEARCH"}, ()),
    ({"CAP_SYS_ADMIN", "CAP_DAC_READ_SEARCH"}, ()),
    ({"CAP_BPF", "CAP_DAC_READ_SEARCH"}, ("CAP_PERFMON",)),
    ({"CAP_SYS_ADMIN"}, ("CAP_DAC_READ_SEARCH",)),
    (set(), ("CAP_BPF", "CAP_DAC_READ_SEARCH", "CAP_PERFMON")),
])  # fmt: skip
@pytest.mark.parametrize("user", [0, 1000])
def test_missing_capabilities_are_named(
    monkeypatch: pytest.MonkeyPatch, held: set[str], missing: tuple[str, ...], user: int
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    if not missing:
        privileges.check_capabilities(frozenset(held))
        return
    with pytest.raises(TraceError) as caught:
        privileges.check_capabilities(frozenset(held))
    assert ", ".join(missing) in caught.value.message
    assert len(caught.value.hints) == 3


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in a user namespace."""
    monkeypatch.setattr(bpf, "in_container", lambda: True)


@pytest.mark.usefixtures("container")
def test_a_container_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpf, "container_token", lambda: None)
    monkeypatch.setattr(bpf, "token_refusal", lambda: "/sys/fs/bpf: No such file or directory")
    with pytest.raises(TraceError, match=r"in a user namespace, which may not .*: /sys/fs/bpf: No such file") as caught:
        privileges.check_namespace()
    assert len(caught.value.hints) == 3


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(("version", "enough"), [
    ("v1.1", False), ("v1.4.9", False), ("v1.5", True), ("v1.10", True), ("v2", True),
])  # fmt: skip
def test_a_container_with_a_token(monkeypatch: pytest.MonkeyPatch, version: str, enough: bool) -> None:
    monkeypatch.setattr(bpf, "container_token", lambda: 7)
    monkeypatch.setattr(libbpf, "version", lambda: version)
    if enough:
        privileges.check_namespace()
        return
    with pytest.raises(TraceError, match=rf"has a BPF token, and libbpf {version} does not use any") as caught:
        privileges.check_namespace()
    assert len(caught.value.hints) == 3


def test_a_token_that_delegates_no_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> int:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(bpf, "map_create", refuse)
    monkeypatch.setattr(bpf, "container_token", lambda: 7)
    with pytest.raises(TraceError, match="token of this container does not allow to make maps"):
        privileges.check_bpf()


# ---------------------------------------------------------------------------------------------- landlock
# pytrace.runtime.machine.confine: rights by version, and limits of a child.


ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("version", "files", "net", "scopes"), [
    (1, 13, 0, 0), (2, 14, 0, 0), (3, 15, 0, 0), (4, 15, 2, 0), (5, 16, 2, 0), (6, 16, 2, 2), (9, 16, 2, 2),
])  # fmt: skip
def test_no_kernel_is_asked_for_what_it_does_not_know(version: int, files: int, net: int, scopes: int) -> None:
    limits = AccessLimits(("/usr",), (), connections=False, signals=False)
    rights = confine.handled_rights(limits, version)
    assert [value.bit_count() for value in rights] == [files, net, scopes]


def test_what_is_not_limited() -> None:
    files, net, scopes = confine.handled_rights(AccessLimits((), (), connections=True, signals=True), 7)
    assert not files & (confine.READ_FILE | confine.READ_DIR)
    assert files & confine.WRITE_FILE
    assert (net, scopes) == (confine.BIND_TCP, 0)


CHILD = """
import os, socket, sys
from pytrace.base import whole_files
from pytrace.runtime.machine import confine, privileges
folder = sys.argv[1]
privileges.set_no_new_privileges()
limits = confine.AccessLimits((f"{folder}/read", f"{folder}/single", "/proc"), (f"{folder}/write", f"{folder}/none"),
                               connections=False, signals=False)
listener = socket.create_server(("127.0.0.1", 0))
confine.restrict_access(limits, confine.landlock_version())
def refused(call, *arguments):
    try:
        call(*arguments)
    except PermissionError:
        return
    raise SystemExit(f"allowed: {arguments}")
assert open(f"{folder}/read/file").read() == "x"
assert open(f"{folder}/single").read() == "x"
whole_files.write(f"{folder}/write/out", b"new")
assert open(f"{folder}/write/out").read() == "new"
refused(open, f"{folder}/other")
refused(open, f"{folder}/read/file", "w")
refused(open, f"{folder}/read/new", "w")
refused(os.mkfifo, f"{folder}/write/pipe")
refused(os.symlink, "x", f"{folder}/write/link")
refused(os.unlink, f"{folder}/other")
refused(os.kill, os.getppid(), 0)
if confine.landlock_version() >= 4:
    refused(socket.create_connection, listener.getsockname())
    refused(socket.create_server, ("127.0.0.1", 0))
"""


def test_a_limited_process(tmp_path: Path) -> None:
    if not confine.landlock_version():
        pytest.skip("this kernel does not use Landlock")
    for name in ("read", "write"):
        (tmp_path / name).mkdir()
    for name in ("read/file", "single", "other"):
        (tmp_path / name).write_text("x")
    code = f"import encodings.idna, tempfile\n{CHILD}"  # modules cannot be read later
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "other").exists()


# ---------------------------------------------------------------------------------------------- seccomp
# pytrace.runtime.machine.confine: the filter run by hand, for each machine, and by the kernel.


ALLOWED = 0x7FFF0000
NEVER, NO_SUCH = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS


def decided(code: list[bytes], machine: str, number: int, *arguments: int) -> int:
    """What the filter returns for one call: classic BPF, as far as it is used."""
    architecture = confine.FILTER_ARCHITECTURES[machine]
    data = struct.pack("=iIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
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


def asked(rules: CallRules, machine: str, name: str, *arguments: int) -> int:
    numbers = {**confine.call_numbers(machine), "read": 0 if machine == "x86_64" else 63}
    return decided(confine.filter_program(rules, machine), machine, numbers[name], *arguments)


MACHINES = list(confine.FILTER_ARCHITECTURES)


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_that_are_never_allowed(machine: str) -> None:
    for name in ("ptrace", "execve", "perf_event_open", "mount", "unshare", "setns", "init_module", "io_uring_setup"):
        for rules in (CallRules(), CallRules(tuple(Family), new_files=True, existing_files=True)):
            assert asked(rules, machine, name) == NEVER, name
    for name in ("clone3", "openat2"):
        assert asked(CallRules(), machine, name) == NO_SUCH
    assert asked(CallRules(), machine, "read") == ALLOWED


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_that_depend_on_an_argument(machine: str) -> None:
    assert asked(CallRules(), machine, "bpf", Command.MAP_LOOKUP_BATCH) == ALLOWED
    assert asked(CallRules(), machine, "bpf", Command.PROG_TEST_RUN) == ALLOWED
    for command in (Command.PROG_LOAD, Command.MAP_CREATE, Command.LINK_CREATE, Command.MAP_GET_FD_BY_ID, 99):
        assert asked(CallRules(), machine, "bpf", command) == NEVER
    assert asked(CallRules(), machine, "clone", 0x3D0F00) == ALLOWED  # a thread
    assert asked(CallRules(), machine, "clone", 17) == ALLOWED  # fork()
    assert asked(CallRules(), machine, "clone", 0x10000011) == NEVER  # CLONE_NEWUSER
    again = CallRules(cpu_events=True)
    assert asked(again, machine, "bpf", Command.LINK_CREATE) == ALLOWED
    assert asked(again, machine, "bpf", Command.PROG_LOAD) == NEVER
    assert asked(again, machine, "perf_event_open", 0x1000, (1 << 64) - 1, 3) == ALLOWED
    assert asked(again, machine, "perf_event_open", 0x1000, 1234, (1 << 64) - 1) == NEVER
    bound = CallRules(links=True)
    assert asked(bound, machine, "bpf", Command.LINK_CREATE) == ALLOWED
    assert asked(bound, machine, "bpf", Command.PROG_LOAD) == NEVER
    assert asked(bound, machine, "perf_event_open", 0x1000, (1 << 64) - 1, 3) == NEVER
    assert asked(CallRules(), machine, "socket", Family.UNIX) == NEVER
    assert asked(CallRules((Family.UNIX,)), machine, "socket", Family.UNIX) == ALLOWED
    assert asked(CallRules((Family.UNIX,)), machine, "socket", Family.INET) == NEVER


READ, WRITE, APPEND, NEW, UNNAMED, PATH = 0o2000000, 0o1, 0o2001, 0o301, 0o20200002, 0o12000000


@each_row("machine", MACHINES)
@each_row(("rules", "opened"), [
    (CallRules(), (READ, PATH)),
    (CallRules(new_files=True), (READ, PATH, NEW, UNNAMED)),
    (CallRules(existing_files=True), (READ, PATH, NEW, UNNAMED, WRITE, APPEND, 0o1101)),
])  # fmt: skip
def test_opening_of_files(machine: str, rules: CallRules, opened: tuple[int, ...]) -> None:
    for flags in (READ, WRITE, APPEND, NEW, UNNAMED, PATH, 0o1101, 0o1000):
        allowed = flags in opened or rules.existing_files
        assert asked(rules, machine, "openat", 0, 0, flags) == (ALLOWED if allowed else NEVER), oct(flags)
        if machine == "x86_64":
            assert asked(rules, machine, "open", 0, flags) == (ALLOWED if allowed else NEVER), oct(flags)
    assert asked(rules, machine, "renameat2") == (ALLOWED if rules.new_files else NEVER)
    assert asked(rules, machine, "symlinkat") == NEVER


def test_calls_of_other_interfaces_do_not_exist() -> None:
    code = confine.filter_program(CallRules(), "x86_64")
    assert decided(code, "x86_64", 0x40000000) == NO_SUCH
    assert decided(confine.filter_program(CallRules(), "aarch64"), "x86_64", 0) == NO_SUCH


@pytest.mark.parametrize(("machine", "header"), [
    ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "/usr/include/asm-generic/unistd.h"),
])  # fmt: skip
def test_the_numbers_are_those_of_the_headers(machine: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"{header} is not installed")
    defined = dict(re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", Path(header).read_text()))
    known = {name: int(defined[name]) for name in confine.call_numbers(machine) if name in defined}
    assert len(known) > 60
    assert known == {name: confine.call_numbers(machine)[name] for name in known}


SECCOMP_CHILD = """
import errno, os, socket, subprocess, threading
from pytrace.runtime.machine import bpf, confine, privileges
def refused(call, *arguments, error=errno.EPERM):
    try:
        call(*arguments)
    except OSError as found:
        assert found.errno == error, found
        return
    raise SystemExit(f"allowed: {arguments}")
privileges.set_no_new_privileges()
confine.install_filter(confine.CallRules())
refused(bpf.map_create, 2, 4, 4, 1)
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
    if not confine.filter_available():
        pytest.skip("there is no filter for this machine")
    done = subprocess.run([sys.executable, "-c", SECCOMP_CHILD], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a thread ran\n", "")


def test_machines_without_a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "machine", lambda: "s390x")
    assert not confine.filter_available()


# ---------------------------------------------------------------------------------------------- giving up
# In children, as nothing that is given up comes back.

ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to give up")

SHOW = """
for line in open("/proc/self/status"):
    if line.startswith(("Cap", "NoNewPrivs")):
        print(*line.split())
"""


def after(code: str) -> dict[str, int]:
    """The numbers of ``/proc/self/status`` in a child that ran *code*."""
    text = f"from pytrace.runtime.machine import privileges\n{code}\n{SHOW}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=ROOT)
    rows = (line.split() for line in done.stdout.splitlines())
    return {name: int(value, 16) for name, value in rows}


@ONLY_ROOT
def test_what_is_held() -> None:
    permitted = "int(open('/proc/self/status').read().split('CapPrm:')[1].split()[0], 16)"
    assert after(f"assert privileges.permitted_capabilities() == {permitted}")["CapEff:"]


@ONLY_ROOT
def test_all_but_one_are_given_up() -> None:
    given_up = "assert privileges.limit_bounding_set(1 << 19); privileges.hold_capabilities(1 << 19, 1 << 19)"
    shown = after(f"{given_up}; privileges.set_no_new_privileges()")
    assert shown == {
        "CapInh:": 0, "CapPrm:": 1 << 19, "CapEff:": 1 << 19, "CapBnd:": 1 << 19, "CapAmb:": 0, "NoNewPrivs:": 1,
    }  # fmt: skip


@ONLY_ROOT
def test_high_numbers_are_in_the_second_word() -> None:
    assert after("privileges.hold_capabilities(1 << 39, 1 << 39 | 1)")["CapEff:"] == 1 << 39


@ONLY_ROOT
def test_nothing_comes_back() -> None:
    code = """
privileges.hold_capabilities(0, 0)
assert not privileges.limit_bounding_set(0)
try:
    privileges.hold_capabilities(1, 1)
except PermissionError as error:
    assert "capset" in str(error)
else:
    raise SystemExit("it came back")
"""
    assert after(code)["CapPrm:"] == 0
