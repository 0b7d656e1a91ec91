"""What decides whether a program goes on: filters of processes, exits of functions, gates, the watchdog."""


from __future__ import annotations

import re
import struct
from collections.abc import Callable

from pytrace.codegen.emit import map_uses, tasks
from pytrace.codegen.emit.map_uses import SamplingPlan, gated
from pytrace.codegen.emit.program import SESSION, Part, Program, Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.module import SHARED, SHARED_SECTION
from pytrace.codegen.ir.values import I1, TRUE, Number, global_pointer
from pytrace.core import system_calls as call_numbers
from pytrace.core.manifest import EXITED, HITS, RATE_LINE, WEIGHT, MapType, SampledUnit, Sampling
from pytrace.core.options import FORKED_ONLY, PROCESS_MAP, UNROLLED, FilterShape
from pytrace.core.probe_kinds import (
    ALWAYS,
    ENTER,
    GOROUTINE_PROCESS_SHIFT,
    GOROUTINE_SHIFT,
    URETPROBE,
    Context,
    KernelFunctionTarget,
    ProbeTarget,
    RawTracepointTarget,
    TracepointTarget,
    TypedFunctionTarget,
    UserTarget,
    Way,
)
from pytrace.core.types import UINT32, AddressSpace
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import GoroutineNumber, ProbeUnit

FOLLOWED = "followed"
"""The set of followed tasks (``codegen.walkers.service_programs``)."""

Test = Callable[[tasks.Task], I1]
"""Emits the test of one filter for a task."""


MARKS = "tail_calls"
_MOST_MARKS = 16384
"""Jumps whose returns are awaited at the same time, by all threads; the oldest go when there are more."""

_CARRY, _PARITY, _ZERO, _SIGN, _OVERFLOW = 0, 2, 6, 7, 11
"""Bits of the flags."""


def declare_exits(script: Script) -> None:
    """Declare the map of marks, if a function of the script's units needs it."""
    if any(place.way is Way.MARK for unit in script.checked.units for place in exit_places(unit)):
        attributes = {"type": MapType.LRU_HASH, "key_size": 24, "value_size": 8, "max_entries": _MOST_MARKS}
        script.module.map(MARKS, attributes)


def exit_places(unit: ProbeUnit) -> list[UserTarget]:
    """The exits that a program is attached to; empty for one whose hits are all entries or returns."""
    if unit.kind.name != URETPROBE:
        return []
    targets = [target.of(UserTarget) for target in unit.targets]
    return targets if any(place.leaving is not None for place in targets) else []


def in_caller(unit: ProbeUnit) -> bool:
    """Whether the stack of a program begins in the caller: its function is left at the next instruction (x86-64).

    Stacks of returns of Go begin in the function.
    """
    exits = exit_places(unit)
    return bool(exits) and not exits[0].go


ATTEMPTS = 8
"""Attempts to take a hit while other CPUs take theirs; after that it is dropped."""

RANDOM = 1 << 32
"""Random numbers are less than this."""

_BURST, _DUE = 8, 16
"""Offsets of the numbers of a limit after the first one."""


def declare(script: Script) -> None:
    """Declare the map of processes, if there are too many to compare one by one; place the numbers of gates."""
    units, pids = script.checked.units, script.options.shape.pids
    if pids > UNROLLED:
        script.module.map(PROCESS_MAP, {"type": MapType.HASH, "key_size": 4, "value_size": 4, "max_entries": pids})
    if (script.options.limited or script.checked.config.max_rate) and any(map(gated, units)):
        script.layout.limit_rates(1 + max(unit.index for unit in units))
    if not script.options.sampled or not any(map(gated, units)):
        return
    script.sampling = map_uses.sampling_plan(script.checked)
    script.layout.place_weights(len(units))
    for name in sorted(script.sampling.weighted):
        info = script.checked.maps[name]
        size = info.key.size if info.key is not None else 0
        # Elements that the session removes leave their weights behind.
        attributes = {"type": MapType.LRU_HASH, "key_size": max(size, 1), "value_size": 8}
        script.module.map(map_uses.weights_symbol(name), {**attributes, "max_entries": info.max_entries})


