"""What a run found, in a few lines: what its picture shows on the first screen."""

from __future__ import annotations

import os
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from heapq import heappop, heappush
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple, cast

from pytrace.core import types
from pytrace.core.types import JIT
from pytrace.render import histogram
from pytrace.results.snapshot import GO_SCHEDULER, Frame, MapData, Portable, Run, SnapshotData, StackTrace, Value
from pytrace.results.stack_samples import (
    BETWEEN,
    INTERPRETED,
    KERNEL,
    MARK,
    NO_STACK,
    USER,
    frame_name,
    frames_of,
    is_profile,
    members_of,
    numbers,
    second_task,
    user_kind,
)

SHOWN = 5
"""Functions that are named."""

_SOURCES = {
    "node": "node --perf-basic-prof", "java": "java -XX:+PreserveFramePointer and jcmd PID Compiler.perfmap",
    "dotnet": "DOTNET_PerfMapEnabled=1 (libraries: DOTNET_ReadyToRun=0)", "ruby": "ruby --yjit-perf",
    "php": "php -d opcache.jit_debug=16",
}  # fmt: skip
"""Programs that compile while they run, and what makes them name the result."""


def findings(snapshot: SnapshotData) -> list[str]:
    """Of stacks the functions that took most, with share and unit; of histograms count and quantiles; and what makes
    compiled code without names have some.
    """
    run = snapshot.runs[-1] if snapshot.runs else None
    lines: list[str] = []
    stacks: list[Stacks] = []
    for data in snapshot.shown.values():
        if run is not None and data.entries and is_profile(data):
            stacks.append(Stacks(data, run))
            lines += stacks[-1].lines()
        elif data.entries and isinstance(data.value, types.Hist | types.LHist):
            lines += histogram_lines(data)
    if nothing := nothing_counted(snapshot):
        return nothing
    return [*lines, *(f"note: {sentence}" for sentence in unnamed_code(stacks, snapshot.runs))]


def nothing_counted(snapshot: SnapshotData) -> list[str]:
    """A line for a run that shows nothing, with what may be the reason; none for others."""
    if snapshot.tables or any(data.entries for data in snapshot.shown.values()):
        return []
    children = sum(snapshot.losses.get("untraced", {}).values())
    if children:
        processes = f"{children} child process{'es' if children > 1 else ''}"
        return [f"nothing was counted: {processes} may do the work, --follow traces them, too"]
    run = snapshot.runs[-1] if snapshot.runs else None
    if run is not None and run.target and counted(run)[0] == "samples":
        return [f"nothing was counted: {_cut(run.target)} was on no CPU when samples were taken; {_WAITS}"]
    return ["nothing was counted"]


_WAITS = "pytrace flame --off-cpu shows where it waits"


# ---------------------------------------------------------------------------------------------- stacks


class Item(NamedTuple):
    """A frame as people know it: wherever in a function the next one was called, as long as it is the same line."""

    name: str
    module: str
    kind: int
    """As in :mod:`pytrace.results.stack_samples`."""
    file: str
    line: int


class Tree(NamedTuple):
    """Frames that stacks share, each call once: columns in the order of a walk, callers before what they call."""

    depths: list[int]
    items: list[int]
    """Numbers of the frames."""
    totals: list[int]
    """What all stacks through the frame have, before and after."""
    selves: list[int]
    """What those have that end with it."""
    innermost: list[int]
    """Of each entry the innermost of its frames that is in the tree; -1 if none is."""
    whole: list[bool]
    """Of each entry whether all its frames are in the tree."""


MOST_CALLS = 200_000
"""Calls of a tree. Of more those with most are in it: the others are too narrow to be drawn, and are known by sums."""


class Owner(NamedTuple):
    """Who the number of a stack counts for."""

    label: str
    function: tuple[str, str]
    """Name and module, equal for installations of one program in different places (:func:`same_function`)."""
    item: int
    """The frame that stands for it."""


class Listing(NamedTuple):
    """A list of the answer: who has most of the whole."""

    title: str
    text: str
    """The title after the total in the terminal."""
    owners: list[Owner]
    of: list[int]
    """Of each entry the number of its owner."""


