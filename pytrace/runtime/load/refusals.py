"""Refused scripts: the one message in a verifier's log that says why, and the place in the script that it is about.

Messages have classes, each with a sentence and what to change. They are those of ``verbose()`` in
``kernel/bpf/verifier.c`` from Linux 5.10 to 7.3, whose wording differs: a pattern holds what a message says on all of
them. ``tests/kernel/test_refusals.py`` provokes each class. Only what fails needs this module.
"""

from __future__ import annotations

import errno
import os
import re
import resource
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from pytrace.core.diagnostics import cut_line, memory_cgroup_hints
from pytrace.core.event_layout import Location
from pytrace.core.manifest import Manifest, MapSpec, ProgramSpec
from pytrace.runtime.load.loaded_script import LOG_HINT, LoadError
from pytrace.runtime.load.object_files import LineTable
from pytrace.runtime.machine import libbpf, privileges

if TYPE_CHECKING:
    from pytrace.runtime.load.loader import VerifierLogs


# ---------------------------------------------------------------------------------------------- classes of messages


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


# ---------------------------------------------------------------------------------------------- the message in a log


class Finding(msgspec.Struct, frozen=True):
    """The verifier's complaint: its own words, the source line that its log names last, and the instructions read."""

    text: str
    place: str = ""
    """``file:line``; empty before Linux 6.10."""
    trace: tuple[int, ...] = ()
    """Numbers of instructions in the order in which the verifier read them; only the one that the words name, if so."""
    called: str = ""
    """The helper that the last instruction calls, if it does."""


# Instruction dumps ("12: (b7) r0 = 0"), register states ("R1=ctx() R10=fp0", "; frame1: …"), and statistics.
_NOISE = (
    r"^(\d+: |from \d+ to \d+|R\d+(_\w+)?=|; |processed \d+ insns|verification time|stack depth|max_states|"
    r"peak_states|(mark|force)_precise|frame ?\d|last_idx|parent |regs=|caller:|callee:|returning from callee|"
    r"to caller at|(cur|old) state:|[Ff]unc#\d+|Validating |Live regs|insns_self|subprog \d+ \(|"
    r"arg#\d+ reference type|BPF program is too large\. Processed|reg type unsupported|-- |\s*$)"
)
_SOURCE = r"^; .* @ ([^@]+?:\d+)(:\d+)?\s*$"
_ARGUMENT = r"func '[^']+' arg\d+ type \w+ is not a struct$"
_NAMED = r"(?:alloc_insn=|insn )(\d+)"
_REPORT = "\nVerification failed: "
"""Since Linux 7.3 a report for people follows the message: category, reason, source and instructions around it."""


def finding(log: str) -> Finding:
    """The complaint in a verifier log of a refused program."""
    place = text = called = ""
    trace = []
    shown, _, report = log.partition(_REPORT)
    for line in shown.splitlines():
        match = re.match(_SOURCE, line)
        if match:
            place = match.group(1)
        if number := re.match(r"(\d+): \(\w\w\)", line):
            trace.append(int(number[1]))
            helper = re.match(r"\d+: \(85\) call (\w+)#\d+", line)
            called = helper[1] if helper else ""
        if line.startswith("BPF program is too large") or not re.match(_NOISE, line.lstrip()):
            # Of an argument's type the line before tells.
            text = f"{text}: {line.strip()}" if re.match(_ARGUMENT, text) else line.strip()
            if named := re.search(_NAMED, line):
                trace = [int(named[1])]
    return Finding(text or report.partition("\n")[0].strip(), place, tuple(trace), called)


# ---------------------------------------------------------------------------------------------- places


Positions = Mapping[int, Location]
"""Where lines begin in a program, by instruction."""
_LIBRARY = "stdlib/"
"""Names of sources of library macros start with this."""


def script_positions(data: bytes, programs: Mapping[str, int], spec: ProgramSpec) -> Positions:
    """The positions of a refused program's instructions in the script."""
    return LineTable(data).positions(spec.symbol, libbpf.instructions(programs[spec.symbol]))


