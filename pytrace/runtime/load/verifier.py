"""Refused programs: the one message in a verifier's log that says why, and the place in the script that it is about."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from pytrace.core.diagnostics import TraceError, cut_line
from pytrace.core.event_layout import Location
from pytrace.core.manifest import Manifest, MapSpec, ProgramSpec
from pytrace.runtime.machine import libbpf, privileges
from pytrace.runtime.machine.syscalls import ZeroedMemory

BRIEF = 4
"""``BPF_LOG_STATS``: a log of errors and statistics, without the instructions that the verifier followed."""
LOG_HINT = "-v shows the full verifier log"


class LoadError(TraceError):
    """The kernel or libbpf refused to load a script.

    *program* is the spec that was refused (None when it was not one program), *location* the place in the script;
    *log* is the verifier's or libbpf's whole text, for ``-v`` and ``-d verifier``, and *cut* is set when the log did
    not fit in its buffer and lacks its end, in which the reason is.
    """

    def __init__(
        self,
        message: str,
        *,
        program: ProgramSpec | None = None,
        location: Location | None = None,
        log: str = "",
        cut: bool = False,
        hints: Iterable[str] = (),
    ) -> None:
        super().__init__(message, hints=hints)
        self.program = program
        self.location = location
        self.log = log
        self.cut = cut


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
    from bisect import bisect_right  # only what fails needs it

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
    from pytrace.runtime.load.refusals import refusal_of  # only what fails needs it

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


class VerifierLogs:
    """Buffers for verifier logs: one that all programs share, or one for each when somebody wants to read them.

    A shared one is enough to explain a failure, because libbpf stops at the first program that is refused. With *brief*
    logs have no more than the reason, which then fits.
    """

    def __init__(self, size: int, reader: Callable[[str, str], None] | None, *, brief: bool = False) -> None:
        self._size = size
        self._reader = reader
        self._brief = brief
        self._buffers: dict[str, ZeroedMemory] = {}
        self._shared = ZeroedMemory(size)

    def prepare(self, lib: libbpf.Library, program: int, symbol: str) -> None:
        """Give a program the buffer that its log goes to."""
        buffer = self._shared
        if self._reader is not None:
            buffer = self._buffers[symbol] = ZeroedMemory(self._size)
            lib.bpf_program__set_log_level(program, 1)
        elif self._brief:
            lib.bpf_program__set_log_level(program, BRIEF)
        lib.bpf_program__set_log_buf(program, buffer.address, self._size)

    def report(self) -> None:
        """Hand what was logged to the reader, if there is one."""
        for symbol, buffer in self._buffers.items():
            text = buffer.text()
            if self._reader is not None and text:
                self._reader(symbol, text)

    def of(self, symbol: str) -> str:
        """The log of a program that was refused."""
        return self._buffers.get(symbol, self._shared).text()

    def cut(self, text: str) -> bool:
        """Whether a log lacks its end: kernels before 6.4 keep what fits first, later ones what comes last."""
        return len(text.encode()) >= self._size - 1 and "processed " not in text[-300:]


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


def ring_refused(pages: int, error: OSError) -> LoadError:
    """The error for an event ring that the kernel does not make; *pages* as in the config."""
    hint = f"perf_rb_pages is {pages}; fewer pages take less memory" if pages else "perf_rb_pages sets a smaller size"
    return LoadError(
        f"the ring buffer for events cannot be created: {error.strerror}", hints=[hint, *_memory_hints(error)]
    )


def _memory_hints(error: OSError) -> list[str]:
    if error.errno != errno.ENOMEM:
        return []
    from pytrace.core import limits

    return limits.memory_cgroup_hints()


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
        return ring_refused(manifest.config.perf_rb_pages, error)
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