def prepare_gates(program: Program, plan: SamplingPlan) -> None:
    """Decide how a program is sampled, before its functions are emitted."""
    program.sampled = program.index in plan.sampled
    program.storing, program.reading = plan.storing(program.index), plan.reading(program.index)


def sampling_spec(script: Script, plan: SamplingPlan) -> Sampling | None:
    """Location of the weights and what programs do with maps, for the manifest."""
    offset = script.layout.weights
    if offset is None:
        return None
    units = [
        SampledUnit(
            number in plan.sampled,
            bool(plan.reading(number)),
            tuple(sorted(uses.reads | (uses.deletes & plan.linked))),
            tuple(sorted(uses.writes)),
            tuple(sorted(uses.events)),
            tuple(sorted(plan.linked & (uses.reads | uses.writes | uses.deletes))),
        )
        for number, uses in enumerate(plan.uses)
    ]
    return Sampling(SHARED_SECTION, offset, tuple(units))


_NUMBER = 8
"""Offset of the system call number, in records of its tracepoints as in the context of the raw one."""

SKIPPED = "skipped"
"""Counter of a program's hits that the watchdog skipped."""


_EXIT_FUNCTION = r"(ksys|sys|__se_sys|__do_sys|__[a-z0-9]+_sys)_exit$"
"""The functions of the system call ``exit`` (``SYSCALL_DEFINE1(exit, …)`` and the wrappers of architectures)."""


def _is_exit(place: ProbeTarget) -> bool:
    """Whether a function of the kernel is one of the system call ``exit``."""
    if isinstance(place, KernelFunctionTarget | TypedFunctionTarget):
        return re.match(_EXIT_FUNCTION, place.function) is not None
    return False


def _enters_exit(place: ProbeTarget) -> bool:
    if isinstance(place, RawTracepointTarget):
        return place.event == ENTER
    return isinstance(place, TracepointTarget) and (
        place.call == (ENTER, "exit") or (place.category, place.event) == ("raw_syscalls", ENTER)
    )


