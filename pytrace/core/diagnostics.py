"""Errors and warnings about a script: collected by passes, printed by the command line only.

There are two families of failures: a mistake in a script or a limit of the machine is a
:class:`Diagnostic` (or a :class:`TraceError` where there is no script position); a bug in pytrace raises
:class:`InternalError`.
"""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

import msgspec
from msgspec.structs import replace

from pytrace.core.source import Span, expansion_chain


class Severity(Enum):
    """Severity of a diagnostic; the value is the printed word."""

    ERROR = "ERROR"
    WARNING = "WARNING"
    NOTE = "NOTE"


class Note(msgspec.Struct, frozen=True):
    """A secondary location of a diagnostic (``first declared here``, ``expanded from here``)."""

    message: str
    span: Span


class Diagnostic(msgspec.Struct, frozen=True):
    """A message about one location in a script."""

    severity: Severity
    message: str
    span: Span
    hints: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    cause: bool = False
    """Whether this message may explain others; it is shown before them."""
    kernel: bool = False
    """Whether something is wrong only with this kernel, which others may have."""


class Error(Exception):
    """Base of errors caused by the user, a script or the machine; public as ``pytrace.Error``."""


class TraceError(Error):
    """A fatal error for the user: message, hints and exit status.

    Raised where there is no script position to report (missing privileges, a kernel feature, a bad option).
    """

    def __init__(self, message: str, *, hints: Iterable[str] = (), status: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hints = tuple(hints)
        self.status = status

    def __str__(self) -> str:
        """The message, and each hint on a line of its own, as the command prints them."""
        return "\n".join((self.message, *(f"HINT: {hint}" for hint in self.hints)))


class MisfitError(TraceError):
    """An ahead-of-time file does not fit this machine or this pytrace; its script may run here all the same.

    Where all that is wrong is the code that was chosen, *lacks* has the features that the machine has not, and *cpus*
    its number of CPUs: a file that was compiled without the ones and for the others fits. *kernel*: one
    that was compiled for the facts about this kernel does.
    """

    def __init__(
        self, message: str, *, hints: Iterable[str] = (), lacks: Iterable[str] = (), cpus: int = 0,
        kernel: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(message, hints=hints)
        self.lacks, self.cpus, self.kernel = tuple(lacks), cpus, kernel


class HiddenKernelError(TraceError):
    """This user does not see what a script needs to know of this kernel."""


class PlacedError(TraceError):
    """A :class:`TraceError` of the code generator with a script position, at which it is reported."""

    def __init__(self, message: str, span: Span, *, hints: Iterable[str] = ()) -> None:
        super().__init__(message, hints=hints)
        self.span = span


class ScriptError(Exception):
    """A script cannot be compiled; the errors are in the :class:`Diagnostics` that raised it."""


class Interrupted(KeyboardInterrupt):
    """A signal interrupted the current operation; *number* is the signal number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def status(self) -> int:
        """The exit status of a process killed by the signal, by the convention of shells (128 + *number*)."""
        return 128 + self.number


class InternalError(Exception):
    """A bug in pytrace: a violated invariant."""


class Diagnostics(msgspec.Struct):
    """The diagnostics of all passes so far, in order and deduplicated."""

    items: list[Diagnostic] = msgspec.field(default_factory=list)
    _known: set[Diagnostic] = msgspec.field(default_factory=set)

    def error(
        self, message: str, span: Span, *, hints: Iterable[str] = (), notes: Iterable[Note] = (), kernel: bool = False
    ) -> None:
        """Record an error at *span*; *kernel*: this kernel lacks something that others may have."""
        self.add(Diagnostic(Severity.ERROR, message, span, tuple(hints), tuple(notes), kernel=kernel))

    def warn(
        self,
        message: str,
        span: Span,
        *,
        hints: Iterable[str] = (),
        notes: Iterable[Note] = (),
        cause: bool = False,
    ) -> None:
        """Record a warning at *span*; *cause* marks a warning that may explain later errors."""
        self.add(Diagnostic(Severity.WARNING, message, span, tuple(hints), tuple(notes), cause))

    def note(self, message: str, span: Span) -> None:
        """Record a note that is shown with ``-v`` only."""
        self.add(Diagnostic(Severity.NOTE, message, span))

    def add(self, item: Diagnostic) -> None:
        """Record *item* unless an equal one is recorded already; the macro calls around its span become notes."""
        chain = expansion_chain(item.span)
        if chain:
            item = replace(item, notes=(*item.notes, *(Note("expanded from here", call) for call in chain)))
        if item not in self._known:
            self._known.add(item)
            self.items.append(item)

    def drop_warnings(self, place: Span) -> None:
        """Remove the warnings about a part of a script that is not compiled after all."""

        def inside(item: Diagnostic) -> bool:
            span = item.span
            return span.source is place.source and place.start <= span.start and span.end <= place.end

        self.items[:] = [item for item in self.items if item.severity is not Severity.WARNING or not inside(item)]

    @property
    def errors(self) -> list[Diagnostic]:
        """Only the errors."""
        return [item for item in self.items if item.severity is Severity.ERROR]

    @property
    def warnings(self) -> list[Diagnostic]:
        """Only the warnings."""
        return [item for item in self.items if item.severity is Severity.WARNING]

    @property
    def notes(self) -> list[Diagnostic]:
        """Only the notes."""
        return [item for item in self.items if item.severity is Severity.NOTE]

    @property
    def failed(self) -> bool:
        """True when there is an error."""
        return bool(self.errors)

    @property
    def kernel(self) -> bool:
        """True when all errors are about this kernel."""
        return self.failed and all(item.kernel for item in self.errors)

    def check(self) -> None:
        """Raise :class:`ScriptError` when there is an error."""
        if self.failed:
            raise ScriptError


_MANY = 200
"""Names that are compared in full; of more, those are chosen that share the most letters, alone and in threes."""


def similar(name: str, known: Iterable[str]) -> list[str]:
    """The names in *known* that are similar to *name*, closest first."""
    import difflib
    import heapq

    pool = list(dict.fromkeys(known))
    if len(pool) > _MANY:
        # SequenceMatcher takes 30 µs a name: 0.6 s for the structs of the kernel.
        parts = [*set(name), *{name[index : index + 3] for index in range(len(name) - 2)}]
        pool = heapq.nlargest(
            _MANY, pool, key=lambda item: sum(part in item for part in parts) - abs(len(item) - len(name))
        )
    return difflib.get_close_matches(name, pool, n=3, cutoff=0.6)


def either(names: Sequence[str]) -> str:
    """``a``, ``a or b``, or ``a, b or c``."""
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def counted(number: int, noun: str) -> str:
    """``1 argument``, ``2 arguments``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def did_you_mean(name: str, known: Iterable[str], form: str = "{!r}") -> tuple[str, ...]:
    """A hint tuple for :meth:`Diagnostics.error` that suggests names similar to *name*; empty when there are none.

    *form* formats a name as it is written where it is asked for.
    """
    suggestions = similar(name, known)
    return (f"did you mean {' or '.join(form.format(item) for item in suggestions)}?",) if suggestions else ()


_HINT_COLOUR = "\x1b[2m"
_COLOURS = {Severity.ERROR: "\x1b[31m", Severity.WARNING: "\x1b[33m", Severity.NOTE: _HINT_COLOUR}
_ORDER = tuple(Severity)
_RESET = "\x1b[0m"


def bytes_shown(text: str) -> str:
    r"""A message with bytes that are not UTF-8 shown as ``\xff`` instead of surrogate escapes."""
    if "\\udc" not in text:
        return text
    return re.sub(r"(?<!\\)((?:\\\\)*)\\udc([89a-f][0-9a-f])", r"\1\\x\2", text)


def render_error(error: TraceError, *, colour: bool = False) -> str:
    """The text of an error without a script position: message and hints, each line with its end."""
    red, reset = (_COLOURS[Severity.ERROR], _RESET) if colour else ("", "")
    lines = [f"{red}ERROR: {error.message}{reset}", *(f"HINT: {hint}" for hint in error.hints)]
    return bytes_shown("".join(f"{line}\n" for line in lines))


def render(item: Diagnostic, *, colour: bool = False) -> str:
    """The text of one diagnostic, ending in a newline: place, message, source line, underline, hints, notes."""
    lines = list(_place(item.span, item.severity.value, item.message, _COLOURS[item.severity] if colour else ""))
    lines.extend(f"HINT: {bytes_shown(hint)}" for hint in item.hints)
    for note in item.notes:
        lines.extend(_place(note.span, "NOTE", note.message, _HINT_COLOUR if colour else ""))
    return "".join(f"{line}\n" for line in lines)


def render_all(items: Iterable[Diagnostic], *, colour: bool = False) -> str:
    """The text of many diagnostics: causes, then errors, warnings and notes, each group in order."""
    ordered = sorted(items, key=lambda item: (not item.cause, _ORDER.index(item.severity)))
    return "".join(render(item, colour=colour) for item in ordered)


_LONGEST_LINE = 500
"""Longer source lines are truncated to the characters around the span."""
_IN_FRONT = 100
"""Number of characters that a truncated line shows before the span."""
_MOST_LINES = 20
"""Of a longer span, only the first and last lines are shown."""
_CUT = "..."
_TOOLS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "tools", "")
"""Directory of the shipped tools' scripts."""


def is_of_tools(path: str) -> bool:
    """Whether a file is the script of a shipped tool, or imported by one."""
    return path.startswith(_TOOLS)


def _place(span: Span, label: str, message: str, colour: str) -> Iterator[str]:
    reset = _RESET if colour else ""
    message = bytes_shown(message)
    if span.source.path is not None and is_of_tools(span.source.path) and span.text.startswith("fail("):
        # A tool's message to its user does not refer to the tool's source.
        yield f"{colour}{label}: {message}{reset}"
        return
    if span.source.generated:
        yield f"{colour}{label}: {span.source.name}: {message}{reset}"
        return
    first, last = span.first, span.last
    if first.line != last.line:
        yield f"{colour}{span.source.name}:{first.line}-{last.line}: {label}: {message}{reset}"
        yield from _lines(span, first.line, last.line)
        return
    where = f"{span.source.name}:{first.line}:{first.column}-{last.column}"
    yield f"{colour}{where}: {label}: {message}{reset}"
    if f'("{message}")' in span.source.line(first.line):
        return  # fail("…"): the source line would repeat the message
    text, start, end = cut_line(span.source.line(first.line), first.column - 1, last.column - 1)
    before = _expand(text[:start])
    marked = _expand(text[start:end])
    yield _expand(text)
    yield " " * len(before) + "~" * max(1, len(marked))


def _lines(span: Span, first: int, last: int) -> Iterator[str]:
    shown: Iterable[int] = range(first, last + 1)
    if last - first >= _MOST_LINES:
        half = _MOST_LINES // 2
        shown = (*range(first, first + half), 0, *range(last - half + 1, last + 1))
    for number in shown:
        yield _expand(cut_line(span.source.line(number), 0, 0)[0]) if number else _CUT


def cut_line(text: str, start: int, end: int) -> tuple[str, int, int]:
    """The shown excerpt of a line (long lines are truncated), and *start* … *end* relative to it."""
    if len(text) <= _LONGEST_LINE:
        return text, start, end
    left = max(0, min(start - _IN_FRONT, len(text) - _LONGEST_LINE))
    right = left + _LONGEST_LINE
    before = _CUT if left else ""
    shown = before + text[left:right] + (_CUT if right < len(text) else "")
    moved = len(before) - left
    return shown, start + moved, min(end, right) + moved


def _expand(text: str) -> str:
    return text.replace("\t", "    ")


# ---------------------------------------------------------------------------------------------- resource limits

# Any step of a run may hit limits of memory, open files, processes, threads and disk space.

NO_PROCESSES = "ulimit -u and pids.max of the cgroup"
"""Limits of the number of processes and threads, for a hint."""
_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_OUTPUT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO})
_LOADER_NO_MEMORY = (
    "annot allocate memory",
    "failed to map segment",
    "cannot map zero-fill pages",
    "cannot create shared object",
)
"""Messages of the dynamic loader, whose errors have no errno (``dl-load.c`` and ``dl-map-segments.h`` of glibc)."""
_LOADER_NO_FILES = "oo many open files"


