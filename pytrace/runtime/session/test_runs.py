"""``--test`` and ``--bench``: programs that the session runs, and their results or times."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

import msgspec

from pytrace.base.terminal import colour
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import ProgramSpec
from pytrace.core.probe_kinds import BENCH, TEST, NamedRunTarget
from pytrace.render import json
from pytrace.runtime.machine import bpf
from pytrace.runtime.session.session import Resources

_LEAST_NS = 1_000_000
"""Minimum total time of the runs of a benchmark."""

_GREEN, _RED, _RESET = b"\x1b[32m", b"\x1b[31m", b"\x1b[0m"


class TestResult(msgspec.Struct, frozen=True):
    """Result of one test; *duration* in nanoseconds, *output* and *messages* of the script meanwhile."""

    name: str
    passed: bool
    duration: int
    output: bytes
    messages: str


class BenchResult(msgspec.Struct, frozen=True):
    """Time of one benchmark: *average* nanoseconds of *iterations* runs."""

    name: str
    average: int
    iterations: int


def run(run: Resources) -> int:
    """Run the programs of the session's mode; the exit status is 1 when a test failed."""
    mode = run.options.mode
    programs = run.programs(mode)
    if not programs:
        raise TraceError(f"the script has no {mode}: probes", hints=(f"a {mode} probe is written {mode}:NAME {{ … }}",))
    status = _MODES[mode](run, programs)
    run.losses.report_all()
    return status


# ---------------------------------------------------------------------------------------------- tests


def _tests(run: Resources, programs: list[ProgramSpec]) -> int:
    _head(run, b"[==========]", f"Running {len(programs)} test{'' if len(programs) == 1 else 's'}.")
    results = [_test(run, program) for program in programs]
    failed = [result for result in results if not result.passed]
    took = sum(result.duration for result in results)
    _head(run, b"[==========]", f"{len(results)} tests ran. ({_milliseconds(took)} ms total)")
    _head(run, b"[  PASSED  ]", f"{len(results) - len(failed)} tests.")
    if failed:
        _head(run, b"[  FAILED  ]", f"{len(failed)} tests, listed below:", good=False)
        for result in failed:
            _head(run, b"[  FAILED  ]", result.name, good=False)
    run.output.flush()
    return 1 if failed else 0


def _test(run: Resources, program: ProgramSpec) -> TestResult:
    name = program.targets[0].of(NamedRunTarget).name
    _head(run, b"[ RUN      ]", name)
    state = run.renderer.state
    errors = state.errors
    state.exit_code, state.exit_requested = 0, False
    run.output.capture()
    start = time.perf_counter_ns()
    returned = run.loaded.run(program.symbol)
    took = time.perf_counter_ns() - start
    run.consumer.drain()
    run.renderer.resume()
    output, said = run.output.release(), run.output.held_messages()
    passed = returned == 0 and state.errors == errors and state.exit_code == 0
    result = TestResult(name, passed, took, output, said)
    _show_test(run, result)
    return result


def _show_test(run: Resources, result: TestResult) -> None:
    if run.output.json:
        members = [
            (b"duration", json.number(result.duration)),
            (b"passed", b"true" if result.passed else b"false"),
            (b"output", json.quoted(result.output)),
        ]
        named = json.mapping([(result.name.encode(), json.mapping(members))])
        run.output.write(json.line("test_result", named))
        return
    if not result.passed:
        run.output.write(result.output)
        if result.messages:
            run.output.message(result.messages)
    mark = b"[       OK ]" if result.passed else b"[  FAILED  ]"
    _head(run, mark, f"{result.name} ({_milliseconds(result.duration)} ms)", good=result.passed)


def _milliseconds(nanoseconds: int) -> int:
    return nanoseconds // 1_000_000


def _head(run: Resources, mark: bytes, text: str, *, good: bool = True) -> None:
    """A line of the report; JSON output has only the results."""
    if run.output.json:
        return
    before, after = ((_GREEN if good else _RED), _RESET) if colour(run.output.descriptor) else (b"", b"")
    run.output.write(b"%s%s%s %s\n" % (before, mark, after, text.encode()))


# ---------------------------------------------------------------------------------------------- benchmarks


def _benchmarks(run: Resources, programs: list[ProgramSpec]) -> int:
    try:
        statistics = bpf.enable_statistics()
    except OSError as error:
        hints = ("that needs CAP_SYS_ADMIN, or root",) if error.errno == errno.EPERM else ()
        raise TraceError(f"the kernel cannot time programs: {error.strerror}", hints=hints) from error
    try:
        results = [result for result in (_benchmark(run, program) for program in programs) if result is not None]
    finally:
        os.close(statistics)
    if run.output.json:
        for result in results:
            members = [(b"average", json.number(result.average)), (b"iters", json.number(result.iterations))]
            named = json.mapping([(result.name.encode(), json.mapping(members))])
            run.output.write(json.line("benchmark_result", named))
    else:
        _table(run, results)
    run.output.flush()
    return 0


def _benchmark(run: Resources, program: ProgramSpec) -> BenchResult | None:
    """Run a benchmark with a growing number of repetitions; None when it asked to be skipped.

    The kernel's own run-time statistics are used, so the system call around each run is not counted.
    """
    name = program.targets[0].of(NamedRunTarget).name
    descriptor = run.loaded.program_fd(program.symbol)
    returned = run.loaded.run(program.symbol)
    run.consumer.drain()
    run.renderer.resume()
    if returned != 0:
        run.output.message(f"benchmark {name} skipped: it did not return 0\n")
        return None
    repeat = 1
    while True:
        before = bpf.run_statistics(descriptor)
        for _ in range(repeat):
            run.loaded.run(program.symbol)
        after = bpf.run_statistics(descriptor)
        run.consumer.drain()
        took, count = after[0] - before[0], after[1] - before[1]
        if took >= _LEAST_NS or repeat >= 1 << 20:
            return BenchResult(name, took // max(1, count), count)
        repeat *= 2


def _table(run: Resources, results: list[BenchResult]) -> None:
    width = max([len("BENCHMARK"), *(len(result.name) for result in results)])
    rule = b"-" * (width + 34) + b"\n"
    run.output.write(rule)
    run.output.write(f"{'BENCHMARK':<{width}} {'AVERAGE':>16} {'ITERATIONS':>16}\n".encode())
    run.output.write(rule)
    for result in results:
        average = f"{result.average} ns"
        run.output.write(f"{result.name:<{width}} {average:>16} {result.iterations:>16}\n".encode())


_MODES: dict[str, Callable[[Resources, list[ProgramSpec]], int]] = {TEST: _tests, BENCH: _benchmarks}
