"""Compile time: probes with different bodies, long scripts; lines parsed in a second."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benching.rows import Line, Measure, Numbers, Plan, Row, against_limit, paired
from benching.runs import MANY_PROBES, PYTRACE, ROOT, Run, RunError, Tracer
from benching.subjects.attach import function, many

LINES_A_SECOND = 25_000.0
PROBES = (1, 10, 100, 1000)


def probes_script(count: int) -> str:
    """That many probes, no two alike."""
    body = "/arg0 != {n}/ {{ @hits[comm, {part}] = count(); @last = arg0 * {n} + {part}; }}\n"
    return "".join(
        f"uprobe:{many()}:{function(n)} {body.format(n=n, part=n % 7)}"
        for n in range(count)
    )


_STATEMENTS = """  $a = (nsecs - @start[tid]) / 1000 + {n} * 2; @start[tid] = nsecs;
  if ($a > 100 || $a < 3) {{
    @hits[comm, pid] = count();
    printf("%d %s %d\\n", pid, comm, $a);
  }} else {{
    @other[$a & 0xff] = sum($a << 2);
  }}
  @latency = hist($a);
"""
"""Eight lines of ordinary statements."""


def long_script(lines: int) -> str:
    """A script of about that many lines, in probes of ten."""
    probe = f'tracepoint:syscalls:sys_enter_openat /pid == {{n}} && comm != "x{{n}}"/ {{{{\n{_STATEMENTS}}}}}\n'
    return "".join(probe.format(n=number) for number in range(lines // 10))


def long_probe(lines: int) -> str:
    """One probe of about that many lines."""
    body = "".join(_STATEMENTS.format(n=number) for number in range(lines // 8))
    return f"tracepoint:syscalls:sys_enter_openat {{\n{body}}}\n"


def compile_only(tracer: Tracer, script: str, target: str) -> Run:
    """Compile a script to an object file: the peer would load and attach it as well, without its mode."""
    own = ["--no-cache"] if tracer is PYTRACE else ["--mode", "codegen"]
    return tracer.run(*own, "--emit-elf", target, script, environment=MANY_PROBES)


def _compile(text: Callable[[], str], usual: int) -> Callable[[Row, Plan], list[Line]]:
    measures = (Measure("wall", "s"), Measure("processor", "s"), Measure("memory", "MiB"))

    def measure(row: Row, plan: Plan) -> list[Line]:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            script = Path(folder) / "script.bt"
            script.write_text(text())

            def once(tracer: Tracer) -> Numbers:
                done = compile_only(tracer, str(script), f"{folder}/object")
                return {"wall": done.wall, "processor": done.processor, "memory": done.memory / 1024}

            return paired(row, plan, measures, once, runs=plan.of(usual))

    return measure


_PARSED = """
import gc, sys, time
gc.disable()  # as the command does
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.syntax import parser
text = sys.stdin.read()
parser.parse(Source("warm", "begin { exit(); }"), Diagnostics())
best = 0.0
for _ in range(3):
    diagnostics = Diagnostics()
    start = time.process_time()
    parser.parse(Source("bench", text), diagnostics)
    best = max(best, text.count(chr(10)) / (time.process_time() - start))
    diagnostics.check()
print(best)
"""


def _parsed(lines: int) -> Callable[[Row, Plan], list[Line]]:
    text = long_script(lines)

    def once() -> float:
        done = subprocess.run(
            [sys.executable, "-c", _PARSED], input=text, capture_output=True, text=True, cwd=ROOT, check=False
        )
        if done.returncode:
            raise RunError(f"the parser: {done.stderr[-300:]}")
        return float(done.stdout)

    def measure(row: Row, plan: Plan) -> list[Line]:
        rate = Measure("parsed", "lines/s", less=False)
        return [against_limit(row, plan, rate, LINES_A_SECOND, once, plan.of(5))]

    return measure


LINEAR = 1.25
"""How much more a further probe or line may take to compile in a large script than in a small one."""


def _linear(text: Callable[[int], str], few: int, many: int, unit: str) -> Callable[[Row, Plan], list[Line]]:
    """Processor time of each further *unit* of *many*, and of *few*."""

    def measure(row: Row, plan: Plan) -> list[Line]:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:

            def took(count: int) -> float:
                script = Path(folder) / "script.bt"
                script.write_text(text(count))
                return compile_only(PYTRACE, str(script), f"{folder}/object").processor

            def once() -> float:
                least, small, large = took(few // 100), took(few), took(many)
                first = (small - least) / (few - few // 100)
                return ((large - small) / (many - few)) / max(first, 1e-6)

            growth = Measure(f"a {unit} of the last {many - few:,} to one of the first {few:,}", "times")
            return [against_limit(row, plan, growth, LINEAR, once, plan.of(2))]

    return measure


ROWS = [
    *(
        Row(
            f"compile.probes.{count}",
            f"compile {count:,} probes with different bodies",
            _compile(lambda count=count: probes_script(count), 5 if count < 1000 else 2),  # type: ignore[misc]
            slow=count > 100,
        )
        for count in PROBES
    ),
    Row("compile.linear", "compile time of 1,000 probes", _linear(probes_script, 100, 1000, "probe"), slow=True),
    Row("compile.one.linear", "compile time of one probe of 5,000 lines", _linear(long_probe, 1000, 5000, "line"),
        slow=True),
    Row("compile.lines.5000", "compile 5,000 lines", _compile(lambda: long_script(5000), 2), slow=True),
    *(
        Row(f"compile.parse.{lines}", f"parse {lines:,} lines", _parsed(lines))
        for lines in (1000, 5000, 10_000)
    ),
]