def resource_limit(error: BaseException) -> TraceError | None:
    """The resource limit that *error*, or one of its causes, reports; None when it is another error."""
    for item in _causes(error):
        limit = _limit(item)
        if limit is not None:
            return limit
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its chain of causes and contexts."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        yield current
        seen.append(current)
        current = current.__cause__ or current.__context__


def _limit(error: BaseException) -> TraceError | None:
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return no_memory()
    if isinstance(error, SystemError) and "without" in str(error) and memory_is_limited():
        # C functions that fail without setting MemoryError: "error return without exception set".
        return no_memory()
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return TraceError("cannot start another thread", hints=(f"see ulimit -v, {NO_PROCESSES}",))
    if number == errno.EAGAIN:
        # fork(2): everything else that may have to be repeated is.
        return TraceError("cannot start another process", hints=(f"see {NO_PROCESSES}",))
    if isinstance(error, OSError) and number in _FILES:
        return no_files(error.errno)
    if isinstance(error, OSError) and number in _OUTPUT and error.filename is None:
        # Errors on files have a file name; errors on standard output have none.
        return TraceError(f"cannot write output: {os.strerror(error.errno or 0)}")
    if isinstance(error, ImportError) or (isinstance(error, OSError) and number is None):
        text = str(error)
        if any(said in text for said in _LOADER_NO_MEMORY):
            return no_memory()
        if _LOADER_NO_FILES in text:
            return no_files(errno.EMFILE)
    return None


