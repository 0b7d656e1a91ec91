"""``-l``: the probes of this machine, and with ``-v`` their arguments; definitions of kernel types.

A row of :data:`ROWS` for each probe kind turns the parts of a pattern into groups of probes. Lists of functions have
100,000 lines and more: where only names are asked for, a group becomes text in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, groupby, islice
from operator import attrgetter

import msgspec

from pytrace.core.diagnostics import TraceError, did_you_mean
from pytrace.core.manifest import Target
from pytrace.core.probes import kinds
from pytrace.core.probes.kinds import (
    BEGIN,
    BENCH,
    END,
    FENTRY,
    FEXIT,
    HARDWARE,
    INTERVAL,
    ITER,
    KPROBE,
    KRETPROBE,
    PROFILE,
    PYTHON,
    PYTHONRET,
    RAWTRACEPOINT,
    SELF,
    SOFTWARE,
    TEST,
    TRACEPOINT,
    UPROBE,
    URETPROBE,
    USDT,
    WATCHPOINT,
    probe_kind,
    probe_names,
)
from pytrace.core.probes.targets import (
    ITERATORS_OF_ONE_OBJECT,
    TIMER_UNITS,
    IteratorTarget,
    KernelFunctionTarget,
    NoTarget,
    ProbeTarget,
    PythonTarget,
    RawTracepointTarget,
    SignalTarget,
    StaticProbeTarget,
    TracepointTarget,
    TypedFunctionTarget,
    UserTarget,
)
from pytrace.runtime.listing import arguments, python_functions
from pytrace.runtime.live_kernel import LiveKernel
from pytrace.runtime.machine import procfs
from pytrace.runtime.machine.name_patterns import matching

KERNEL_KINDS = (KPROBE, TRACEPOINT, SOFTWARE, HARDWARE, FENTRY, ITER, RAWTRACEPOINT)
"""Kinds that are listed, in this order, when no provider is named."""
USER_KINDS = (UPROBE, USDT)
TYPE_WORDS = ("struct", "union", "enum")


class Question(msgspec.Struct, frozen=True):
    """The argument of a row: the parts after the provider, the process of ``-p``, and the source of facts."""

    kernel: LiveKernel
    kind: str
    parts: tuple[str, ...]
    pid: int | None = None
    verbose: bool = False


Place = tuple[str, ProbeTarget]
"""One line of a listing: the name of the probe, and its target (without offsets in files)."""


class Group(msgspec.Struct, frozen=True):
    """Probes whose names begin with *start* and go on with one of *names*; *target* is called with the latter."""

    start: str
    names: Iterable[str]
    target: Callable[[str], ProbeTarget]


_NOWHERE = NoTarget()
_END = "\n"
_LINES = 400
"""Lines of a piece of text: its names are still in the processor's cache when they are joined, and its memory is used
again for the next piece."""


def listing(kernel: LiveKernel, operand: str | None, *, pid: int | None = None, verbose: bool = False) -> str:
    """The text of ``-l`` with an optional pattern (or several, separated by commas).

    Raises:
        TraceError: as for :func:`pieces`.
    """
    return "".join(pieces(kernel, operand, pid=pid, verbose=verbose))


def pieces(
    kernel: LiveKernel, operand: str | None, *, pid: int | None = None, verbose: bool = False
) -> Iterator[str]:
    """The text of ``-l`` in pieces of whole lines.

    Raises:
        TraceError: the pattern names a provider that does not exist, or a place that is not there.
    """
    if pid is not None:
        procfs.check_exists(pid)
    if operand is None and pid is None:
        patterns = ["*"]
    else:
        patterns = [part.strip() for part in (operand or "*:*").split(",")]
    if len(patterns) == 1 and not verbose and not _type_word(patterns[0]):
        for question in _questions(kernel, patterns[0], pid):
            yield from _bulk_text(question)
        return
    lines: dict[str, None] = {}
    for pattern in patterns:
        word = _type_word(pattern)
        if word:
            lines.update(dict.fromkeys(_types(kernel, word, pattern.removeprefix(word).strip(), verbose)))
        else:
            lines.update(dict.fromkeys(_probes(kernel, pattern, pid, verbose)))
    yield _text(lines)


def _type_word(pattern: str) -> str:
    """The word that a pattern for types starts with; empty for probes."""
    word, _, rest = pattern.partition(" ")
    return word if word in TYPE_WORDS and rest.strip() else ""


def _bulk_text(question: Question) -> Iterator[str]:
    for start, groups in groupby(ROWS[question.kind](question), key=attrgetter("start")):
        lists = [group.names for group in groups]
        # Modules may have functions of the same name.
        names = iter(lists[0] if len(lists) == 1 else dict.fromkeys(chain.from_iterable(lists)))
        following = _END + start
        while lines := list(islice(names, _LINES)):
            yield f"{start}{following.join(lines)}{_END}"


def _places(question: Question) -> Iterator[Place]:
    for group in ROWS[question.kind](question):
        for name in group.names:
            yield group.start + name, group.target(name)


def targets(kernel: LiveKernel, wanted: Iterable[tuple[str, Target]], *, verbose: bool) -> str:
    """The text of ``-l`` for the places of a script: kind and target of each."""
    if not verbose:
        return _text(dict.fromkeys(target.probe for _, target in wanted))
    return _text(dict.fromkeys(_entry(kernel, kind, (target.probe, target.place)) for kind, target in wanted))


def places(kernel: LiveKernel, pattern: str, *, pid: int | None = None) -> Iterator[tuple[str, Place]]:
    """Kind and place of each probe that matches one pattern.

    Raises:
        TraceError: as for :func:`listing`.
    """
    if pid is not None:
        procfs.check_exists(pid)
    for question in _questions(kernel, pattern, pid):
        for place in _places(question):
            yield question.kind, place


def _text(lines: Mapping[str, None]) -> str:
    return "\n".join([*lines, ""]) if lines else ""


def _entry(kernel: LiveKernel, kind: str, place: Place) -> str:
    probe, where = place
    return "\n".join([probe, *(f"    {line}" for line in arguments.of(kernel, kind, where))])


# ---------------------------------------------------------------------------------------------- patterns


def _probes(kernel: LiveKernel, pattern: str, pid: int | None, verbose: bool) -> Iterator[str]:
    for question in _questions(kernel, pattern, pid, verbose):
        for place in _places(question):
            yield _entry(kernel, question.kind, place) if verbose else place[0]


def _questions(kernel: LiveKernel, pattern: str, pid: int | None, verbose: bool = False) -> Iterator[Question]:
    provider, parts = _split(pattern)
    for kind, its_parts in _kinds(provider, parts, pid):
        yield Question(kernel, kind, its_parts, pid, verbose)


def _split(pattern: str) -> tuple[str, tuple[str, ...]]:
    """Provider and the other parts; a lone part that names no provider is an event."""
    provider, *parts = kinds.split_attach_point(pattern)
    return ("*", (provider,)) if not parts and probe_kind(provider) is None else (provider, tuple(parts))


def _kinds(provider: str, parts: tuple[str, ...], pid: int | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The rows to ask: one for a name, several for a pattern."""
    row = probe_kind(provider)
    if row is not None:
        yield row.name, parts
        return
    if "*" not in provider:
        hints = did_you_mean(provider, probe_names(), "{}") or (f"providers are {', '.join(probe_names())}",)
        raise TraceError(f"there is no probe provider {provider!r}", hints=hints)
    user = pid is not None or any("/" in part for part in parts[:1])
    for kind in matching(provider, USER_KINDS if user else KERNEL_KINDS):
        yield kind, parts