class Stacks:
    """The stacks of a map, read once, and the lists of the answer.

    Each stack is a text, from the root, whose characters are the numbers of its frames: texts are compared, hashed and
    sorted as memory, so that half a million take seconds.
    """

    def __init__(self, data: MapData, run: Run | None, before: MapData | None = None) -> None:
        key = data.key
        assert key is not None
        self.data, self.amounts, self.what = data, Amounts(""), ""
        if run is not None:
            self.amounts, self.what = amounts_of(data, run), _what_of(run)
        self.keys = list({**(before.entries if before is not None else {}), **data.entries})
        self.members = [list(members_of(key, entry)) for entry in self.keys]
        number = numbers(data.value)
        self.values = [number(data.entries[entry])[-1] if entry in data.entries else 0 for entry in self.keys]
        self.olds: list[int] = []
        if before is not None:
            older = numbers(before.value)
            self.olds = [older(before.entries[entry])[-1] if entry in before.entries else 0 for entry in self.keys]
        self.items: list[Item] = []
        self.paths = self._read([column.type for column in data.key_columns])
        scripts = self._characters(lambda item: item.kind == INTERPRETED)
        weights = self._weights()
        scripted = sum(weight for path, weight in zip(self.paths, weights, strict=True) if not scripts.isdisjoint(path))
        self.scripted = scripted * _LEAST_SCRIPTED > sum(weights)
        """Whether functions of an interpreter have much of the whole: then these are what people wrote."""

    def _read(self, types_: Sequence[types.Type]) -> list[str]:
        """The stacks as texts, joined as :func:`~pytrace.results.stack_samples.paths` joins them."""
        second = second_task(types_)
        at = [number for number, type_ in enumerate(types_) if isinstance(type_, types.Stack)]
        at.sort(key=lambda number: not cast("types.Stack", types_[number]).user)
        first, last = (
            [number for number in at if second is None or (number < second) == side] for side in (True, False)
        )
        known: tuple[dict[int, str], dict[int, str]] = {}, {}
        """Characters of frames of the kernel's stacks, and of the users'."""
        numbered: dict[Item, int] = {}
        texts: dict[int, str] = {}

        def character(frame: Frame, kind: int) -> str:
            item = Item(frame_name(frame), frame.module, kind, frame.file, frame.line)
            if len(numbered) >= _MOST_ITEMS and item not in numbered:
                item = _FURTHER
            return chr(numbered.setdefault(item, len(numbered)))

        def text(stack: Portable) -> str:
            if not isinstance(stack, StackTrace):
                return ""
            found = texts.get(id(stack))
            if found is None:
                user, of_frame = stack.user, known[stack.user]
                # Frames are shared by stacks, and all of them live as long as the map.
                try:
                    characters = [*map(of_frame.__getitem__, map(id, reversed(stack.frames)))]
                except KeyError:
                    for frame in reversed(stack.frames):
                        if id(frame) not in of_frame:
                            of_frame[id(frame)] = character(frame, user_kind(frame) if user else KERNEL)
                    characters = [of_frame[id(frame)] for frame in reversed(stack.frames)]
                if stack.error:
                    characters[:0] = [character(frame, kind) for frame, kind in frames_of(stack)[:1]]
                found = texts[id(stack)] = "".join(characters)
            return found

        none, between = partial(character, NO_STACK, MARK), partial(character, BETWEEN, MARK)
        found = []
        for members in self.members:
            path = "".join([text(members[number]) for number in first]) or none()
            if second is not None:
                path += between() + ("".join([text(members[number]) for number in last]) or none())[::-1]
            found.append(path)
        self.items = list(numbered)
        return found

    def _weights(self) -> list[int]:
        """Of each entry its number; of states that are compared that of both."""
        return [now + was for now, was in zip(self.values, self.olds, strict=True)] if self.olds else self.values

    def _characters(self, wanted: Callable[[Item], bool]) -> set[str]:
        return {chr(number) for number, item in enumerate(self.items) if wanted(item)}

    def frames(self, path: str) -> list[Item]:
        """The frames of a stack, from the root."""
        return [self.items[ord(one)] for one in path]

    @cached_property
    def tree(self) -> Tree:
        """The calls, at most :data:`MOST_CALLS`: those with most, so that with each its callers are there."""
        order = sorted(range(len(self.paths)), key=self.paths.__getitem__)
        texts, weights = [self.paths[number] for number in order], self._weights()
        sums = [0, *accumulate(weights[number] for number in order)]
        # A call is a range of the sorted stacks, which begin alike.
        calls: list[tuple[int, int, int, int, int]] = []
        waiting: list[tuple[int, int, int, int]] = []

        def enter(first: int, end: int, depth: int) -> int:
            """The stacks in a range that end there; what they call waits."""
            at = first
            while at < end and len(texts[at]) == depth:
                at += 1
            own = at
            while at < end:
                one, to = texts[at][depth], end
                if texts[end - 1][depth] != one:
                    to = bisect_right(texts, one, at, end, key=itemgetter(depth))
                heappush(waiting, (sums[at] - sums[to], at, depth, to))
                at = to
            return sums[own] - sums[first]

        enter(0, len(texts), 0)
        while waiting and len(calls) < MOST_CALLS:
            total, first, depth, end = heappop(waiting)
            calls.append((first, depth, end, -total, enter(first, end, depth + 1)))
        calls.sort(key=lambda call: call[:2])
        innermost = [-1] * len(texts)
        for number, (first, _, end, _, _) in enumerate(calls):
            innermost[first:end] = [number] * (end - first)
        of_entry, whole = [-1] * len(texts), [False] * len(texts)
        for at, number in enumerate(order):
            call = of_entry[number] = innermost[at]
            whole[number] = call >= 0 and calls[call][1] + 1 == len(texts[at])
        depths = [call[1] for call in calls]
        items = [ord(texts[first][depth]) for first, depth, _, _, _ in calls]
        return Tree(depths, items, [call[3] for call in calls], [call[4] for call in calls], of_entry, whole)

    # ------------------------------------------------------------------------------------------ whose it is

    @cached_property
    def listings(self) -> list[Listing]:
        """The lists of the answer; the first one divides the whole."""
        split = second_task([column.type for column in self.data.key_columns])
        if split is not None:
            at = self.data.key_titles.index(WAKER) if WAKER in self.data.key_titles[:split] else None
            return [
                self._listing("Woken by", "woken by", lambda path, waker: _woke(self._outer(path), waker), at),
                self._listing("Waited in", "waited in", lambda path, _: _caller(self._inner(path))),
            ]
        if self.what == "waited" or self._all_switch():
            return [self._listing("Most waited in", "most in the function", lambda path, _: _caller(self.frames(path)))]
        if self.amounts.counts == "calls":
            same = self._same_end()

            def calling(path: str, _: str) -> tuple[str, Item]:
                return _caller(self.frames(path[: len(path) - same] or path))

            return [self._listing("Most calls from", "most from", calling)]
        if self.what == "allocated" and not self.scripted:
            return [self._listing("Most asked for by", "most by", lambda path, _: _asking(self.frames(path)))]
        if self.scripted:
            title = "Most in the function and native code that it calls"
            return [self._listing(title, f"m{title[1:]}", lambda path, _: _script(self.frames(path)))]
        return [self._listing("Most in the function itself", "most in", lambda path, _: self._own(path))]

    def _outer(self, path: str) -> list[Item]:
        """Of the stacks of two tasks that of the first, from the root."""
        frames = self.frames(path)
        return frames[: _middle(frames)]

    def _inner(self, path: str) -> list[Item]:
        """As :meth:`_outer`, of the second."""
        frames = self.frames(path)
        return frames[: _middle(frames) : -1]

    def _own(self, path: str) -> tuple[str, Item]:
        """The innermost function; of events in the C library with who called it."""
        item = self.items[ord(path[-1])]
        library = item.kind == USER and _of_library(item)
        return _caller(self.frames(path)) if self.amounts.counts == "events" and library else (item.name, item)

    def _listing(
        self, title: str, text: str, owner: Callable[[str, str], tuple[str, Item]], at: int | None = None
    ) -> Listing:
        """A list by the owner of a stack and of the member *at* of its key."""
        known: dict[tuple[str, str], int] = {}
        owners: dict[tuple[str, tuple[str, str]], Owner] = {}
        places: dict[tuple[str, tuple[str, str]], int] = {}
        number = {item: at for at, item in enumerate(self.items)}
        of = []
        for members, path in zip(self.members, self.paths, strict=True):
            member = "" if at is None else _plain(members[at])
            found = known.get((path, member))
            if found is None:
                label, item = owner(path, member)
                key = (label, _ANY if label in (_IDLE, _RUNTIME) else _function(item.name, item.module or item.file))
                owners.setdefault(key, Owner(label, key[1], number[item]))
                found = known[path, member] = places.setdefault(key, len(places))
            of.append(found)
        return Listing(title, text, list(owners.values()), of)

    def _all_switch(self) -> bool:
        """Whether all stacks are of threads that left the CPU: a script's own off-CPU times."""
        ends = [self.items[ord(one)] for one in {path[-1] for path in self.paths}]
        return bool(ends) and all(item.kind == KERNEL and item.name == _SWITCH for item in ends)

    def _same_end(self) -> int:
        """How many of the innermost functions all stacks have in common: those of the event itself."""
        first: dict[str, int] = {}
        names = {number: first.setdefault(item.name, number) for number, item in enumerate(self.items)}
        ends = [path[::-1].translate(names) for path in set(self.paths)]
        least, most = min(ends), max(ends)
        return next((at for at, one in enumerate(least) if one != most[at]), len(least))

    @cached_property
    def callers(self) -> tuple[str, list[int]]:
        """Functions that tell something by what they call, where calls branch; the title of their list.

        Of an interpreter's functions, which people wrote, each that is not only called by another of them; of others
        each that does not only call another, which it alone calls. Numbers are those of :attr:`items`, of any line of
        a function.
        """
        scripts, items = self.scripted, self.items
        if second_task([column.type for column in self.data.key_columns]) is not None:
            return "", []  # what stands above the middle calls nothing
        function, tree = self.functions, self.tree
        # By function, and not in dicts: there are many calls.
        passed = [
            (scripts and item.kind != INTERPRETED) or item.name.removesuffix(_ASSEMBLY) in _ENTRIES for item in items
        ]
        outermost = [scripts and item.name.startswith("<") for item in items]
        sums, own, active = ([0] * len(items) for _ in range(3))
        largest: list[dict[int, int]] = [{} for _ in items]
        depth_now = -1
        functions = [-1] * (max(tree.depths, default=0) + 2)
        """Of the calls to this one, by depth, its function or -1."""
        telling = functions[:]
        """The innermost function down to it that tells something; the last one stands for no call."""
        for depth, item, total, self_ in zip(tree.depths, tree.items, tree.totals, tree.selves, strict=True):
            for left in range(depth, depth_now + 1):
                if functions[left] >= 0:
                    active[functions[left]] -= 1
            depth_now = depth
            above = telling[depth - 1]
            if passed[item]:
                functions[depth], telling[depth] = -1, above
                continue
            functions[depth] = telling[depth] = one = function[item]
            if not active[one]:
                sums[one] += total
            own[one] += self_
            if above >= 0 and above != one and not outermost[above]:
                inner, outer = (one, above) if scripts else (above, one)
                calls = largest[inner]
                calls[outer] = calls.get(outer, 0) + total
            active[one] += 1
        rows = []
        for one in sorted({function[item] for item in tree.items if not passed[item]}):
            total = sums[one]
            only = [to for to, value in largest[one].items() if value > _ONLY * total]
            if not scripts:
                # One of several that call a function says whose work it is.
                only = [to for to in only if sums[to] * _ONLY <= total]
            if scripts:
                # One that has less than its caller is of interest, though nobody else calls it.
                only = [to for to in only if sums[to] * _ONLY < total]
                only += [one] if outermost[one] else []
            if total > own[one] and not only and items[one].kind != MARK:
                rows.append(one)
        rows.sort(key=lambda one: (-sums[one], items[one].name))
        return f"Most with what it calls{' (interpreted)' if scripts else ''}", rows

    @cached_property
    def functions(self) -> list[int]:
        """Of each item the first one of its function."""
        first: dict[tuple[str, str, int], int] = {}
        return [first.setdefault((one.name, one.module, one.kind), at) for at, one in enumerate(self.items)]

    def sums(self, found: Sequence[int]) -> list[int]:
        """Of functions all that they and what they call have; one that calls itself has it once."""
        function, totals, weights = dict(enumerate(self.functions)), dict.fromkeys(found, 0), self._weights()
        wanted = {chr(one) for one in found}
        for path, weight in zip(self.paths, weights, strict=True):
            for one in wanted.intersection(path.translate(function)):
                totals[ord(one)] += weight
        return [totals[one] for one in found]

    # ------------------------------------------------------------------------------------------ text

    def lines(self) -> list[str]:
        """What the terminal says."""
        whole = sum(self.values)
        if whole <= 0 or min(self.values) < 0:
            return []
        total = self.amounts.full(whole)
        if self.what:
            first, space, rest = total.partition(" (")
            total = f"{first} {self.what}{space}{rest}"
        lines = []
        lists = [(listing.text, self._by_owner(listing, self.values)) for listing in self.listings]
        for number, (text, values) in enumerate(lists):
            lines.append(f"{total}, {text}:" if not number else f"{text}:")
            lines += _largest(values, whole, self.amounts.short)
        # Where one small function has most, the question is who calls it.
        most = max(lists[0][1].items(), key=itemgetter(1))
        alone = self.what == "on CPU" and not self.scripted and most[1] * 2 >= whole
        found = self.callers[1] if self.scripted or alone else []
        found = [one for one in found if not alone or self.items[one].name != most[0]]
        if found:
            lines.append(f"{'' if alone else 'interpreted '}functions with what they call:")
            named: dict[str, int] = {}
            for one, number in zip(found, self.sums(found), strict=True):
                named[self.items[one].name] = max(number, named.get(self.items[one].name, 0))
            lines += _largest(named, whole, self.amounts.short)
        return lines

    def _by_owner(self, listing: Listing, values: Sequence[int]) -> dict[str, int]:
        found: dict[str, int] = {}
        for owner, value in zip(listing.of, values, strict=True):
            label = listing.owners[owner].label
            found[label] = found.get(label, 0) + value
        return found

    def unnamed(self) -> int:
        """The number of stacks that hold compiled code without names."""
        unnamed = self._characters(lambda item: item.name == JIT)
        found = zip(self.paths, self.values, strict=True) if unnamed else ()
        return sum(value for path, value in found if not unnamed.isdisjoint(path))

    def without_symbols(self) -> dict[str, int]:
        """Files without symbols, with the number of the stacks that end in them; none where functions of an interpreter
        are what people know.
        """
        files = {
            chr(number): os.path.basename(item.module)
            for number, item in enumerate(self.items)
            if item.kind == USER and item.name == f"[{os.path.basename(item.module)}]" and not self.scripted
        }
        sums: dict[str, int] = {}
        for path, value in zip(self.paths, self.values, strict=True) if files else ():
            # Which of the kernel's functions it called changes nothing.
            last = next((one for one in reversed(path) if self.items[ord(one)].kind != KERNEL), "")
            if last in files:
                sums[files[last]] = sums.get(files[last], 0) + value
        return sums

    def texts(self) -> set[str]:
        """All texts of keys."""
        return {_plain(one) for one in {one for each in self.members for one in each if isinstance(one, bytes | str)}}


