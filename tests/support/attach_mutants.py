"""Faults put into the attachers, one at a time, each of which a test of the core of the test machine has to notice.

``python -m tests.support.attach_mutants [NAME…] [-- TEST…]`` prints a line for each: killed, or survived. One process
imports everything; for each fault it forks, replaces the code of the functions that differ, and runs the tests to the
first failure. Before the first it runs them without a fault. In the test machine:
``scripts/vm --compile-outside -- .venv/bin/python -m tests.support.attach_mutants``.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support import compile_guest, forked, server
from tests.support.patience import EMULATED

CORE = (
    "tests/kernel/test_attach.py", "tests/kernel/test_selection.py",
    "tests/kernel/test_killed_tracers.py", "tests/test_cases.py",
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A text of a module of ``pytrace.runtime.load``, and the faulty one in its place."""

    module: str
    text: str
    fault: str


USER, LINKS, ATTACHMENTS = "user_probes", "probe_links", "attachments"
MODULES = (USER, LINKS, ATTACHMENTS)
MUTANTS = {
    # wrong target
    "kprobe_offset_lost": Mutant(ATTACHMENTS, "else place.offset\n", "else 0\n"),
    "kprobe_address_offset_lost": Mutant(
        ATTACHMENTS, "_addresses(place)[0] + place.offset if", "_addresses(place)[0] if"
    ),
    "kprobe_is_return": Mutant(ATTACHMENTS, '"retprobe") if job.returns else 0', '"retprobe")'),
    # Of kernels since 6.7, which count missed returns: on 6.1, where tracefs tells them, it survives.
    "kretprobe_is_entry": Mutant(ATTACHMENTS, 'perf.pmu_bit("kprobe", "retprobe") if job.returns else 0', "0"),
    "kprobe_traced_offset_lost": Mutant(ATTACHMENTS, '(f"+{place.offset}" if place.offset else "")', '""'),
    "kprobe_traced_is_return": Mutant(
        ATTACHMENTS, "_definition_text(place), returns=job.returns", "_definition_text(place), returns=True"
    ),
    "kprobe_on_address_0": Mutant(
        ATTACHMENTS, "        return [place.address]\n    addresses", "        return [0]\n    addresses"
    ),
    "uprobe_first_byte": Mutant(USER, "config1=name.address, config2=offset)", "config1=name.address, config2=0)"),
    "uprobe_is_return": Mutant(USER, '"retprobe") if returns else 0', '"retprobe")'),
    "uretprobe_is_entry": Mutant(USER, '(perf.pmu_bit("uprobe", "retprobe") if returns else 0)', "0"),
    "uprobe_traced_is_entry": Mutant(
        USER, "returns=job.returns, pid=job.options.uprobe_pid, opened=", "returns=False, pid=None, opened="
    ),
    "usdt_counter_lost": Mutant(USER, "else 0) | semaphore << 32", "else 0)"),
    "usdt_counter_not_raised": Mutant(USER, "if semaphore and not counted:", "if False:"),
    "tracepoint_of_another_number": Mutant(ATTACHMENTS, "number = int(file.read())", "number = int(file.read()) + 1"),
    "tracepoint_missing_unnoticed": Mutant(ATTACHMENTS, "except FileNotFoundError:", "except ZeroDivisionError:"),
    # Of kernels since 6.10: not in the test machine, where it survives.
    "raw_cookie_lost": Mutant(ATTACHMENTS, "attach_type], target.cookie)", "attach_type], 0)"),
    "timer_is_slow": Mutant(ATTACHMENTS, "period=timer.frequency, frequency=True", "period=1, frequency=True"),
    "timer_has_another_period": Mutant(ATTACHMENTS, "period=timer.period_ns)", "period=timer.period_ns // 4)"),
    "interval_on_each_cpu": Mutant(ATTACHMENTS, "target, opened, one=True)", "target, opened)"),
    "software_is_another_event": Mutant(ATTACHMENTS, "event_type, event.config, period=", "event_type, 9, period="),
    "watchpoint_elsewhere": Mutant(ATTACHMENTS, "breakpoint_attr(place.address,", "breakpoint_attr(place.address + 8,"),
    # no filter, or another one
    "uprobe_of_all_processes": Mutant(USER, "    if pid is not None:\n", "    if False:\n"),
    "uprobe_traced_of_all_processes": Mutant(
        USER, "returns=job.returns, pid=job.options.uprobe_pid, opened", "returns=job.returns, pid=None, opened"
    ),
    "events_of_all_processes": Mutant(LINKS, "    if not pids:\n", "    if True:\n"),
    "first_thread_only": Mutant(LINKS, "for thread in threads(pid)):", "for thread in threads(pid)[:1]):"),
    "threads_do_not_inherit": Mutant(LINKS, "attr = attr.inheriting(threads_only=not job.options.follow)", "pass"),
    "one_cpu_only": Mutant(LINKS, "        if one:\n", "        if True:\n"),
    # cookies, order, counts
    "cookie_lost": Mutant(LINKS, "(job.program, event, cookie)", "(job.program, event, 0)"),
    "first_target_only": Mutant(LINKS, " in job.spec.targets]\n", " in job.spec.targets[:1]]\n"),
    "first_kprobe_of_a_name_only": Mutant(ATTACHMENTS, "addresses if place.shared else addresses[:1]", "addresses[:1]"),
    "first_kprobe_only": Mutant(
        ATTACHMENTS, "opened) for target in job.spec.targets]", "opened) for target in job.spec.targets[:1]]"
    ),
    "blocks_in_reverse": Mutant(ATTACHMENTS, "(backward if kind.backwards else forward)", "backward"),
    "failure_unnoticed": Mutant(ATTACHMENTS, "    raise failure_error(failures)\n    if (", "    pass\n    if ("),
    "gone_is_failure": Mutant(ATTACHMENTS, "(gone if outcome.gone else", "(failures if outcome.gone else"),
    # not detached
    "links_stay": Mutant(LINKS, "close_all(closing.links)\n", "pass\n"),
    "events_stay": Mutant(LINKS, "        close_all(closing.events)\n", "        pass\n"),
    "steps_stay": Mutant(LINKS, "for step in reversed(closing.steps):", "for step in ():"),
    "programs_stay": Mutant(LINKS, "for part in closing.programs.values():", "for part in ():"),
    "cpus_stay": Mutant(LINKS, "            for part in events.parts.values():", "            for part in ():"),
    "failed_target_stays": Mutant(LINKS, "    finally:\n        own.close()\n", "    finally:\n        pass\n"),
    # losses not counted
    "recursion_not_counted": Mutant(LINKS, 'counts["recursion", self._indexes[symbol]] = missed', "pass"),
    "missed_not_counted": Mutant(LINKS, 'counts.get(("missed", index), 0) + missed', "0"),
}  # fmt: skip


