"""``--test`` and ``--bench``: programs that are run by hand, judged or timed."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytrace.base.fast_dataclass import dataclass
from pytrace.base.terminal import colour
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import ProgramSpec
from pytrace.core.probes.targets import NamedRunTarget
from pytrace.runtime.abi import bpf
from pytrace.runtime.output.render import json

if TYPE_CHECKING:
    from pytrace.runtime.session.live import LiveSession

_LEAST_NS = 1_000_000
"""A benchmark is repeated until its runs take this long together."""

_GREEN, _RED, _RESET = b"\x1b[32m", b"\x1b[31m", b"\x1b[0m"


@dataclass(frozen=True, slots=True)
class TestResult:
    """What became of one test; *duration* in nanoseconds, *output* and *messages* what the script printed meanwhile."""

    name: str
    passed: bool
    duration: int
    output: bytes
    messages: str


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Time of one benchmark: *average* nanoseconds of *iterations* runs."""

    name: str
    average: int
    iterations: int


def run(live: LiveSession) -> int:
    """Run the programs of the session's mode; the exit status is 1 when a test failed."""
    mode = live.options.mode
    programs = live.session.programs(mode)
    if not programs:
        raise TraceError(f"the script has no {mode}: probes", hints=(f"a {mode} probe is written {mode}:NAME {{ … }}",))
    status = _MODES[mode](live, programs)
    live.report_losses()
    return status


# ---------------------------------------------------------------------------------------------- tests


def _tests(live: LiveSession, programs: list[ProgramSpec]) -> int:
    _head(live, b"[==========]", f"Running {len(programs)} test{'' if len(programs) == 1 else 's'}.")
    results = [_test(live, program) for program in programs]
    failed = [result for result in results if not result.passed]
    took = sum(result.duration for result in results)
    _head(live, b"[==========]", f"{len(results)} tests ran. ({_milliseconds(took)} ms total)")
    _head(live, b"[  PASSED  ]", f"{len(results) - len(failed)} tests.")
    if failed:
        _head(live, b"[  FAILED  ]", f"{len(failed)} tests, listed below:", good=False)
        for result in failed:
            _head(live, b"[  FAILED  ]", result.name, good=False)
    live.output.flush()
    return 1 if failed else 0


def _test(live: LiveSession, program: ProgramSpec) -> TestResult:
    name = program.targets[0].of(NamedRunTarget).name
    _head(live, b"[ RUN      ]", name)
    state = live.renderer.state
    errors = state.errors
    state.exit_code, state.exit_requested = 0, False
    live.output.capture()
    start = time.perf_counter_ns()
    returned = live.loaded.run(program.symbol)
    took = time.perf_counter_ns() - start
    live.drain()
    live.renderer.resume()
    output, said = live.output.release(), live.output.held_messages()
    passed = returned == 0 and state.errors == errors and state.exit_code == 0
    result = TestResult(name, passed, took, output, said)
    _show_test(live, result)
    return result


def _show_test(live: LiveSession, result: TestResult) -> None:
    if live.output.json:
        members = [
            (b"duration", json.number(result.duration)),
            (b"passed", b"true" if result.passed else b"false"),
            (b"output", json.quoted(result.output)),
        ]
        named = json.mapping([(result.name.encode(), json.mapping(members))])
        live.output.write(json.line("test_result", named))
        return
    if not result.passed:
        live.output.write(result.output)
        if result.messages:
            live.output.message(result.messages)
    mark = b"[       OK ]" if result.passed else b"[  FAILED  ]"
    _head(live, mark, f"{result.name} ({_milliseconds(result.duration)} ms)", good=result.passed)


def _milliseconds(nanoseconds: int) -> int:
    return nanoseconds // 1_000_000


def _head(live: LiveSession, mark: bytes, text: str, *, good: bool = True) -> None:
    """A line of the report; JSON output has only the results."""
    if live.output.json:
        return
    before, after = ((_GREEN if good else _RED), _RESET) if colour(live.output.descriptor) else (b"", b"")
    live.output.write(b"%s%s%s %s\n" % (before, mark, after, text.encode()))


# ---------------------------------------------------------------------------------------------- benchmarks


def _benchmarks(live: LiveSession, programs: list[ProgramSpec]) -> int:
    try:
        statistics = bpf.enable_statistics()
    except OSError as error:
        hints = ("that needs CAP_SYS_ADMIN, or root",) if error.errno == errno.EPERM else ()
        raise TraceError(f"the kernel cannot time programs: {error.strerror}", hints=hints) from error
    try:
        results = [result for result in (_benchmark(live, program) for program in programs) if result is not None]
    finally:
        os.close(statistics)
    if live.output.json:
        for result in results:
            members = [(b"average", json.number(result.average)), (b"iters", json.number(result.iterations))]
            named = json.mapping([(result.name.encode(), json.mapping(members))])
            live.output.write(json.line("benchmark_result", named))
    else:
        _table(live, results)
    live.output.flush()
    return 0


def _benchmark(live: LiveSession, program: ProgramSpec) -> BenchResult | None:
    """Run a benchmark with a growing number of repetitions; None when it asked to be skipped.

    The kernel's own run-time statistics are used, so the system call around each run is not counted.
    """
    name = program.targets[0].of(NamedRunTarget).name
    descriptor = live.loaded.program_fd(program.symbol)
    returned = live.loaded.run(program.symbol)
    live.drain()
    live.renderer.resume()
    if returned != 0:
        live.output.message(f"benchmark {name} skipped: it did not return 0\n")
        return None
    repeat = 1
    while True:
        before = bpf.run_statistics(descriptor)
        for _ in range(repeat):
            live.loaded.run(program.symbol)
        after = bpf.run_statistics(descriptor)
        live.drain()
        took, count = after[0] - before[0], after[1] - before[1]
        if took >= _LEAST_NS or repeat >= 1 << 20:
            return BenchResult(name, took // max(1, count), count)
        repeat *= 2


def _table(live: LiveSession, results: list[BenchResult]) -> None:
    width = max([len("BENCHMARK"), *(len(result.name) for result in results)])
    rule = b"-" * (width + 34) + b"\n"
    live.output.write(rule)
    live.output.write(f"{'BENCHMARK':<{width}} {'AVERAGE':>16} {'ITERATIONS':>16}\n".encode())
    live.output.write(rule)
    for result in results:
        average = f"{result.average} ns"
        live.output.write(f"{result.name:<{width}} {average:>16} {result.iterations:>16}\n".encode())


_MODES: dict[str, Callable[[LiveSession, list[ProgramSpec]], int]] = {"test": _tests, "bench": _benchmarks}
