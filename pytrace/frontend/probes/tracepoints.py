"""tracepoint and rawtracepoint, the kernel's static trace points; iter, its iterators.

A tracepoint's fields can be read from the arguments of its raw tracepoint where their formulas are known.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Hashable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from pytrace.core import probe_kinds
from pytrace.core.diagnostics import similar
from pytrace.core.kernel_info import COMMON_FIELDS_END, DefinedEvent, FunctionPrototype, KernelInfo, TracepointField
from pytrace.core.probe_kinds import (
    BPF_FILE_SYSTEM,
    ITERATORS_OF_ONE_OBJECT,
    RAW_TRACEPOINT,
    SYSTEM_CALLS,
    IteratorTarget,
    KernelFunctionTarget,
    RawTracepointTarget,
    TracepointTarget,
    UserTarget,
)
from pytrace.core.source import Span
from pytrace.core.system_calls import ABIS
from pytrace.core.types import AddressSpace, Array, Bool, Enum, Int, Pointer, String, Struct, Type, plainly_read
from pytrace.frontend.probes import contexts
from pytrace.frontend.probes.contexts import args_struct
from pytrace.frontend.probes.providers import Match, Part, Point, Provider, Scope, Uses, matches_pattern, nearest
from pytrace.frontend.syntax.typed_program import (
    ArgumentLocation,
    ContextField,
    DataLoc,
    ProbeArgument,
    ProbeContext,
    RawField,
    RawRead,
    Slot,
)

# ----------------------------------------------------------------------------------------- fields at the raw tracepoint

# Locations of a tracepoint's fields at the raw tracepoint of the same name, validated against the kernel's BTF.
#
# An expression of TABLE is used only if BTF confirms it: the raw tracepoint has an argument of that name and
# type, the structs have the members, and size and sign are those of the field.
#
# The expressions are the assignments of `TP_fast_assign` in include/trace/events/{sched,block,net,skb}.h of Linux 5.8
# to 6.18. A field is in the table only if BTF of the running kernel determines its value: the rules for the state of
# `sched_switch`, for example, changed while arguments and field stayed the same.
#
# An expression is a path from an argument (`skb->dev->name`; `current` is the current task), or one of the formulas
# of FORMULAS with paths as operands. Of several expressions the first one is used whose members the kernel has.


VALUE, TEXT = "value", "text"
"""Formulas that consist of a path only: a number, or a text."""

_EXPRESSION = r"(?:(\w+)\()?([^()]+)\)?"
_STEP = r"(->|\.)(\w+)"


def raw_places(
    category: str, event: str, fields: Iterable[TracepointField], kernel: KernelInfo, trusted: bool
) -> dict[str, ArgumentLocation]:
    """The locations of the known fields, by name.

    Args:
        category: the tracepoint's category.
        event: its name.
        fields: the fields of its record.
        kernel: facts about the machine.
        trusted: the verifier lets programs dereference the arguments without a null check.
    """
    prototype = kernel.raw_tracepoint_prototype(event)
    row = TABLE.get((category, event))
    if row is None or prototype is None or prototype.module != "vmlinux" or sys.byteorder != "little":
        return {}
    raw = _Raw(prototype, kernel, trusted)
    locations: dict[str, ArgumentLocation] = {}
    for item in own_fields(fields):
        for source in row.get(item.name, ()):
            place = raw.place(source, item)
            if place is not None:
                locations[item.name] = place
                break
    return locations


def own_fields(fields: Iterable[TracepointField]) -> tuple[TracepointField, ...]:
    """The fields of a record without the common fields at its start."""
    return tuple(item for item in fields if item.offset >= COMMON_FIELDS_END)


def shape(type_: Type) -> tuple[int, bool] | None:
    """Size and sign of an integer type; None for other types."""
    if isinstance(type_, Int | Enum):
        return type_.size, type_.signed
    return (1, False) if isinstance(type_, Bool) else None


class _Raw(msgspec.Struct, frozen=True):
    """The arguments of a raw tracepoint."""

    prototype: FunctionPrototype
    kernel: KernelInfo
    trusted: bool

    def place(self, source: str, item: TracepointField) -> ArgumentLocation | None:
        """The location of a field from its expression; None if the kernel's BTF does not confirm it."""
        match = re.fullmatch(_EXPRESSION, source)
        assert match is not None, source
        name, operands = match[1], [text.strip() for text in match[2].split(",")]
        if name:
            return self._computed(name, operands, item)
        if isinstance(item.type, String):
            return self._text(source, item)
        return self._field_value(source, item)

    def _field_value(self, source: str, item: TracepointField) -> ArgumentLocation | None:
        if isinstance(item.type, Pointer):
            index, type_ = self._argument(source)
            return Slot(index) if isinstance(type_, Pointer) and item.size == type_.size else None
        end = self._follow(source)
        size = shape(item.type)
        if end is None or size is None or not end[0].size == size[0] == item.size:
            return None
        # In C an assignment between integers of the same size keeps the bits.
        return RawField(VALUE, (replace(end[0], signed=size[1]),))

    def _computed(self, name: str, operands: list[str], item: TracepointField) -> ArgumentLocation | None:
        formula = FORMULAS[name]
        numbers = self._passthrough_operations() if formula.ops else ()
        if shape(item.type) != formula.result or item.size != formula.result[0] or numbers is None:
            return None
        reads = [self._number(path, expected) for path, expected in zip(operands, formula.operands, strict=True)]
        known = tuple(read for read in reads if read is not None)
        return RawField(name, known, numbers) if len(known) == len(reads) else None

    def _passthrough_operations(self) -> tuple[int, ...] | None:
        """Number of operation bits in a request's flags, and the passthrough operations."""
        bits = self.kernel.enumerator(_OPERATION_BITS)
        enumerators = map(self.kernel.enumerator, _PASSTHROUGH)
        values = tuple(enumerator[1] for enumerator in enumerators if enumerator is not None)
        return (bits[1], *values) if bits is not None and values else None

    def _number(self, path: str, expected: tuple[int, bool]) -> RawRead | None:
        end = self._follow(path)
        return end[0] if end is not None and shape(end[1]) == expected else None

    def _text(self, path: str, item: TracepointField) -> ArgumentLocation | None:
        end = self._follow(path)
        if end is None:
            return None
        read, type_ = end
        if isinstance(type_, Pointer) and shape(type_.target) == (1, True) and item.data_loc:
            return RawField(TEXT, (RawRead(read.slot, (*read.offsets, 0), 0, direct=read.direct),))
        capacity = _text_capacity(type_)
        if not capacity or not (item.data_loc or item.size == capacity):
            return None
        return RawField(TEXT, (RawRead(read.slot, read.offsets, 0, direct=read.direct),))

    def _argument(self, name: str) -> tuple[int, Type | None]:
        """Index and type of an argument."""
        for index, (parameter, type_) in enumerate(self.prototype.parameters):
            if parameter == name:
                return index, type_
        return 0, None

    def _follow(self, path: str) -> tuple[RawRead, Type] | None:
        """The value at the end of a path, and its type; None if the kernel lacks one of the members."""
        name = path.partition("->")[0].partition(".")[0]
        steps = re.findall(_STEP, path)
        slot: int | None = None
        type_: Type | None
        if name == "current":
            struct = self.kernel.struct("struct", STRUCTS[name])
            type_ = Pointer(struct) if struct is not None else None
        else:
            slot, type_ = self._argument(name)
        if type_ is None:
            return None
        if not steps:
            known = shape(type_)
            return (RawRead(slot, (), *known), type_) if known is not None else None
        if not isinstance(type_, Pointer) or not _is_struct(type_.target, STRUCTS[name]):
            return None
        offsets = _offsets(type_, steps)
        if offsets is None:
            return None
        places, last = offsets
        first = 8 if len(places) > 1 else last.size
        text = not last.scalar and len(places) == 1
        direct = self.trusted and slot is not None and (text or plainly_read(type_.target, places[0], first))
        size, signed = shape(last) or (last.size, False)
        return RawRead(slot, places, size, signed, direct), last


