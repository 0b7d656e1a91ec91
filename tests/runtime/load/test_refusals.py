"""What the verifier and the kernel refuse, in words, and which features they have."""

from __future__ import annotations

import errno
import os
import re
import resource
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytrace.core import kernel_info
from pytrace.core.event_layout import Location
from pytrace.core.manifest import Manifest, MapSpec, ProgramSpec, Target
from pytrace.core.options import Config
from pytrace.core.probe_kinds import KernelFunctionTarget
from pytrace.core.types import UINT64, String
from pytrace.runtime.load import features, refusals
from pytrace.runtime.load.features import FEATURES
from pytrace.runtime.load.loaded_script import LoadError
from pytrace.runtime.load.loader import VerifierLogs
from pytrace.runtime.load.refusals import REFUSALS, Finding, explain, finding, map_refused, refusal_of
from pytrace.runtime.machine import bpf, libbpf, privileges, syscalls
from pytrace.runtime.machine.bpf import ProgramType
from pytrace.runtime.machine.libbpf import WARN
from tests.support.rows import each_row
from tests.support.waiting import open_descriptors

# ---------------------------------------------------------------------------------------------- verifier
# pytrace.runtime.load.refusals: what a refusal comes down to, from logs and messages made by hand.


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


@each_row(
    ("log", "found"),
    [
        (LOG, Finding("R0 invalid mem access 'scalar'", "script.bt:3", (0, 1))),
        ("", Finding("", "")),
        ("R1=ctx()\nR1_w=fp-8\n12: (95) exit\nfrom 3 to 9: R0=0\nprocessed 9 insns\n\n   \n", Finding("", "", (12,))),
        ("; first @ a.bt:1\n; second @ b.bt:22\nmath between fp\n", Finding("math between fp", "b.bt:22")),
        ("; a comment without a place\nunknown func bpf_x#999\n", Finding("unknown func bpf_x#999", "")),
        # The last words count; this one starts as noise does.
        ("BPF program is too large. Processed 1000001 insn\n",
         Finding("BPF program is too large. Processed 1000001 insn", "")),
        ("invalid one\ninvalid other\nmark_precise: frame0\nframe1: R1=1\ncaller:\n R6=1\n", Finding("invalid other")),
        # The instruction that is named counts, not the last one; states follow the message.
        ("0: (b7) r6 = 1\ninfinite loop detected at insn 7\ncur state: R6=1\nold state: R6=P1\n",
         Finding("infinite loop detected at insn 7", "", (7,))),
        ("4: (85) call x#131\n9: (95) exit\nUnreleased reference id=2 alloc_insn=4\nwould lead to reference leak\n",
         Finding("would lead to reference leak", "", (4,))),
        ("40: (79) r1 = *(u64 *)(r6 +24)\nfunc 'f' arg3 type INT is not a struct\ninvalid bpf_context access off=24\n",
         Finding("func 'f' arg3 type INT is not a struct: invalid bpf_context access off=24", "", (40,))),
        # Linux 7.3
        ("; $x @ a.bt:3:5\n3: (79) r1 = *(u64 *)(r0 +0)\nbad access\n\nVerification failed: Memory: x\nReason\n",
         Finding("bad access", "a.bt:3", (3,))),
        ("\nVerification failed: Policy: not allowed\n", Finding("Policy: not allowed")),
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


POSITIONS = {0: Location("script.bt", 3, 5, 0, "    $x = *(uint64 *)0;"), 5: Location("stdlib/x.bt", 1, 1)}


def explained(
    number: int,
    *warnings: str,
    log: str = "",
    programs: tuple[ProgramSpec, ...] = (PROGRAM,),
    size: int = 4096,
    before: LoadError | None = None,
) -> LoadError:
    logs = VerifierLogs(size, None)
    logs._shared._data[: len(log)] = log.encode()
    messages = libbpf.Messages()
    messages.lines = [(WARN, f"libbpf: {text}") for text in warnings]
    manifest = Manifest(programs, (COUNTS,), (), (), Config(perf_rb_pages=64))
    return explain(OSError(number, os.strerror(number)), logs, manifest, messages, lambda _: POSITIONS, before)


REFUSED = "prog 'probe_0': BPF program load failed: Permission denied"


def test_a_program_that_the_verifier_rejects() -> None:
    error = explained(errno.EACCES, "something before", REFUSED, log=LOG)
    assert error.message == (
        "the kernel's verifier rejected kprobe:vfs_read: it accesses memory that it may not, or that the verifier "
        "cannot follow (script.bt:3:5)\n    $x = *(uint64 *)0;\n    ~~\n"
        "the verifier says: R0 invalid mem access 'scalar'"
    )
    assert error.program is PROGRAM
    assert error.location == POSITIONS[0]
    assert error.log == LOG
    assert error.hints[1:] == ("-v shows the full verifier log",)


def test_code_of_the_library_is_placed_where_it_was_called() -> None:
    log = f"{LOG.partition('R0 invalid')[0]}6: (95) exit\nwords of a later kernel\n"
    assert explained(errno.EACCES, REFUSED, log=log).message.startswith(
        "the kernel's verifier rejected kprobe:vfs_read: words of a later kernel (script.bt:3:5)\n"
    )


def test_a_log_that_lacks_its_end() -> None:
    """What the buffer has of it says nothing; the same without instructions has the reason."""
    log = "0: (b7) r0 = 0\n" * 300
    first = explained(errno.ENOSPC, REFUSED, log=log[:1000], size=1000)
    assert first.cut
    assert "r0 = 0" not in first.message
    assert "log_size" in first.hints[0]
    reason = "The sequence of 8193 jumps is too complex.\nprocessed 5 insns\n"
    second = explained(errno.E2BIG, REFUSED, log=reason, size=1000, before=first)
    assert not second.cut
    assert "more branches than the verifier follows: 8192 in a row (script.bt:3:5)\n" in second.message
    assert second.log == f"{first.log}\n{reason}"


def test_a_log_that_lacks_its_beginning() -> None:
    log = "1: (b7) r0 = 0\n" * 100 + "R0 invalid mem access 'scalar'\nprocessed 5 insns\n"
    error = explained(errno.ENOSPC, REFUSED, log=log[-1000:], size=1000)
    assert not error.cut
    assert "memory that it may not" in error.message


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        (Location("a.bt", 2, 3, 0, "\t\t@x[1] = 5;"), "\n        @x[1] = 5;\n        ~~"),
        (Location("a.bt", 2, 1, 0, "+"), "\n+\n~"),
        (Location("a.bt", 2, 1), ""),
        (Location("a.bt", 2, 90, 0, "short"), ""),
    ],
)
def test_the_excerpt_of_a_place(place: Location, shown: str) -> None:
    assert refusals._excerpt(place) == shown


