"""Process filters (``-p``, ``--uid``, ``--comm``, ``--cgroup``, ``--netns``, ``--follow``) in programs.

A program begins with the filters of the run, the cheapest first, and ends if one does not match. The builtin
``in_scope`` is their conjunction as a value. Filter values are in the session data
(:mod:`pytrace.core.options.process_filters`).
"""

from __future__ import annotations

from collections.abc import Callable

from pytrace.codegen.emit import tasks
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.storage import SESSION
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.module import Module
from pytrace.codegen.ir.values import I1, Number
from pytrace.codegen.services import process_following
from pytrace.core.manifest import MapType
from pytrace.core.options.process_filters import FORKED_ONLY, PROCESS_MAP, UNROLLED, FilterShape
from pytrace.core.types import UINT32, AddressSpace
from pytrace.frontend.syntax.typed_program import ProbeUnit

Test = Callable[[Emitter, tasks.Task], I1]
"""Emits the test of one filter for a task."""


def declare(module: Module, shape: FilterShape) -> None:
    """Declare the map of processes, if there are too many to compare one by one."""
    if shape.pids > UNROLLED:
        module.map(PROCESS_MAP, {"type": MapType.HASH, "key_size": 4, "value_size": 4, "max_entries": shape.pids})


def check(e: Emitter, unit: ProbeUnit) -> None:
    """End the program of *unit* unless the current task passes the unit's filters."""
    chosen = _tests(e, pid=unit.pid_filter, others=unit.filtered, follow=unit.follow, foreign=unit.foreign)
    if unit.of_child:
        chosen.append(_of_child)
        if e.script.ahead is None and e.script.kernel.struct("struct", "task_struct") is not None:
            chosen.append(_executed)
    if not chosen:
        return
    task = tasks.CurrentTask(e)
    for test in chosen:
        e.end_early(test(e, task))


def _tests(e: Emitter, *, pid: bool, others: bool, follow: bool, foreign: bool) -> list[Test]:
    """The tests of processes selected by ``-p``, of the other filters, and of followed processes.

    *foreign* is that it is another process than the tracer's.
    """
    shape = e.script.options.shape
    chosen: list[Test] = []
    # The set of followed processes includes those of -p.
    if pid and not follow:
        chosen += _pid_tests(e, shape)
    if others and shape.uids:
        chosen.append(_uid)
    if follow:
        chosen.append(process_following.check)
    if others:
        by_kind = ((shape.comms, _comm), (shape.cgroups, _cgroup), (shape.namespaces, _namespace))
        chosen += [test for count, test in by_kind if count]
        if shape.threads:
            chosen.append(_not_own_thread)
    if foreign:
        chosen.append(_foreign)
    return chosen


def in_scope(e: Emitter, task: tasks.Task) -> Number:
    """Whether *task* passes all filters of the run: 1 or 0."""
    options = e.script.options
    chosen = _tests(e, pid=True, others=True, follow=options.follow, foreign=options.foreign)
    if not chosen:
        return 1
    done = e.b.block()
    results: list[tuple[Number, Block]] = []
    for test in chosen[:-1]:
        held = test(e, task)
        results.append((0, e.b.current))
        e.b.jump_unless(held, done)
    last = e.b.number(chosen[-1](e, task))
    results.append((last, e.b.current))
    e.b.jump(done)
    e.b.start(done)
    return e.b.phi(results)


def _pid_tests(e: Emitter, shape: FilterShape) -> list[Test]:
    if shape.pids > UNROLLED:
        return [_pid_in_map]
    # An ahead-of-time file has one slot even without -p, as the run that loads it may use -p.
    if e.script.ahead is not None and shape.pids < 2:
        return [_pid_at_load_time]
    return [_pid] if shape.pids else []


def _pid(e: Emitter, task: tasks.Task) -> I1:
    return e.tasks.is_any_of(task.process("tracer"), 0, e.script.options.shape.pids)


def _of_child(e: Emitter, task: tasks.Task) -> I1:
    """Whether *task* belongs to the process of ``-c``. An ahead-of-time file may be run without one."""
    child = e.b.load(e.session(SESSION.cpid))
    same = e.b.icmp("eq", task.process("tracer"), child)
    return same if e.script.ahead is None else e.b.either(same, e.b.icmp("eq", child, 0))


def _executed(e: Emitter, _task: tasks.Task) -> I1:
    """Whether the current task has executed a program: until it has, the child of ``-c`` is a copy of the tracer."""
    flags = e.b.add(e.b.helper(helpers.GET_CURRENT_TASK), e.tasks.task_field("flags"))
    value = e.foreign.read_scalar(flags, UINT32, AddressSpace.KERNEL).value
    return e.b.icmp("eq", e.b.op("and", value, FORKED_ONLY), 0)


def _pid_in_map(e: Emitter, task: tasks.Task) -> I1:
    return e.tasks.is_in_map(task.process("tracer"), PROCESS_MAP)


def _pid_at_load_time(e: Emitter, task: tasks.Task) -> I1:
    """Test for ``-p`` of the run that loads an ahead-of-time file; 0 stands for no ``-p``."""
    pid = e.load_time.integer("pid", (), 0)
    before = e.b.current
    with e.b.unless(e.b.icmp("eq", pid, 0)):
        same = e.b.number(e.b.icmp("eq", task.process("tracer"), pid))
        after = e.b.current
    return e.b.truth(e.b.phi([(1, before), (same, after)]))


def _uid(e: Emitter, task: tasks.Task) -> I1:
    shape = e.script.options.shape
    return e.tasks.is_any_of(task.user(), shape.uids_at, shape.uids)


def _foreign(e: Emitter, task: tasks.Task) -> I1:
    """Test that the process is neither the tracer nor its live view."""
    process = task.process("tracer")
    first, second = (e.b.icmp("eq", process, e.b.load(e.session(SESSION.own + distance), 32)) for distance in (0, 4))
    return e.b.icmp("eq", e.b.op("or", e.b.number(first), e.b.number(second)), 0)


def _not_own_thread(e: Emitter, task: tasks.Task) -> I1:
    """Test that the thread does not run pytrace; of other tasks than the current one nothing is known."""
    if not isinstance(task, tasks.CurrentTask):
        return e.b.truth(1)
    shape = e.script.options.shape
    same = e.tasks.is_any_of(e.tasks.process_ids("tracer")[1], shape.threads_at, shape.threads)
    return e.b.icmp("eq", e.b.number(same), 0)


def _namespace(e: Emitter, task: tasks.Task) -> I1:
    shape = e.script.options.shape
    return e.tasks.is_any_of(task.network_namespace(), shape.namespaces_at, shape.namespaces)


def _comm(e: Emitter, task: tasks.Task) -> I1:
    shape = e.script.options.shape
    return e.tasks.is_named(task, shape.comms_at, shape.comms)


def _cgroup(e: Emitter, task: tasks.Task) -> I1:
    """Test whether the cgroup of the task, or an ancestor of it, is a selected one."""
    shape = e.script.options.shape
    same: Number = 0
    for number in range(shape.cgroups):
        place = SESSION.filters + shape.cgroups_at + 16 * number
        ancestor = task.cgroup(e.b.load(e.session(place)))
        equal = e.b.number(e.b.icmp("eq", ancestor, e.b.load(e.session(place + 8))))
        same = e.b.op("or", same, equal)
    return e.b.truth(same)