def _location(complaint: Finding, positions: Positions, *, whole: bool) -> Location | None:
    """The script's place that a complaint is about.

    Code of a library macro has no place in the script: what the verifier read before it counts. Of a program that was
    refused as a *whole* it is the place at which most instructions were read, as in a long loop.
    """
    starts = sorted(positions)
    if whole:
        own = [place for place in (_at(starts, positions, number) for number in complaint.trace) if _in_script(place)]
        return Counter(own).most_common(1)[0][0] if own else None
    places = (_at(starts, positions, number) for number in reversed(complaint.trace))
    return next((place for place in places if _in_script(place)), None)


def _at(starts: list[int], positions: Positions, number: int) -> Location | None:
    index = bisect_right(starts, number)
    return positions[starts[index - 1]] if index else None


def _in_script(place: Location | None) -> bool:
    return place is not None and place.line > 0 and not place.file.startswith(_LIBRARY)


def _excerpt(place: Location) -> str:
    """The source line with the place underlined, each after a line break; empty without a source line."""
    start = place.column - 1 - place.skipped
    if not place.text.strip() or start >= len(place.text):
        return ""
    word = re.match(r"[@$]?\w+|.", place.text[start:])
    text, start, end = cut_line(place.text, start, start + (word.end() if word else 1))
    margin = len(text[:start].replace("\t", "    "))
    return f"\n{text.rstrip()}\n{' ' * margin}{'~' * (end - start)}".replace("\t", "    ")


# ---------------------------------------------------------------------------------------------- reasons


_WITHOUT_LOG = {
    errno.E2BIG: ("it is too long for this kernel",
                  "the program is too long for this kernel; smaller strings or fewer unrolled iterations help"),
    errno.EINVAL: ("this kernel does not know programs of this kind, or what they attach to",
                   "pytrace --info shows what this kernel has; another kind of probe may work"),
    errno.ENOMEM: ("there is not enough memory",
                   "there is not enough memory for the maps; fewer max_map_keys or a smaller max_strlen help"),
    errno.ENOSPC: ("", "the verifier's log did not fit: raise the config key log_size to see all of it"),
}  # fmt: skip
"""Sentence and hint of errors for which the verifier wrote nothing that is understood."""


_FOLLOWED = frozenset({"instructions", "branches"})
"""Refusals of what the verifier follows turn by turn where the kernel has no ``bpf_loop``."""


def _reason(number: int, text: str, called: str, has: Callable[[str], bool]) -> tuple[str, str, bool]:
    """Sentence, hint, and whether the program was refused as a whole; *has* tells features of the kernel."""
    refusal, sentence = refusal_of(text, called)
    if refusal is not None:
        loops = refusal.name in _FOLLOWED and not has("bpf_loop")
        newer = "; from Linux 5.17 (bpf_loop) it follows the body of a loop once" if loops else ""
        return sentence, refusal.hint + newer, refusal.whole
    if number == errno.EPERM:
        return "", _permission_hint(privileges.effective_capabilities()), True
    sentence, hint = _WITHOUT_LOG.get(number, ("", ""))
    return "" if text else sentence, hint, False


def _permission_hint(held: frozenset[str]) -> str:
    """Why loading is not permitted to a process with the capabilities *held*."""
    if "CAP_SYS_ADMIN" in held or {"CAP_BPF", "CAP_PERFMON"} <= held:
        return "this process has the capabilities: this kernel, or a security module, forbids such a program to all"
    return "loading needs root, or CAP_BPF with CAP_PERFMON"


_OTHER_FILES = 8
"""Descriptors that loading takes beside those of the script's maps and programs: of global data, events, the log."""
_REFUSED = r"prog '([^']+)': (?:BPF program load failed|failed to load)"
_UNMADE = r"map '([^']+)': failed to create"


def map_refused(spec: MapSpec, error: OSError) -> LoadError:
    """The error for a map that the kernel does not make."""
    key, value = spec.key.size if spec.key is not None else 0, spec.value.size
    reason = "the kernel does not allow a map of that size" if error.errno == errno.E2BIG else error.strerror
    return LoadError(
        f"{spec.name} cannot be created with {spec.max_entries} keys of {key} bytes and values of {value}: {reason}",
        hints=["use fewer keys (max_map_keys, or a declaration) or a smaller max_strlen", *_memory_hints(error)],
    )