def _offsets(type_: Type, steps: Iterable[tuple[str, str]]) -> tuple[tuple[int, ...], Type] | None:
    """Offsets of the members on a path that begins with a pointer, and the type of the last one."""
    offsets: list[int] = []
    for how, name in steps:
        if how == "->":
            if not isinstance(type_, Pointer):
                return None
            type_, base = type_.target, 0
        else:
            base = offsets.pop()
        if isinstance(type_, Array):
            type_ = type_.element
        member = type_.find(name) if isinstance(type_, Struct) else None
        if member is None or member.bit_size:
            return None
        offsets.append(base + member.offset)
        type_ = member.type
    return tuple(offsets), type_


def _is_struct(type_: Type, name: str) -> bool:
    return isinstance(type_, Struct) and (type_.kind, type_.name) == ("struct", name)


def _text_capacity(type_: Type) -> int:
    """Capacity of an array of characters; 0 for other types."""
    if isinstance(type_, String):
        return type_.capacity
    return type_.count if isinstance(type_, Array) and shape(type_.element) == (1, True) else 0


# ---------------------------------------------------------------------------------------------- known tracepoints

STRUCTS = {
    "bprm": "linux_binprm",
    "child": "task_struct",
    "current": "task_struct",
    "dev": "net_device",
    "next": "task_struct",
    "p": "task_struct",
    "parent": "task_struct",
    "pid": "pid",
    "prev": "task_struct",
    "rq": "request",
    "skb": "sk_buff",
    "tsk": "task_struct",
}
"""The struct that an argument must point to, by the argument's name at the start of a path."""


