"""Reads the maps of ``account.bt``: states of threads, causes of waiting, who ended the waits, chains of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

import msgspec

from pytrace.account import causes
from pytrace.account.account import Account, Hop, Line, Part, Step, Task, Thread, Who
from pytrace.account.causes import Cause
from pytrace.account.chains import Link, Segment, Span, Timeline, Wait
from pytrace.account.frames import (
    Place,
    event_loop,
    own_place,
    own_places,
    place_of,
    ring_operation,
    scheduling_frames,
    sleeping_library,
    task_of,
    waiting_function,
)
from pytrace.account.goroutines import (
    BEFORE,
    RUNNABLE,
    RUNS,
    WAITS,
    GoroutineKey,
    Spent,
    Turn,
    split,
)
from pytrace.core import types
from pytrace.results.snapshot import Frame, MapData, Portable, SnapshotData, StackTrace

_T = TypeVar("_T")

ON_CPU, PREEMPTED, WOKEN, NEW, YIELDED, THROTTLED, STOPPED, TRACED, FROZEN, UNSEEN = range(1, 11)
"""States without a stack: ``enum states`` of ``account.bt``."""

_RUNNABLE = 11
"""Of goroutines in place of ``enum routine_states``: can run, and no thread runs it."""

_MAIN = "runtime.main"
"""What the first goroutine of a program begins with."""

_SAMPLED = 0xFFFF
"""What samples have in place of a system call."""
_PARKED, _READIED = 0xFFFD, 0xFFFC
"""The same of goroutines that wait (or begin), and of those who make them runnable."""

_READY = {PREEMPTED: "preempted", WOKEN: "woken", NEW: "new", YIELDED: "yielded"}
_HELD_UP = {
    THROTTLED: Cause("throttled", "throttled by its cgroup", tool="runqlat"),
    STOPPED: Cause("stopped", "stopped by a signal", tool="killsnoop"),
    TRACED: Cause("traced", "held by a debugger", tool="offcputime"),
    FROZEN: Cause("frozen", "frozen by a cgroup", tool="offcputime"),
    UNSEEN: Cause(
        "unseen", "waiting since before the trace", idle="a wait from before the trace", always_idle=True,
        tool="offcputime",
    ),
}  # fmt: skip
_NAMED = (STOPPED, TRACED, FROZEN)
"""States whose place is the thread itself."""
CPU = Cause("cpu", "on CPU", tool="flame")
_RUN_QUEUE = Cause("run-queue", "waiting for a CPU", tool="runqlat")
SHORT = Cause("short", "shorter waits", tool="why --min 0")
_LOST = Cause("not-kept", "waiting, the cause was not kept", tool="offcputime")


class _Site(NamedTuple):
    """A place as the script kept it."""

    pid: int
    comm: str
    call: int
    kind: int
    kernel: tuple[Frame, ...]
    user: tuple[Frame, ...]


class _Life(NamedTuple):
    """A thread: the value of ``@life``.

    *cpu* is its CPU time at the beginning; *base* and *delay* are the kernel's account where that is comparable first;
    *ran*, *delayed* and *seen* (the script's own) those of a thread that has ended.
    """

    pid: int
    comm: str
    begin: int
    end: int
    cpu: int
    base: int
    delay: int
    ran: int
    delayed: int
    seen: int
    parent: int


class _State(NamedTuple):
    """What a thread that has not ended is in: the value of ``@thread``."""

    at: int
    state: int
    object: int
    owner: int
    held: int
    counted: int
    seen: int
    ran: int
    delayed: int


class _Description(NamedTuple):
    """What an object is: the value of ``@object``."""

    kind: int
    name: str
    above: str
    further: str
    address: str
    port: int
    here: bool
    pid: int


class _Group:
    """Waits of one line, while they are added up."""

    def __init__(self, cause: Cause, about: str) -> None:
        self.cause, self.about = cause, about
        self.count = self.ns = self.most = 0
        self.parts: dict[Place, int] = defaultdict(int)
        self.by_part: dict[Place, set[int]] = defaultdict(set)
        self.threads: set[int] = set()
        self.sites: set[int] = set()
        self.keys: set[tuple[int, int, int]] = set()

    def add(self, tid: int, site: int, object_: int, place: Place, spent: Spent) -> None:
        self.keys.add((tid, site, object_))
        self.count += spent.times
        self.ns += spent.ns
        self.most = max(self.most, spent.most)
        self.parts[place] += spent.ns
        self.by_part[place].add(tid)
        self.threads.add(tid)
        self.sites.add(site)

    def sorted_parts(self) -> tuple[Part, ...]:
        """By function, with the line of it where most was spent."""
        lines: dict[tuple[str, str], list[Place]] = defaultdict(list)
        for place in self.parts:
            lines[place.function, place.file].append(place)
        parts = (
            Part(
                max(places, key=lambda place: self.parts[place]),
                sum(self.parts[place] for place in places),
                len({tid for place in places for tid in self.by_part[place]}),
            )
            for places in lines.values()
        )
        return tuple(sorted(parts, key=lambda part: -part.ns))


class Reading:
    """Reads the maps of a run.

    Args:
        snapshot: of the end of the run of ``account.bt``.
        target: what was traced, for people.
        options: options that select the same for another tool.
        attached: the processes ran already (``-p``): their main threads may be idle, too.
        alive: by thread id, the names of threads that have not ended.
        limit: nanoseconds of the shortest waits of chains.
    """

    def __init__(
        self, snapshot: SnapshotData, target: str, options: str, *, attached: bool, alive: Mapping[int, str],
        limit: int = 1_000_000,
    ) -> None:  # fmt: skip
        self._maps = {name: data.entries for name, data in snapshot.maps.items()}
        self.losses, self.runs = snapshot.losses, snapshot.runs
        self._target, self._options, self._attached, self._alive = target, options, attached, alive
        self._limit = limit

    def recorded(self, name: str, type_: type[_T]) -> _T:
        """The keys and values of a map, of the types that the script gives them."""
        return msgspec.convert(list(self._maps.get(name, {}).items()), type_)

    def _number(self, name: str) -> int:
        return next((value for _, value in self.recorded(name, list[tuple[None, int]])), 0)

    # ---- plain contents

    @cached_property
    def _sites(self) -> dict[int, _Site]:
        rows = self.recorded("@place", list[tuple[int, tuple[int, str, int, int, StackTrace, StackTrace]]])
        return {
            # Late places have no name, and the stack of nobody.
            number: _Site(pid, comm, call, kind, kernel.frames, user.frames if comm else ())
            for number, (pid, comm, call, kind, kernel, user) in rows
        }

    @cached_property
    def _running(self) -> dict[int, _State]:
        return dict(self.recorded("@thread", list[tuple[int, _State]]))

    @cached_property
    def _lives(self) -> dict[int, _Life]:
        return dict(self.recorded("@life", list[tuple[int, _Life]]))

    @cached_property
    def _threads(self) -> dict[int, Thread]:
        over, found = self._number("@over"), {}
        for tid, life in self._lives.items():
            thread = Thread(tid, life.pid, life.comm, life.begin, life.end or over)
            thread.name = self._alive.get(tid) or life.comm
            last = life if life.end else self._running.get(tid)
            if last is not None and last.ran:
                thread.kernel_cpu, thread.kernel_delay = last.ran - life.base, last.delayed - life.delay
                thread.compared = last.seen
            found[tid] = thread
        return found

    @cached_property
    def _objects(self) -> dict[int, _Description]:
        return dict(self.recorded("@object", list[tuple[int, _Description]]))

    @cached_property
    def _time(self) -> dict[tuple[int, int, int], Spent]:
        """Thread, state and object, with what was spent; open states reach to the end."""
        found = dict(self.recorded("@time", list[tuple[tuple[int, int, int], Spent]]))
        over = self._number("@over")
        for tid, (at, state, object_, *_) in self._running.items():
            ns = max(over - at, 0)
            old = found.get((tid, state, object_), Spent(0, 0, 0))
            found[tid, state, object_] = Spent(old.times + 1, old.ns + ns, max(old.most, ns))
        return found

    @cached_property
    def _sampled(self) -> list[tuple[tuple[int, int], int]]:
        """Threads and the places where samples met them on a CPU, with the number of samples."""
        return self.recorded("@sampled", list[tuple[tuple[int, int], int]])

    # ---- names

    def about(self, object_: int, cause: Cause) -> str:
        """What an object is: a path, an address, a process."""
        if cause.about and cause.name in ("condition", "semaphore", "futex", "join", "accept", "terminal"):
            return ""
        if cause.name == "throttled":
            return self._limits.get(object_, "")
        known = self._objects.get(object_)
        if known is None:
            return ""
        kind, name, above, further, address, port, here, pid = known
        if kind & 0x100:
            family = kind & 0xFF
            if family == causes.UNIX:
                return self._process(pid) if pid else "a socket"
            return f"own port {port}" if here else f"{address}:{port}" if ":" not in address else f"[{address}]:{port}"
        if kind == causes.PIPE:
            return ""
        parts = [part for part in (further, above, name) if part and part != "/"]
        return "/".join(parts[-2:]) if kind in (causes.FILE, causes.DIRECTORY) else name

    @cached_property
    def _limits(self) -> dict[int, str]:
        """Limits of cgroups, and how often they were reached: the counters of ``cpu.stat``."""
        rows = self.recorded("@limit", list[tuple[int, tuple[str, int, int, int, int, int, int]]])
        return {
            number: f"limit of {quota / period:.2g} CPU reached in {reached - first + 1} of"
            f" {max(periods - begin, reached - first) + 1} periods{f' ({name})' * bool(name)}"
            for number, (name, quota, period, begin, first, periods, reached) in rows if period
        }  # fmt: skip

    def _name(self, tid: int) -> str:
        if tid < 0:
            root = self._goroutine_names.get(tid, "a goroutine")
            return "main.main" if root == _MAIN else root
        return self._threads[tid].name if tid in self._threads else f"thread {tid}"

    def _process(self, pid: int) -> str:
        names = [thread.name for thread in self._threads.values() if thread.tid == pid]
        return f"{names[0]} ({pid})" if names else f"process {pid}"

    @cached_property
    def _place(self) -> dict[int, Place]:
        return {number: place_of(site.user, site.kernel, site.comm) for number, site in self._sites.items()}

    def place(self, number: int) -> Place:
        """The place of a number of ``@place``."""
        return self._place.get(number) or Place("?")

    @cached_property
    def _cause(self) -> dict[int, Cause]:
        found = {number: self._cause_at(site) for number, site in self._sites.items()}
        ended: dict[int, int] = defaultdict(int)
        ends: dict[int, Cause] = {}
        for (site, by), ns in self._woken:
            if by not in self._sites:
                continue
            if (cause := found.get(site, _LOST)).name == "events" or cause is causes.SIGNAL:
                # As make does, by pselect, and dash, by sigsuspend, which the signal of a child's end interrupts.
                ends[site] = causes.CHILD
                ended[site] += ns if self._is_end(self._sites[by]) else -ns
            elif cause is causes.CONDITION:
                ends[site] = causes.JOIN
                ended[site] += ns if causes.ends_thread(self._sites[by].user) else -ns
        return found | {site: ends[site] for site, ns in ended.items() if ns > 0}

    @staticmethod
    def _is_end(by: _Site) -> bool:
        return not by.kind and causes.is_end(by.kernel)

    def _cause_at(self, site: _Site) -> Cause:
        if site.call == _PARKED:
            return causes.of_goroutine(site.user)
        if self._has_goroutines and causes.is_scheduler(site.user):
            return causes.SCHEDULER
        return causes.cause_of(site.call, site.kind, site.user, site.kernel)

    # ---- who

    @cached_property
    def _woken(self) -> list[tuple[tuple[int, int], int]]:
        """Places that waited and places that woke, with nanoseconds."""
        return self.recorded("@woken", list[tuple[tuple[int, int], int]])

    @cached_property
    def _spread(self) -> list[tuple[tuple[int, int], int]]:
        """Places and buckets of microseconds (``percentiles.bt``), with the number of waits, open ones too."""
        found = self.recorded("@spread", list[tuple[tuple[int, int], int]])
        over = self._number("@over")
        for at, state, *_ in self._running.values():
            us = max(over - at, 0) // 1000
            shift = max(us.bit_length() - 4, 0)
            found.append(((state, shift * 8 + (us >> shift)), 1))
        return found

    def _wakers(self, group: _Group) -> Iterable[Who]:
        held: dict[tuple[str, int, str], int] = defaultdict(int)
        stacks: dict[tuple[str, int, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        if group.cause in (causes.LOCK, causes.GIL):
            for (site, owner, state), ns in self.recorded("@held", list[tuple[tuple[int, int, int], int]]):
                if site in group.sites and self._known_owner(site):
                    name, doing = self._holder(owner, state)
                    key = (name, self._threads[owner].pid if owner in self._threads else 0, doing)
                    held[key] += ns
                    stacks[key][state] += ns
        for key, total in held.items():
            name, pid, doing = key
            state = max(stacks[key], key=lambda state: stacks[key][state])
            then = own_places(self._sites[state].user) if state in self._sites else ()
            yield Who("held by", name, total, pid, doing, then)
        yield from self._who_ended(group.sites, group.cause)

    def _who_ended(self, sites: set[int], cause: Cause) -> Iterable[Who]:
        """Who ended the waits at some places."""
        totals: dict[tuple[str, str, int], int] = defaultdict(int)
        for (site, by), ns in self._woken:
            if site in sites and by in self._sites:
                totals[self._waker(cause, by)] += ns
        for (relation, name, pid), total in totals.items():
            yield Who(relation, name, total, pid)

    def _known_owner(self, site: int) -> bool:
        """Whether what was read as a futex' owner is it: of mutexes of the C library, PI futexes, and Python's GIL."""
        known = self._sites[site]
        if self._cause[site] is causes.GIL:
            return True
        if known.kind & 0x7F in (6, 13):
            return True
        return any("pthread_mutex" in frame.function or "lll_lock_wait" in frame.function for frame in known.user[:4])

    def _holder(self, owner: int, state: int) -> tuple[str, str]:
        name = self._name(owner)
        if state == ON_CPU or state in _READY:
            # Where it mostly runs.
            busiest = self._busiest.get(owner)
            doing = "on CPU" if state == ON_CPU else _RUN_QUEUE.title
            return f"{busiest.function} ({name})" if busiest else name, doing
        if state in self._place:
            cause = CPU if self._sites[state].call == _SAMPLED else self._cause[state]
            return f"{self._place[state].function} ({name})", cause.title
        return name, ""

    @cached_property
    def _wakers_names(self) -> dict[int, str]:
        """By place the thread that woke others there for most of the time; of waits below ``--min`` none is kept."""
        found: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for waits in self.timeline.waits.values():
            for wait in waits:
                if wait.by and wait.waker in self._threads:
                    found[wait.by][self._threads[wait.waker].name] += wait.end - wait.begin
        return {by: max(names, key=lambda name: names[name]) for by, names in found.items()}

    def _waker(self, cause: Cause, number: int) -> tuple[str, str, int]:
        by = self._sites[number]
        if by.call == _READIED:
            # Beyond the scheduler's frames is the goroutine that the thread ran before.
            place = None if causes.is_scheduler(by.user) else own_place(by.user)
            return cause.relation if place else "woken by", place.text if place else causes.within_go(by.user), by.pid
        signal = cause not in (causes.CHILD, causes.SIGNAL) and causes.is_signal(by.kernel)
        device = causes.interrupt(by.kernel)
        if device and not signal:
            names = {"timer": "a timer", "interrupt": "an interrupt"}
            return "woken by", names.get(device, f"an interrupt ({device})"), 0
        if self._is_end(by):
            relation = cause.relation if cause in (causes.CHILD, causes.JOIN) else "woken by the end of"
            return relation, f"{by.comm} ({by.pid})", by.pid
        if ring_operation(by.kernel):
            return cause.relation, f"a worker of io_uring ({by.comm})", by.pid
        if by.kind or not by.user:
            doing = waiting_function(by.kernel)
            return "woken by", f"the kernel ({by.comm}{': ' + doing if doing else ''})", by.pid
        relation = "interrupted by a signal of" if signal else cause.relation
        place = own_place(by.user)
        if self._processes == {by.pid}:
            # Threads with the same stack are one place, which has the name of the first of them.
            name = self._wakers_names.get(number, by.comm)
            return relation, place.text if place is not None else name, by.pid
        process = f"{by.comm} ({by.pid})"
        return relation, process if place is None else f"{place.function} of {process}", by.pid

    @cached_property
    def _processes(self) -> set[int]:
        return {thread.pid for thread in self._threads.values()}

    def _p99(self, sites: Iterable[int], most: int) -> int:
        buckets: dict[int, int] = defaultdict(int)
        wanted = set(sites)
        for (site, bucket), count in self._spread:
            if site in wanted:
                buckets[bucket] += count
        left = math.ceil(sum(buckets.values()) * 0.99)
        for bucket in sorted(buckets):
            left -= buckets[bucket]
            if left <= 0:
                shift = bucket // 8 - 1
                end = bucket if bucket < 16 else ((bucket - shift * 8 + 1) << shift) - 1
                return min(end * 1000 + 999, most)  # buckets are of whole microseconds
        return 0

    # ---- chains

    @cached_property
    def timeline(self) -> Timeline:
        """Waits over the limit, those that have not ended, too."""
        over = self._number("@over")
        waits: dict[int, list[Wait]] = defaultdict(list)
        rows = self.recorded("@wait", list[tuple[tuple[int, int], tuple[int, int, int, int, int, int]]])
        for (tid, begin), row in rows:
            waits[tid].append(Wait(begin, *row))
        spans = {}
        for tid, life in self._lives.items():
            thread = self._threads[tid]
            ran = life.cpu + self._time.get((tid, ON_CPU, 0), Spent(0, 0, 0)).ns
            spans[tid] = Span(thread.begin, thread.end, life.cpu, ran, life.parent)
        for tid, (at, state, object_, *_) in self._running.items():
            if state != ON_CPU and over - at >= self._limit and tid in spans:
                waits[tid].append(Wait(at, over, state, object_, 0, 0, spans[tid].ran))
        for number, wait in self._goroutine_waits:
            waits[_unit(number)].append(wait)
        spans |= self._goroutine_spans()
        direct = (
            number for number, site in self._sites.items()
            if site.kind or causes.interrupt(site.kernel)
            or not (site.user or causes.is_end(site.kernel) or ring_operation(site.kernel))
        )  # fmt: skip
        return Timeline({tid: sorted(of_thread) for tid, of_thread in waits.items()}, spans, direct)

    @cached_property
    def _busiest(self) -> dict[int, Place]:
        """Of each thread the place where most samples were taken."""
        found: dict[int, dict[Place, int]] = defaultdict(lambda: defaultdict(int))
        for (tid, number), count in self._sampled:
            if (site := self._sites.get(number)) is not None:
                found[tid][place_of(site.user, site.kernel, site.comm)] += count
        return {tid: max(places, key=lambda place: places[place]) for tid, places in found.items()}

    def cause_of(self, state: int) -> Cause:
        """The cause of a state of ``account.bt``."""
        if state == ON_CPU:
            return CPU
        if state == _RUNNABLE:
            return causes.RUNNABLE
        return _RUN_QUEUE if state in _READY else _HELD_UP.get(state) or self._cause.get(state, _LOST)

    def thread_place(self, tid: int, state: int) -> Place:
        """Where a thread is in a state: on a CPU where it mostly runs, by samples."""
        found = self._busiest.get(tid) if state == ON_CPU else self._place.get(state)
        return found or Place(self._name(tid))

    def steps(self, segments: Iterable[Segment]) -> tuple[Step, ...]:
        """Segments of chains, added up by what they end in and who waits."""
        totals: dict[tuple[object, ...], tuple[Step, int]] = {}
        for segment in segments:
            wait, length = segment.wait, segment.end - segment.begin
            if wait is not None:
                self._add_step(totals, segment, self.cause_of(wait.state), wait.state, wait.object, length)
            else:
                self._add_step(totals, segment, CPU, ON_CPU, 0, segment.cpu)
                self._add_step(totals, segment, SHORT, ON_CPU, 0, length - segment.cpu)
        steps = (msgspec.structs.replace(step, ns=ns) for step, ns in totals.values())
        return tuple(sorted(steps, key=lambda step: -step.ns))

    def _add_step(
        self, totals: dict[tuple[object, ...], tuple[Step, int]], segment: Segment, cause: Cause, state: int,
        object_: int, ns: int,
    ) -> None:  # fmt: skip
        if not ns:
            return
        place, about = self.thread_place(segment.tid, state), self.about(object_, cause)
        hops = tuple(self._hop(link) for link in segment.chain)
        key = (
            cause.name, place.function, place.file, about,
            tuple((hop.place.function, hop.place.file, hop.cause) for hop in hops),
        )  # fmt: skip
        name = self._threads[segment.tid].name if segment.tid in self._threads else ""
        step, before = totals.get(key, (Step(cause, place, 0, about, name, hops), 0))
        totals[key] = step, before + ns

    def _hop(self, link: Link) -> Hop:
        cause = self.cause_of(link.state)
        relation = self._waker(cause, link.by)[0] if link.by in self._sites else "woken by"
        return Hop(self._name(link.tid), self.thread_place(link.tid, link.state), cause.title, relation)

    @cached_property
    def path_segments(self) -> Sequence[Segment]:
        """The critical path of a command: that of its first thread, or of the last of its process where the first one
        ended before (``pthread_exit`` in main); with goroutines that of the first one (``main.main``). Nothing for
        processes that ran already.
        """
        if self._attached or not self._threads:
            return ()
        if self._has_goroutines:
            return self._goroutine_path()
        first = min(self._threads.values(), key=lambda thread: (thread.begin, thread.tid != thread.pid))
        threads = (thread for thread in self._threads.values() if thread.pid == first.pid)
        last = max(threads, key=lambda thread: thread.end)
        # Those that exit() of the first one ends may wait for a CPU to do so.
        later = (
            segment.end - segment.begin for segment in self.timeline.states(last.tid, first.end, last.end)
            if segment.wait is None or segment.wait.state not in _READY
        )  # fmt: skip
        if sum(later) < self._limit:
            last = first
        return list(self.timeline.path(last.tid, first.begin, last.end))

    def waker_text(self, cause: Cause, by: int) -> str:
        """Who ended a wait of a cause: ``released by refresh (cache.py:4)``; empty where that was not kept."""
        if by not in self._sites:
            return ""
        relation, who, _ = self._waker(cause, by)
        return f"{relation} {who}"

    def _behind(self, group: _Group) -> tuple[Step, ...]:
        """What those did who ended the waits of a line, while it waited."""
        timeline = self.timeline
        return self.steps(
            segment
            for tid in group.threads
            for wait in timeline.waits.get(tid, ())
            if (tid, wait.state, wait.object) in group.keys
            for segment in timeline.meanwhile(tid, wait)
        )

    # ---- by stack

    def by_stack(self) -> Iterable[tuple[tuple[StackTrace, StackTrace, str, str], int]]:
        """Kernel and user stack, cause and thread, with nanoseconds."""
        samples: dict[int, dict[int, int]] = defaultdict(dict)
        for (tid, site), count in self._sampled:
            samples[tid][site] = count
        if self._has_goroutines:
            for key, spent in self._goroutine_time().items():
                if key[1] != RUNS:
                    cause = self._goroutine_cause(key) if key[1] in (WAITS, BEFORE) else causes.RUNNABLE
                    yield (*self._stacks(key[2]), cause.title, "goroutines"), spent.ns
        for (tid, state, _), spent in self._time.items():
            name = self._threads[tid].name if tid in self._threads else "?"
            if state == ON_CPU and samples[tid]:
                total = sum(samples[tid].values())
                for site, count in samples[tid].items():
                    yield (*self._stacks(site), CPU.title, name), spent.ns * count // total
            else:
                yield (*self._stacks(state), self.cause_of(state).title, name), spent.ns

    def _stacks(self, site: int) -> tuple[StackTrace, StackTrace]:
        known = self._sites.get(site)
        if known is None:
            return StackTrace((), user=False), StackTrace(())
        # The scheduler's functions are below every wait, and say nothing of it.
        first = 0 if known.call == _SAMPLED else scheduling_frames(known.kernel)
        return StackTrace(known.kernel[first:], user=False), StackTrace(known.user)

    # ---- the account

    def account(self) -> Account:
        """All of it."""
        threads = self._threads
        waits: dict[tuple[int, int, int], tuple[Cause, Spent]] = {}
        ready: dict[int, Spent] = {}
        how: dict[int, int] = defaultdict(int)
        unknown = 0
        for (tid, state, object_), spent in self._time.items():
            thread = threads.get(tid)
            if thread is None:
                continue
            if state == ON_CPU:
                thread.cpu += spent.ns
            elif state in _READY:
                thread.ready += spent.ns
                ready[tid] = _joined(ready.get(tid), spent)
                how[state] += spent.ns
            else:
                cause = self.cause_of(state)
                if state == THROTTLED:
                    thread.ready += spent.ns
                else:
                    thread.blocked += spent.ns
                unknown += spent.ns if cause is _LOST else 0
                waits[tid, state, object_] = (cause, spent)
        before = set(waits)
        idle = self._idle(waits)
        events = {key[1] for key in before - waits.keys() if self.cause_of(key[1]).name == "events"}
        idle_by = tuple(sorted(self._who_ended(events, causes.EVENTS), key=lambda who: -who.ns))
        total = sum(thread.accounted - thread.idle for thread in threads.values())
        goroutines, runnable = None, dict[GoroutineKey, Spent]()
        if self._has_goroutines:
            goroutines, runnable, waiting, parked = split(self._goroutine_time(), self._goroutine_cause, self._root)
            goroutines = msgspec.structs.replace(goroutines, count=self._number("@born"), ns=self._goroutine_lives())
            total += goroutines.runnable + goroutines.waiting - goroutines.idle
            waits |= waiting
            unknown += sum(spent.ns for cause, spent in waiting.values() if cause is _LOST)
            idle = (*parked, *idle)
        total = total or 1
        blocked = (self._line(group, total) for group in self._groups(waits))
        lines = [self._cpu_line(total), *self._ready_line(ready, how, total), *blocked]
        lines += self._runnable_line(runnable, total)
        lost = {
            f"{kind} {name}": count for kind, names in self.losses.items() for name, count in names.items() if count
        }
        begin = min((thread.begin for thread in threads.values()), default=0)
        end = max((thread.end for thread in threads.values()), default=0)
        return Account(
            self._target, self._options, end - begin, tuple(threads.values()),
            tuple(sorted((line for line in lines if line.ns), key=lambda line: -line.ns)), idle, lost, unknown,
            () if goroutines else self._runtimes(),
            self.steps(self.path_segments), self._limit,
            self.timeline.left_out, tasks=self._task_rows(), goroutines=goroutines, idle_by=idle_by,
        )  # fmt: skip

    def _idle(self, waits: dict[tuple[int, int, int], tuple[Cause, Spent]]) -> tuple[tuple[str, int, int], ...]:
        """Take the time of threads that wait for work out of *waits*."""
        idle, rows = causes.idle_waits(
            {key: (key[0], cause, spent.ns) for key, (cause, spent) in waits.items()},
            {tid: thread.life - thread.ready for tid, thread in self._threads.items()}, self._never_slow,
            self._may_idle,
        )  # fmt: skip
        for key, label in idle.items():
            thread = self._threads[key[0]]
            thread.idle += waits.pop(key)[1].ns
            thread.idle_in = label
        return tuple(rows)

    # ---- goroutines

    @property
    def _has_goroutines(self) -> bool:
        return "@unit" in self._maps

    def _turns(self) -> Iterable[tuple[Turn, int]]:
        """Goroutines that have not ended, and when their process ended."""
        over = self._number("@over")
        ends: dict[int, int] = defaultdict(int)
        for thread in self._threads.values():
            ends[thread.pid] = max(ends[thread.pid], thread.end)
        for (pid, _), turn in self.recorded("@routine", list[tuple[tuple[int, int], Turn]]):
            yield turn, ends.get(pid, over)

    def _goroutine_time(self) -> dict[GoroutineKey, Spent]:
        """What was spent; open states reach to the end. The first sight of a new goroutine is none of an old one."""
        found = {
            key: spent for key, spent in self.recorded("@unit", list[tuple[GoroutineKey, Spent]])
            if key[1] != BEFORE or not self._begins(key[2])
        }  # fmt: skip
        for turn, end in self._turns():
            key, ns = (turn.number, turn.state, turn.place), max(end - turn.at, 0)
            found[key] = _joined(found.get(key), Spent(1, ns, ns))
        return found

    @cached_property
    def _goroutine_waits(self) -> Sequence[tuple[int, Wait]]:
        """Numbers and waits over the limit, those for a thread and those that have not ended, too."""
        rows = self.recorded("@turn", list[tuple[tuple[int, int], tuple[int, int, int, int, int, int]]])
        found = [
            (number, Wait(begin, end, self._goroutine_state(state, place), 0, by, _unit(waker), ran))
            for (number, begin), (end, state, place, by, waker, ran) in rows
        ]  # fmt: skip
        for turn, end in self._turns():
            if turn.number and turn.state != RUNS and end - turn.at >= self._limit:
                state = self._goroutine_state(turn.state, turn.place)
                found.append((turn.number, Wait(turn.at, end, state, 0, 0, 0, turn.ran)))
        return found

    @staticmethod
    def _goroutine_state(state: int, place: int) -> int:
        return place if state == WAITS else _RUNNABLE if state in RUNNABLE else UNSEEN

    def _goroutine_spans(self) -> dict[int, Span]:
        ended = self.recorded("@ended", list[tuple[int, tuple[int, int, int, int]]])
        spans = {_unit(number): Span(begin, end, 0, ran, _unit(parent)) for number, (begin, end, ran, parent) in ended}
        for turn, end in self._turns():
            if turn.number:
                ran = turn.ran + (max(end - turn.at, 0) if turn.state == RUNS else 0)
                spans[_unit(turn.number)] = Span(turn.begin, end, 0, ran, _unit(turn.parent))
        return spans

    @cached_property
    def _goroutine_names(self) -> dict[int, str]:
        """The functions that goroutines with waits began with, by their units."""
        roots: dict[int, str] = {}
        for number, wait in self._goroutine_waits:
            if wait.state in self._sites and (root := self._root(wait.state)):
                roots.setdefault(_unit(number), root)
        return roots

    def _goroutine_path(self) -> Sequence[Segment]:
        spans = self.timeline.spans
        mains = [unit for unit, root in self._goroutine_names.items() if root == _MAIN and unit in spans]
        if not mains:
            return ()
        first = min(mains, key=lambda unit: spans[unit].begin)
        return list(self.timeline.path(first, spans[first].begin, spans[first].end))

    def _goroutine_lives(self) -> int:
        """Nanoseconds of all goroutines, by their starts and ends."""
        open_ = sum(max(end - turn.begin, 0) for turn, end in self._turns())
        before = (spent.ns for key, spent in self._goroutine_time().items() if key[1] == BEFORE)
        return self._number("@lived") + open_ + sum(before)

    def _goroutine_cause(self, key: GoroutineKey) -> Cause:
        """Why a goroutine waits."""
        return self._cause.get(key[2], _LOST) if key[1] == WAITS else _HELD_UP[UNSEEN]

    def _begins(self, place: int) -> bool:
        """Whether a place is a statement that starts a goroutine."""
        known = self._sites.get(place)
        return known is not None and any(frame.function.startswith("runtime.newproc") for frame in known.user)

    def _root(self, place: int) -> str:
        """The function that a goroutine began with."""
        frames = self._sites[place].user if place in self._sites else ()
        names = [frame.function for frame in frames if not frame.function.startswith("runtime.goexit")]
        return names[-1] if names else ""

    def _runnable_line(self, runnable: Mapping[GoroutineKey, Spent], total: int) -> Sequence[Line]:
        if not runnable:
            return ()
        group = _Group(causes.RUNNABLE, "")
        how: dict[str, int] = defaultdict(int)
        for (number, state, site), spent in runnable.items():
            group.add(number, site, 0, self._place.get(site, Place("go")), spent)
            how[RUNNABLE[state]] += spent.ns
        kinds = (f"{name} {ns / (group.ns or 1):.0%}" for name, ns in sorted(how.items(), key=lambda item: -item[1]))
        return (
            Line(
                causes.RUNNABLE, group.ns, group.ns / total, group.count, group.most, about=", ".join(kinds),
                parts=group.sorted_parts(), threads=len(group.threads),
            ),
        )  # fmt: skip

    def _never_slow(self, tid: int, cause: Cause) -> bool:
        """Whether a wait is for threads or processes whose own time is in the account."""
        return cause.always_idle or (cause is causes.CHILD and self._processes != {self._threads[tid].pid})

    def _may_idle(self, tid: int, cause: Cause) -> bool:
        """Whether a thread may have nothing to do while it waits so."""
        thread = self._threads[tid]
        first = thread.tid == thread.pid and not self._attached
        if cause.name == "events":
            return not first
        works = (causes.CONDITION, causes.SEMAPHORE, causes.FUTEX, causes.TERMINAL, causes.MESSAGE_READ)
        return cause in works and not (first and self._alone(tid))

    def _alone(self, tid: int) -> bool:
        pid = self._threads[tid].pid
        return sum(thread.pid == pid for thread in self._threads.values()) == 1

    def _groups(self, waits: Mapping[tuple[int, int, int], tuple[Cause, Spent]]) -> list[_Group]:
        groups: dict[tuple[str, str, str], _Group] = {}
        for (tid, state, object_), (cause, spent) in waits.items():
            place = self._place.get(state) or Place(self._name(tid) if state in _NAMED else "")
            about = self.about(object_, cause)
            site = self._sites.get(state)
            if cause is causes.SLEEP and site is not None and (library := sleeping_library(site.user)):
                about = f"in {library}"
            split = place.function if cause in (causes.LOCK, causes.CONDITION, causes.SEMAPHORE, causes.FUTEX) else ""
            key = (cause.name, about, split)
            if key not in groups:
                groups[key] = _Group(cause, about)
            groups[key].add(tid, state, object_, place, spent)
        return list(groups.values())

    def _line(self, group: _Group, total: int) -> Line:
        by = tuple(sorted(self._wakers(group), key=lambda who: -who.ns))
        return Line(
            group.cause, group.ns, group.ns / total, group.count, group.most, self._p99(group.sites, group.most),
            group.about, group.sorted_parts(), by, len(group.threads), behind=self._behind(group),
            loop=self._blocked_loop(group), task=self._blocking_task(group),
        )  # fmt: skip

    def _blocked_loop(self, group: _Group) -> str:
        """The event loop in whose callbacks a wait is that is not the loop's own."""
        if group.cause.name == "events":
            return ""
        loops = (event_loop(self._sites[site].user) for site in group.sites if site in self._sites)
        return next((loop for loop in loops if loop and loop != "Go"), "")

    @cached_property
    def _tasks(self) -> dict[int, Place]:
        """By place, the task of asyncio that is there."""
        found = ((number, task_of(site.user)) for number, site in self._sites.items())
        return {number: task for number, task in found if task is not None}

    def _blocking_task(self, group: _Group) -> str:
        """The task that waits so most of the time."""
        totals: dict[tuple[str, str], int] = defaultdict(int)
        names: dict[tuple[str, str], str] = {}
        for key in group.keys:
            if (task := self._tasks.get(key[1])) is not None and key in self._time:
                names.setdefault((task.function, task.file), task.text)
                totals[task.function, task.file] += self._time[key].ns
        return names[max(totals, key=lambda name: totals[name])] if totals and group.cause.name != "events" else ""

    def _task_rows(self) -> tuple[Task, ...]:
        """Tasks of asyncio by their outermost function."""
        cpu: dict[Place, int] = defaultdict(int)
        blocked: dict[Place, int] = defaultdict(int)
        samples: dict[int, int] = defaultdict(int)
        for (tid, _), count in self._sampled:
            samples[tid] += count
        for (tid, number), count in self._sampled:
            if (task := self._tasks.get(number)) is not None and tid in self._threads:
                cpu[task] += self._threads[tid].cpu * count // samples[tid]
        for (_, number, _), spent in self._time.items():
            if (task := self._tasks.get(number)) is not None:
                blocked[task] += spent.ns
        lines: dict[tuple[str, str], list[Place]] = defaultdict(list)
        for place in {*cpu, *blocked}:
            lines[place.function, place.file].append(place)
        rows = (
            Task(
                max(places, key=lambda place: cpu[place] + blocked[place]), sum(cpu[place] for place in places),
                sum(blocked[place] for place in places),
            )
            for places in lines.values()
        )  # fmt: skip
        return tuple(sorted(rows, key=lambda row: -row.cpu - row.blocked))

    def _runtimes(self) -> tuple[tuple[str, int], ...]:
        """Runtimes whose threads waited for events, or for work of their schedulers."""
        found: dict[str, int] = defaultdict(int)
        for (tid, state, _), spent in self._time.items():
            if tid in self._threads and state in self._sites:
                cause = self._cause[state]
                if cause.name == "events" or cause.idle == "the runtime's scheduler":
                    found[event_loop(self._sites[state].user)] += spent.ns
        found.pop("", None)
        return tuple(sorted(found.items(), key=lambda item: -item[1]))

    def _ready_line(self, ready: Mapping[int, Spent], how: Mapping[int, int], total: int) -> Sequence[Line]:
        if not ready:
            return ()
        ns = sum(spent.ns for spent in ready.values())
        count, most = sum(spent.times for spent in ready.values()), max(spent.most for spent in ready.values())
        kinds = sorted(((how[state], state) for state in how if how[state] >= 0.005 * ns), reverse=True)
        about = ", ".join(f"{_READY[state]} {spent / ns:.0%}" for spent, state in kinds)
        return (Line(_RUN_QUEUE, ns, ns / total, count, most, about=about, threads=len(ready)),)

    def _cpu_line(self, total: int) -> Line:
        """Time on CPU: exact; in which functions and how much of it in user mode, by samples."""
        ns = sum(thread.cpu for thread in self._threads.values())
        places: dict[Place, int] = defaultdict(int)
        lines: dict[tuple[str, str], dict[Place, int]] = defaultdict(lambda: defaultdict(int))
        samples = user = 0
        for (_, number), count in self._sampled:
            site = self._sites.get(number)
            samples += count
            if site is None:
                continue
            user += count if site.kind else 0
            place = place_of(site.user, site.kernel, site.comm)
            lines[place.function, place.file][place] += count
        for by_line in lines.values():
            most = max(by_line, key=lambda place: by_line[place])
            places[most] = sum(by_line.values())
        parts = tuple(
            Part(place, ns * count // samples) for place, count in sorted(places.items(), key=lambda item: -item[1])
        )
        # With two samples more of each kind (Agresti and Coull): where all of a few met one function it may have less.
        shares = ((count + 2) / (samples + 4) for count in places.values())
        error = max((math.sqrt(share * (1 - share) / (samples + 4)) for share in shares), default=0.0)
        return Line(
            CPU, ns, ns / total, parts=parts, threads=sum(thread.cpu > 0 for thread in self._threads.values()),
            user_ns=ns * user // samples if samples else 0, samples=samples, error=error,
        )  # fmt: skip


def stacks(reading: Reading) -> SnapshotData:
    """A snapshot of the account: ``@cause_us[cause]``, and ``@time_us[kernel, user, cause, thread]`` for flame graphs.

    Time on CPU is spread over a thread's samples.
    """
    entries: dict[Portable, int] = defaultdict(int)
    causes_us: dict[Portable, int] = defaultdict(int)
    for key, ns in reading.by_stack():
        entries[key] += ns // 1000
        causes_us[key[2]] += ns // 1000
    totals = MapData(
        "@cause_us", types.String(64), types.Sum(), {cause: us for cause, us in causes_us.items() if us},
        help="time of threads by cause", key_names=("cause",),
    )  # fmt: skip
    members = (types.Stack(user=False), types.Stack(user=True), types.String(64), types.String(16))
    data = MapData(
        "@time_us", types.Tuple(members), types.Sum(), {key: us for key, us in entries.items() if us},
        help="time of threads by stack and cause", key_names=("kernel", "user", "cause", "thread"),
    )  # fmt: skip
    return SnapshotData(reading.runs, {totals.name: totals, data.name: data}, (), reading.losses)


def _joined(old: Spent | None, new: Spent) -> Spent:
    return new if old is None else Spent(old.times + new.times, old.ns + new.ns, max(old.most, new.most))


def _unit(number: int) -> int:
    """What stands for a goroutine where there are thread ids, too; 0 for none."""
    return -1 - number if number else 0