def memory_is_limited() -> bool:
    """Whether ``ulimit`` restricts the memory of this process."""
    limits = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in limits)


def no_files(number: int | None) -> TraceError:
    """The error for EMFILE or ENFILE."""
    hint = "see /proc/sys/fs/file-max" if number == errno.ENFILE else "raise the limit with ulimit -n"
    return TraceError(f"too many open files: {os.strerror(number or 0)}", hints=(hint,))


def no_memory() -> TraceError:
    """The error for a failed allocation, with this process's memory limit, if it has one."""
    hints = []
    for limit, what, option in (
        (resource.RLIMIT_AS, "address space", "-v"),
        (resource.RLIMIT_DATA, "data", "-d"),
    ):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            hints.append(f"this process is limited to {most >> 20} MiB of {what} (ulimit {option})")
    hints += memory_cgroup_hints()
    if not hints:
        hints.append("reduce max_map_keys, max_strlen or perf_rb_pages")
    return TraceError("out of memory", hints=hints)


def memory_cgroup_hints() -> list[str]:
    """A sentence about the tightest memory limit of the cgroups of this process; none where there is no limit."""
    from pytrace.base import cgroups  # after an error

    limit = cgroups.memory_limit()
    if limit is None:
        return []
    return [f"the memory of cgroup {limit.folder} is limited to {limit.size >> 20} MiB, maps included"]