class Filters(Part):
    """Applies the filters of processes."""

    def check(self, unit: ProbeUnit) -> None:
        """End the program of *unit* unless the current task passes the unit's filters."""
        chosen = self._tests(pid=unit.pid_filter, others=unit.filtered, follow=unit.follow, foreign=unit.foreign)
        if unit.of_child:
            chosen.append(self._of_child)
            if self.script.ahead is None and self.script.kernel.struct("struct", "task_struct") is not None:
                chosen.append(self._executed)
        if not chosen:
            return
        task = tasks.CurrentTask(self.e)
        for test in chosen:
            self.e.end_early(test(task))

    def _tests(self, *, pid: bool, others: bool, follow: bool, foreign: bool) -> list[Test]:
        """The tests of processes selected by ``-p``, of the other filters, and of followed processes.

        *foreign* is that it is another process than the tracer's.
        """
        shape = self.script.options.shape
        chosen: list[Test] = []
        # The set of followed processes includes those of -p.
        if pid and not follow:
            chosen += self._pid_tests(shape)
        if others and shape.uids:
            chosen.append(self._uid)
        if follow:
            chosen.append(self.followed)
        if others:
            by_kind = ((shape.comms, self._comm), (shape.cgroups, self._cgroup), (shape.namespaces, self._namespace))
            chosen += [test for count, test in by_kind if count]
            if shape.threads:
                chosen.append(self._not_own_thread)
        if foreign:
            chosen.append(self._foreign)
        return chosen

    def in_scope(self, task: tasks.Task) -> Number:
        """Whether *task* passes all filters of the run: 1 or 0."""
        options = self.script.options
        chosen = self._tests(pid=True, others=True, follow=options.follow, foreign=options.foreign)
        if not chosen:
            return 1
        done = self.b.block()
        results: list[tuple[Number, Block]] = []
        for test in chosen[:-1]:
            held = test(task)
            results.append((0, self.b.current))
            self.b.jump_unless(held, done)
        last = self.b.number(chosen[-1](task))
        results.append((last, self.b.current))
        self.b.jump(done)
        self.b.start(done)
        return self.b.phi(results)

    def followed(self, task: tasks.Task) -> I1:
        """Whether the process of *task* is that of ``-p`` or ``-c``, or descends from it."""
        itself = self._root(task)
        first = self.b.current
        with self.b.unless(itself):
            is_member = self.b.number(self.e.tasks.is_in_map(task.process("init"), FOLLOWED))
            last = self.b.current
        return self.b.truth(self.b.phi([(1, first), (is_member, last)]))

    def _root(self, task: tasks.Task) -> I1:
        """Whether the process is a root, from which following starts."""
        number = task.process("tracer")
        count = self.script.options.shape.pids
        if count < 2:
            return self.b.icmp("eq", number, self.b.load(self.e.session(SESSION.root)))
        if count > UNROLLED:
            return self.e.tasks.is_in_map(number, PROCESS_MAP)
        return self.e.tasks.is_any_of(number, 0, count)

    def _pid_tests(self, shape: FilterShape) -> list[Test]:
        if shape.pids > UNROLLED:
            return [self._pid_in_map]
        # An ahead-of-time file has one slot even without -p, as the run that loads it may use -p.
        if self.script.ahead is not None and shape.pids < 2:
            return [self._pid_at_load_time]
        return [self._pid] if shape.pids else []

    def _pid(self, task: tasks.Task) -> I1:
        return self.e.tasks.is_any_of(task.process("tracer"), 0, self.script.options.shape.pids)

    def _of_child(self, task: tasks.Task) -> I1:
        """Whether *task* belongs to the process of ``-c``. An ahead-of-time file may be run without one."""
        child = self.b.load(self.e.session(SESSION.cpid))
        same = self.b.icmp("eq", task.process("tracer"), child)
        return same if self.script.ahead is None else self.b.either(same, self.b.icmp("eq", child, 0))

    def _executed(self, _task: tasks.Task) -> I1:
        """Whether the current task has executed a program: until it has, the child of ``-c`` is a copy of the
        tracer.
        """
        flags = self.b.add(self.b.helper(helpers.GET_CURRENT_TASK), self.e.tasks.task_field("flags"))
        value = self.e.foreign.read_scalar(flags, UINT32, AddressSpace.KERNEL).value
        return self.b.icmp("eq", self.b.op("and", value, FORKED_ONLY), 0)

    def _pid_in_map(self, task: tasks.Task) -> I1:
        return self.e.tasks.is_in_map(task.process("tracer"), PROCESS_MAP)

    def _pid_at_load_time(self, task: tasks.Task) -> I1:
        """Test for ``-p`` of the run that loads an ahead-of-time file; 0 stands for no ``-p``."""
        pid = self.e.load_time.integer("pid", (), 0)
        before = self.b.current
        with self.b.unless(self.b.icmp("eq", pid, 0)):
            same = self.b.number(self.b.icmp("eq", task.process("tracer"), pid))
            after = self.b.current
        return self.b.truth(self.b.phi([(1, before), (same, after)]))

    def _uid(self, task: tasks.Task) -> I1:
        shape = self.script.options.shape
        return self.e.tasks.is_any_of(task.user(), shape.uids_at, shape.uids)

    def _foreign(self, task: tasks.Task) -> I1:
        """Test that the process is neither the tracer nor one of its live view."""
        own = (0, 4, 8) if self.script.options.live else (0, 4)
        return self.b.differ(self.e.tasks.is_own(task.process("tracer"), *own), TRUE)

    def _not_own_thread(self, task: tasks.Task) -> I1:
        """Test that the thread does not run pytrace; of other tasks than the current one nothing is known."""
        if not isinstance(task, tasks.CurrentTask):
            return self.b.truth(1)
        shape = self.script.options.shape
        same = self.e.tasks.is_any_of(self.e.tasks.process_ids("tracer")[1], shape.threads_at, shape.threads)
        return self.b.icmp("eq", self.b.number(same), 0)

    def _namespace(self, task: tasks.Task) -> I1:
        shape = self.script.options.shape
        return self.e.tasks.is_any_of(task.network_namespace(), shape.namespaces_at, shape.namespaces)

    def _comm(self, task: tasks.Task) -> I1:
        shape = self.script.options.shape
        return self.e.tasks.is_named(task, shape.comms_at, shape.comms)

    def _cgroup(self, task: tasks.Task) -> I1:
        """Test whether the cgroup of the task, or an ancestor of it, is a selected one."""
        shape = self.script.options.shape
        same: Number = 0
        for number in range(shape.cgroups):
            place = SESSION.filters + shape.cgroups_at + 16 * number
            ancestor = task.cgroup(self.b.load(self.e.session(place)))
            equal = self.b.number(self.b.icmp("eq", ancestor, self.b.load(self.e.session(place + 8))))
            same = self.b.op("or", same, equal)
        return self.b.truth(same)