_MOST_ITEMS = sys.maxunicode
"""Frames that characters tell apart."""
_FURTHER = Item("[further functions]", "", MARK, "", 0)

_LEAST_SCRIPTED = 20
"""The share of the whole, as its inverse, from which on functions of an interpreter are what an answer names."""
_ONLY = 0.95
"""A function that has as much of another's whole only passes its calls on."""


WAKER = "waker command"
"""The title of a member of keys: who woke another."""


def _plain(member: Portable) -> str:
    return member.decode("utf-8", "replace") if isinstance(member, bytes) else str(member)


def _middle(path: Sequence[Item]) -> int:
    """Where the stacks of a second task begin."""
    return next(at for at, item in enumerate(path) if item.kind == MARK and item.name == BETWEEN.function)


def _script(path: list[Item]) -> tuple[str, Item]:
    """The innermost function of an interpreter, without one the innermost."""
    item = next((item for item in reversed(path) if item.kind == INTERPRETED), path[-1])
    return item.name, item


_LIBRARY = re.compile(r"(?:libc|libpthread|libm|ld|libstdc\+\+)\b[-.]|ld-linux|ld-musl|libc\.musl")
"""Names of files with functions that programs call to wait and to ask the kernel."""
_GO_LIBRARY = re.compile(r"(?:runtime|syscall|sync|internal/[\w/-]+|runtime/internal/[\w/-]+)\.")
"""The same of Go, whose functions are in the program: beginnings of their names."""
_IDLE, _RUNTIME, _ANY = "no goroutine to run (an idle thread)", "the runtime of Go itself", ("", "")
_ASSEMBLY = ".abi0"
"""What Go appends to names of functions in assembly."""
_ENTRIES = {
    "_start", "__libc_start_main", "__libc_start_call_main", "__libc_start_main_impl", "clone3", "start_thread",
    "entry_SYSCALL_64_after_hwframe", "do_syscall_64", "x64_sys_call", "el0t_64_sync", "el0_svc", "do_el0_svc",
    "el0_svc_common", "invoke_syscall", "asm_exc_page_fault", "exc_page_fault", "do_user_addr_fault",
    "runtime.goexit", "runtime.mcall", "runtime.systemstack", "runtime.morestack", "runtime.mstart", "runtime.mstart0",
    "runtime.mstart1",
}  # fmt: skip
"""Functions through which everything goes."""


