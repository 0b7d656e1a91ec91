"""The measurements of scripts/bench: start-up, memory, cost of an event, throughput, listing, parsing.

Each is run alternately for pytrace and for the bpftrace on PATH, several times. The result is the median, so that
changes of the machine's speed affect both; for starts and listings, which other load can only slow down, it is the
minimum. Scripts are valid for bpftrace 0.17 and later.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "programs" / "build"
PYTRACE = [str(Path(sys.executable).with_name("pytrace"))]
BPFTRACE = [found] if (found := shutil.which("bpftrace")) else []

TRACEPOINT = "tracepoint:syscalls:sys_enter_getppid"
STARTUP = "BEGIN { exit(); }"
LARGER = """
tracepoint:syscalls:sys_enter_openat { @open[tid] = nsecs; @name[tid] = args->filename; }
tracepoint:syscalls:sys_exit_openat /@open[tid]/ {
  $took = (nsecs - @open[tid]) / 1000;
  @us[comm] = hist($took);
  if ($took > 100000) { printf("%-6d %-16s %d %s\\n", pid, comm, $took, str(@name[tid])); }
  delete(@open[tid]); delete(@name[tid]);
}
tracepoint:sched:sched_switch { @switches[cpu] = count(); }
tracepoint:syscalls:sys_exit_read /args->ret > 0/ {
  @bytes[comm, pid] = sum(args->ret); @size = lhist(args->ret, 0, 10000, 100);
}
interval:ms:1 { exit(); }
END { clear(@open); clear(@name); clear(@us); clear(@switches); clear(@bytes); clear(@size); }
"""


_OF_DEVELOPERS = frozenset({"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"})


@dataclass
class Run:
    """One process: wall and CPU time in seconds, peak memory in KiB, output."""

    wall: float
    processor: float
    memory: int
    stdout: str
    stderr: str


def run(command: list[str], environment: dict[str, str] | None = None) -> Run:
    """Run a command and measure it.

    Raises:
        RuntimeError: it failed; a measurement of a failure would mean nothing.
    """
    # Users do not set this variable: without byte code, each start would compile modules that were edited.
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_DEVELOPERS}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   env={**inherited, **(environment or {})})  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        stdout, stderr = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}: {stderr[-2000:]}")
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, stdout, stderr)


@dataclass
class Line:
    """One line of the table; *less*: smaller numbers are better."""

    name: str
    unit: str
    ours: float
    theirs: float | None = None
    less: bool = True

    @property
    def ratio(self) -> float | None:
        """The ratio to bpftrace; under 1 pytrace is better, also where more is better."""
        if self.theirs is None or not self.ours or not self.theirs:
            return None
        return self.ours / self.theirs if self.less else self.theirs / self.ours


def median(measure: Callable[[], dict[str, float]], times: int) -> dict[str, float]:
    """The median of each key."""
    taken = [measure() for _ in range(times)]
    return {key: statistics.median(item[key] for item in taken) for key in taken[0]}


def compared(
    ours: Callable[[], dict[str, float]],
    theirs: Callable[[], dict[str, float]],
    times: int,
    choose: Callable[[list[float]], float] = statistics.median,
) -> tuple[dict[str, float], dict[str, float]]:
    """Alternating runs of both; the second is empty without bpftrace."""
    mine, peer = [], []
    for _ in range(times):
        mine.append(ours())
        if BPFTRACE:
            peer.append(theirs())
    chosen = [{key: choose([item[key] for item in side]) for key in side[0]} if side else {}
              for side in (mine, peer)]  # fmt: skip
    return chosen[0], chosen[1]


# ---------------------------------------------------------------------------------------------- measurements


def startup(times: int) -> list[Line]:
    """Run time of the command, for a script that ends at once and for one with five probes."""
    lines = []
    with tempfile.TemporaryDirectory() as cache:
        kept = {"XDG_CACHE_HOME": cache}
        for label, program in (("start", STARTUP), ("start, larger script", LARGER)):
            for options in ([], ["--no-cache"]):
                run([*PYTRACE, *options, "-e", program], kept)
            for mode, options in (("cold", ["--no-cache"]), ("cached", [])):

                def ours(options: list[str] = options, program: str = program) -> dict[str, float]:
                    return _start(run([*PYTRACE, *options, "-e", program], kept))

                def theirs(program: str = program) -> dict[str, float]:
                    return _start(run([*BPFTRACE, "-e", program]))

                mine, peer = compared(ours, theirs, 2 * times, min)
                lines += [Line(f"{label}, {mode}: {key}", unit, mine[key], peer.get(key))
                          for key, unit in (("wall time", "ms"), ("processor", "ms"), ("memory", "MiB"))]  # fmt: skip
    return lines


def _start(done: Run) -> dict[str, float]:
    return {"wall time": done.wall * 1e3, "processor": done.processor * 1e3, "memory": done.memory / 1024}


EVENT_PROGRAMS = {
    "count()": f"{TRACEPOINT} {{ @ = count(); }}",
    "count() by comm": f"{TRACEPOINT} {{ @[comm] = count(); }}",
    "count() by pid": f"{TRACEPOINT} {{ @[pid] = count(); }}",
    "hist() of nsecs": f"{TRACEPOINT} {{ @ = hist(nsecs); }}",
    "predicate on pid, false": f"{TRACEPOINT} /pid == 1/ {{ @ = count(); }}",
}


def event_cost(times: int) -> list[Line]:
    """Nanoseconds that a probe adds to a system call: calls with it less calls without."""
    calls = 1_000_000
    flood = [str(PROGRAMS / "flood"), str(calls)]
    base = median(lambda: {"ns": _per_call(run(flood).stdout)}, times)["ns"]
    lines = [Line("a system call without probe", "ns", base)]
    for label, program in EVENT_PROGRAMS.items():

        def traced(tracer: list[str], program: str = program) -> dict[str, float]:
            return {"ns": _per_call(run([*tracer, "-e", program, "-c", " ".join(flood)]).stdout) - base}

        mine, peer = compared(lambda: traced(PYTRACE), lambda: traced(BPFTRACE), times)
        lines.append(Line(f"added by {label}", "ns", mine["ns"], peer.get("ns")))
    return lines


def _per_call(text: str) -> float:
    calls, nanoseconds = re.search(r"^(\d+) (\d+)$", text, re.MULTILINE).groups()  # type: ignore[union-attr]
    return int(nanoseconds) / int(calls)


def throughput(times: int) -> list[Line]:
    """Lines that arrive of a printf of three fields for each call, at the full rate of one thread."""
    calls = 1_000_000
    program = f'{TRACEPOINT} /comm == "flood"/ {{ printf("%s %d %lu\\n", comm, pid, nsecs); }}'

    def measure(tracer: list[str]) -> dict[str, float]:
        with tempfile.NamedTemporaryFile() as out:
            done = run([*tracer, "-o", out.name, "-e", program, "-c", f"{PROGRAMS}/flood {calls}"])
            with open(out.name, "rb") as file:
                arrived = sum(line.startswith(b"flood ") for line in file)
        return {"lines": float(arrived), "rate": arrived / done.wall, "cpu": done.processor * 1e6 / max(arrived, 1)}

    mine, peer = compared(lambda: measure(PYTRACE), lambda: measure(BPFTRACE), max(1, times // 2))
    return [
        Line(f"printf of 3 fields: arrived of {calls:,}", "lines", mine["lines"], peer.get("lines"), less=False),
        Line("printf of 3 fields: arrived", "lines/s", mine["rate"], peer.get("rate"), less=False),
        Line("printf of 3 fields: processor, with the calls", "us/line", mine["cpu"], peer.get("cpu")),
    ]


def listing(times: int) -> list[Line]:
    """All probes of the kernel, and the functions of a large binary."""
    import llvmlite

    library = str(next(Path(llvmlite.__file__).parent.glob("binding/*.so")))
    lines = []
    for label, words in (("list the kernel's probes", ["-l"]), ("list a large library", ["-l", f"uprobe:{library}:*"])):

        def measure(tracer: list[str], words: list[str] = words) -> dict[str, float]:
            done = run([*tracer, *words])
            return {"wall time": done.wall * 1e3, "processor": done.processor * 1e3}

        measure(PYTRACE)
        mine, peer = compared(lambda: measure(PYTRACE), lambda: measure(BPFTRACE), 2 * times, min)
        lines += [Line(f"{label}: {key}", "ms", mine[key], peer.get(key)) for key in mine]
    return lines


def parsing(times: int) -> list[Line]:
    """Lines parsed per second, for scripts of 1,000 and 10,000 lines: equal if parsing is linear."""
    from pytrace.core.diagnostics import Diagnostics
    from pytrace.core.source import Source
    from pytrace.frontend.syntax import parser

    lines = []
    for size in (1_000, 10_000):
        text = long_script(size)

        def measure(text: str = text, size: int = size) -> dict[str, float]:
            diagnostics = Diagnostics()
            start = time.perf_counter()
            parser.parse(Source("bench", text), diagnostics)
            took = time.perf_counter() - start
            diagnostics.check()
            return {"rate": size / took}

        lines.append(Line(f"parse {size:,} lines", "lines/s", median(measure, times)["rate"], less=False))
    return lines


def long_script(lines: int) -> str:
    """A script of about *lines* lines of ordinary statements."""
    probe = """tracepoint:syscalls:sys_enter_openat /pid == {n} && comm != "x{n}"/ {{
  $a = (nsecs - @start[tid]) / 1000 + {n} * 2;
  if ($a > 100 || $a < 3) {{
    @hits[comm, pid] = count();
    printf("%d %s %d\\n", pid, comm, $a);
  }} else {{
    @other[$a & 0xff] = sum($a << 2);
  }}
  @latency = hist($a);
}}
"""
    return "".join(probe.format(n=number) for number in range(lines // 10))


MEASUREMENTS: dict[str, Callable[[int], list[Line]]] = {
    "startup": startup,
    "event-cost": event_cost,
    "throughput": throughput,
    "listing": listing,
    "parsing": parsing,
}


# ---------------------------------------------------------------------------------------------- report


def table(lines: list[Line]) -> str:
    """The table, in columns."""
    rows = [("measured", "unit", "pytrace", "bpftrace", "ratio")]
    for line in lines:
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        theirs = "" if line.theirs is None else f"{line.theirs:,.1f}"
        rows.append((line.name, line.unit, f"{line.ours:,.1f}", theirs, ratio))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), *(row[n].rjust(widths[n]) for n in (2, 3, 4))])
        for row in rows
    )


def main() -> int:
    """Measure, print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="two runs of each instead of seven")
    options.add_argument("--json", help="also write the numbers to this file")
    options.add_argument("names", nargs="*", help=f"parts of: {', '.join(MEASUREMENTS)}")
    chosen = options.parse_args()
    version = run([*BPFTRACE, "--version"]).stdout.strip() if BPFTRACE else "no bpftrace on PATH"
    print(f"Linux {os.uname().release}, {os.cpu_count()} processors, compared with {version}")
    lines: list[Line] = []
    failures = 0
    for name, measure in MEASUREMENTS.items():
        if chosen.names and not any(part in name for part in chosen.names):
            continue
        print(f"measuring {name} …", file=sys.stderr)
        try:
            lines += measure(2 if chosen.quick else 7)
        except RuntimeError as error:
            failures += 1
            print(f"{name} failed: {error}", file=sys.stderr)
    print(table(lines))
    print("ratio: what pytrace needs of what bpftrace needs (less is better)")
    if chosen.json:
        text = json.dumps([{**line.__dict__, "ratio": line.ratio} for line in lines], indent=1)
        Path(chosen.json).write_text(text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
