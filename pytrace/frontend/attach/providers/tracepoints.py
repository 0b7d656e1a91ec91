"""tracepoint and rawtracepoint, the kernel's static trace points; iter, its iterators."""

from __future__ import annotations

import posixpath
from collections.abc import Hashable

from pytrace.core.kernel_info import DefinedEvent
from pytrace.core.probes import kinds
from pytrace.core.probes.system_calls import ABIS
from pytrace.core.probes.targets import (
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
from pytrace.frontend.attach.points import contexts, raw_fields
from pytrace.frontend.attach.points.body_uses import Uses
from pytrace.frontend.attach.points.parts import Part, Point
from pytrace.frontend.attach.providers.base import Match, Provider, Scope, matches_pattern, nearest
from pytrace.frontend.syntax.typed_program import ProbeContext


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
            return self._bad(point, scope)
        wild = category.wild or event.wild
        events = scope.kernel.tracepoints(category.text, event.text)
        if not events:
            self._missing(point, category, event, scope)
        matches: list[Match] = []
        for group, name in events:
            probe = f"{point.kind.name}:{group}:{name}"
            defined = scope.kernel.defined_event(group, name) if scope.attaching else None
            if defined is None:
                matches.append(Match(point.kind, probe, TracepointTarget(group, name), point.span, wild=wild))
                continue
            match = _defined(probe, defined, point.span)
            if match is not None:
                matches.append(match)
            elif not wild:
                message = f"{probe} is no tracepoint: programs cannot be attached to an event that was defined as"
                scope.missing(f"{message} '{defined.definition}'", point.span)
        return matches

    def _bad(self, point: Point, scope: Scope) -> list[Match]:
        if len(point.parts) == 1 and point.parts[0].text:
            event = point.parts[0].text
            known = [f"tracepoint:{group}:{name}" for group, name in scope.kernel.tracepoints("*", event)]
            if known:
                message = f"tracepoint {event!r} needs its category"
                return scope.error(message, point.span, [f"write {' or '.join(known)}"])
        return self.bad_shape(point, scope)

    def _missing(self, point: Point, category: Part, event: Part, scope: Scope) -> None:
        if category.wild or event.wild:
            scope.unmatched(f"no tracepoint matches {category.text}:{event.text}", point.span)
            return
        events = [name for _, name in scope.kernel.tracepoints(category.text, "*")]
        if events:
            hints = nearest(event.text, events, f"tracepoint:{category.text}:{{}}")
            message = f"there is no event {event.text!r} in tracepoint category {category.text!r}"
            scope.missing(message, point.span, hints)
            return
        groups = dict.fromkeys(group for group, _ in scope.kernel.tracepoints("*", "*"))
        elsewhere = [group for group, _ in scope.kernel.tracepoints("*", event.text)]
        hints = nearest(category.text, [*elsewhere, *groups], f"tracepoint:{{}}:{event.text}")
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
            return contexts.tracepoint(place, fields, scope.config.max_strlen, places)
        if match.raw:
            known = raw_fields.places(category, event, fields, scope.kernel, event in NEVER_NULL)
            return contexts.tracepoint(place, fields, scope.config.max_strlen, known)
        return contexts.tracepoint(place, fields, scope.config.max_strlen)

    def apart(self, match: Match) -> Hashable:
        # A program of a raw tracepoint has either entries or exits.
        return "" if match.call is None else match.of(TracepointTarget).call[0]

    def multi(self, matches: list[Match], scope: Scope) -> str:
        del scope
        if matches[0].raw:
            return RAW_TRACEPOINT
        return "" if matches[0].call is None else SYSTEM_CALLS


def _defined(probe: str, event: DefinedEvent, span: Span) -> Match | None:
    """A probe at the place of an event that somebody defined; None where that is no probe.

    The kernel gives programs at such an event the registers, not its record (``perf_event_set_bpf_prog``), so they are
    attached to the place itself.
    """
    if event.path:
        kind = kinds.known_kind(kinds.UPROBE if event.letter == "p" else kinds.URETPROBE)
        return Match(kind, probe, UserTarget(event.path, event.offset), span, event)
    if event.function:
        kind = kinds.known_kind(kinds.KPROBE if event.letter == "p" else kinds.KRETPROBE)
        return Match(kind, probe, KernelFunctionTarget(event.function, event.module, event.offset), span, event)
    return None


# fmt: off
NEVER_NULL = frozenset({
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
        events = self._find(module, event.text, scope)
        if len(events) > 1 and len(point.parts) == 1 and not event.wild:
            # The same event in several modules: the kernel proper is meant.
            events = [item for item in events if item[0] == "vmlinux"] or events[:1]
        if not events:
            self._missing(point.span, module, event, scope)
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

    def _find(self, module: str, event: str, scope: Scope) -> list[tuple[str, str]]:
        return [item for item in scope.kernel.raw_tracepoints(event) if matches_pattern(module, item[0])]

    def _missing(self, span: Span, module: str, event: Part, scope: Scope) -> None:
        where = "" if module == "*" else f" in module {module}"
        if event.wild or ("*" in module and module != "*"):
            scope.unmatched(f"no raw tracepoint matches {event.text}{where}", span)
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
        return contexts.slots(match.probe, prototype, returns=False, known=event in NEVER_NULL)


# ---------------------------------------------------------------------------------------------- iterators


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
        return contexts.iterator(scope.kernel.iterators()[match.of(IteratorTarget).iterator])
