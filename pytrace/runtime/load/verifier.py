"""Logs of the kernel's verifier, and the one line in them that says why a program was refused."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Callable, Iterable

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest, MapSpec, ProgramSpec
from pytrace.runtime.abi import libbpf, privileges
from pytrace.runtime.abi.syscalls import ZeroedMemory


class LoadError(TraceError):
    """The kernel or libbpf refused to load a script.

    *program* is the spec that was refused (None when it was not one program); *log* is the verifier's or libbpf's
    whole text, for ``-v`` and ``-d verifier``.
    """

    def __init__(
        self, message: str, *, program: ProgramSpec | None = None, log: str = "", hints: Iterable[str] = ()
    ) -> None:
        super().__init__(message, hints=hints)
        self.program = program
        self.log = log


class Finding(msgspec.Struct, frozen=True):
    """The verifier's complaint: its own words, and the script line that it was reading (``file:line``, or empty)."""

    text: str
    place: str


# Instruction dumps ("12: (b7) r0 = 0"), register states ("R1=ctx() R10=fp0", "; frame1: …"), and statistics.
_NOISE = (
    r"^(\d+: |from \d+ to \d+|R\d+(_\w+)?=|; |processed \d+ insns|verification time|stack depth|max_states|"
    r"peak_states|mark_precise|frame ?\d|last_idx|parent |regs=|caller:|callee:|returning from callee|to caller at|"
    r"func#\d+ @|arg#\d+ reference type|BPF program is too large\. Processed|reg type unsupported|-- |\s*$)"
)
_SOURCE = r"^; .* @ ([^@]+:\d+)\s*$"


def finding(log: str) -> Finding:
    """The complaint in a verifier log of a refused program."""
    place = text = ""
    for line in log.splitlines():
        match = re.match(_SOURCE, line)
        if match:
            place = match.group(1)
        if line.startswith("BPF program is too large") or not re.match(_NOISE, line):
            text = line.strip()
    return Finding(text, place)


_HINTS = {
    errno.E2BIG: "the program is too long for this kernel; smaller strings or fewer unrolled iterations help",
    errno.EACCES: "",
    errno.EINVAL: "",
    errno.ENOMEM: "there is not enough memory for the maps; fewer max_map_keys or a smaller max_strlen help",
    errno.ENOSPC: "the verifier's log did not fit: raise the config key log_size to see all of it",
}


_SPLIT = "split the block in several probes of the same attach point"
_REASONS = (
    ("frames is too deep", "calls may be 8 deep, probe, functions and loop bodies counted: use macros instead of fn"),
    ("jumps is too complex", f"the verifier follows at most 8192 branches in a row: {_SPLIT}"),
    ("BPF program is too large", f"the verifier follows a million instructions: {_SPLIT}, or use smaller strings"),
    ("number of maps per program", f"a program has at most 64 maps with keys: {_SPLIT}, or use longer keys"),
    ("too many subprograms", f"a program has at most 256 functions: {_SPLIT}"),
)
"""Hints for limits of the kernel, by a part of the verifier's text."""


def _hint(number: int, reason: str = "") -> str:
    if number == errno.EPERM:
        return _permission_hint(privileges.effective_capabilities())
    return next((hint for said, hint in _REASONS if said in reason), _HINTS.get(number, ""))


def _permission_hint(held: frozenset[str]) -> str:
    """Why loading is not permitted to a process with the capabilities *held*."""
    if "CAP_SYS_ADMIN" in held or {"CAP_BPF", "CAP_PERFMON"} <= held:
        return "this process has the capabilities: this kernel, or a security module, forbids such a program to all"
    return "loading needs root, or CAP_BPF with CAP_PERFMON"


class VerifierLogs:
    """Buffers for verifier logs: one that all programs share, or one for each when somebody wants to read them.

    A shared one is enough to explain a failure, because libbpf stops at the first program that is refused.
    """

    def __init__(self, size: int, reader: Callable[[str, str], None] | None) -> None:
        self._size = size
        self._reader = reader
        self._buffers: dict[str, ZeroedMemory] = {}
        self._shared = ZeroedMemory(size)

    def prepare(self, lib: libbpf.Library, program: int, symbol: str) -> None:
        """Give a program the buffer that its log goes to."""
        buffer = self._shared
        if self._reader is not None:
            buffer = self._buffers[symbol] = ZeroedMemory(self._size)
            lib.bpf_program__set_log_level(program, 1)
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
    error: OSError, logs: VerifierLogs, manifest: Manifest, messages: libbpf.Messages
) -> LoadError:
    """The error to raise when ``bpf_object__load`` failed: names the probe and says in one line what was found.

    Args:
        error: what libbpf returned.
        logs: the verifier's logs of the programs.
        manifest: of the script, for the names of probes and maps.
        messages: what libbpf said; its warnings name the program or map that was refused.
    """
    warnings = messages.warnings
    if error.errno in (errno.EMFILE, errno.ENFILE) or _too_many_files(manifest):
        return LoadError("the script cannot be loaded: too many open files", hints=["see ulimit -n"])
    refused = next((match.group(1) for match in (re.search(_REFUSED, text) for text in warnings) if match), None)
    spec = next((item for item in manifest.programs if item.symbol == refused), None)
    number = error.errno or 0
    if spec is None:
        unmade = next((match.group(1) for match in (re.search(_UNMADE, text) for text in warnings) if match), None)
        for item in manifest.maps:
            if item.symbol == unmade:
                return map_refused(item, error)
        if unmade == manifest.ring:
            return ring_refused(manifest.config.perf_rb_pages, error)
    if spec is None:
        hint = _hint(number)
        reason = warnings[0] if warnings else error.strerror
        return LoadError(
            f"the script cannot be loaded: {reason}", log="\n".join(warnings), hints=[hint] if hint else []
        )
    log = logs.of(spec.symbol)
    found = finding(log)
    name = spec.targets[0].probe if spec.targets else spec.kind
    # What the verifier refuses as a whole has no line of its own: the probe's.
    where = f" ({found.place or f'{spec.location.file}:{spec.location.line}'})"
    reason = found.text or (warnings[0] if warnings else str(error.strerror))
    return LoadError(
        f"the kernel's verifier rejected {name}: {reason}{where}",
        program=spec,
        log=log or "\n".join(warnings),
        hints=[item for item in (_hint(number, reason), "-v shows the full verifier log") if item],
    )
