"""``-l``: the probes of this machine, and with ``-v`` their arguments; definitions of kernel types.

A row of :data:`ROWS` for each probe kind turns the parts of a pattern into groups of probes. Lists of functions have
100,000 lines and more: where only names are asked for, a group becomes text in one step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import chain, groupby, islice
from operator import attrgetter
from types import CodeType

import msgspec

from pytrace.core import probe_kinds
from pytrace.core.diagnostics import TraceError, did_you_mean
from pytrace.core.kernel_info import COMMON_FIELDS_END
from pytrace.core.manifest import Target
from pytrace.core.probe_kinds import (
    BEGIN,
    BENCH,
    CALL,
    CALL_FAMILIES,
    END,
    FENTRY,
    FEXIT,
    HARDWARE,
    INTERVAL,
    ITER,
    ITERATORS_OF_ONE_OBJECT,
    KPROBE,
    KRETPROBE,
    PROFILE,
    PYTHON,
    PYTHONRET,
    RAWTRACEPOINT,
    SELF,
    SOFTWARE,
    SYSCALL,
    TEST,
    TIMER_UNITS,
    TRACEPOINT,
    UPROBE,
    URETPROBE,
    USDT,
    WATCHPOINT,
    IteratorTarget,
    KernelFunctionTarget,
    NoTarget,
    PerfEvent,
    ProbeTarget,
    PythonTarget,
    RawTracepointTarget,
    SignalTarget,
    StaticProbeTarget,
    TracepointTarget,
    TypedFunctionTarget,
    UserTarget,
    probe_kind,
    probe_names,
)
from pytrace.core.text import matching
from pytrace.runtime.binaries.btf_types import TYPE_KINDS, Kind, Member, TypeReader
from pytrace.runtime.load.live_kernel import LiveKernel
from pytrace.runtime.machine import procfs
from pytrace.runtime.machine.foreign_files import open_regular

_KERNEL_KINDS = (KPROBE, TRACEPOINT, SOFTWARE, HARDWARE, FENTRY, ITER, RAWTRACEPOINT)
"""Kinds that are listed, in this order, when no provider is named."""
_USER_KINDS = (UPROBE, USDT)
_TYPE_WORDS = ("struct", "union", "enum")


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
    return "".join(listing_pieces(kernel, operand, pid=pid, verbose=verbose))


def call_entry(text: str, *, typed: bool) -> str:
    """The attach point at which the calls of a ``call:`` or ``syscall:`` begin; *typed*: the kernel has fentry."""
    head, _, rest = text.partition(":")
    family, _, after = rest.partition(":")
    if head.lower() == SYSCALL or family == SYSCALL:
        return f"{TRACEPOINT}:syscalls:sys_enter_{after if head.lower() == CALL else rest}"
    if family == "kernel":
        return f"{FENTRY if typed else KPROBE}:{after}"
    if family == PYTHON and ":" not in after:
        return f"{PYTHON}:{':'.join(after.rpartition('.')[::2])}"
    if family in CALL_FAMILIES:
        return rest
    if "::" in after and not after.startswith(('"', 'cpp:"')):
        name = after.removeprefix("cpp:")
        return f'{UPROBE}:{family}:cpp:"{name}"'
    return f"{UPROBE}:{rest}"


def listing_pieces(
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
        if patterns[0].startswith(f"{probe_kinds.SYSCALL}:"):
            patterns = [part if ":" in part else f"{probe_kinds.SYSCALL}:{part}" for part in patterns]
    if len(patterns) == 1 and not verbose and not _type_word(patterns[0]) and not probe_kinds.is_call(patterns[0]):
        for question in _questions(kernel, patterns[0], pid):
            yield from _bulk_text(question)
        return
    lines: dict[str, None] = {}
    for pattern in patterns:
        word = _type_word(pattern)
        if probe_kinds.is_call(pattern):
            entry = call_entry(pattern, typed=kernel.feature("fentry"))
            lines.update(dict.fromkeys(map(probe_kinds.call_name, _probes(kernel, entry, pid, verbose))))
        elif word:
            lines.update(dict.fromkeys(_types(kernel, word, pattern.removeprefix(word).strip(), verbose)))
        else:
            lines.update(dict.fromkeys(_probes(kernel, pattern, pid, verbose)))
    yield _joined_lines(lines)


def _type_word(pattern: str) -> str:
    """The word that a pattern for types starts with; empty for probes."""
    word, _, rest = pattern.partition(" ")
    return word if word in _TYPE_WORDS and rest.strip() else ""


def _bulk_text(question: Question) -> Iterator[str]:
    for start, groups in groupby(LISTED_KINDS[question.kind](question), key=attrgetter("start")):
        lists = [group.names for group in groups]
        # Modules may have functions of the same name.
        names = iter(lists[0] if len(lists) == 1 else dict.fromkeys(chain.from_iterable(lists)))
        following = _END + start
        while lines := list(islice(names, _LINES)):
            yield f"{start}{following.join(lines)}{_END}"


def _places(question: Question) -> Iterator[Place]:
    for group in LISTED_KINDS[question.kind](question):
        for name in group.names:
            yield group.start + name, group.target(name)


def targets_text(kernel: LiveKernel, wanted: Iterable[tuple[str, Target]], *, verbose: bool) -> str:
    """The text of ``-l`` for the places of a script: kind and target of each."""
    if not verbose:
        return _joined_lines(dict.fromkeys(target.probe for _, target in wanted))
    texts = (_probe_with_arguments(kernel, kind, (target.probe, target.place)) for kind, target in wanted)
    return _joined_lines(dict.fromkeys(texts))


def matching_places(kernel: LiveKernel, pattern: str, *, pid: int | None = None) -> Iterator[tuple[str, Place]]:
    """Kind and place of each probe that matches one pattern.

    Raises:
        TraceError: as for :func:`listing`.
    """
    if pid is not None:
        procfs.check_exists(pid)
    for question in _questions(kernel, pattern, pid):
        for place in _places(question):
            yield question.kind, place


def _joined_lines(lines: Mapping[str, None]) -> str:
    return "\n".join([*lines, ""]) if lines else ""


def _probe_with_arguments(kernel: LiveKernel, kind: str, place: Place) -> str:
    probe, where = place
    return "\n".join([probe, *(f"    {line}" for line in arguments_of(kernel, kind, where))])


# ---------------------------------------------------------------------------------------------- patterns


def _probes(kernel: LiveKernel, pattern: str, pid: int | None, verbose: bool) -> Iterator[str]:
    for question in _questions(kernel, pattern, pid, verbose):
        for place in _places(question):
            yield _probe_with_arguments(kernel, question.kind, place) if verbose else place[0]


def _questions(kernel: LiveKernel, pattern: str, pid: int | None, verbose: bool = False) -> Iterator[Question]:
    provider, parts = _split(pattern)
    for kind, its_parts in _kinds(provider, parts, pid):
        yield Question(kernel, kind, its_parts, pid, verbose)


def _split(pattern: str) -> tuple[str, tuple[str, ...]]:
    """Provider and the other parts; a lone part that names no provider is an event."""
    provider, *parts = probe_kinds.split_attach_point(pattern)
    return ("*", (provider,)) if not parts and probe_kind(provider) is None else (provider, tuple(parts))


def _kinds(provider: str, parts: tuple[str, ...], pid: int | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The rows to ask: one for a name, several for a pattern."""
    row = probe_kind(provider)
    if row is not None:
        yield row.name, parts
        return
    if "*" not in provider:
        known = (*probe_names(), probe_kinds.CALL, probe_kinds.SYSCALL)
        hints = did_you_mean(provider, known, "{}") or (f"providers are {', '.join(known)}",)
        raise TraceError(f"there is no probe provider {provider!r}", hints=hints)
    user = pid is not None or any("/" in part for part in parts[:1])
    for kind in matching(provider, _USER_KINDS if user else _KERNEL_KINDS):
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
        target = partial(KernelFunctionTarget, module=owner)
        yield Group(f"{question.kind}:{prefix}", list(dict.fromkeys(names)), target)


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