def _of_library(item: Item) -> bool:
    return bool(_LIBRARY.match(os.path.basename(item.module)) or _GO_LIBRARY.match(item.name))


_SWITCH = "__traceiter_sched_switch"
"""The kernel's function that calls programs of the tracepoint: a stack that ends with it is that of a wait."""
_PREEMPTED = ("asm_sysvec_", "irqentry_exit_to_user_mode", "preempt_schedule_irq", "el0_irq", "el0t_64_irq")
"""Functions of the kernel by which a thread leaves that is ready to run."""


def _caller(path: list[Item]) -> tuple[str, Item]:
    """The program's function that entered the kernel, with who called the C library for it; of threads of the kernel
    the outermost function.
    """
    users = [item for item in path if item.kind in (USER, INTERPRETED)]
    if not users:
        return path[0].name, path[0]
    inner = users[-1]
    idle = next((item for item in users if item.kind == USER and GO_SCHEDULER.match(item.name)), None)
    if idle is not None:
        return _IDLE, idle
    if any(item.kind == KERNEL and item.name.startswith(_PREEMPTED) for item in path):
        found = next((item for item in reversed(users) if item.kind == INTERPRETED), inner)
        return f"{found.name} (preempted)", found
    wrote = next((item for item in reversed(users) if item.kind == INTERPRETED), None)
    wrote = wrote or next((item for item in reversed(users) if not _of_library(item)), None)
    return (inner.name, inner) if wrote is None or wrote == inner else (f"{wrote.name} → {inner.name}", wrote)


