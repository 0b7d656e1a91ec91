"""pytrace.runtime.load.verifier: what a refusal comes down to, from logs and messages made by hand."""

from __future__ import annotations

import errno
import os
import resource
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytrace.core.config import Config
from pytrace.core.event_layout import Location
from pytrace.core.manifest import Manifest, MapSpec, ProgramSpec, Target
from pytrace.core.probes.targets import KernelFunctionTarget
from pytrace.core.types import UINT64, String
from pytrace.runtime.abi import libbpf, privileges
from pytrace.runtime.abi.libbpf import WARN
from pytrace.runtime.load.verifier import Finding, LoadError, VerifierLogs, explain, finding, map_refused

HERE = Location("script.bt", 1, 1)
LOG = """\
func#0 @0
0: R1=ctx() R10=fp0
; $x = *(uint64 *)0; @ script.bt:3
0: (b7) r0 = 0                        ; R0_w=0
1: (79) r1 = *(u64 *)(r0 +0)
R0 invalid mem access 'scalar'
verification time 41 usec
stack depth 0
processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0
"""
PROGRAM = ProgramSpec("probe_0", "kprobe", 0, (Target("kprobe:vfs_read", 0, KernelFunctionTarget("vfs_read")),), HERE)
COUNTS = MapSpec("@counts", "counts", "hash", String(64), UINT64, 4096)


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (LOG, Finding("R0 invalid mem access 'scalar'", "script.bt:3")),
        ("", Finding("", "")),
        ("R1=ctx()\nR1_w=fp-8\n12: (95) exit\nfrom 3 to 9: R0=0\nprocessed 9 insns\n\n   \n", Finding("", "")),
        ("; first @ a.bt:1\n; second @ b.bt:22\nmath between fp\n", Finding("math between fp", "b.bt:22")),
        ("; a comment without a place\nunknown func bpf_x#999\n", Finding("unknown func bpf_x#999", "")),
        # The last words count; this one starts as noise does.
        ("BPF program is too large. Processed 1000001 insn\n",
         Finding("BPF program is too large. Processed 1000001 insn", "")),
        ("invalid one\ninvalid other\nmark_precise: frame0\nframe1: R1=1\ncaller:\n R6=1\n", Finding("R6=1", "")),
    ],
)  # fmt: skip
def test_the_complaint_in_a_log(log: str, found: Finding) -> None:
    assert finding(log) == found


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.E2BIG, "the kernel does not allow a map of that size"),
                           (errno.ENOMEM, "Cannot allocate memory")],
)  # fmt: skip
def test_a_map_that_is_refused(number: int, reason: str) -> None:
    error = map_refused(COUNTS, OSError(number, os.strerror(number)))
    assert error.message == f"@counts cannot be created with 4096 keys of 64 bytes and values of 8: {reason}"
    assert "max_map_keys" in error.hints[0]


def test_a_map_without_keys_that_is_refused() -> None:
    error = map_refused(MapSpec("@x", "x", "array", None, UINT64, 1), OSError(errno.EPERM, "no"))
    assert error.message == "@x cannot be created with 1 keys of 0 bytes and values of 8: no"


# ---------------------------------------------------------------------------------------------- logs


class Library:
    """Notes what programs are told."""

    def __init__(self) -> None:
        self.levels: list[tuple[int, int]] = []
        self.buffers: list[tuple[int, int, int]] = []

    def bpf_program__set_log_level(self, program: int, level: int) -> None:
        self.levels.append((program, level))

    def bpf_program__set_log_buf(self, program: int, address: int, size: int) -> None:
        self.buffers.append((program, address, size))


def test_one_buffer_serves_all_when_nobody_reads() -> None:
    library: Any = Library()
    logs = VerifierLogs(100, None)
    for program, symbol in ((1, "a"), (2, "b")):
        logs.prepare(library, program, symbol)
    (_, first, size), (_, second, _) = library.buffers
    assert first == second
    assert size == 100
    assert library.levels == []
    logs._shared._data[:3] = b"why"
    assert logs.of("a") == logs.of("unknown") == "why"
    logs.report()


def test_each_program_has_its_log_when_somebody_reads() -> None:
    library: Any = Library()
    read: list[tuple[str, str]] = []
    logs = VerifierLogs(100, lambda symbol, text: read.append((symbol, text)))
    for program, symbol in ((1, "a"), (2, "b"), (3, "c")):
        logs.prepare(library, program, symbol)
    assert library.levels == [(1, 1), (2, 1), (3, 1)]
    assert len({address for _, address, _ in library.buffers}) == 3
    logs._buffers["a"]._data[:2] = b"aa"
    logs._buffers["c"]._data[:2] = b"cc"
    logs.report()
    assert read == [("a", "aa"), ("c", "cc")]
    assert (logs.of("a"), logs.of("b")) == ("aa", "")


# ---------------------------------------------------------------------------------------------- refusals


def explained(number: int, *warnings: str, log: str = "", programs: tuple[ProgramSpec, ...] = (PROGRAM,)) -> LoadError:
    logs = VerifierLogs(4096, None)
    logs._shared._data[: len(log)] = log.encode()
    messages = libbpf.Messages()
    messages.lines = [(WARN, f"libbpf: {text}") for text in warnings]
    manifest = Manifest(programs, (COUNTS,), (), (), Config(perf_rb_pages=64))
    return explain(OSError(number, os.strerror(number)), logs, manifest, messages)