def _event_names(events: tuple[PerfEvent, ...]) -> list[str]:
    """Names and aliases in order."""
    return sorted(name for event in events for name in (event.name, event.alias) if name)


def _events(question: Question) -> Iterator[Group]:
    table = probe_kinds.SOFTWARE_EVENTS if question.kind == SOFTWARE else probe_kinds.HARDWARE_EVENTS
    for name in matching((question.parts or ("*",))[0] or "*", _event_names(table)):
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
    names = [name for name in python_functions(path, pattern or "*") if _in_a_line(name)]
    yield Group(f"{question.kind}:{path}:", names, partial(PythonTarget, (path,)))


# ---------------------------------------------------------------------------------------------- types


def _types(kernel: LiveKernel, word: str, pattern: str, verbose: bool) -> Iterator[str]:
    """``struct X``: the names that match, with *verbose* their definitions."""
    found = matching(pattern, kernel.type_names(word)) if "*" in pattern else [pattern]
    for name in sorted(found):
        lines = type_definition(kernel, word, name)
        if not lines:
            hints = did_you_mean(name, kernel.type_names(word), f"{word} {{}}")
            raise TraceError(f"the kernel has no {word} {name!r}", hints=hints)
        yield "\n".join([*lines, ""]) if verbose else f"{word} {name}"