def _asking(path: list[Item]) -> tuple[str, Item]:
    """Who asked for memory: with the function of the C library that did it for the program; of Go the program's own."""
    wrote = next((item for item in reversed(path) if not _of_library(item)), None)
    if _GO_LIBRARY.match(path[-1].name):
        return (_RUNTIME, path[0]) if wrote is None else (wrote.name, wrote)
    return _caller(path)


_INTERRUPTS = {"asm_sysvec_apic_timer_interrupt": "a timer", "asm_common_interrupt": "a device"}
"""Functions of the kernel that run on behalf of no program, whatever they interrupted."""


def _woke(path: list[Item], command: str) -> tuple[str, Item]:
    """As :func:`_caller`, of the one that woke another."""
    if all(item.kind == MARK for item in path):
        return "nobody: it waited for a CPU", path[0]
    for item in path:
        if item.kind == KERNEL and item.name in _INTERRUPTS:
            return _INTERRUPTS[item.name], item
    label, item = _caller(path)
    return f"{command}: {label}" if command else label, item


def unnamed_code(stacks: Sequence[Stacks], runs: Sequence[Run]) -> list[str]:
    """Sentences on code without names and what gives it names; none where there is little of it."""
    whole = sum(sum(one.values) for one in stacks)
    if not whole:
        return []
    sentences = []
    without = sum(one.unnamed() for one in stacks)
    if without * _LEAST_UNNAMED >= whole:
        texts = {run.target for run in runs}.union(*(one.texts() for one in stacks))
        words = {word.rpartition("/")[2] for text in texts for word in text.split()}
        known = [option for name, option in _SOURCES.items() if name in words]
        advice = f"{' or '.join(known)} gives names" if known else "an option of its runtime may give them"
        share = f"{100 * without / whole:.0f} % of the stacks"
        sentences.append(f"{share} hold compiled code without names ({JIT}): {advice}")
    files: dict[str, int] = {}
    for one in stacks:
        for name, value in one.without_symbols().items():
            files[name] = files.get(name, 0) + value
    without = sum(files.values())
    if without * _LEAST_UNNAMED >= whole:
        names = ", ".join(sorted(files, key=lambda name: -files[name])[:_FILES])
        advice = "symbols of its -dbg or -dbgsym package, or a build without strip, name them"
        share = f"{100 * without / whole:.0f} % of the stacks"
        sentences.append(f"{share} end in functions without names ({names}): {advice}")
    return sentences