# ---------------------------------------------------------------------------------------------- kernel kinds


def _owner_and_name(question: Question) -> tuple[str, str]:
    """``[module:]name`` patterns; everything when a part is left out."""
    parts = [part or "*" for part in question.parts] or ["*"]
    return ("", parts[0]) if len(parts) == 1 else (parts[0], parts[1])


def _one(probe: str, target: ProbeTarget = _NOWHERE) -> Group:
    """A group of one probe."""
    return Group("", (probe,), lambda _name: target)


def _kernel_functions(question: Question) -> Iterator[Group]:
    module, name = _owner_and_name(question)
    for owner, names in question.kernel.kernel_function_lists(name.partition("+")[0], module).items():
        prefix = _prefix(owner) if module else ""
        yield Group(f"{question.kind}:{prefix}", names, partial(KernelFunctionTarget, module=owner))


def _prefix(owner: str) -> str:
    return f"{owner or 'vmlinux'}:"


def _trampolines(question: Question) -> Iterator[Group]:
    """Functions that have both a type and a place to hook."""
    if question.parts[:1] == ("bpf",):
        yield from _program_functions(question)
        return
    types = question.kernel.types
    if types is None:
        return
    module, name = _owner_and_name(question)
    traceable = set(chain.from_iterable(question.kernel.kernel_function_lists(name, module).values()))
    for owner, names in types.function_names(name, module).items():
        functions = [function for function in names if function in traceable]
        yield Group(f"{question.kind}:{owner}:", functions, partial(TypedFunctionTarget, module=owner))