class FunctionExits(Part):
    """Probes at exits of functions."""

    def by_target(self, numbers: list[int]) -> Number:
        """The number of the target that was hit."""
        if len(set(numbers)) == 1:
            return numbers[0]
        # A power of two, so that the verifier sees that the index is inside.
        room = 1 << (len(numbers) - 1).bit_length()
        table = self.module.constant(struct.pack(f"<{len(numbers)}q", *numbers).ljust(8 * room, b"\0"))
        index = self.b.op("and", self.e.events.target_index(), room - 1)
        return self.b.load(self.b.offset(table, self.b.mul(index, 8)))

    def distance(self) -> Number:
        """How far from the start of its function the place that was hit is; 0 where the kernel sees returns."""
        places = [target.place for target in self.program.unit.targets]
        found = [place.leaving or place.checked for place in places if isinstance(place, UserTarget)]
        return self.by_target(found or [0])

    def only_returns(self) -> None:
        """End the program where its function has not returned."""
        exits = exit_places(self.program.unit)
        if any(place.condition != ALWAYS for place in exits):
            self._taken([place.condition for place in exits])
        ways = {place.way for place in exits}
        if ways <= {Way.RETURN}:
            return
        b, way = self.b, self.by_target([place.way for place in exits])
        if Way.JUMP in ways and self.program.unit.context.reads_result:
            self.e.end_early(b.icmp("ne", way, Way.JUMP.value), counted="tail_call")
        if Way.MARK in ways:
            self._marked(way)
        b.new_prologue()

    def _marked(self, way: Number) -> None:
        b = self.b
        done, elsewhere = b.block(), b.block()
        b.jump_if(b.icmp("ult", way, Way.MARK.value), done, likely=True)
        key, returning = b.alloca(24), b.alloca(8)
        stack = self.e.probe.register(self.e.probe.registers().stack)
        # The process, not the thread: stacks of coroutines move to others.
        b.store(b.op("lshr", b.helper(helpers.GET_CURRENT_PID_TGID), 32), key)
        b.store(stack, b.offset(key, 8))
        b.store(b.sub(self.e.probe.register(self.e.probe.registers().pc), self.distance()), b.offset(key, 16))
        b.store(0, returning)
        if self.e.probe.registers().pc == "ip":
            b.helper(helpers.PROBE_READ_USER, returning, 8, stack)
        else:
            b.store(self.e.probe.register("r30"), returning)
        marks = global_pointer(MARKS)
        b.jump_if(b.icmp("eq", way, Way.ELSEWHERE.value), elsewhere)
        b.helper(helpers.MAP_UPDATE_ELEM, marks, key, returning, 0)
        self.e.end()
        b.start(elsewhere)
        mark = b.helper(helpers.MAP_LOOKUP_ELEM, marks, key)
        with b.when(b.is_null(mark), likely=True):
            self.e.end()
        address = b.load(mark)
        b.helper(helpers.MAP_DELETE_ELEM, marks, key)
        with b.unless(b.icmp("eq", address, b.load(returning, again=True)), likely=True):
            self.e.end()
        b.jump(done)
        b.start(done)

    def _taken(self, conditions: list[int]) -> None:
        """End the program at a conditional jump that is not taken (Intel manual, volume 1, appendix B)."""
        b = self.b
        condition = self.by_target(conditions)
        flags = self.e.probe.register("flags")

        def flag(number: int) -> Number:
            return b.op("and", b.op("lshr", flags, number), 1)

        carry, parity, zero, sign, overflow = map(flag, (_CARRY, _PARITY, _ZERO, _SIGN, _OVERFLOW))
        less = b.op("xor", sign, overflow)
        tests = (overflow, carry, zero, b.op("or", carry, zero), sign, parity, less, b.op("or", zero, less))
        all_tests: Number = 0
        for number, test in enumerate(tests):
            all_tests = b.op("or", all_tests, b.op("shl", test, number))
        chosen = b.op("lshr", all_tests, b.op("and", b.op("lshr", condition, 1), 7))
        # Odd conditions are the opposites of even ones.
        taken = b.op("and", b.op("xor", chosen, condition), 1)
        always = b.number(b.icmp("slt", condition, 0))
        self.e.end_early(b.truth(b.op("or", taken, always)))