class Formula(msgspec.Struct, frozen=True):
    """Size and sign of the operands and of the result; *ops*: it needs the passthrough operations."""

    operands: tuple[tuple[int, bool], ...]
    result: tuple[int, bool]
    ops: bool = False


_U16, _U32, _S32, _U64 = (2, False), (4, False), (4, True), (8, False)

FORMULAS: Mapping[str, Formula] = {
    "ntohs": Formula((_U16,), _U16),
    "sectors": Formula((_U32,), _U32),
    "device": Formula((_S32, _S32), _U32),
    "traced_sector": Formula((_U32, _U64), _U64, ops=True),
    "traced_sectors": Formula((_U32, _U32), _U32, ops=True),
}
"""Formulas that ``codegen.emit.context`` implements:

``ntohs`` swaps two bytes; ``sectors`` is a number of bytes in units of 512; ``device`` is ``MKDEV`` of major and
minor; ``traced_sector`` and ``traced_sectors`` are ``blk_rq_trace_sector`` and ``blk_rq_trace_nr_sectors`` of
include/linux/blktrace_api.h: zero for passthrough requests.
"""

_PASSTHROUGH = ("REQ_OP_SCSI_IN", "REQ_OP_SCSI_OUT", "REQ_OP_DRV_IN", "REQ_OP_DRV_OUT")
"""The operations of passthrough requests (``blk_op_is_passthrough``); the first two until 5.14."""
_OPERATION_BITS = "__REQ_FAILFAST_DEV"
"""The first flag after the operation: its value is the number of the operation's bits in ``cmd_flags``."""

Sources = tuple[str, ...]
Row = dict[str, Sources]


def _row(**fields: str | Sources) -> Row:
    return {name: (item,) if isinstance(item, str) else item for name, item in fields.items()}


