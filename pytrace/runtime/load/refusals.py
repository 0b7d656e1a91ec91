"""Why the kernel's verifier refuses programs: classes of its messages, each with a sentence and what to change.

The messages are those of ``verbose()`` in ``kernel/bpf/verifier.c`` from Linux 5.10 to 7.3, whose wording differs: a
pattern holds what a message says on all of them. ``tests/kernel/test_refusals.py`` provokes each class.
"""

from __future__ import annotations

import re

import msgspec


class Refusal(msgspec.Struct, frozen=True):
    """A class of refusals.

    *sentence* says what the program does wrong (a group of *pattern* may be named in it), *hint* what to change.
    *whole* is set where the verifier refuses a program as a whole, so that the last instruction says nothing.
    """

    name: str
    pattern: str
    sentence: str
    hint: str
    whole: bool = False


_SPLIT = "split the block in several probes of the same attach point"
_IMPORTED = "if imported C does this, change it there; otherwise it is a bug of pytrace: please report it"

REFUSALS = (
    Refusal(
        "kernel", r"verifier (internal error|bug|BUG)|^BUG|kernel subsystem misconfigured|(verifier|insn state).* bug",
        "the verifier failed itself", "this is a bug of the kernel: try a newer one, or write the block in another way",
    ),
    Refusal(
        "branches", r"jumps is too complex", "it has more branches than the verifier follows: 8192 in a row",
        f"the verifier follows at most 8192 branches in a row: {_SPLIT}", whole=True,
    ),
    Refusal(
        "instructions", r"program is too large|exceeds? .*insn|complexity limit|too many instructions",
        "the verifier gave up after a million instructions: it follows every branch and every turn of a loop",
        f"the verifier follows a million instructions: {_SPLIT}, or use shorter loops and smaller strings", whole=True,
    ),
    Refusal(
        "maps", r"number of (maps|btfs) per program", "it uses more maps than a program may",
        f"a program has at most 64 maps with keys: {_SPLIT}, or use longer keys", whole=True,
    ),
    Refusal(
        "functions", r"too many subprograms|too many different (kernel function|module BTF)",
        "it calls more functions than a program may", f"a program has at most 256 functions: {_SPLIT}", whole=True,
    ),
    Refusal(
        "depth", r"frames is too deep", "its functions and loops are nested too deeply",
        "calls may be 8 deep, probe, functions and loop bodies counted: use macros instead of fn", whole=True,
    ),
    Refusal(
        "stack_of_calls", r"combined stack size|stack size of subprog|stack size \d+.* is too large|"
        r"stack depth \d+ exceeds|call stack of previous frames",
        "its functions and loops use more stack together than the 512 bytes that a program has",
        "use macros instead of fn, fewer local variables in functions and loops, or maps", whole=True,
    ),
    Refusal(
        "loop", r"infinite loop|back-edge|too many iterations|iteration limit",
        "the verifier does not see the loop end", "give the loop a constant bound, as in: for $i : 0..100 { … }",
    ),
    Refusal(
        "privileges", r"CAP_\w+|for !root|!root|only to|unprivileged",
        "this user may not load a program that does this", "run as root, or with CAP_BPF and CAP_PERFMON",
    ),
    Refusal(
        "null", r"(_or_null|or_null_)|null-check it first|Possibly NULL|non-NULL",
        "it uses a pointer that may be null without a check", "check the pointer first: if ($p) { … }",
    ),
    Refusal(
        # A read from within the stack is of one that was not set: the class after this one.
        "stack", r"(?<!read from )stack (\S+ )?(type \S+ )?off=-?\d+ (access_)?size|"
        r"stack R\d+ off=(?!-(\d{1,2}|[1-4]\d\d|50\d|51[012]) )|stack .*out of (range|bounds)|"
        r"unbounded variable-offset|variable-offset.* stack|beyond stack",
        "it accesses stack beyond the 512 bytes that a program has",
        "use smaller strings (max_strlen) and structs, fewer local variables, or maps",
    ),
    Refusal(
        "uninitialized", r"!read_ok|(invalid|reading)( indirect)? (read )?from (the )?stack|indirect access to stack|"
        r"is not (readable|initialized)|slot poisoned|^R\d+ is invalid",
        "it reads a register or stack that was not set on this path", f"set the variable on every path; {_IMPORTED}",
    ),
    Refusal(
        "sleeping", r"sleepable|might sleep|may sleep",
        "it calls a function that may sleep, where this kind of probe must not", "use a kind of probe that may sleep",
    ),
    Refusal(
        "helper", r"(?:(?:unknown|invalid) func|use helper) (?P<name>[\w#]+)|"
        r"func (?P<offered>[\w#]+) (?:not )?supported|[Cc]alling kernel function (?P<kfunc>\w+) is not allowed|"
        r"kernel function|helper call is not allowed|"
        r"kernel btf_id|cannot pass map_type|GPL|JIT (?:does not|doesn't|is required)|kfunc",
        "this kernel does not offer the function {name} to probes of this kind",
        "use another kind of probe, or a newer kernel; pytrace --info shows what this one has",
    ),
    Refusal(
        "held", r"[Uu]nreleased reference|reference leak|[Ll]eaking reference|has not been acquired|unlock|"
        r"spin_?lock|rcu_read|preempt|irq_|holding a lock|acquired reference|missing bpf_",
        "it keeps a lock, or memory that it must give back, on one of its paths",
        f"release it on every path; {_IMPORTED}",
    ),
    Refusal(
        "argument", r"arg\d+ type \w+ is not a struct",
        "this kernel does not let programs read an argument of this type",
        "kprobe reads every argument; fentry and rawtracepoint read pointers to numbers since Linux 5.18",
    ),
    Refusal(
        "context", r"bpf_context access|access to context|ctx access|modified ctx|is not ctx",
        "the probe's context has nothing that a program may access there",
        "pytrace -lv PROBE lists the arguments of a probe with their types",
    ),
    Refusal(
        "pointer", r"pointer arithmetic|on pointer prohibited|math between (?!.*unbounded)|"
        r"pointer (comparison )?prohibited|(subtract|subtraction) .*pointer|from stack pointer|out of bounds$|"
        r"unsupported alu|partial copy|"
        r"mixed signed bounds|pointer bounds|different maps, paths|dereference of modified",
        "the kernel does not allow this arithmetic on a pointer",
        "turn the pointer into a number first: (uint64)$p, and back into a pointer to read memory through it",
    ),
    Refusal(
        "types", r"access beyond|ptr member|is of type \S+ but|type=\S* ?expected=|expected pointer|cannot write into|"
        r"only read|attach_btf_id|BTF|ptr_\S* (invalid|access)|negative offset|doesn't point to|"
        r"is not a (scalar|const)|must (have|be|point|reference)|direct access to",
        "by the kernel's type information, what is used here is something else",
        "compare the types with those that pytrace -lv shows; structs of the script's own may be of another kernel",
    ),
    Refusal(
        "memory", r"mem access|unbounded min|access to (map|memory|packet|flow|mem)|memory access|memory range|"
        r"of the packet|(min|max) value is|zero-sized|misaligned|map forbidden|buffer|map value|access outside",
        "it accesses memory that it may not, or that the verifier cannot follow",
        f"check an index before it is used, and read through pointers of a type that the kernel knows; {_IMPORTED}",
    ),
    Refusal(
        "code", r"unknown opcode|reserved fields?|BPF_\w+ (uses|stores)|invalid BPF_|insn class|atomic|unreachable|"
        r"jump|not an exit|ldimm64|invalid destination|invalid shift|div by zero",
        "this kernel does not know an instruction of the program",
        "kernels since 5.12 have what ++, |= and &= on shared maps, and min() and max() of several probes need",
    ),
)  # fmt: skip
"""The classes, the more specific ones first: the first whose pattern is in a message is the message's."""


def refusal_of(text: str, called: str = "") -> tuple[Refusal | None, str]:
    """The class of a verifier's message, and its sentence; None and empty for a message of no class.

    *called* is the helper that the last instruction calls, which not all messages name.
    """
    for refusal in REFUSALS:
        match = re.search(refusal.pattern, text)
        if match:
            names = [name for name in (*match.groupdict().values(), called) if name]
            return refusal, refusal.sentence.replace(" {name}", f" {names[0]}" if names else "")
    return None, ""