def faulty(mutant: Mutant) -> dict[types.FunctionType, types.CodeType]:
    """The functions in which the faulty module differs, and their code there."""
    module = importlib.import_module(f"pytrace.runtime.load.{mutant.module}")
    source, file = inspect.getsource(module), str(module.__file__)
    if source.count(mutant.text) != 1:
        raise LookupError(f"{mutant.module} has {source.count(mutant.text)} times: {mutant.text!r}")
    before = dict(_code(compile(source, file, "exec")))
    after = dict(_code(compile(source.replace(mutant.text, mutant.fault), file, "exec")))
    codes = {function: function.__code__ for function in _functions()}
    names = {function: code.co_qualname for function, code in codes.items() if code.co_filename == file}
    return {function: after[name] for function, name in names.items() if after.get(name, 0) != before.get(name, 0)}


def _code(code: types.CodeType) -> Iterator[tuple[str, types.CodeType]]:
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield inner.co_qualname, inner
            yield from _code(inner)


def _functions() -> Iterator[types.FunctionType]:
    """The functions of all attachers, and those that decorators have in their closures."""
    modules = [importlib.import_module(f"pytrace.runtime.load.{name}") for name in MODULES]
    pending: list[object] = [item for module in modules for item in vars(module).values()]
    pending += [item for name in ("KERNEL_ATTACHERS", "ATTACHERS") for module in modules
                for item in getattr(module, name, {}).values()]  # fmt: skip
    seen: set[int] = set()
    while pending:
        item = pending.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, types.FunctionType):
            yield item
            pending += [cell.cell_contents for cell in item.__closure__ or ()]
        elif isinstance(item, type) and item.__module__.rpartition(".")[2] in MODULES:
            pending += list(vars(item).values())


def killed(mutant: Mutant | None, tests: list[str]) -> bool:
    """Whether a test fails in a process with that fault (None: without one).

    Raises:
        LookupError: no function has the fault, or pytest could not run the tests.
    """
    child = os.fork()
    if child == 0:
        status = 99
        try:
            functions = faulty(mutant) if mutant else {}
            for function, code in functions.items():
                function.__code__ = code
            if functions or mutant is None:
                forked.fork_origin()  # of what the tests start
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)
                where = ["--way", "vm", "--core", "-m", "kernel"] if EMULATED else ["--way", "host", "-m", "core"]
                status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *where, *tests]))
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 99:
        raise LookupError(f"no function has the fault {mutant}")
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise LookupError(f"pytest ended with status {status}")
    return status != pytest.ExitCode.OK


def main(words: list[str]) -> None:
    """Print what becomes of each mutant."""
    server.import_all()
    compile_guest.prepare()
    names, _, tests = " ".join(words).partition("--")
    chosen = names.split() or list(MUTANTS)
    files = tests.split() or list(CORE)
    if killed(None, files):
        raise SystemExit("the tests fail without a fault")
    dead = 0
    for name in chosen:
        died = killed(MUTANTS[name], files)
        dead += died
        print(f"{name}: {'killed' if died else 'SURVIVED'}", flush=True)
    print(f"{dead} of {len(chosen)} killed")


if __name__ == "__main__":
    main(sys.argv[1:])
