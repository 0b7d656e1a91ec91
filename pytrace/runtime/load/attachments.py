"""Attaching: one attacher for each probe kind (:data:`ATTACHERS`); blocks run in the order of the script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack

import msgspec
from msgspec.structs import replace

from pytrace.core.manifest import ProgramSpec
from pytrace.core.probe_kinds import (
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
    SOFTWARE,
    SYSTEM_CALLS,
    TRACEPOINT,
    UPROBE,
    URETPROBE,
    USDT,
    WATCHPOINT,
    known_kind,
)
from pytrace.runtime.load.loaded_script import LoadedScript
from pytrace.runtime.load.probe_links import (
    Attached,
    Attacher,
    AttachOptions,
    Failure,
    Job,
    Opened,
    Outcome,
    failure_error,
)

__all__ = ["ATTACHERS", "Attached", "AttachOptions", "Attachments", "Failure", "attach_all", "attach_order"]

# Attachers are imported for the probes that need them.


def _kernel_attacher(kind: str) -> Attacher:
    from pytrace.runtime.load import kernel_probes

    return kernel_probes.ATTACHERS[kind]


def _user_attacher(kind: str) -> Attacher:
    from pytrace.runtime.load import user_probes

    return user_probes.ATTACHERS[kind]


_KERNEL_KINDS = (
    KPROBE, KRETPROBE, TRACEPOINT, RAWTRACEPOINT, FENTRY, FEXIT,
    PROFILE, INTERVAL, SOFTWARE, HARDWARE, WATCHPOINT, ITER,
)  # fmt: skip
_USER_KINDS = (UPROBE, URETPROBE, USDT, PYTHON, PYTHONRET)
ATTACHERS: dict[str, Callable[[str], Attacher]] = {
    **dict.fromkeys(_KERNEL_KINDS, _kernel_attacher), **dict.fromkeys(_USER_KINDS, _user_attacher),
}  # fmt: skip
"""The attacher of each probe kind. Kinds that the session runs (begin, end, self, test, bench) attach to nothing."""


class Attachments(msgspec.Struct, frozen=True):
    """Result of :func:`attach_all`."""

    attached: tuple[Attached, ...]
    failures: tuple[Failure, ...]
    """Empty unless the config key missing_probes is ``warn`` or ``ignore``."""
    opened: Opened
    """The links; the *stack* of :func:`attach_all` closes them."""
    services: tuple[Attached, ...] = ()
    """Targets of programs that serve the script's ones."""


def attach_all(
    loaded: LoadedScript, programs: Iterable[ProgramSpec], options: AttachOptions, stack: ExitStack
) -> Attachments:
    """Attach *programs* to all their targets; *stack* detaches them.

    Raises:
        TraceError: a target could not be attached and ``options.missing_probes`` is ``error``.
    """
    attached: list[Attached] = []
    services: list[Attached] = []
    failures: list[Failure] = []
    gone: list[Failure] = []
    opened = Opened()
    stack.callback(opened.close)
    wanted = list(programs)
    parts: dict[str, list[ProgramSpec]] = {}
    for spec in wanted:
        if spec.part_of:
            parts.setdefault(spec.part_of, []).append(spec)
    options.progress()
    for spec in attach_order(wanted):
        if spec.symbol in loaded.gone:
            gone += [Failure(target, "the program no longer exists", gone=True) for target in spec.targets]
            continue
        own = opened.programs.setdefault(spec.symbol, Opened())
        for outcome in _with_parts(spec, _outcomes(spec, options, loaded, own), parts.get(spec.symbol, ())):
            options.progress()
            if isinstance(outcome, Failure):
                (gone if outcome.gone else failures).append(outcome)
            elif spec.service:
                services.append(outcome)
            else:
                attached.append(outcome)
        if failures and (options.missing_probes == "error" or spec.service):
            raise failure_error(failures)
    if gone and not attached:
        failures += gone
        if options.missing_probes == "error":
            raise failure_error(gone)
    return Attachments(tuple(attached), tuple(failures), opened, tuple(services))


def _outcomes(
    spec: ProgramSpec, options: AttachOptions, loaded: LoadedScript, opened: Opened
) -> Iterator[Outcome]:
    """Attach one program to all its targets, and where the kernel filters by process, for each process of ``-p``."""
    attacher, program = ATTACHERS[spec.kind](spec.kind), loaded.program_fd(spec.symbol)
    for each in options.each(known_kind(spec.kind)):
        yield from attacher(Job(spec, program, each, loaded), opened)


def _with_parts(
    spec: ProgramSpec, outcomes: Iterable[Outcome], parts: Sequence[ProgramSpec]
) -> Iterator[Outcome]:
    """The outcomes of a program, and those of the programs whose code it contains."""
    last: Outcome | None = None
    for last in outcomes:
        yield last
        if isinstance(last, Attached) and spec.multi != SYSTEM_CALLS:
            yield from (Attached(part, part.targets[last.target.cookie]) for part in parts)
    if last is None or spec.multi != SYSTEM_CALLS:
        return
    for part in parts:
        for target in part.targets:
            yield Attached(part, target) if isinstance(last, Attached) else replace(last, target=target)


def attach_order(programs: Iterable[ProgramSpec]) -> list[ProgramSpec]:
    """The programs that attach somewhere, in the order in which they have to.

    The kernel runs the programs on one event in the order of attachment for some kinds, and in the reverse one for
    others (``ProbeKind.backwards``). Programs that serve the others attach first.
    """
    services: list[ProgramSpec] = []
    forward: list[ProgramSpec] = []
    backward: list[ProgramSpec] = []
    for spec in programs:
        kind = known_kind(spec.kind)
        if spec.service:
            services.append(spec)
        elif not kind.special and not spec.part_of:
            (backward if kind.backwards else forward).append(spec)
    return services + forward + backward[::-1]