def test_the_older_form_of_the_message() -> None:
    assert explained(errno.EINVAL, "prog 'probe_0': failed to load: -22", log="bad\n").program is PROGRAM


def test_a_program_without_a_log() -> None:
    error = explained(errno.EACCES, REFUSED)
    assert error.message == f"the kernel's verifier rejected kprobe:vfs_read: {REFUSED} (script.bt:1:1)"
    assert error.log == f"libbpf: {REFUSED}".removeprefix("libbpf: ")


def test_a_program_that_attaches_to_nothing_is_named_by_its_kind() -> None:
    program = ProgramSpec("probe_0", "begin", 0, (), HERE)
    message = explained(errno.EACCES, REFUSED, log="bad\n", programs=(program,)).message
    assert message.endswith("rejected begin: bad (script.bt:1:1)")


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
    assert "(script.bt:1:1)" in error.message, "the probe's line"
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
    used = len(open_descriptors())
    limits = SimpleNamespace(room=used + 2 + 8 + 4)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limits.room, limits.room))
    assert "rejected" in explained(errno.EINVAL, REFUSED, log="bad\n").message
    limits.room = used
    assert "too many open files" in cast(LoadError, explained(errno.EINVAL, REFUSED, log="bad\n")).message


# ---------------------------------------------------------------------------------------------- refusals
# pytrace.runtime.load.refusals: messages of the verifiers of Linux 5.10 to 7.3, and their classes.


