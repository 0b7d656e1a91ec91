"""Tracepoints traced by raw tracepoint programs: hot ones, and those of system calls.

The kernel runs a program of ``tracepoint:sched:sched_switch`` through perf, which first copies all fields into a
record. A program of the raw tracepoint of the same name receives the arguments that the fields are computed from. A
probe becomes such a program if every field that its body uses is a known expression of these arguments
(``tracepoints.TABLE``) and the rest of the body behaves the same. All bodies on a target use the same method, so that
they run in the order of the script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from pytrace.core import system_calls as call_numbers
from pytrace.core.builtins import builtin
from pytrace.core.kernel_info import TracepointField
from pytrace.core.probe_kinds import ENTER, EXIT, AnyTarget, TracepointTarget
from pytrace.core.types import String
from pytrace.frontend.probes import contexts, tracepoints
from pytrace.frontend.probes.providers import Match, Scope, Uses, is_args
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import ProbeUnit

# --------------------------------------------------------------------------------------------------------- system calls

# System call tracepoints traced by raw tracepoint programs.
#
# The kernel runs a program of `tracepoint:syscalls:sys_enter_NAME` through perf, which copies the arguments and takes
# several times as long as the program. All system calls also pass the raw tracepoints `sys_enter` and `sys_exit`. So
# the programs of a script on system calls become functions of one raw tracepoint program, which dispatches on the
# system call number (`codegen.walkers.service_programs`); arguments are read from the registers.
#
# The targets that are traced that way (docs/reference/probes.md has the rule) are those whose body behaves the same in
# both.


_SYSTEM_CALL_FEATURE = "raw_syscalls"

_RARE = """
acct adjtimex chroot clock_adjtime clock_settime clone clone3 delete_module execve execveat exit exit_group
fdatasync finit_module fork fsconfig fsmount fsopen fspick fsync init_module kexec_file_load kexec_load mount
mount_setattr move_mount open_tree open_tree_attr pivot_root quotactl quotactl_fd reboot setdomainname sethostname
setns settimeofday swapoff swapon sync syncfs sysfs syslog umount unshare vfork vhangup
"""
RARE = frozenset(_RARE.split())
"""System calls that are so slow or so rare that the overhead of a tracepoint does not matter.