_CPU = ("p->thread_info.cpu", "p->cpu")
"""``task_cpu``; the second one before 5.16 (thread_info in the task, as on all machines that pytrace knows)."""
_WAKEUP = _row(comm="p->comm", pid="p->pid", prio="p->prio", target_cpu=_CPU)
_PROCESS = _row(comm="p->comm", pid="p->pid", prio="p->prio")
_DEVICE = (
    "device(rq->rq_disk->major, rq->rq_disk->first_minor)",
    "device(rq->q->disk->major, rq->q->disk->first_minor)",
)
"""``disk_devt``, 0 without a disk; requests have a disk of their own until 5.16."""
_PRIORITY = ("rq->ioprio", "rq->bio->bi_ioprio")
"""``req_get_ioprio``; requests have a priority of their own until 6.12."""
_REQUEST = _row(
    dev=_DEVICE,
    sector="traced_sector(rq->cmd_flags, rq->__sector)",
    nr_sector="traced_sectors(rq->cmd_flags, rq->__data_len)",
    bytes="rq->__data_len",
    ioprio=_PRIORITY,
    comm="current->comm",
)
_PACKET = _row(skbaddr="skb", len="skb->len", name="skb->dev->name")

TABLE: Mapping[tuple[str, str], Row] = {
    ("sched", "sched_switch"): _row(
        prev_comm="prev->comm", prev_pid="prev->pid", prev_prio="prev->prio",
        next_comm="next->comm", next_pid="next->pid", next_prio="next->prio",
    ),
    ("sched", "sched_wakeup"): _WAKEUP,
    ("sched", "sched_wakeup_new"): _WAKEUP,
    ("sched", "sched_waking"): _WAKEUP,
    ("sched", "sched_migrate_task"): _row(
        comm="p->comm", pid="p->pid", prio="p->prio", orig_cpu=_CPU, dest_cpu="dest_cpu"
    ),
    ("sched", "sched_stat_runtime"): _row(comm="tsk->comm", pid="tsk->pid", runtime="runtime"),
    ("sched", "sched_process_fork"): _row(
        parent_comm="parent->comm", parent_pid="parent->pid", child_comm="child->comm", child_pid="child->pid"
    ),
    ("sched", "sched_process_exec"): _row(filename="bprm->filename", pid="p->pid", old_pid="old_pid"),
    ("sched", "sched_process_exit"): _row(
        comm="p->comm", pid="p->pid", prio="p->prio", group_dead="group_dead"
    ),
    ("sched", "sched_process_free"): _PROCESS,
    ("sched", "sched_process_wait"): _row(comm="current->comm", pid="pid->numbers.nr", prio="current->prio"),
    ("block", "block_rq_insert"): _REQUEST,
    ("block", "block_rq_issue"): _REQUEST,
    ("block", "block_rq_merge"): _REQUEST,
    ("block", "block_io_start"): _REQUEST,
    ("block", "block_io_done"): _REQUEST,
    ("block", "block_rq_complete"): _row(
        dev=_DEVICE, sector="rq->__sector", nr_sector="sectors(nr_bytes)", error="error", ioprio=_PRIORITY
    ),
    ("net", "net_dev_queue"): _PACKET,
    ("net", "netif_receive_skb"): _PACKET,
    ("net", "netif_rx"): _PACKET,
    ("net", "net_dev_start_xmit"): _row(
        name="dev->name", queue_mapping="skb->queue_mapping", skbaddr="skb", vlan_proto="ntohs(skb->vlan_proto)",
        vlan_tci="skb->vlan_tci", protocol="ntohs(skb->protocol)", len="skb->len", data_len="skb->data_len",
    ),
    ("net", "net_dev_xmit"): _row(skbaddr="skb", len="skb_len", rc="rc", name="dev->name"),
    ("skb", "kfree_skb"): _row(
        skbaddr="skb", location="location", rx_sk="rx_sk", protocol="ntohs(skb->protocol)", reason="reason"
    ),
    ("skb", "consume_skb"): _row(skbaddr="skb", location="location"),
}  # fmt: skip
"""Expressions of the known fields, by category and name of the tracepoint."""


# ------------------------------------------------------------------------------------------------------------ providers


def tracepoint(
    target: TracepointTarget,
    fields: Iterable[TracepointField],
    max_strlen: int,
    places: Mapping[str, ArgumentLocation | None] | None = None,
) -> ProbeContext:
    """The context of a tracepoint, from the fields of its format.

    *places* are the locations of the fields in a raw tracepoint program, which has only those fields.
    """
    own = [item for item in fields if item.offset >= COMMON_FIELDS_END]
    known = places if places is not None else {item.name: _field_place(item) for item in own}
    arguments = tuple(
        ProbeArgument(item.name, _field_type(item, max_strlen), place)
        for item in own
        if (place := known.get(item.name)) is not None
    )
    return ProbeContext(arguments, args_struct(f"tracepoint:{target.category}:{target.event}", arguments))