_LEAST_UNNAMED = 10
"""The share of the whole, as its inverse, from which on code without names is reported."""
_FILES = 3
"""Files without symbols that are named."""


class Amounts(NamedTuple):
    """Numbers of a profile as texts: of samples the time that they stand for."""

    unit: str
    counts: str = ""
    """What is counted, as a plural; empty where *unit* says what the number is."""
    period: float = 0.0
    """Seconds that one stands for; 0: it is no time."""

    def short(self, number: int) -> str:
        """``101 ms``, ``5.52 s``, ``1,234``."""
        return readable(number * self.period, "s") if self.period else readable(number, self.unit)

    def full(self, number: int) -> str:
        """With what was counted: ``101 ms (10 samples)``, ``16 events``."""
        if not self.counts:
            return self.short(number)
        counted = f"{number:,} {self.counts if abs(number) != 1 else self.counts.removesuffix('s')}"
        return f"{self.short(number)} ({counted})" if self.period else counted


def amounts_of(data: MapData, run: Run) -> Amounts:
    """Of the numbers of a map."""
    return Amounts("", *counted(run)) if isinstance(data.value, types.Count) else Amounts(data.unit)


def changes(stacks: Stacks) -> list[str]:
    """Of stacks with an earlier state the totals, and the functions that grew and shrank most themselves."""
    amounts = stacks.amounts
    was, now = sum(stacks.olds), sum(stacks.values)
    percent = f" ({100 * (now - was) / was:+.1f} %)" if was else ""
    lines = [f"{amounts.full(was)} before, {amounts.full(now)} after: {_signed(now - was, amounts)}{percent}"]
    listing = stacks.listings[0]
    new, old = [0] * len(listing.owners), [0] * len(listing.owners)
    for owner, value, earlier in zip(listing.of, stacks.values, stacks.olds, strict=True):
        new[owner] += value
        old[owner] += earlier
    deltas = [number - earlier for number, earlier in zip(new, old, strict=True)]
    for word, sign in (("grew most:", 1), ("shrank most:", -1)):
        found = sorted((at for at, delta in enumerate(deltas) if delta * sign > 0), key=lambda at: -deltas[at] * sign)
        lines += [word] if found else []
        for at in found[:SHOWN]:
            values = f"{amounts.short(old[at])} before, {amounts.short(new[at])} after"
            lines.append(f"  {_signed(deltas[at], amounts):>10}  {listing.owners[at].label} ({values})")
    return lines