def _program_functions(question: Question) -> Iterator[Group]:
    """``bpf:[id:]name``: functions of the BPF programs that are loaded."""
    parts = [part or "*" for part in question.parts[1:]] or ["*"]
    wanted = parts[0] if len(parts) > 1 else "*"
    for number, function in question.kernel.bpf_programs(parts[-1]):
        if matching(wanted, [str(number)]):
            probe = f"{question.kind}:bpf:{number}:{function}"
            yield _one(probe, TypedFunctionTarget(function, program_id=number))


def _tracepoints(question: Question) -> Iterator[Group]:
    category, event = _owner_and_name(question)
    for group, name in question.kernel.tracepoints(category or "*", event):
        yield _one(f"tracepoint:{group}:{name}", TracepointTarget(group, name))


def _raw_tracepoints(question: Question) -> Iterator[Group]:
    module, event = _owner_and_name(question)
    for owner, name in question.kernel.raw_tracepoints(event):
        if not module or matching(module, [owner]):
            yield _one(f"rawtracepoint:{owner}:{name}", RawTracepointTarget(name, owner))


def _iterators(question: Question) -> Iterator[Group]:
    for name in matching((question.parts or ("*",))[0] or "*", question.kernel.iterator_names()):
        if name not in ITERATORS_OF_ONE_OBJECT:
            yield _one(f"iter:{name}", IteratorTarget(name))


def _events(question: Question) -> Iterator[Group]:
    table = kinds.SOFTWARE_EVENTS if question.kind == SOFTWARE else kinds.HARDWARE_EVENTS
    for name in matching((question.parts or ("*",))[0] or "*", kinds.event_names(table)):
        yield _one(f"{question.kind}:{name}:")


def _timers(question: Question) -> Iterator[Group]:
    for unit in matching((question.parts or ("*",))[0] or "*", TIMER_UNITS):
        yield _one(f"{question.kind}:{unit}:")


def _special(question: Question) -> Iterator[Group]:
    yield _one(question.kind)


def _signals(question: Question) -> Iterator[Group]:
    kind, name = ([part or "*" for part in question.parts] + ["*", "*"])[:2]
    if matching(kind, ["signal"]) and matching(name, ["SIGUSR1"]):
        yield _one("self:signal:SIGUSR1", SignalTarget("SIGUSR1"))


def _nothing(_question: Question) -> Iterator[Group]:
    """Kinds whose places are addresses or belong to a script (``watchpoint``, ``test``, ``bench``)."""
    yield from ()


# ---------------------------------------------------------------------------------------------- user kinds


def _binaries(question: Question, target: str) -> list[str]:
    found = question.kernel.binaries(target, question.pid)
    if not found:
        what = target or "a process without -p"
        raise TraceError(f"there is no binary {what!r}", hints=("give a path, a program, a library, or *",))
    return found


def _functions(question: Question) -> Iterator[Group]:
    """``[binary:][cpp:]function``; without a binary the program of ``-p``."""
    target, pattern, cpp = _user_parts(question)
    for path in _programs(question, target):
        if cpp:
            for symbol, name in question.kernel.cpp_symbols(path, pattern):
                if not _in_a_line(name):
                    continue
                probe = f'{question.kind}:{path}:cpp:"{name}"'
                yield _one(probe, UserTarget(path, symbol.offset, symbol=symbol.name))
        else:
            names = question.kernel.user_symbol_names(path, pattern)
            yield Group(f"{question.kind}:{path}:", list(filter(_in_a_line, names)), partial(_function, path))


