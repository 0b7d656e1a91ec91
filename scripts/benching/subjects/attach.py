"""Attaching many probes and ending: the whole run, from the compile cache."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from benching.rows import Line, Measure, Numbers, Plan, Row, paired
from benching.runs import MANY_PROBES, ROOT, Tracer, compiled

EVENTS = Path("/sys/kernel/tracing/events")
GROUPS = ("ext4", "btrfs", "kvm", "writeback", "jbd2", "clk", "kvmmmu", "dma", "iomap", "fs_dax", "filelock", "xfs")
"""Of 400 tracepoints; most of them are quiet."""
FUNCTIONS = 10_000


_MANY = """#define _GNU_SOURCE
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
/* Without a function of the C library, which has no frame and would hide its caller from stacks. */
#ifdef __x86_64__
#define GETSID() ({{ long at = SYS_getsid; \\
    __asm__ volatile("syscall" : "+a"(at) : "D"(0) : "rcx", "r11", "memory"); at; }})
#else
#define GETSID() ({{ register long call __asm__("x8") = SYS_getsid, at __asm__("x0") = 0; \\
    __asm__ volatile("svc 0" : "+r"(at) : "r"(call) : "memory"); at; }})
#endif
{functions}
static int (*all[])(int) = {{{names}}};
int main(int argc, char **argv) {{
    if (argc < 2 || !argv)
        return 0;
    for (unsigned long n = 0; n < sizeof all / sizeof *all; n++)
        all[n](1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    syscall(SYS_memfd_create, 0, 0x80000000u);
    return sleep(120) != 0;
}}
"""


def function(number: int) -> str:
    """The name of a function of :func:`many`: the first thousand begin alike."""
    return f"{'early' if number < 1000 else 'late'}_{number}_function"


@cache
def many() -> str:
    """A program with 10,000 functions; with an argument it calls them all, and waits as a loop that lingers."""
    source = ROOT / ".cache" / "bench" / "many.c"
    names = [function(n) for n in range(FUNCTIONS)]
    text = _MANY.format(
        functions="".join(
            f"int {name}(int a) {{ return GETSID() + a * {n}; }}\n" for n, name in enumerate(names)
        ),
        names=",".join(names),
    )
    source.parent.mkdir(parents=True, exist_ok=True)
    if not source.exists() or source.read_text() != text:
        source.write_text(text)
    return compiled(source, "-O0")  # which takes a tenth of the time


def tracepoints(wanted: int = 400) -> list[str]:
    """That many tracepoints of this kernel."""
    found = [
        f"tracepoint:{group}:{path.parent.name}"
        for group in GROUPS
        for path in sorted((EVENTS / group).glob("*/id"))
    ]
    return found[:wanted]


def _attach(probes: Callable[[], str], goal: float, usual: int) -> Callable[[Row, Plan], list[Line]]:
    measures = (Measure("wall", "s", goal), Measure("processor", "s", goal), Measure("memory", "MiB"))

    def measure(row: Row, plan: Plan) -> list[Line]:
        script = f"{probes()} {{ @ = count(); }}"

        def once(tracer: Tracer) -> Numbers:
            done = tracer.run("-e", script, "-c", "/bin/true", environment=MANY_PROBES)
            return {"wall": done.wall, "processor": done.processor, "memory": done.memory / 1024}

        return paired(row, plan, measures, once, runs=plan.of(usual))

    return measure


GOAL = 0.3
SYSCALLS = "tracepoint:syscalls:sys_enter_*"
SYSCALLS_GOAL = 0.05


def _thousand() -> str:
    return f"uprobe:{many()}:early_*_function"


ROWS = [
    Row("attach.tracepoints", "attach 400 tracepoints, end", _attach(lambda: ",".join(tracepoints()), GOAL, 3)),
    Row("attach.uprobes.1000", "attach 1,000 uprobes, end", _attach(_thousand, GOAL, 3)),
    Row(
        "attach.uprobes.10000",
        "attach 10,000 uprobes, end",
        _attach(lambda: f"uprobe:{many()}:*_function", GOAL, 2),
        slow=True,
    ),
    Row("attach.syscalls", "attach sys_enter_*, end", _attach(lambda: SYSCALLS, SYSCALLS_GOAL, 2), slow=True),
    Row("attach.kprobes", "attach kprobe:vfs_*, end", _attach(lambda: "kprobe:vfs_*", GOAL, 3), vm=True),
    Row("attach.fentry", "attach fentry:vfs_*, end", _attach(lambda: "fentry:vfs_*", GOAL, 3), vm=True),
]