Their plain tracepoints do not slow down other system calls (see docs/reference/probes.md).
"""
FEW = 8
"""Maximum number of rare system calls traced by plain tracepoints; more take long to attach and detach."""

MOST_BODIES = 128
"""The kernel allows 256 functions in a program (``BPF_MAX_SUBPROGS``), some of which are needed for loops."""
MOST_NODES = 30_000
"""The verifier processes at most a million instructions; a node of the tree takes about ten."""

_TEXT_OPERATORS = (nodes.Index, nodes.Cast, nodes.Unary)

_TEXT_CALLS = frozenset({
    "assert_str", "cat", "delete", "errorf", "find", "has_key", "heading", "one_of", "print", "printf", "row",
    "sprintf", "str", "str_concat", "strcontains", "strlen", "strncmp", "strstr", "system", "warnf",
})  # fmt: skip
"""Builtins that read a text up to its NUL."""

_STACKS = frozenset({"kstack"})
"""Builtins whose result contains the kernel frames of the tracepoint itself."""


class Block(msgspec.Struct, frozen=True):
    """A probe block with its targets: *index* counts blocks in source order, *uses* are the uses of the body."""

    probe: nodes.Probe
    index: int
    matches: list[Match]
    uses: Uses

    @property
    def roots(self) -> tuple[nodes.Node, ...]:
        """Body and predicate."""
        return (self.probe.body, *([self.probe.predicate] if self.probe.predicate else ()))


def choose_system_calls(
    blocks: list[Block], program: nodes.Program, scope: Scope, without: frozenset[str] = frozenset()
) -> list[Block]:
    """*blocks* with :attr:`Match.call` set on the targets that raw tracepoint programs trace.

    Args:
        blocks: the blocks with their targets.
        program: the script, for the functions that blocks call.
        scope: the inputs of expansion.
        without: raw tracepoints not to use (:func:`too_large`).
    """
    calls = [match for block in blocks for match in block.matches if _raw(match)]
    if not calls or scope.options.ahead or not scope.attaching:
        return blocks
    plain = _rare_targets(calls, scope)
    if any(match.place not in plain for match in calls):
        abi = _calling_convention(scope)
        if abi is None:
            plain.update(match.place for match in calls)
        else:
            functions = {item.name: item for item in program.items if isinstance(item, nodes.Function)}
            for block in blocks:
                plain.update(match.place for match in _targets_that_differ(block, functions, abi, scope))
    plain.update(match.place for match in calls if _raw(match) in without)
    known = call_numbers.numbers(scope.kernel.arch)

    def marked(match: Match) -> Match:
        raw, name = _event(match)
        return match if not raw or match.place in plain else replace(match, call=known[name])

    chosen = [replace(block, matches=[marked(match) for match in block.matches]) for block in blocks]
    if scope.options.verbose:
        _report_system_call(chosen, scope)
    return chosen


def _event(match: Match) -> tuple[str, str]:
    """The raw tracepoint and the system call of a target; empty for other targets."""
    return match.place.call if isinstance(match.place, TracepointTarget) else ("", "")


def _raw(match: Match) -> str:
    return _event(match)[0]


def _rare_targets(calls: list[Match], scope: Scope) -> set[AnyTarget]:
    """The targets for which plain tracepoints cost less."""
    if scope.config.syscall_tracepoints == "raw":
        return set()
    targets: set[AnyTarget] = set()
    for raw in (ENTER, EXIT):
        places = {match.place: _event(match)[1] for match in calls if _raw(match) == raw}
        if len(places) <= FEW and RARE.issuperset(places.values()):
            targets.update(places)
    return targets


def _calling_convention(scope: Scope) -> call_numbers.Abi | None:
    """The calling convention of system calls; None if raw tracepoint programs cannot be used."""
    kernel, abi = scope.kernel, call_numbers.ABIS.get(scope.kernel.arch)
    if abi is None or scope.config.syscall_tracepoints == "plain":
        return None
    if not kernel.has_btf or not scope.feature(_SYSTEM_CALL_FEATURE):
        return None
    registers, task, thread = (kernel.struct("struct", name) for name in ("pt_regs", "task_struct", "thread_info"))
    if registers is None or task is None or thread is None:
        return None
    places = ((offset, registers.find(name)) for name, offset in abi.members)
    if any(field is None or field.offset != offset for offset, field in places):
        return None
    return abi if task.find("thread_info") is not None and thread.find(abi.compat[0]) is not None else None


def _type_specific(roots: Iterable[nodes.Node], functions: Mapping[str, nodes.Function]) -> str:
    """A builtin or function in *roots* that behaves differently in another program type; empty if there is none.

    A kernel stack has other frames at its top, and kfuncs and functions of an imported object file may be restricted to
    one program type. *functions* are those of the script, by name.
    """
    waiting = list(roots)
    seen: set[str] = set()
    while waiting:
        for node in nodes.walk(waiting.pop()):
            if not isinstance(node, nodes.Call | nodes.Identifier):
                continue
            function = functions.get(node.name) if isinstance(node, nodes.Call) else None
            if function is not None and node.name not in seen:
                seen.add(node.name)
                waiting.append(function.body)
            elif node.name in _STACKS or (
                isinstance(node, nodes.Call) and function is None and builtin(node.name) is None
            ):
                return node.name
    return ""


def _targets_that_differ(
    block: Block, functions: Mapping[str, nodes.Function], abi: call_numbers.Abi, scope: Scope
) -> list[Match]:
    """The targets of a block at which its body would behave differently in a raw tracepoint program."""
    calls = [match for match in block.matches if _raw(match)]
    if not calls or _type_specific(block.roots, functions):
        return calls
    known, uses = call_numbers.numbers(scope.kernel.arch), block.uses
    return [
        match
        for match in calls
        if _event(match)[1] not in known or not _reads_registers_only(match, uses, abi, scope)
    ]


def _reads_registers_only(match: Match, uses: Uses, abi: call_numbers.Abi, scope: Scope) -> bool:
    """Whether all fields that the body reads are in the registers of the system call."""
    if not uses.args:
        return True
    place = match.of(TracepointTarget)
    fields = scope.kernel.tracepoint_fields(place.category, place.event)
    if fields is None:
        return False
    places = contexts.system_call_places(fields, _raw(match), abi)
    return all(place is not None for name, place in places.items() if uses.whole or name in uses.fields)


def _report_system_call(blocks: list[Block], scope: Scope) -> None:
    """With ``-v``, report how many targets are traced by which method."""
    for raw in (ENTER, EXIT):
        calls = [match for block in blocks for match in block.matches if _raw(match) == raw]
        shared = sum(match.call is not None for match in calls)
        ways = ((shared, "one program of the raw tracepoint"), (len(calls) - shared, "programs of their own"))
        how = ", ".join(f"{count} by {way}" for count, way in ways if count)
        if calls:
            scope.diagnostics.note(f"tracepoints {raw}_*: {how} (config syscall_tracepoints)", calls[0].span)


# ---------------------------------------------------------------------------------------------- units


def too_large(units: list[ProbeUnit]) -> frozenset[str]:
    """The raw tracepoints whose program would exceed the verifier's limits."""
    raw_tracepoints: set[str] = set()
    for raw in (ENTER, EXIT):
        parts = [unit for unit in units if unit.calls and unit.raw_tracepoint == raw]
        if len(parts) > MOST_BODIES or sum(1 for unit in parts for _ in nodes.walk(unit.body)) > MOST_NODES:
            raw_tracepoints.add(raw)
    return frozenset(raw_tracepoints)


def combine(units: list[ProbeUnit]) -> list[ProbeUnit]:
    """*units*; the program of the first one of each raw tracepoint contains the code of the others."""
    first: dict[str, str] = {}
    combined: list[ProbeUnit] = []
    for unit in units:
        if unit.calls:
            owner = first.setdefault(unit.raw_tracepoint, unit.symbol)
            combined.append(unit if owner == unit.symbol else replace(unit, part_of=owner))
        else:
            combined.append(unit)
    return combined