_GOROUTINE = {"x86_64": "r14", "aarch64": "r28"}
"""The register that has ``runtime.g`` in functions of Go (src/cmd/compile/abi-internal.md)."""
_STACK_TOP = 8
"""Offset of ``g.stack.hi``."""


class CallParts(Part):
    """What identifies a call, the same at its entry and its return (``frontend.syntax.nodes.CallPart``)."""

    def value(self, node: nodes.CallPart) -> Number:
        """One part."""
        if node.part == "function":
            return self._function()
        if node.part in ("frame", "inner"):
            frame = self._frame()
            return self.b.sub(0, frame) if node.part == "inner" and self._go() else frame
        process, thread = self.e.tasks.process_ids("init")
        if not self._go():
            return thread if node.part == "thread" else process
        b, number = self.b, self.checked.find_fact(node, GoroutineNumber)
        goroutine: Number = b.op("lshr", self._goroutine(), GOROUTINE_SHIFT)
        if number is not None:
            # The memory of a goroutine that has ended is that of another one later. Stacks of the scheduler have no
            # number.
            b.store(0, self.e.cell)
            b.helper(helpers.PROBE_READ_USER, self.e.cell, 8, b.add(self._goroutine(), number.offset))
            own = b.load(self.e.cell)
            goroutine = b.select(b.icmp("eq", own, 0), goroutine, own)
        return b.op("or", goroutine, b.op("shl", process, GOROUTINE_PROCESS_SHIFT))

    def _function(self) -> Number:
        distance = FunctionExits(self.e).distance()
        if exit_places(self.program.unit):
            return self.b.sub(self.e.probe.register(self.e.probe.registers().pc), distance)
        return self.b.sub(self.e.probe.function_address(), distance)

    def _frame(self) -> Number:
        """Where on the stack the return address is, or was; for a trampoline, where it keeps the arguments."""
        b, unit, table = self.b, self.program.unit, self.e.probe.registers()
        if unit.kind.context is Context.SLOTS:
            return b.address(self.e.raw_context)
        stack = self.e.probe.register(table.stack)
        if self._go():
            b.store(0, self.e.cell)
            b.helper(helpers.PROBE_READ_USER, self.e.cell, 8, b.add(self._goroutine(), _STACK_TOP))
            return b.sub(b.load(self.e.cell), stack)
        if not unit.kind.returns or exit_places(unit) or table.pc != "ip":
            return stack
        return b.sub(stack, 8)  # the return address has been popped

    def _go(self) -> bool:
        place = self.program.unit.targets[0].place
        return isinstance(place, UserTarget) and place.has_goroutine

    def _goroutine(self) -> Number:
        return self.e.probe.register(_GOROUTINE[self.script.kernel.arch])