class Tracepoint(Provider):
    """``tracepoint:CATEGORY:EVENT``; a pattern alone means any category."""

    shape = "{}:CATEGORY:EVENT"

    def fit(self, point: Point) -> bool:
        return len(point.parts) == 2 or (len(point.parts) == 1 and point.parts[0].wild)

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        parts = point.parts
        if len(parts) == 1 and parts[0].wild:
            category, event = Part("*", parts[0].span), parts[0]
        elif len(parts) == 2 and all(part.text for part in parts):
            category, event = parts
        else:
            return self._report_bad(point, scope)
        wild = category.wild or event.wild
        events = scope.kernel.tracepoints(category.text, event.text)
        if not events:
            self._report_missing(point, category, event, scope)
        matches: list[Match] = []
        for group, name in events:
            probe = f"{point.kind.name}:{group}:{name}"
            defined = scope.kernel.defined_event(group, name) if scope.attaching else None
            if defined is None:
                matches.append(Match(point.kind, probe, TracepointTarget(group, name), point.span, wild=wild))
                continue
            match = _defined_probe(probe, defined, point.span)
            if match is not None:
                matches.append(match)
            elif not wild:
                message = f"{probe} is no tracepoint: programs cannot be attached to an event that was defined as"
                scope.missing(f"{message} '{defined.definition}'", point.span)
        return matches

    def _report_bad(self, point: Point, scope: Scope) -> list[Match]:
        if len(point.parts) == 1 and point.parts[0].text:
            event = point.parts[0].text
            known = [f"tracepoint:{group}:{name}" for group, name in scope.kernel.tracepoints("*", event)]
            if known:
                message = f"tracepoint {event!r} needs its category"
                return scope.error(message, point.span, [f"write {' or '.join(known)}"])
        return self.bad_shape(point, scope)

    def _report_missing(self, point: Point, category: Part, event: Part, scope: Scope) -> None:
        if category.wild or event.wild:
            scope.unmatched(f"no tracepoint matches {category.text}:{event.text}", point.span)
            return
        if scope.ignores_missing:
            return
        events = [name for _, name in scope.kernel.tracepoints(category.text, "*")]
        if events:
            hints = nearest(event.text, events, f"tracepoint:{category.text}:{{}}")
            message = f"there is no event {event.text!r} in tracepoint category {category.text!r}"
            scope.missing(message, point.span, hints)
            return
        groups = dict.fromkeys(group for group, _ in scope.kernel.tracepoints("*", "*"))
        elsewhere = [group for group, _ in scope.kernel.tracepoints("*", event.text)]
        # A category of a similar name is a suggestion only if it has the event, or a similar one.
        hints = nearest(category.text, elsewhere, f"tracepoint:{{}}:{event.text}")
        if not elsewhere:
            for group in similar(category.text, groups):
                events = [name for _, name in scope.kernel.tracepoints(group, "*")]
                hints = hints or nearest(event.text, events, f"tracepoint:{group}:{{}}")
        if elsewhere and not hints:
            hints = [f"there is tracepoint:{elsewhere[0]}:{event.text}"]
        if not groups:
            hints = ["no tracepoints are visible: is tracefs mounted (mount -t tracefs tracefs /sys/kernel/tracing)?"]
        scope.missing(f"there is no tracepoint category {category.text!r}", point.span, hints)

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        if not uses.args:
            return ProbeContext()
        place = match.of(TracepointTarget)
        category, event = place.category, place.event
        fields = scope.kernel.tracepoint_fields(category, event)
        if fields is None:
            scope.error(f"the format of {match.probe} cannot be read, so args is not known", match.span)
            return ProbeContext()
        if match.call is not None:
            places = contexts.system_call_places(fields, place.call[0], ABIS[scope.kernel.arch])
            return tracepoint(place, fields, scope.config.max_strlen, places)
        if match.raw:
            known = raw_places(category, event, fields, scope.kernel, event in _NEVER_NULL)
            return tracepoint(place, fields, scope.config.max_strlen, known)
        return tracepoint(place, fields, scope.config.max_strlen)

    def apart(self, match: Match) -> Hashable:
        # A program of a raw tracepoint has either entries or exits.
        return "" if match.call is None else match.of(TracepointTarget).call[0]

    def multi(self, matches: list[Match], scope: Scope) -> str:
        del scope
        if matches[0].raw:
            return RAW_TRACEPOINT
        return "" if matches[0].call is None else SYSTEM_CALLS