REFUSED = "prog 'probe_0': BPF program load failed: Permission denied"


def test_a_program_that_the_verifier_rejects() -> None:
    error = explained(errno.EACCES, "something before", REFUSED, log=LOG)
    assert error.message == (
        "the kernel's verifier rejected kprobe:vfs_read: R0 invalid mem access 'scalar' (script.bt:3)"
    )
    assert error.program is PROGRAM
    assert error.log == LOG
    assert error.hints == ("-v shows the full verifier log",)


def test_the_older_form_of_the_message() -> None:
    assert explained(errno.EINVAL, "prog 'probe_0': failed to load: -22", log="bad\n").program is PROGRAM


def test_a_program_without_a_log() -> None:
    error = explained(errno.EACCES, REFUSED)
    assert error.message == f"the kernel's verifier rejected kprobe:vfs_read: {REFUSED} ({HERE.file}:{HERE.line})"
    assert error.log == f"libbpf: {REFUSED}".removeprefix("libbpf: ")


def test_a_program_that_attaches_to_nothing_is_named_by_its_kind() -> None:
    program = ProgramSpec("probe_0", "begin", 0, (), HERE)
    assert explained(errno.EACCES, REFUSED, log="bad\n", programs=(program,)).message.endswith(
        f"rejected begin: bad ({HERE.file}:{HERE.line})"
    )


@pytest.mark.parametrize(
    ("number", "log", "hint"),
    [
        (errno.E2BIG, "", "too long for this kernel"),
        (errno.ENOMEM, "", "max_strlen"),
        (errno.ENOSPC, "", "log_size"),
        (errno.E2BIG, "The sequence of 8193 jumps is too complex.\n", "8192 branches"),
        (errno.E2BIG, "BPF program is too large. Processed 1000001 insn\n", "a million instructions"),
        (errno.E2BIG, "The total number of maps per program has reached the limit of 64\n", "64 maps"),
        (errno.E2BIG, "too many subprograms\n", "256 functions"),
        (errno.E2BIG, "the call stack of 9 frames is too deep !\n", "calls may be 8 deep"),
    ],
)
def test_what_to_do_about_limits(number: int, log: str, hint: str) -> None:
    error = explained(number, REFUSED, log=log)
    assert error.message.endswith(f"({HERE.file}:{HERE.line})"), "the probe's line"
    assert len(error.hints) == 2
    assert hint in error.hints[0]


def test_a_map_is_named_as_the_script_does() -> None:
    error = explained(errno.E2BIG, "map 'counts': failed to create: Argument list too long(-7)")
    assert error.message.startswith("@counts cannot be created")


def test_a_ring_that_is_too_large() -> None:
    error = explained(errno.ENOMEM, "map 'events': failed to create: Cannot allocate memory(-12)")
    assert error.message == "the ring buffer for events cannot be created: Cannot allocate memory"
    assert error.hints == ("perf_rb_pages is 64; fewer pages take less memory",)


@pytest.mark.parametrize(
    ("number", "warnings", "message", "hints"),
    [
        (errno.EPERM, ["Error in bpf_object__probe_loading(): no"],
         "the script cannot be loaded: Error in bpf_object__probe_loading(): no",
         ("loading needs root, or CAP_BPF with CAP_PERFMON",)),
        (errno.EINVAL, [], "the script cannot be loaded: Invalid argument", ()),
        (errno.EINVAL, ["map 'other': failed to create: x"],
         "the script cannot be loaded: map 'other': failed to create: x", ()),
        (errno.EINVAL, ["prog 'other': failed to load: -22"],
         "the script cannot be loaded: prog 'other': failed to load: -22", ()),
    ],
)  # fmt: skip
def test_what_is_neither_program_nor_map(
    number: int, warnings: list[str], message: str, hints: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privileges, "effective_capabilities", frozenset)
    error = explained(number, *warnings)
    assert (error.message, error.hints, error.program) == (message, hints, None)
    assert error.log == "\n".join(warnings)


@pytest.mark.parametrize(
    ("held", "hint"),
    [
        ({"CAP_SYS_ADMIN"}, "forbids such a program to all"),
        ({"CAP_BPF", "CAP_PERFMON"}, "forbids such a program to all"),
        ({"CAP_BPF", "CAP_DAC_OVERRIDE"}, "loading needs root"),
        (set(), "loading needs root"),
    ],
)
def test_what_is_not_permitted(held: set[str], hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some kernels refuse one kind of program to root."""
    monkeypatch.setattr(privileges, "effective_capabilities", lambda: frozenset(held))
    assert hint in explained(errno.EPERM, REFUSED).hints[0]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files(number: int) -> None:
    error = explained(number, REFUSED)
    assert error.message == "the script cannot be loaded: too many open files"
    assert error.hints == ("see ulimit -n",)


def test_other_errors_for_want_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """libbpf tries out what the kernel can do, and says that it lacks what could not be opened."""
    used = len(os.listdir("/proc/self/fd"))
    limits = SimpleNamespace(room=used + 2 + 8 + 4)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limits.room, limits.room))
    assert "rejected" in explained(errno.EINVAL, REFUSED, log="bad\n").message
    limits.room = used
    assert "too many open files" in cast(LoadError, explained(errno.EINVAL, REFUSED, log="bad\n")).message