class Gates(Part):
    """Leaves out hits of sampled and limited programs."""

    def sample(self) -> None:
        """End the program for all but one of N hits, and set the weight of this one."""
        program, b = self.program, self.b
        if not program.sampled:
            if program.weighted:
                b.store(1, self.e.weight)
            return
        offset = (self.script.layout.weights or 0) + WEIGHT * (1 + program.index)
        weight = b.load(b.offset(global_pointer(SHARED), offset))
        b.store(weight, self.e.weight)
        self.e.counter(HITS, program.index)
        done = b.block()
        b.jump_if(b.icmp("eq", weight, 1), done, likely=True)
        random = b.op("and", b.helper(helpers.GET_PRANDOM_U32), RANDOM - 1)
        b.jump_if(b.icmp("ult", b.mul(random, weight), RANDOM), done)
        self.e.end()
        b.start(done)
        b.new_prologue()

    def limit(self) -> None:
        """End the program if its block has run too often lately."""
        rates, unit, b = self.script.layout.rates, self.program.unit, self.b
        if rates is None or not gated(unit):
            return
        line = b.offset(global_pointer(SHARED), rates + RATE_LINE * unit.index)
        over, done = b.block(), b.block()
        each = b.load(line)
        b.jump_if(b.icmp("eq", each, 0), done)
        now = b.helper(helpers.KTIME_GET_NS)
        latest = b.add(now, b.load(b.offset(line, _BURST)))
        place = b.offset(line, _DUE)
        due = b.load(place)
        for _ in range(ATTEMPTS):
            b.jump_if(b.icmp("ugt", due, latest), over)
            start = b.select(b.icmp("ugt", due, now), due, now)
            previous = b.exchange_if(place, due, b.add(start, each))
            b.jump_if(b.icmp("eq", previous, due), done, likely=True)
            due = previous
        b.jump(over)
        b.start(over)
        self.e.counter("limited", self.program.index)
        self.e.end()
        b.start(done)
        b.new_prologue()


class Watchdog(Part):
    """Ends programs after the tracer's deadline."""

    def check(self) -> None:
        """End the program after ``exit()`` and after the deadline.

        It comes after the process filters, so that only hits of the traced processes are counted, and before
        the predicate, which may be of any length. Programs that the tracer itself runs, or a reader of an
        iterator, have no such check, and neither have empty ones, which have nothing to skip.
        """
        unit, kind = self.program.unit, self.program.unit.kind
        if kind.special or kind.context is Context.ITERATOR or not (unit.body.statements or unit.body.value):
            return
        if self.script.options.live:
            self._unless_view()
        self._unless_own_thread_ends()
        self._unless_stopped(calls=kind.context is not Context.PERF_EVENT)
        now = self.b.helper(helpers.JIFFIES64)
        self.e.end_early(self.b.icmp("ule", now, self.b.load(self.e.session(SESSION.deadline))), counted=SKIPPED)

    def _unless_view(self) -> None:
        """End the program in the processes of the live view, which wait in calls all the time: it is only a picture."""
        process, _ = self.e.tasks.process_ids("tracer")
        self.e.end_early(self.b.differ(self.e.tasks.is_own(process, 4, 8), TRUE))

    def _unless_own_thread_ends(self) -> None:
        """End the program at the ``exit`` of a thread of the tracer.

        The call has no return, and bpftrace has no such threads: a map of calls that have begun would keep one
        for each.
        """
        unit, b = self.program.unit, self.b
        functions = [index for index, target in enumerate(unit.targets) if _is_exit(target.place)]
        number = call_numbers.numbers(self.script.kernel.arch).get("exit")
        if functions and not unit.kind.returns:
            ends = TRUE
            if len(functions) < len(unit.targets):
                hit = self.e.events.target_index()
                same: Number = 0
                for index in functions:
                    same = b.op("or", same, b.number(b.icmp("eq", hit, index)))
                ends = b.truth(same)
        elif number is not None and any(_enters_exit(target.place) for target in unit.targets):
            ends = b.icmp("eq", b.load(b.offset(self.e.context, _NUMBER), 32), number)
        else:
            return
        with b.when(ends, likely=False):
            process, _ = self.e.tasks.process_ids("tracer")
            with b.when(self.e.tasks.is_own(process, 0)):
                self.e.end()
        b.new_prologue()

    def _unless_stopped(self, *, calls: bool) -> None:
        """End the program after ``exit()``.

        The tracer waits for events in a system call then, whose return is seen: a map of calls that have begun
        would keep it. *calls*: the program may see such returns, unlike one of a timer, which meets any process
        by chance.
        """
        b = self.b
        stopped = b.load(self.e.session(SESSION.stopped), 32)
        if not calls:
            self.e.end_early(b.icmp("eq", stopped, 0))
            return
        with b.unless(b.icmp("eq", stopped, 0), likely=True):
            process, _ = self.e.tasks.process_ids("tracer")
            with b.unless(b.both(self.e.tasks.is_own(process, 0), b.icmp("eq", stopped, EXITED)), likely=False):
                self.e.end()
        b.new_prologue()