def _defined_probe(probe: str, event: DefinedEvent, span: Span) -> Match | None:
    """A probe at the place of an event that somebody defined; None where that is no probe.

    The kernel gives programs at such an event the registers, not its record (``perf_event_set_bpf_prog``), so they are
    attached to the place itself.
    """
    if event.path:
        kind = probe_kinds.known_kind(probe_kinds.UPROBE if event.letter == "p" else probe_kinds.URETPROBE)
        return Match(kind, probe, UserTarget(event.path, event.offset), span, event)
    if event.function:
        kind = probe_kinds.known_kind(probe_kinds.KPROBE if event.letter == "p" else probe_kinds.KRETPROBE)
        return Match(kind, probe, KernelFunctionTarget(event.function, event.module, event.offset), span, event)
    return None


# fmt: off
_NEVER_NULL = frozenset({
    "sched_switch", "sched_wakeup", "sched_wakeup_new", "sched_waking", "sched_migrate_task", "sched_process_exec",
    "sched_process_exit", "sched_process_fork", "sched_process_free", "sched_stat_runtime", "sched_stat_wait",
    "sched_stat_sleep", "sched_stat_iowait", "sched_stat_blocked", "task_newtask", "task_rename", "sys_enter",
    "sys_exit", "block_rq_issue", "block_rq_complete", "block_rq_insert", "net_dev_queue", "net_dev_start_xmit",
    "net_dev_xmit", "netif_rx", "netif_receive_skb", "consume_skb", "inet_sock_set_state", "irq_handler_entry",
    "irq_handler_exit", "hrtimer_start", "hrtimer_expire_entry", "hrtimer_expire_exit", "hrtimer_cancel",
    "workqueue_execute_start", "workqueue_execute_end",
})
# fmt: on
"""Raw tracepoints whose pointer arguments the verifier never treats as possibly null.

The kernel has a list of those that may be null (``raw_tp_null_args`` in kernel/bpf/btf.c), which changes between
versions. At tracepoints that are not hot, arguments are read through helpers, which always works.
"""


class RawTracepoint(Provider):
    """``rawtracepoint:[MODULE:]EVENT``, typed by BTF."""

    single = True
    shape = "{0}:EVENT or {0}:MODULE:EVENT"

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        if not self.fit(point) or not all(part.text for part in point.parts):
            return self.bad_shape(point, scope)
        if not scope.kernel.has_btf:
            hints = ["tracepoint probes work without type information"]
            return scope.missing("rawtracepoint needs a kernel with BTF (CONFIG_DEBUG_INFO_BTF)", point.span, hints)
        event = point.parts[-1]
        module = point.parts[0].text if len(point.parts) == 2 else "*"
        events = [item for item in scope.kernel.raw_tracepoints(event.text) if matches_pattern(module, item[0])]
        if len(events) > 1 and len(point.parts) == 1 and not event.wild:
            # The same event in several modules: the kernel proper is meant.
            events = [item for item in events if item[0] == "vmlinux"] or events[:1]
        if not events:
            self._report_missing(point.span, module, event, scope)
        return [
            Match(
                point.kind,
                f"{point.kind.name}:{owner}:{name}",
                RawTracepointTarget(name, owner),
                point.span,
                wild=event.wild or "*" in module,
            )
            for owner, name in events
        ]

    def _report_missing(self, span: Span, module: str, event: Part, scope: Scope) -> None:
        where = "" if module == "*" else f" in module {module}"
        if event.wild or ("*" in module and module != "*"):
            scope.unmatched(f"no raw tracepoint matches {event.text}{where}", span)
            return
        if scope.ignores_missing:
            return
        elsewhere = [owner for owner, _ in scope.kernel.raw_tracepoints(event.text)]
        hints = [f"there is rawtracepoint:{owner}:{event.text}" for owner in elsewhere[:3]]
        if not hints:
            known = [name for _, name in scope.kernel.raw_tracepoints("*")]
            hints = nearest(event.text, known, "rawtracepoint:{}")
        scope.missing(f"there is no raw tracepoint {event.text!r}{where}", span, hints)

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        del uses
        event = match.of(RawTracepointTarget).event
        prototype = scope.kernel.raw_tracepoint_prototype(event)
        if prototype is None:
            scope.missing(f"BTF does not describe the arguments of {match.probe}", match.span)
            return ProbeContext()
        return contexts.slots(match.probe, prototype, returns=False, known=event in _NEVER_NULL)