MESSAGES = {
    "kernel": ("verifier bug. Frame 1 already allocated", "verifier internal error: no src_reg",
               "BUG backtracking idx 3", "verifier bug: no dynptr id", "kernel subsystem misconfigured verifier"),
    "branches": ("The sequence of 8193 jumps is too complex.",),
    "instructions": ("BPF program is too large. Processed 1000001 insn",
                     "liveness analysis exceeded complexity limit (8192 calls)"),
    "maps": ("The total number of maps per program has reached the limit of 64",),
    "functions": ("too many subprograms",),
    "depth": ("the call stack of 9 frames is too deep !",),
    "stack_of_calls": ("combined stack size of 2 calls is 624. Too large", "stack size of subprog 1 is 624. Too large",
                       "stack size 528(extra 16) is too large"),
    "loop": ("infinite loop detected at insn 1", "back-edge from insn 5 to 3"),
    "null": ("R0 invalid mem access 'map_value_or_null'", "R1 invalid mem access 'ptr_or_null_'",
             "R1 invalid mem access 'trusted_ptr_or_null_'", "Possibly NULL pointer passed to trusted arg0",
             "R0 pointer arithmetic on map_value_or_null prohibited, null-check it first"),
    "stack": ("invalid stack off=-520 size=8", "invalid write to stack R10 off=-520 size=8",
              "invalid indirect access to stack R2 off=-520 size=8", "invalid read from stack R10 off=-520 size=8",
              "invalid unbounded variable-offset write to stack R1"),
    "uninitialized": ("R7 !read_ok", "invalid read from stack off -8+0 size 8",
                      "invalid indirect read from stack off -8+0 size 8",
                      "invalid read from stack R10 off -8+0 size 8", "invalid read from stack R10 off=-8 size=8",
                      "invalid read from stack R10 off=-512 size=8"),
    "helper": ("invalid func unknown#99999", "unknown func bpf_skb_load_bytes#26",
               "program of this type cannot use helper bpf_skb_load_bytes#26",
               "calling kernel function bpf_task_from_pid is not allowed",
               "cannot call GPL-restricted function from non-GPL compatible program",
               "func bpf_d_path#147 supported only for fentry/fexit/fmod_ret programs"),
    "sleeping": ("program must be sleepable to call sleepable kfunc bpf_copy_from_user_str",
                 "helper call might sleep in a non-sleepable prog",
                 "sleepable helper bpf_copy_from_user#148 in rcu_read_lock region"),
    "held": ("Unreleased reference id=2 alloc_insn=5", "BPF_EXIT instruction in main prog would lead to reference leak",
             "bpf_spin_unlock is missing", "bpf_rcu_read_unlock is missing",
             "function calls are not allowed while holding a lock",
             "Leaking reference id=1 alloc_insn=3. Release it first."),
    "privileges": ("ctx access is allowed only to CAP_PERFMON and CAP_SYS_ADMIN",
                   "R1 stack pointer arithmetic goes out of range, prohibited for !root; off=8"),
    "argument": ("func 'vfs_write' arg3 type INT is not a struct: invalid bpf_context access off=24 size=8",),
    "context": ("invalid bpf_context access off=4096 size=8", "invalid access to context, ctx_size=8 off=16 size=8",
                "variable ctx access var_off=(0x0; 0x7) disallowed",
                "dereference of modified ctx ptr R1 off=8 disallowed"),
    "pointer": ("R6 pointer arithmetic with *= operator prohibited", "R1 bitwise operator &= on pointer prohibited",
                "math between map_value pointer and 536870912 is not allowed",
                "R1 pointer -= pointer prohibited", "R2 pointer comparison prohibited", "R3 partial copy of pointer",
                "value 536870912 makes map_value pointer be out of bounds", "R1 32-bit pointer arithmetic prohibited"),
    "types": ("access beyond struct task_struct at off 32000 size 8", "R1 type=inv expected=fp",
              "R1 is of type task_struct but file is expected", "only read is supported",
              "R1 is ptr_task_struct invalid negative access: off=-8", "attach_btf_id 5 is not a function"),
    "memory": ("R6 invalid mem access 'inv'", "R6 invalid mem access 'scalar'",
               "invalid access to map value, value_size=8 off=8 size=8",
               "math between map_value pointer and register with unbounded min value is not allowed",
               "R0 max value is outside of the allowed memory range",
               "R0 unbounded memory access, make sure to bounds check any such access",
               "R2 min value is negative, either use unsigned or 'var &= const'", "invalid zero-sized read",
               "misaligned stack access off (0x0; 0x0)+-300+0 size 8",
               "write into map forbidden, value_size=8 off=0 size=8"),
    "code": ("unknown opcode ff", "BPF_STX uses reserved fields", "BPF_XADD uses reserved fields",
             "BPF_ATOMIC uses invalid atomic opcode 41", "unreachable insn 3"),
}  # fmt: skip