def _in_a_line(name: str) -> bool:
    """Whether a name of a binary can be listed: one with line ends would look like other probes."""
    return "\n" not in name and "\r" not in name


def _function(path: str, name: str) -> UserTarget:
    return UserTarget(path, 0, symbol=name)


def _programs(question: Question, target: str) -> Iterator[str]:
    for path in _binaries(question, target):
        if question.kernel.executable(path):
            yield path
        elif "*" not in target:
            raise TraceError(f"{path} is not an ELF program or library")


def _user_parts(question: Question) -> tuple[str, str, bool]:
    parts = question.parts
    if question.pid is not None and len(parts) < 2 and not any("/" in part for part in parts):
        return "", (parts or ("*",))[0] or "*", False
    if not parts:
        raise TraceError(f"{question.kind} needs a binary", hints=(f"{question.kind}:/path/to/program", "-p PID"))
    if len(parts) > 2 and parts[1] == "cpp":
        return parts[0], ":".join(parts[2:]) or "*", True
    return parts[0], (parts[-1] if len(parts) > 1 else "*") or "*", False


def _static_probes(question: Question) -> Iterator[Group]:
    """``binary:[provider:]name``; with ``-p`` the binary may be left out and means everything that is mapped."""
    parts = list(question.parts)
    if question.pid is not None and (not parts or parts[0] in ("", "*")):
        parts = ["*", *parts[1:]]
    if not parts:
        raise TraceError("usdt needs a binary", hints=("usdt:/path/to/program", "usdt:* -p PID"))
    target, names = parts[0], [part or "*" for part in parts[1:]] or ["*"]
    provider, name = ("*", names[0]) if len(names) == 1 else (names[0], names[1])
    for path in _binaries(question, target):
        seen = set()
        for probe in question.kernel.usdt_probes(path, provider, name) if question.kernel.executable(path) else ():
            text = f"usdt:{path}:{probe.provider}:{probe.name}"
            if text not in seen and _in_a_line(probe.provider + probe.name):
                seen.add(text)
                place = StaticProbeTarget(path, probe.offset, provider=probe.provider, name=probe.name)
                yield _one(text, place)


def _python(question: Question) -> Iterator[Group]:
    """``FILE.py:function``: what a module stands for is known only to the process that imports it."""
    path, pattern = [*question.parts, "*", "*"][:2]
    if not path.endswith(".py") or "*" in path:
        raise TraceError(
            f"{question.kind} probes are listed by the file of their source, which ends in .py",
            hints=(f"{question.kind}:/path/to/module.py:*",),
        )
    names = [name for name in python_functions.functions(path, pattern or "*") if _in_a_line(name)]
    yield Group(f"{question.kind}:{path}:", names, partial(PythonTarget, (path,)))


# ---------------------------------------------------------------------------------------------- types


def _types(kernel: LiveKernel, word: str, pattern: str, verbose: bool) -> Iterator[str]:
    """``struct X``: the names that match, with *verbose* their definitions."""
    found = matching(pattern, kernel.type_names(word)) if "*" in pattern else [pattern]
    for name in sorted(found):
        lines = arguments.definition(kernel, word, name)
        if not lines:
            hints = did_you_mean(name, kernel.type_names(word), f"{word} {{}}")
            raise TraceError(f"the kernel has no {word} {name!r}", hints=hints)
        yield "\n".join([*lines, ""]) if verbose else f"{word} {name}"


ROWS: dict[str, Callable[[Question], Iterable[Group]]] = {
    KPROBE: _kernel_functions,
    KRETPROBE: _kernel_functions,
    TRACEPOINT: _tracepoints,
    SOFTWARE: _events,
    HARDWARE: _events,
    FENTRY: _trampolines,
    FEXIT: _trampolines,
    ITER: _iterators,
    RAWTRACEPOINT: _raw_tracepoints,
    PROFILE: _timers,
    INTERVAL: _timers,
    UPROBE: _functions,
    URETPROBE: _functions,
    USDT: _static_probes,
    PYTHON: _python,
    PYTHONRET: _python,
    SELF: _signals,
    BEGIN: _special,
    END: _special,
    TEST: _nothing,
    BENCH: _nothing,
    WATCHPOINT: _nothing,
}
"""The lister of each probe kind."""