LISTED_KINDS: dict[str, Callable[[Question], Iterable[Group]]] = {
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


# ------------------------------------------------------------------------------------------ arguments and types as text


def arguments_of(kernel: LiveKernel, kind: str, place: ProbeTarget) -> list[str]:
    """``type name`` of each argument that a probe kind has at a place."""
    row = _ARGUMENTS.get(kind)
    return row(kernel, place) if row is not None else []


def type_definition(kernel: LiveKernel, word: str, name: str) -> list[str]:
    """The definition of a kernel type, line by line; empty when there is none."""
    found = kernel.types.find(name, *TYPE_KINDS[word]) if kernel.types else None
    return definition_text(*found) if found else []


def _tracepoint_arguments(kernel: LiveKernel, place: ProbeTarget) -> list[str]:
    if not isinstance(place, TracepointTarget):
        return []
    fields = kernel.tracepoint_fields(place.category, place.event) or ()
    return [item.declaration for item in fields if item.offset >= COMMON_FIELDS_END]


def _prototype(kernel: LiveKernel, place: ProbeTarget) -> tuple[TypeReader, int] | None:
    """The ``FUNC_PROTO`` of a function, with who defines it."""
    if kernel.types is None or not isinstance(place, KernelFunctionTarget | TypedFunctionTarget):
        return None
    if isinstance(place, TypedFunctionTarget) and place.program_id is not None:
        return None
    found = kernel.types.find(place.function, Kind.FUNC, module=place.module or "vmlinux")
    if found is None:
        return None
    reader, type_id = found
    words, at = reader.place(type_id)
    return reader, words[at + 2]


def _parameters(reader: TypeReader, proto_id: int, skip: int = 0) -> list[str]:
    pairs = reader.parameters(proto_id)[skip:]
    return [
        declared_argument(reader, type_id, name or f"arg{number}") if type_id else "..."
        for number, (name, type_id) in enumerate(pairs)
    ]


def _entry_arguments(kernel: LiveKernel, place: ProbeTarget) -> list[str]:
    found = _prototype(kernel, place)
    return _parameters(*found) if found else []


def _exit_arguments(kernel: LiveKernel, place: ProbeTarget) -> list[str]:
    found = _prototype(kernel, place)
    if found is None:
        return []
    reader, proto_id = found
    words, at = reader.place(proto_id)
    result = [declared_argument(reader, words[at + 2], "retval")] if words[at + 2] else []
    return [*_parameters(reader, proto_id), *result]


def _raw_tracepoint_arguments(kernel: LiveKernel, place: ProbeTarget) -> list[str]:
    if kernel.types is None or not isinstance(place, RawTracepointTarget):
        return []
    found = kernel.types.raw_tracepoint(place.event)
    if found is None:
        return []
    reader, proto_id, names = found
    pairs = reader.parameters(proto_id)[1:]
    return [declared_argument(reader, type_id, name) for name, (_, type_id) in zip(names, pairs, strict=True)]


def _iterator_arguments(kernel: LiveKernel, place: ProbeTarget) -> list[str]:
    if kernel.types is None or not isinstance(place, IteratorTarget):
        return []
    found = kernel.types.find(f"bpf_iter__{place.iterator}", Kind.STRUCT)
    if found is None:
        return []
    reader, type_id = found
    lines = []
    for member in reader.members(type_id):
        # Pointers to objects are wrapped in unions that keep them 8 bytes wide on all machines.
        inner = reader.members(member.type_id) if not member.name else [member]
        lines += [declared_argument(reader, item.type_id, item.name) for item in inner if item.name]
    return lines


def _user_function_arguments(kernel: LiveKernel, place: ProbeTarget) -> list[str]:
    if not isinstance(place, UserTarget) or not place.symbol:
        return []
    parameters = kernel.user_parameters(place.path, place.symbol) or ()
    return [f"{item.declaration} {item.name}" for item in parameters if item.readable]


def _python_function_arguments(_kernel: LiveKernel, place: ProbeTarget) -> list[str]:
    return python_parameters(place.files[0], place.function) if isinstance(place, PythonTarget) else []


_ARGUMENTS: dict[str, Callable[[LiveKernel, ProbeTarget], list[str]]] = {
    TRACEPOINT: _tracepoint_arguments,
    RAWTRACEPOINT: _raw_tracepoint_arguments,
    FENTRY: _entry_arguments,
    FEXIT: _exit_arguments,
    KPROBE: _entry_arguments,
    ITER: _iterator_arguments,
    UPROBE: _user_function_arguments,
    PYTHON: _python_function_arguments,
    PYTHONRET: _python_function_arguments,
}


# ---------------------------------------------------------------------------------------------- C text


_QUALIFIERS = {Kind.CONST: "const", Kind.VOLATILE: "volatile", Kind.RESTRICT: "restrict"}
_KEYWORDS = {Kind.STRUCT: "struct", Kind.UNION: "union", Kind.ENUM: "enum", Kind.ENUM64: "enum"}


def declare(reader: TypeReader, type_id: int, name: str = "", indent: str = "") -> str:
    """A C declaration of *name* (or of nothing) as a type; unnamed structs are written out, indented by *indent*."""
    declarator, qualifiers = name, []
    btf = reader.btf
    while True:
        kind = btf.kind(type_id)
        words, at = reader.place(type_id) if type_id else ((), 0)
        if kind in _QUALIFIERS:
            qualifiers.append(_QUALIFIERS[Kind(kind)])
            type_id = words[at + 2]
        elif kind == Kind.PTR:
            # Qualifiers that were passed on the way here are those of the pointer itself.
            declarator, type_id = f"*{' '.join([*qualifiers, declarator])}", words[at + 2]
            qualifiers = []
        elif kind == Kind.ARRAY:
            declarator, type_id = f"{_grouped(declarator)}[{words[at + 5] or ''}]", words[at + 3]
        elif kind == Kind.FUNC_PROTO:
            declarator, type_id = f"{_grouped(declarator)}({_declared_parameters(reader, type_id)})", words[at + 2]
        elif kind in (Kind.TYPE_TAG, Kind.DECL_TAG):
            type_id = words[at + 2]
        else:
            break
    base = " ".join([*qualifiers, _base_type(reader, type_id, indent)])
    return f"{base} {declarator}".rstrip()


def declared_argument(reader: TypeReader, type_id: int, name: str) -> str:
    """``type name`` as listings have it: ``struct file * file``."""
    text = reader.texts.get(type_id)
    if text is None:
        text = reader.texts[type_id] = declare(reader, type_id)
    return f"{text} {name}".rstrip()


def _grouped(declarator: str) -> str:
    return f"({declarator})" if declarator.startswith("*") else declarator


def _declared_parameters(reader: TypeReader, proto_id: int) -> str:
    texts = [
        declare(reader, type_id, name) if type_id or name else "..." for name, type_id in reader.parameters(proto_id)
    ]
    return ", ".join(texts) or "void"


def _base_type(reader: TypeReader, type_id: int, indent: str) -> str:
    btf = reader.btf
    kind, name = btf.kind(type_id), btf.type_name(type_id)
    if kind == Kind.FWD:
        words, at = reader.place(type_id)
        return f"{'union' if words[at + 1] >> 31 else 'struct'} {name}"
    keyword = _KEYWORDS.get(Kind(kind))
    if keyword is None:
        return name or "void"
    if name:
        return f"{keyword} {name}"
    return "\n".join([f"{keyword} {{", *_type_body(reader, type_id, indent + "\t"), f"{indent}}}"])


def _type_body(reader: TypeReader, type_id: int, indent: str = "\t") -> Iterator[str]:
    """The lines between the braces of a definition."""
    if reader.btf.kind(type_id) in (Kind.ENUM, Kind.ENUM64):
        for name, value in reader.enumerators(type_id):
            yield f"{indent}{name} = {value},"
        return
    for member in reader.members(type_id):
        yield f"{indent}{_declared_member(reader, member, indent)};"


def _declared_member(reader: TypeReader, member: Member, indent: str) -> str:
    text = declare(reader, member.type_id, member.name, indent)
    return f"{text}: {member.bit_size}" if member.bit_size else text


def definition_text(reader: TypeReader, type_id: int) -> list[str]:
    """A whole definition: ``vmlinux: struct X {``, members, ``};``."""
    owner = reader.btf.owner(type_id).name
    head = f"{owner}: {_KEYWORDS[Kind(reader.btf.kind(type_id))]} {reader.btf.type_name(type_id)}"
    return [f"{head} {{", *_type_body(reader, type_id), "};"]


# ------------------------------------------------------------------------------------------ functions of Python sources


_LARGEST_SOURCE = 16 << 20
"""Bytes of a source that are read."""
_UNNAMED_CODE = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
"""Code that is not written as a function."""
_VARIADIC, _VARIADIC_KEYWORDS = 4, 8
"""``CO_VARARGS``, ``CO_VARKEYWORDS``."""


def python_functions(path: str, pattern: str) -> list[str]:
    """Qualified names of the functions in a file that match a pattern.

    Raises:
        TraceError: it cannot be read, or is no Python source.
    """
    return matching(pattern, list(_signatures(path)))


def python_parameters(path: str, function: str) -> list[str]:
    """Names of a function's parameters; empty when the file has no such function."""
    try:
        return list(_signatures(path).get(function, ()))
    except TraceError:
        return []


def _signatures(path: str) -> dict[str, tuple[str, ...]]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from None
    return _signatures_of_version(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _signatures_of_version(path: str, _changed: int, _size: int) -> dict[str, tuple[str, ...]]:
    try:
        with open_regular(path) as file:
            code = compile(file.read(_LARGEST_SOURCE), path, "exec", dont_inherit=True)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TraceError(f"{path} is no Python source: {error}") from None
    return dict(_functions_of_code(code))


def _functions_of_code(code: CodeType) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Functions, classes and the module itself: all of them are called."""
    waiting = [code]
    while waiting:
        one = waiting.pop(0)
        flags = one.co_flags
        count = one.co_argcount + one.co_kwonlyargcount + bool(flags & _VARIADIC) + bool(flags & _VARIADIC_KEYWORDS)
        if not one.co_qualname.endswith(_UNNAMED_CODE):
            yield one.co_qualname, one.co_varnames[:count]
        waiting[:0] = [constant for constant in one.co_consts if isinstance(constant, CodeType)]