def _ring_refused(pages: int, error: OSError) -> LoadError:
    """The error for an event ring that the kernel does not make; *pages* as in the config."""
    hint = f"perf_rb_pages is {pages}; fewer pages take less memory" if pages else "perf_rb_pages sets a smaller size"
    return LoadError(
        f"the ring buffer for events cannot be created: {error.strerror}", hints=[hint, *_memory_hints(error)]
    )


def _memory_hints(error: OSError) -> list[str]:
    if error.errno != errno.ENOMEM:
        return []
    return memory_cgroup_hints()


def _too_many_files(manifest: Manifest) -> bool:
    """Whether a script has more maps and programs than files may be opened.

    The error may be another one then: libbpf tries out what the kernel can do, and takes what it could not open for
    what the kernel lacks.
    """
    needed = len(manifest.maps) + len(manifest.programs) + _OTHER_FILES
    return len(os.listdir("/proc/self/fd")) + needed > resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def explain(
    error: OSError,
    logs: VerifierLogs,
    manifest: Manifest,
    messages: libbpf.Messages,
    positions: Callable[[ProgramSpec], Positions],
    before: LoadError | None = None,
    has: Callable[[str], bool] = lambda _: True,
) -> LoadError:
    """The error to raise when ``bpf_object__load`` failed: names the probe and says in one sentence what was found.

    Args:
        error: what libbpf returned.
        logs: the verifier's logs of the programs.
        manifest: of the script, for the names of probes and maps.
        messages: what libbpf said; its warnings name the program or map that was refused.
        positions: the positions of a program's instructions in the script.
        before: the error of which a brief log says the reason.
        has: whether the kernel has a feature.
    """
    warnings = messages.warnings
    if error.errno in (errno.EMFILE, errno.ENFILE) or _too_many_files(manifest):
        return LoadError("the script cannot be loaded: too many open files", hints=["see ulimit -n"])
    refused = next((match.group(1) for match in (re.search(_REFUSED, text) for text in warnings) if match), None)
    spec = next((item for item in manifest.programs if item.symbol == refused), None)
    number = error.errno or 0
    if spec is not None:
        return _program_refused(number, spec, logs, warnings or [str(error.strerror)], positions, before, has)
    unmade = next((match.group(1) for match in (re.search(_UNMADE, text) for text in warnings) if match), None)
    for item in manifest.maps:
        if item.symbol == unmade:
            return map_refused(item, error)
    if unmade == manifest.ring:
        return _ring_refused(manifest.config.perf_rb_pages, error)
    hint = _permission_hint(privileges.effective_capabilities()) if number == errno.EPERM else ""
    if unmade is None and number != errno.EINVAL:
        hint = hint or _WITHOUT_LOG.get(number, ("", ""))[1]
    return LoadError(
        f"the script cannot be loaded: {warnings[0] if warnings else error.strerror}",
        log="\n".join(warnings),
        hints=[hint] if hint else [],
    )


def _program_refused(
    number: int,
    spec: ProgramSpec,
    logs: VerifierLogs,
    warnings: list[str],
    positions: Callable[[ProgramSpec], Positions],
    before: LoadError | None,
    has: Callable[[str], bool],
) -> LoadError:
    log = logs.of(spec.symbol)
    cut = logs.cut(log)
    complaint = finding(log)
    if before is not None and not cut:
        # The text of this log, the instructions of the longer one.
        complaint = replace(finding(before.log), text=complaint.text)
        log = f"{before.log}\n{log}"
    sentence, hint, whole = _reason(number, "" if cut else complaint.text, complaint.called, has)
    # What the verifier refuses as a whole may have no line of its own: the probe's.
    place = _location(complaint, positions(spec), whole=whole) or spec.location
    words = "" if cut else complaint.text or warnings[0]
    shown = complaint.place if place is spec.location and not whole else ""
    where = shown or f"{place.file}:{place.line}:{place.column}"
    name = spec.targets[0].probe if spec.targets else spec.kind
    message = f"the kernel's verifier rejected {name}: {sentence or words} ({where}){_excerpt(place)}"
    return LoadError(
        f"{message}\nthe verifier says: {words}" if sentence and words else message,
        program=spec,
        location=place,
        log=log or "\n".join(warnings),
        cut=cut,
        hints=[item for item in (hint, LOG_HINT) if item],
    )
