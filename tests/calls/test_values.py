"""Arguments and results of system calls as text: tables of what a call was given, and what strace prints of it."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from generating.call_tables import generate

from pytrace.calls import flag_tables
from pytrace.calls.capture import SystemCalls
from pytrace.calls.descriptors import Descriptors
from pytrace.calls.run import selected
from pytrace.calls.signatures import by_number, call_names, signatures
from pytrace.calls.values import (
    _DATA,
    _SCALARS,
    _VALUES,
    FIELDS,
    SCALARS,
    Recorded,
    Texts,
    signal_set,
    size_of,
    socket_address,
)
from pytrace.core.diagnostics import TraceError

ROOT = Path(__file__).resolve().parents[2]
AT_FDCWD = 0xFFFFFF9C
NUMBERS = {name: number for number, name in call_names("x86_64").items()}
SPECIAL = {"path", "str", "buf", "cstr", "sockaddr", "argv", "envp", *_DATA}


def call(name: str, *arguments: int, result: int = 0, before: dict[int, bytes] | None = None,
         after: dict[int, bytes] | None = None, parts: dict[int, bytes] | None = None) -> Recorded:  # fmt: skip
    given = (*arguments, *(0,) * (6 - len(arguments)))
    data = (before or {}, after or {}, parts or {})
    return Recorded(NUMBERS[name], signatures()[name], 1, 1, 0, 0, result, given, True, *data)


def shown(recorded: Recorded) -> str:
    texts = Texts("x86_64", 32, None)
    assert recorded.signature is not None
    return f"{recorded.signature.name}({', '.join(texts.arguments(recorded))}) = {texts.result(recorded)}"


STAT = struct.pack("=QQQIII4xQqqq", 0, 0, 1, 0o100644, 0, 0, 0, 4711, 4096, 8) + bytes(72)

CASES = [
    (call("openat", AT_FDCWD, 1, 0o2000101, 0o644, result=3, before={1: b"/tmp/a\n"}),
     r'openat(AT_FDCWD, "/tmp/a\n", O_WRONLY|O_CREAT|O_CLOEXEC, 0644) = 3'),
    (call("openat", AT_FDCWD, 1, 0, 0o644, result=-2, before={1: b"x"}),
     'openat(AT_FDCWD, "x", O_RDONLY) = -1 ENOENT (No such file or directory)'),
    (call("read", 3, 1, 100, result=4, after={1: b"a\x1b[31"[:4]}), r'read(3, "a\33[3", 100) = 4'),
    (call("write", 1, 1, 40, result=40, before={1: b"x" * 32}), f'write(1, "{"x" * 32}"..., 40) = 40'),
    (call("write", 1, 0x10, 5, result=-14, before={1: bytes(5)}), "write(1, 0x10, 5) = -1 EFAULT (Bad address)"),
    (call("newfstatat", 3, 1, 2, 0x1000, before={1: b""}, after={2: STAT}),
     'newfstatat(3, "", {st_mode=S_IFREG|0644, st_size=4711, ...}, AT_EMPTY_PATH) = 0'),
    (call("mmap", 0, 8192, 3, 0x22, 0xFFFFFFFF, 0, result=0x7F0000000000),
     "mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000"),
    (call("futex", 0x10, 129, 1), "futex(0x10, FUTEX_WAKE_PRIVATE, 1) = 0"),
    (call("futex", 0x10, 128, 2, 1, result=-110, before={3: struct.pack("=qq", 1, 5)}),
     "futex(0x10, FUTEX_WAIT_PRIVATE, 2, {tv_sec=1, tv_nsec=5}) = -1 ETIMEDOUT (Connection timed out)"),
    (call("poll", 1, 1, 1000, result=1, before={0: struct.pack("=ihh", 3, 1, 0)},
          after={0: struct.pack("=ihh", 3, 1, 1)}),
     "poll([{fd=3, events=POLLIN}], 1, 1000) = 1 ([{fd=3, revents=POLLIN}])"),
    (call("select", 5, 1, 2, 0, 3, result=2,
          before={1: b"\x18", 2: b"\x10", 4: struct.pack("=qq", 0, 20)},
          after={1: b"\x08", 2: b"\x10", 3: b"", 4: struct.pack("=qq", 0, 7)}),
     "select(5, [3 4], [4], NULL, {tv_sec=0, tv_usec=20}) = 2 (in [3], out [4], left {tv_sec=0, tv_usec=7})"),
    (call("ppoll", 1, 1, 2, result=1, before={0: struct.pack("=ihh", 3, 1, 0), 2: struct.pack("=qq", 2, 0)},
          after={0: struct.pack("=ihh", 3, 1, 1), 2: struct.pack("=qq", 1, 9)}),
     ("ppoll([{fd=3, events=POLLIN}], 1, {tv_sec=2, tv_nsec=0}, NULL, 0) = 1 ([{fd=3, revents=POLLIN}],"
      " left {tv_sec=1, tv_nsec=9})")),
    (call("mincore", 0x7F0000000000, 8200, 1, after={2: b"\x01\x02\x03"}),
     "mincore(0x7f0000000000, 8200, [1, 0, 1]) = 0"),
    (call("epoll_wait", 4, 1, 8, 0xFFFFFFFF, result=1, after={1: struct.pack("=IQ", 1, 7)}),
     "epoll_wait(4, [{events=EPOLLIN, data={u32=7, u64=7}}], 8, -1) = 1"),
    (call("pipe2", 1, 0o2000000, after={0: struct.pack("=ii", 3, 4)}), "pipe2([3, 4], O_CLOEXEC) = 0"),
    (call("rt_sigaction", 2, 1, 0, 8, before={1: struct.pack("=QQQQ", 1, 0x04000000, 0x55, 0)}),
     "rt_sigaction(SIGINT, {sa_handler=SIG_IGN, sa_mask=[], sa_flags=SA_RESTORER, sa_restorer=0x55}, NULL, 8) = 0"),
    (call("writev", 1, 0x99, 2, result=5, before={1: struct.pack("=QQQQ", 8, 2, 9, 3)}, parts={0: b"ab", 1: b"cde"}),
     'writev(1, [{iov_base="ab", iov_len=2}, {iov_base="cde", iov_len=3}], 2) = 5'),
    (call("execve", 1, 2, 3, before={0: b"/bin/ls"}, parts={0: b"ls", 1: b"-l"}),
     'execve("/bin/ls", ["ls", "-l"], 0x3) = 0'),
    (call("wait4", 0xFFFFFFFF, 1, 1, 0, result=9, after={1: struct.pack("=i", 0x300)}),
     "wait4(-1, [{WIFEXITED(s) && WEXITSTATUS(s) == 3}], WNOHANG, NULL) = 9"),
    (call("prlimit64", 0, 7, 0, 1, after={3: struct.pack("=QQ", 1024 * 8, 2**64 - 1)}),
     "prlimit64(0, RLIMIT_NOFILE, NULL, {rlim_cur=8*1024, rlim_max=RLIM64_INFINITY}) = 0"),
    (call("socket", 2, 0o2000001, 6, result=3), "socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, IPPROTO_TCP) = 3"),
    (call("fcntl", 3, 3, result=0o2), "fcntl(3, F_GETFL) = 0x2 (flags O_RDWR)"),
    (call("nanosleep", 1, 2, result=-516, before={0: struct.pack("=qq", 1, 0)}, after={1: struct.pack("=qq", 0, 5)}),
     "nanosleep({tv_sec=1, tv_nsec=0}, {tv_sec=0, tv_nsec=5}) = ? ERESTART_RESTARTBLOCK (Interrupted by signal)"),
    (call("process_vm_writev", 7, 1, 1, 2, 1, 0, result=2,
          before={1: struct.pack("=QQ", 8, 2), 3: struct.pack("=QQ", 16, 2)}, parts={0: b"ab"}),
     'process_vm_writev(7, [{iov_base="ab", iov_len=2}], 1, [{iov_base=0x10, iov_len=2}], 1, 0) = 2'),
    (call("statfs", 1, 2, before={0: b"/"},
          after={1: struct.pack("=12q32x", 0xEF53, 4096, 9, 8, 7, 6, 5, 0, 255, 4096, 0x1020, 0)[:120]}),
     ('statfs("/", {f_type=EXT2_SUPER_MAGIC, f_bsize=4096, f_blocks=9, f_bfree=8, f_bavail=7, f_files=6, f_ffree=5, '
      "f_namelen=255, f_frsize=4096, f_flags=ST_VALID|ST_RELATIME}) = 0")),
    (call("personality", 0xFFFFFFFF, result=0x40000),
     "personality(0xffffffff) = 0x40000 (PER_LINUX|ADDR_NO_RANDOMIZE)"),
    (call("prctl", 3, result=1), "prctl(PR_GET_DUMPABLE) = 1 (SUID_DUMP_USER)"),
    (call("umask", 0o22, result=0o22), "umask(022) = 022"),
]  # fmt: skip


@pytest.mark.parametrize(("recorded", "text"), CASES, ids=[text.partition("(")[0] for _, text in CASES])
def test_a_call_is_shown_as_by_strace(recorded: Recorded, text: str) -> None:
    assert shown(recorded) == text


def test_a_socket_address_has_its_members() -> None:
    inet = struct.pack("=H", 2) + struct.pack("!H", 80) + bytes((127, 0, 0, 1)) + bytes(8)
    assert socket_address(inet) == '{sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}'
    assert socket_address(struct.pack("=H", 1) + b"/run/x\0junk", 9) == '{sa_family=AF_UNIX, sun_path="/run/x"}'
    assert socket_address(struct.pack("=H", 1) + b"\0name", 7) == '{sa_family=AF_UNIX, sun_path=@"name"}'


def test_a_set_of_signals_names_what_is_missing_where_that_is_shorter() -> None:
    assert signal_set(0b10) == "[INT]"
    assert signal_set(2**64 - 1 - (1 << 8)) == "~[KILL]"


def test_every_type_is_known_and_two_thirds_of_all_calls_are_decoded() -> None:
    for row in signatures().values():
        assert row.name in NUMBERS, row.name
        assert row.result in ("int", "fd", "ptr", "oct") or row.result[1:] in flag_tables.TABLES
        for type_ in row.types:
            if type_.base[0] in "|#":
                assert type_.base[1:] in flag_tables.TABLES, (row.name, type_)
            elif type_.direction:
                assert type_.base in SPECIAL or size_of(type_.base, "x86_64"), (row.name, type_)
            else:
                assert type_.base in _SCALARS or type_.base in _VALUES, (row.name, type_)
    for text in FIELDS.values():
        for word in text.split():
            kind = word.strip("()").split(":", 2)[2:]
            assert not kind or kind[0] in _SCALARS or kind[0] in _VALUES or kind[0][1:] in flag_tables.TABLES, word
    assert SCALARS.keys() >= {"int", "long"}
    assert len(by_number("x86_64")) > 300
    assert len(by_number("aarch64")) > 250


def test_the_tables_are_current() -> None:
    text = generate(ROOT / "pytrace/frontend/expand/constants.json")
    assert Path(str(flag_tables.__file__)).read_text() == text, "run scripts/generate-call-tables"


def test_names_of_file_systems_are_those_of_their_header() -> None:
    names = set(flag_tables.TABLES["fsmagic"].values())
    assert {"EXT2_SUPER_MAGIC", "OVERLAYFS_SUPER_MAGIC", "EROFS_SUPER_MAGIC_V1", "MINIX3_SUPER_MAGIC"} <= names
    # Other headers have flags, commands and marks of memory that are named so.
    assert not [name for name in names if not re.fullmatch(r"\w+_MAGIC\d?(_V1)?", name)]
    assert not names & {"WAKE_MAGIC", "SECCOMP_IOC_MAGIC", "LINUX_REBOOT_MAGIC1", "STACK_END_MAGIC"}


def test_targets_are_patterns_of_names() -> None:
    chosen = {NUMBERS[name] for name in ("openat", "close", "close_range")}
    assert selected(("syscall:openat", "clos*"), "x86_64") == chosen
    assert selected(("syscall:openat,clos*",), "x86_64") == chosen
    with pytest.raises(TraceError, match="no system call is named 'opem'") as caught:
        selected(("syscall:opem",), "x86_64")
    assert "open" in caught.value.hints[0]
    with pytest.raises(TraceError, match="'python:app' is no system call"):
        selected(("python:app",), "x86_64")


def test_the_script_of_one_call_asks_for_no_other() -> None:
    text = SystemCalls(frozenset({NUMBERS["openat"]}), "x86_64", 32, only_command=True).script()
    assert "$nr == 257" in text
    assert "$nr < " not in text


def test_a_call_whose_input_arrives_late_is_complete_and_one_without_it_says_so() -> None:
    recorder = SystemCalls(frozenset(NUMBERS.values()), "x86_64", 32, only_command=False).recorder()
    returned = (2, 100, 7, 7, NUMBERS["chdir"], 5, 0, 0, 1, 0, 0, 0, 0, 0)
    assert list(recorder.add(returned)) == []
    (complete,) = recorder.add((1, 100, 7, 1, "/late"))
    assert isinstance(complete, Recorded)
    assert shown(complete) == 'chdir("/late") = 0'
    assert list(recorder.add(returned[:1] + (200,) + returned[2:])) == []
    (lost,) = recorder.rest()
    assert isinstance(lost, Recorded)
    assert shown(lost) == "chdir(<lost>) = 0"
    assert (recorder.calls, recorder.incomplete) == (2, 1)


def test_descriptors_follow_fork_exec_and_close() -> None:
    known = Descriptors()
    known.moved(1 << 30, "/home")
    known.opened(1 << 30, 3, known.path(1 << 30, None, "../a\x1b"))
    known.opened(1 << 30, 4, "/closed-on-exec", closing=True)
    known.forked(1 << 30, 2 << 30)
    known.executed(2 << 30)
    assert known.name(2 << 30, 3) == r"/a\x1b"
    assert known.name(2 << 30, 4) is None
    known.closed_range(1 << 30, 4, 0xFFFFFFFF)
    assert (known.name(1 << 30, 3), known.name(1 << 30, 4)) == (r"/a\x1b", None)


def test_mistakes_have_a_hint() -> None:
    words = [sys.executable, "-m", "pytrace", "calls", "--slow", "fast", "-p", "1"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "ERROR: --slow takes a time such as 10ms, not 'fast'\n")