def _signed(number: int, amounts: Amounts) -> str:
    return f"+{amounts.short(number)}" if number > 0 else amounts.short(number)


_VERSION = re.compile(r"\d+(?:\.\d+)*")


def same_function(frame: Frame) -> tuple[str, str]:
    """Name of the function and of its module or file: equal for installations of one program in different places.

    Folders (virtual environments, build directories) and versions in names of files are left out.
    """
    return _function(frame_name(frame), frame.module or frame.file)


def _function(name: str, module: str) -> tuple[str, str]:
    return name, _VERSION.sub("#", module.rpartition("/")[2])


def _largest(found: Mapping[str, int], whole: int, text: Callable[[int], str]) -> Iterator[str]:
    for name, number in sorted(found.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]:
        yield f"  {100 * number / whole:5.1f} %  {text(number):>9}  {name}"


def histogram_lines(data: MapData) -> list[str]:
    """How many values all keys have together, and the buckets of quantiles."""
    type_ = data.value
    assert isinstance(type_, types.Hist | types.LHist)
    every: dict[int, int] = {}
    for value in data.entries.values():
        for number, count in _counts(value).items():
            every[number] = every.get(number, 0) + count
    if not any(every.values()):
        return []
    counts = histogram.all_buckets(type_, every)
    return [f"{data.title}: {quantiles_text(histogram.shape(type_), counts, data.unit)}"]


def quantiles_text(form: histogram.Shape, counts: Sequence[int], unit: str) -> str:
    """How many values were counted, and the upper ends of the buckets of quantiles: ``p99 <= 4.1 ms``."""
    whole = sum(counts)
    places = []
    for item in histogram.quantiles(form, counts, ("50", "90", "99", "100")):
        if item.high is not None:
            end = f"<= {readable(item.high, unit)}"
        else:
            end = "" if item.low is None else f">= {readable(item.low, unit)}"
        places.append(f"{'largest' if item.percent == '100' else f'p{item.percent}'} {end}".rstrip())
    return f"{whole:,} value{'' if whole == 1 else 's'}: {', '.join(places)}"


def _counts(value: Value | Portable) -> dict[int, int]:
    items = value.items() if isinstance(value, dict) else ()
    return {number: count for number, count in items if isinstance(count, int)}


_TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
SECONDS = dict(_TIMES)
"""Units of time, in seconds."""
_SIZES = (("EB", 1e18), ("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1.0))
BYTES = {"bytes": 1, "KB": 1 << 10, "MB": 1 << 20}
"""Units of sizes, in bytes."""


def readable(number: float, unit: str) -> str:
    """A number for people, to three digits: times and sizes in the unit that fits (``5.52 s``, ``4.1 kB``)."""
    if unit in SECONDS or unit in BYTES:
        steps, size = (_TIMES, number * SECONDS[unit]) if unit in SECONDS else (_SIZES, number * BYTES[unit])
        name, one = next((step for step in steps if abs(size) >= step[1]), steps[-1])
        if not number:
            return f"0 {unit}"
        scaled = size / one
        return f"{scaled:,.0f} {name}" if abs(scaled) >= 1000 else f"{float(f'{scaled:.3g}'):g} {name}"
    return f"{number:,} {unit}".rstrip()


def duration(seconds: float) -> str:
    """How long a run took: ``237 us``, ``3.29 s``, ``2 min 5 s``, ``26 h 40 min``."""
    if seconds < _LONG:
        return f"{seconds:.3g} s" if seconds >= _SHORT else readable(seconds, "s")
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


_LONG = 120
"""Seconds from which on a duration is in minutes."""
_SHORT = 0.01
"""Seconds below which it is in milliseconds or microseconds."""


# ---------------------------------------------------------------------------------------------- question


_OF_TOOLS: dict[str, Callable[[str, str], str]] = {
    "profile": lambda target, host: (
        f"Where {target} spent its time" if target else f"Where the processors of {host} spent their time"
    ),
    "offcputime": lambda target, host: f"Where {target} waited" if target else f"Where the threads of {host} waited",
    "offwaketime": lambda target, host: (
        f"Who woke {target} from its waits" if target else f"Who woke the threads of {host} from their waits"
    ),
    "wakeuptime": lambda target, host: f"Who woke {target or f'the threads of {host}'}",
    "mallocs": lambda target, host: f"Who allocates memory in {target or f'the processes of {host}'}",
    "memleak": lambda target, host: f"Memory that {target or f'the kernel of {host}'} has not freed",
}
"""Titles of the tools whose pictures answer one question."""

_SUMMARY = re.compile(r"\A\s*/\*[\s*]*[\w-]+: *([^\n]+)")
"""The first line of a tool's comment: its name, and what it shows."""

_CONFIG = re.compile(r"\bconfig\s*=\s*\{[^}]*\}\s*;?")
"""Settings of a script, which ask nothing."""

_RATE = re.compile(r"\b(?:p(?:rofile)?:(hz|s|ms|us)|s(?:oftware)?:(?:cpu|task|cpu-clock|task-clock)):(\d+)\b")
"""A probe that samples: the unit of its number (none: nanoseconds of processor time), and the number."""
_PERIODS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "": 1e-9}

_PROBE = re.compile(r"^([a-z]+:[^\s{/,]+)", re.MULTILINE)
"""The first probe of a script."""

LONGEST = 90
"""Characters of a one-liner in a title."""


_NAMED = 4
"""Runs that a title names."""


def title_of(snapshot: SnapshotData) -> str:
    """The question of the runs; of many that differ only how many there are."""
    hosts = dict.fromkeys(run.host for run in snapshot.runs)
    host = f"{len(hosts)} machines" if len(hosts) > 1 else "".join(hosts)
    names = dict.fromkeys(question(run, host) for run in snapshot.runs)
    return f"{len(snapshot.runs)} runs" if len(names) > _NAMED else "; ".join(names) or "An empty snapshot"


def title_of_difference(before: SnapshotData, after: SnapshotData) -> str:
    """The question that a comparison answers."""
    targets = [", ".join(dict.fromkeys(run.target for run in side.runs)) for side in (before, after)]
    named = all(targets) and targets[0] != targets[1]
    names = list(dict.fromkeys(targets if named else map(title_of, (before, after))))
    return f"What changed: {names[0]}" if len(names) == 1 else f"What changed from {names[0]} to {names[1]}"


def question(run: Run, host: str) -> str:
    """What a run was asked, in words: by its tool, else by the first words of its script.

    Args:
        run: the run.
        host: the name of its machine, or how many machines there are.
    """
    target = _cut(run.target)
    of_tool = _OF_TOOLS.get(run.script)
    if of_tool is not None:
        return of_tool(target, host)
    if run.script == "stackcount":
        event = next((word for word in run.parameters if word[:2] != "--"), "")
        probe = _PROBE.search(run.text)
        event = event or (probe[1] if probe is not None else "")
        if event:
            return f"Who calls {event}" + (f" in {target}" if target else "")
    summary = _SUMMARY.match(run.text)
    if summary is not None:
        words = summary[1].rstrip(". ")
        return f"{words[0].upper()}{words[1:]}" + (f": {target}" if target else f", on {host}")
    name = run.script if run.script != "-e" else _cut(" ".join(_CONFIG.sub("", run.text).split())) or "a one-liner"
    return f"{name}: {target}" if target else f"{name}, on {host}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def counted(run: Run) -> tuple[str, float]:
    """What the counts of a profile are, as a plural, and the seconds that one stands for (0: it is no time)."""
    if run.script == "profile":
        options = dict(word.removeprefix("--").partition("=")[::2] for word in run.parameters)
        every = options.get("count", "")
        if every.isdecimal() and int(every):
            return "samples", int(every) * 1e-9
        return "samples", _period("hz", options.get("frequency", "49"))
    rates = set(_RATE.findall(run.text))
    if len(rates) == 1:
        return "samples", _period(*rates.pop())
    return {"stackcount": "calls", "mallocs": "allocations"}.get(run.script, "events"), 0.0


def _what_of(run: Run) -> str:
    """What the sum of a profile is, after its number: ``5.52 s on CPU``."""
    if counted(run)[1]:
        return "on CPU"
    return {"offcputime": "waited", "offwaketime": "waited", "wakeuptime": "waited", "mallocs": "allocated"}.get(
        run.script, ""
    )


def _period(unit: str, number: str) -> float:
    if not number.isdecimal() or not int(number):
        return 0.0
    return 1 / int(number) if unit == "hz" else int(number) * _PERIODS[unit]