@each_row(
    ("name", "text"), [(name, text) for name, texts in MESSAGES.items() for text in texts], ids=lambda value: value[:40]
)
def test_messages_of_a_class(name: str, text: str) -> None:
    refusal, sentence = refusal_of(text)
    assert refusal is not None
    assert refusal.name == name
    assert sentence
    assert "{" not in sentence


def test_each_class_has_messages() -> None:
    assert set(MESSAGES) == {refusal.name for refusal in REFUSALS}


def test_a_function_is_named() -> None:
    assert "function bpf_skb_load_bytes#26 to" in refusal_of("unknown func bpf_skb_load_bytes#26")[1]
    assert "function bpf_task_from_pid to" in refusal_of("calling kernel function bpf_task_from_pid is not allowed")[1]
    assert "function bpf_d_path to" in refusal_of("helper call is not allowed in probe", "bpf_d_path")[1]
    assert "the function to" in refusal_of("cannot call GPL-restricted function from non-GPL compatible program")[1]


def test_another_message() -> None:
    assert refusal_of("words of a later kernel") == (None, "")


def test_sentences_and_hints_are_plain() -> None:
    for refusal in REFUSALS:
        assert re.fullmatch(r"[a-z].*[^.]", refusal.sentence)
        assert refusal.hint


# ---------------------------------------------------------------------------------------------- features
# The table of kernel features.


SOURCE = Path(__file__).resolve().parents[3] / "pytrace"


def test_every_feature_that_is_asked_for_has_a_row() -> None:
    asked = {
        name
        for file in SOURCE.rglob("*.py")
        for name in re.findall(r'(?:\.feature|features\.has)\("(\w+)"\)', file.read_text(encoding="utf-8"))
    }
    assert asked
    assert asked <= set(FEATURES)


def test_answers_are_kept_for_each_set_of_capabilities(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What needs CAP_SYS_ADMIN is refused without it; that must not be remembered once the user has it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    held = 0

    def probe() -> bool:
        return held == 1

    monkeypatch.setitem(FEATURES, "fentry", features.Feature("fentry", "", probe))
    monkeypatch.setattr(privileges, "capability_mask", lambda: held)
    features.forget()
    try:
        assert not features.has("fentry")
        features.forget()
        held = 1
        assert features.has("fentry")
        features.forget()
        monkeypatch.setitem(FEATURES, "fentry", features.Feature("fentry", "", lambda: False))
        assert features.has("fentry"), "it is kept"
    finally:
        features.forget()


def test_each_name_has_a_probe() -> None:
    assert sorted(kernel_info.FEATURES) == sorted(FEATURES)


# ---------------------------------------------------------------------------------------------- feature probes
# What an answer of the kernel to a trial says of a feature.


def test_a_feature_that_shows_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    assert features.file_exists("/missing", str(tmp_path / "there"))()
    assert not features.file_exists("/missing", str(tmp_path / "other"))()


@pytest.mark.parametrize(("number", "has"), [(None, True), (errno.EINVAL, False), (errno.E2BIG, False)], ids=str)
def test_a_refused_request_is_a_missing_feature(number: int | None, *, has: bool) -> None:
    @features.tried
    def probe(_stack: ExitStack) -> bool:
        if number is not None:
            raise OSError(number, "no")
        return True

    assert probe() == has


def test_a_user_without_rights_cannot_find_out() -> None:
    @features.tried
    def probe(_stack: ExitStack) -> bool:
        raise PermissionError(errno.EPERM, "no")

    with pytest.raises(PermissionError):
        probe()


@pytest.mark.parametrize(
    ("log", "has"),
    [
        ("0: (85) call bpf_x#7\nR1 type=ctx expected=fp\n", True),
        ("unknown func bpf_x#7\n", False),
        ("program of this type cannot use helper bpf_x#7\n", False),
        (None, False),
    ],
)
def test_a_helper_that_is_refused_for_its_arguments_only_is_there(
    log: str | None, monkeypatch: pytest.MonkeyPatch, *, has: bool
) -> None:
    def load(*_: object, log: syscalls.Memory, **__: object) -> int:
        if text is not None:
            log.data[: len(text)] = text.encode()
        raise OSError(errno.EINVAL, "no")

    text = log
    monkeypatch.setattr(bpf, "prog_load", load)
    assert features.helper(7, ProgramType.KPROBE)() == has
