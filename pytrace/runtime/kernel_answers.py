"""Answers of this machine to what a compilation asks about a kernel, as data for a machine that compiles.

A question has the name of the method of :class:`~pytrace.core.kernel_info.KernelInfo` that asks it, and its arguments;
``owners`` stands for those that type information answers: which modules have more than the kernel proper. Answers say
nothing that another boot of the same kernel changes (addresses, numbers of tracepoints), so that equal machines are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_facts import Facts, Question, digest, rounded_cpus
from pytrace.core.kernel_info import FEATURES
from pytrace.runtime.live_kernel import LiveKernel

Answer = tuple[str, ...]


def facts(kernel: LiveKernel, questions: Iterable[Question]) -> Facts:
    """The facts about this machine that answer *questions*.

    Raises:
        TraceError: the machine does not say, or a question is none.
    """
    answers = {question: _answer(kernel, question) for question in sorted(set(questions))}
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


def matches(kernel: LiveKernel, questions: Iterable[Question]) -> str:
    """A digest of which probes the patterns among *questions* match; empty if there are no patterns."""
    wild = sorted({item for item in questions if item[0] in _OF_PROBES and "*" in "".join(item[1:])})
    answers = [(question, _answer(kernel, question)) for question in wild]
    return digest(repr(answers).encode("utf-8", "surrogateescape")) if answers else ""


def _answer(kernel: LiveKernel, question: Question) -> Answer:
    kind, *arguments = question
    try:
        return _ANSWERS[kind](kernel, *arguments)
    except (KeyError, TypeError):
        raise TraceError(f"this pytrace does not know the question {kind!r} about a kernel") from None


def _flag(value: object) -> Answer:
    return ("1",) if value else ()


def _functions(kernel: LiveKernel, pattern: str, module: str) -> Answer:
    return tuple(f"{item.name} {item.module}" for item in kernel.kernel_functions(pattern, module))


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
        return _flag(kernel.kernel_symbol(name) is not None)
    return ()


def _owners(kernel: LiveKernel, what: str, pattern: str, module: str) -> Answer:
    return tuple(kernel.types.owners(what, pattern, module)) if kernel.types is not None else ()


_ANSWERS: dict[str, Callable[..., Answer]] = {
    "kernel_functions": _functions,
    "kernel_function_size": _size,
    "sleepable_function": lambda kernel, name: _flag(kernel.sleepable_function(name)),
    "modules": lambda kernel: tuple(sorted(kernel.modules())),
    "untraceable_reason": lambda kernel, name: (kernel.untraceable_reason(name),),
    "module_state": lambda kernel, name: (kernel.module_state(name),),
    "unloaded_modules": _unloaded,
    "tracepoints": _tracepoints,
    "raw_tracepoints": _raw_tracepoints,
    "tracepoint_format": _format,
    "kernel_symbol": _symbol,
    "cgroup_id": lambda kernel, path: _flag(kernel.cgroup_id(path) is not None),
    "owners": _owners,
}
"""By the kind of a question."""
_OF_PROBES = frozenset({"kernel_functions", "raw_tracepoints", "tracepoints"})
