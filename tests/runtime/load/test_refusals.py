"""pytrace.runtime.load.refusals: messages of the verifiers of Linux 5.10 to 7.3, and their classes."""

from __future__ import annotations

import re

from pytrace.runtime.load.refusals import REFUSALS, refusal_of
from tests.support.rows import each_row

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
