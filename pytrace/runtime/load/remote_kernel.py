"""The kernel of another machine, as the compiler sees it: questions, this machine's answers to them, and another's.

A question has the name of the method of :class:`~pytrace.core.kernel_info.KernelInfo` that asks it, and its arguments;
``owners`` stands for those that type information answers: which modules have more than the kernel proper. Answers say
nothing that another boot of the same kernel changes (addresses, numbers of tracepoints), so that equal machines are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import (
    FEATURES,
    Answer,
    DefinedEvent,
    Facts,
    FunctionPrototype,
    Question,
    TracepointField,
    facts_digest,
    rounded_cpus,
)
from pytrace.core.probe_kinds import ProbeTarget
from pytrace.core.types import Enum, Struct, Type
from pytrace.runtime.binaries.kernel_types import StatedTypes
from pytrace.runtime.load.live_kernel import AHEAD_CPUS, LiveKernel
from pytrace.runtime.machine.fingerprints import Fact
from pytrace.runtime.machine.tracefs import parse_format, space_of


def answer_questions(kernel: LiveKernel, questions: Iterable[Question]) -> Facts:
    """The facts about this machine that answer *questions*.

    Raises:
        TraceError: the machine does not say, or a question is none.
    """
    answers = {question: _answer_of(kernel, question) for question in sorted(set(questions))}
    types = kernel.types
    owners = {name for question, answer in answers.items() if question[0] == "owners" for name in answer}
    readers = {name: types.module(name) for name in sorted(owners)} if types is not None else {}
    return Facts(
        machine=kernel.arch, release=kernel.release, build=kernel.dependencies()[0],
        cpus=rounded_cpus(kernel.possible_cpus), features=tuple(filter(kernel.feature, FEATURES)),
        btf=types.vmlinux.btf.data if types is not None else b"",
        modules={name: reader.btf.data for name, reader in readers.items() if reader is not None},
        answers=tuple(answers.items()),
    )  # fmt: skip


def probe_digest(kernel: LiveKernel, questions: Iterable[Question]) -> str:
    """A digest of which probes the patterns among *questions* match; empty if there are no patterns."""
    wild = sorted({item for item in questions if item[0] in _OF_PROBES and "*" in "".join(item[1:])})
    answers = [(question, _answer_of(kernel, question)) for question in wild]
    return facts_digest(repr(answers).encode("utf-8", "surrogateescape")) if answers else ""


def _answer_of(kernel: LiveKernel, question: Question) -> Answer:
    kind, *arguments = question
    try:
        return _ANSWERS[kind](kernel, *arguments)
    except (KeyError, TypeError):
        raise TraceError(f"this pytrace does not know the question {kind!r} about a kernel") from None


def _flag_answer(value: object) -> Answer:
    return ("1",) if value else ()


def _functions(kernel: LiveKernel, pattern: str, module: str) -> Answer:
    lists = kernel.kernel_function_lists(pattern, module)
    return tuple(f"{name} {owner}" for owner, names in lists.items() for name in names)


def _size(kernel: LiveKernel, name: str, module: str) -> Answer:
    size = kernel.kernel_function_size(name, module)
    return () if size is None else (str(size),)


def _unloaded(kernel: LiveKernel, pattern: str) -> Answer:
    names, sure = kernel.unloaded_modules(pattern)
    return ("sure" if sure else "", *names)


def _tracepoints(kernel: LiveKernel, category: str, event: str) -> Answer:
    return tuple(f"{first}:{second}" for first, second in kernel.tracepoints(category, event))


def _format(kernel: LiveKernel, category: str, event: str) -> Answer:
    text = kernel.tracepoint_files.format(category, event)
    return () if text is None else ("\n".join(line for line in text.split("\n") if "field:" in line),)


def _raw_tracepoints(kernel: LiveKernel, pattern: str) -> Answer:
    return tuple(sorted({event for _, event in kernel.raw_tracepoints(pattern)}))


def _symbol(kernel: LiveKernel, name: str) -> Answer:
    with suppress(TraceError):
        return _flag_answer(kernel.kernel_symbol(name) is not None)
    return ()


def _owners(kernel: LiveKernel, what: str, pattern: str, module: str) -> Answer:
    return tuple(kernel.types.owners(what, pattern, module)) if kernel.types is not None else ()


_ANSWERS: dict[str, Callable[..., Answer]] = {
    "kernel_functions": _functions,
    "kernel_function_size": _size,
    "sleepable_function": lambda kernel, name: _flag_answer(kernel.sleepable_function(name)),
    "modules": lambda kernel: tuple(sorted(kernel.modules())),
    "untraceable_reason": lambda kernel, name: (kernel.untraceable_reason(name),),
    "module_state": lambda kernel, name: (kernel.module_state(name),),
    "unloaded_modules": _unloaded,
    "tracepoints": _tracepoints,
    "raw_tracepoints": _raw_tracepoints,
    "tracepoint_format": _format,
    "kernel_symbol": _symbol,
    "cgroup_id": lambda kernel, path: _flag_answer(kernel.cgroup_id(path) is not None),
    "owners": _owners,
}
"""By the kind of a question."""
_OF_PROBES = frozenset({"kernel_functions", "raw_tracepoints", "tracepoints"})


# ------------------------------------------------------------------------------------------------------ another machine


_MACHINES = frozenset({"x86_64", "aarch64"})
"""Those that this one can compile for: of the same byte order, with known registers."""
_NO_BOOT: Fact = ("boot", "")
"""No boot: what only a running kernel knows (addresses) is resolved on each."""


class RemoteKernel(LiveKernel):
    """The facts of another machine, for ahead-of-time files."""

    def __init__(self, facts: Facts, *, debuginfo: Iterable[str] = (), disabled: Iterable[str] = ()) -> None:
        """Arguments are as those of :class:`LiveKernel`.

        Raises:
            TraceError: this machine does not compile for such a one.
        """
        if facts.machine not in _MACHINES:
            raise TraceError(f"this machine does not compile for {facts.machine}")
        super().__init__(debuginfo=debuginfo, disabled=disabled)
        self._stated = facts
        self._answers = dict(facts.answers)
        self.unanswered: dict[Question, None] = {}
        """What was asked, and the facts do not say."""

    def _answer(self, *question: str) -> Answer:
        answer = self._answers.get(question)
        if answer is None:
            self.unanswered[question] = None
            return ()
        return answer

    def _ask(self, *question: str) -> None:
        self._answer(*question)

    def dependencies(self) -> tuple[Fact, ...]:
        return (self._stated.build, _NO_BOOT, *(fact for fact in self._facts if fact[0] == "file"))

    def _depend_on_modules(self) -> None:
        """Type information of modules is among the facts."""

    # ---- machine

    @property
    def arch(self) -> str:
        return self._stated.machine

    @property
    def release(self) -> str:
        return self._stated.release

    @property
    def pid_namespace(self) -> tuple[int, int] | None:
        return None

    @cached_property
    def possible_cpus(self) -> int:
        return max(AHEAD_CPUS, self._stated.cpus)

    @property
    def has_btf(self) -> bool:
        return bool(self._stated.btf)

    def feature(self, name: str) -> bool:
        there = name not in self._disabled and name in self._stated.features
        if there:
            self._features_used.add(name)
        return there

    # ---- types

    @cached_property
    def types(self) -> StatedTypes | None:
        """All type information; None on a kernel without."""
        return StatedTypes(self._stated.btf, self._stated.modules) if self._stated.btf else None

    def attach_type(self, _place: ProbeTarget) -> int:
        return 0  # the machine that loads the programs looks for it

    def _value_type(self, kind: str, name: str) -> Type | None:
        self._ask_owners(kind, name)
        return self.types.value_type(kind, name) if self.types else None

    def enumerator(self, name: str) -> tuple[Enum, int] | None:
        found = self.types.enumerator(name) if self.types else None
        if found is None:
            self._ask_owners("enumerator", name)
        return found

    # ---- kernel probes

    def function(self, name: str, module: str = "") -> FunctionPrototype | None:
        self._ask_owners("function", name, module)
        return self.types.function(name, module) if self.types else None

    def function_prototypes(self, pattern: str, module: str = "") -> list[FunctionPrototype]:
        self._ask_owners("function", pattern, module)
        return self.types.functions(pattern, module) if self.types else []

    def kernel_function_lists(self, pattern: str, module: str = "") -> Mapping[str, list[str]]:
        lists: dict[str, list[str]] = {}
        for text in self._answer("kernel_functions", pattern, module):
            name, _, owner = text.partition(" ")
            lists.setdefault(owner, []).append(name)
        return lists

    def kernel_function_size(self, name: str, module: str = "") -> int | None:
        answer = self._answer("kernel_function_size", name, module)
        return int(answer[0]) if answer and answer[0].isdecimal() and len(answer[0]) < 19 else None

    def sleepable_function(self, name: str) -> bool:
        return bool(self._answer("sleepable_function", name))

    def modules(self) -> list[str]:
        return list(self._answer("modules"))

    def untraceable_reason(self, name: str) -> str:
        return "".join(self._answer("untraceable_reason", name)[:1])

    def module_state(self, name: str) -> str:
        return "".join(self._answer("module_state", name)[:1])

    def unloaded_modules(self, pattern: str) -> tuple[list[str], bool]:
        answer = self._answer("unloaded_modules", pattern)
        return list(answer[1:]), answer[:1] == ("sure",)

    def tracepoints(self, category: str, event: str) -> list[tuple[str, str]]:
        pairs = (text.partition(":") for text in self._answer("tracepoints", category, event))
        return [(first, second) for first, _, second in pairs]

    def tracepoint_fields(self, category: str, event: str) -> tuple[TracepointField, ...] | None:
        answer = self._answer("tracepoint_format", category, event)
        return parse_format(answer[0], self._value_type, space_of(category)) if answer else None

    def defined_event(self, category: str, event: str) -> DefinedEvent | None:
        del category, event
        return None

    def raw_tracepoints(self, pattern: str) -> list[tuple[str, str]]:
        self._ask_owners("rawtracepoint", pattern)
        return self.types.raw_tracepoints(pattern) if self.types else []

    def raw_tracepoint_prototype(self, event: str) -> FunctionPrototype | None:
        self._ask_owners("rawtracepoint", event)
        return self.types.raw_tracepoint_prototype(event) if self.types else None

    def iterators(self) -> dict[str, Struct]:
        self._ask_owners("iterator", "*")
        return self.types.iterators() if self.types else {}

    # ---- symbols

    def kernel_symbol(self, name: str) -> int | None:
        """0 for a symbol of the kernel: its address is known when the file is loaded."""
        return 0 if self._answer("kernel_symbol", name) else None

    def bpf_programs(self, pattern: str) -> list[tuple[int, str]]:  # noqa: ARG002
        """None: programs that others have loaded are no fact about a kernel."""
        return []

    def cgroup_id(self, path: str) -> int | None:
        """0 for a cgroup that is there: its number is known when the file is loaded."""
        return 0 if self._answer("cgroup_id", path) else None