# ---------------------------------------------------------------------------------------------- iterators


def _iterator(context: Struct) -> ProbeContext:
    """The context of an iterator: ``ctx`` points to ``struct bpf_iter__TYPE``."""
    return ProbeContext(ctx_type=Pointer(context, AddressSpace.BPF))


def _kernel_strings(type_: Type) -> Type:
    """*type_*, or a string of the same size for an array of ``char``."""
    element = type_.element if isinstance(type_, Array) else None
    if isinstance(type_, Array) and isinstance(element, Int) and element.width == 1 and element.signed:
        return String(type_.count)
    return type_


def _field_type(item: TracepointField, max_strlen: int) -> Type:
    if not item.data_loc:
        return _kernel_strings(item.type)
    element = item.type
    while isinstance(element, Array | Pointer):
        element = element.element if isinstance(element, Array) else element.target
    if isinstance(element, String) or (isinstance(element, Int) and element.width == 1 and element.signed):
        return String(max_strlen)
    # The number of elements is known at run time only, so the field is a pointer to the first one.
    return Pointer(element, AddressSpace.KERNEL)


def _field_place(item: TracepointField) -> ArgumentLocation:
    return DataLoc(item.offset, item.relative) if item.data_loc else ContextField(item.offset)


class Iterator(Provider):
    """``iter:TYPE[:PIN]``; a pin is a path, relative ones below ``/sys/fs/bpf``."""

    single = True
    shape = "{0}:TYPE or {0}:TYPE:PIN"

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        if not self.fit(point) or not point.parts[0].text:
            return self.bad_shape(point, scope)
        name = point.parts[0]
        if name.text in ITERATORS_OF_ONE_OBJECT:
            message = f"iter:{name.text} iterates over one map or cgroup, which a probe cannot name"
            return scope.missing(message, name.span)
        known = [iterator for iterator in scope.kernel.iterators() if iterator not in ITERATORS_OF_ONE_OBJECT]
        if name.wild:
            return scope.error("iter takes no pattern", name.span, [f"iterators are {', '.join(sorted(known))}"])
        if not known:
            return scope.missing("this kernel has no BPF iterators (they need BTF)", point.span)
        if name.text not in known:
            hints = nearest(name.text, known, "iter:{}") or [f"iterators are {', '.join(sorted(known))}"]
            return scope.missing(f"there is no iterator {name.text!r}", name.span, hints)
        pin = point.parts[1].text if len(point.parts) == 2 else ""
        suffix = f":{pin}" if pin else ""
        place = IteratorTarget(name.text, posixpath.join(BPF_FILE_SYSTEM, pin) if pin else "")
        return [Match(point.kind, f"{point.kind.name}:{name.text}{suffix}", place, point.span)]

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        del uses
        return _iterator(scope.kernel.iterators()[match.of(IteratorTarget).iterator])
