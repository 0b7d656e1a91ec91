"""Another machine as the compiler sees it: its kernel by the facts that it states, files by those of this machine.

What the facts do not answer counts as missing and is noted, so that it can be asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_facts import Answer, Facts, Question
from pytrace.core.kernel_info import DefinedEvent, FunctionPrototype, TracepointField
from pytrace.core.types import Enum, Struct, Type
from pytrace.runtime.btf.kernel import StatedTypes
from pytrace.runtime.live_kernel import AHEAD_CPUS, LiveKernel
from pytrace.runtime.machine.fingerprints import Fact
from pytrace.runtime.machine.tracefs import parse_format, space_of

MACHINES = frozenset({"x86_64", "aarch64"})
"""Those that this one can compile for: of the same byte order, with known registers."""
OF_BOOT: Fact = ("boot", "")
"""No boot: what only a running kernel knows (addresses) is resolved on each."""


class StatedKernel(LiveKernel):
    """The facts of another machine, for ahead-of-time files."""

    def __init__(self, facts: Facts, *, debuginfo: Iterable[str] = (), disabled: Iterable[str] = ()) -> None:
        """Arguments are as those of :class:`LiveKernel`.

        Raises:
            TraceError: this machine does not compile for such a one.
        """
        if facts.machine not in MACHINES:
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
        return (self._stated.build, OF_BOOT, *(fact for fact in self._facts if fact[0] == "file"))

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