# ------------------------------------------------------------------------------------------------------ hot tracepoints


_HOT_FEATURE = "rawtracepoint"


def choose_hot(blocks: list[Block], program: nodes.Program, scope: Scope) -> list[Block]:
    """*blocks* with :attr:`Match.raw` set on the targets that raw tracepoint programs trace.

    Args:
        blocks: the blocks with their targets.
        program: the script, for the functions that blocks call.
        scope: the inputs of expansion.
    """
    places = dict.fromkeys(match.place for block in blocks for match in block.matches if _is_hot(match))
    if not places or scope.options.ahead or not scope.attaching:
        return blocks
    plain: dict[AnyTarget, str] = dict.fromkeys(places, _problem(scope))
    if not any(plain.values()):
        functions = {item.name: item for item in program.items if isinstance(item, nodes.Function)}
        known: dict[AnyTarget, _Fields] = {}
        for block in blocks:
            for match in filter(_is_hot, block.matches):
                fields = known.setdefault(match.place, _Fields.of(match.place, scope))
                plain[match.place] = plain[match.place] or _difference(block, fields, functions)
    if scope.options.verbose:
        _report(blocks, plain, scope)
    raw = {place for place, reason in plain.items() if not reason}
    return [
        replace(block, matches=[replace(match, raw=True) if match.place in raw else match for match in block.matches])
        for block in blocks
    ]


def _is_hot(match: Match) -> bool:
    place = match.place
    return isinstance(place, TracepointTarget) and (place.category, place.event) in tracepoints.TABLE


def _problem(scope: Scope) -> str:
    """The reason why raw tracepoint programs cannot be used; empty if they can."""
    kernel = scope.kernel
    if scope.config.raw_tracepoints == "plain":
        return "raw_tracepoints is plain"
    if kernel.arch not in call_numbers.ABIS:
        return f"not on {kernel.arch}"
    return "" if kernel.has_btf and scope.feature(_HOT_FEATURE) else "no raw tracepoints with types"


class _Fields(msgspec.Struct, frozen=True):
    """The fields of a tracepoint: all, the known ones, and those that are text."""

    all: frozenset[str]
    known: frozenset[str]
    texts: frozenset[str]
    typed: bool

    @classmethod
    def of(cls, place: AnyTarget, scope: Scope) -> _Fields:
        """The fields of the tracepoint at *place*."""
        assert isinstance(place, TracepointTarget), place
        kernel = scope.kernel
        fields = kernel.tracepoint_fields(place.category, place.event)
        shown: tuple[TracepointField, ...] = () if fields is None else tracepoints.own_fields(fields)
        known = tracepoints.raw_places(place.category, place.event, shown, kernel, trusted=False)
        return cls(
            frozenset(item.name for item in shown),
            frozenset(known),
            frozenset(item.name for item in shown if item.data_loc or isinstance(item.type, String)),
            fields is not None and kernel.type_id("typedef", f"btf_trace_{place.event}") != 0,
        )


def _bytes_of(roots: Iterable[nodes.Node], names: Iterable[str]) -> str:
    """A text field in *names* that *roots* access other than as a string; empty if there is none.

    Such code can observe the bytes after the NUL, or the address.
    """
    texts = frozenset(names)
    for root in roots:
        for node in nodes.walk(root):
            exposes = isinstance(node, _TEXT_OPERATORS) or (
                isinstance(node, nodes.Call) and node.name not in _TEXT_CALLS
            )
            for child in nodes.children(node) if exposes else ():
                if isinstance(child, nodes.FieldAccess) and is_args(child.base) and child.name in texts:
                    return child.name
    return ""


def _difference(block: Block, fields: _Fields, functions: Mapping[str, nodes.Function]) -> str:
    """The reason why a body would behave differently in a raw tracepoint program; empty if it would not."""
    uses = block.uses
    if not fields.typed:
        return "its types are not known"
    unknown = (fields.all | uses.fields if uses.whole else uses.fields) - fields.known
    if unknown:
        return f"args.{min(unknown)}"
    name = _type_specific(block.roots, functions)
    if name:
        return name
    name = _bytes_of(block.roots, fields.texts)
    return f"bytes of args.{name}" if name else ""


def _report(blocks: list[Block], plain: Mapping[AnyTarget, str], scope: Scope) -> None:
    """With ``-v``, report how tracepoints are traced, and why."""
    spans = {match.place: match.span for block in blocks for match in block.matches}
    raw = [_name(place) for place, reason in plain.items() if not reason]
    others = [f"{_name(place)} ({reason})" for place, reason in plain.items() if reason]
    first = spans[next(iter(plain))]
    for names, way in ((raw, "raw tracepoints"), (others, "perf events")):
        if names:
            scope.diagnostics.note(f"tracepoints by way of {way}: {', '.join(names)} (config raw_tracepoints)", first)


def _name(place: AnyTarget) -> str:
    assert isinstance(place, TracepointTarget), place
    return f"{place.category}:{place.event}"
