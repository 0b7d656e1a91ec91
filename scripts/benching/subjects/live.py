"""The live view at full rate: what it takes of a processor with very many keys, and events that are lost beside it."""

from __future__ import annotations

import os
import pty
import tempfile
import termios
import time
from pathlib import Path

from benching.rows import Line, Measure, Plan, Row
from benching.runs import PYTRACE, RunError, built
from benching.subjects.flood import CALLS, SCRIPT

KEYS = 100_000
COUNTED = 20_000_000
"""Calls that are counted: some ten seconds."""
SHARE = 0.1
"""Of a processor, for pytrace and its view."""
_COUNTS = f"""config = {{ max_map_keys = {KEYS + 1}; print_maps_on_exit = 0 }}
tracepoint:syscalls:sys_enter_getsid /comm == "flood"/ {{ @[rand % {KEYS}] = count(); }}"""


def _on_terminal(*words: str) -> tuple[float, float]:
    """Run pytrace on a terminal of its own. Returns wall and processor time, of its children, too, in seconds."""
    start = time.monotonic()
    child, terminal = pty.fork()
    if not child:
        os.environ.update(TERM="xterm-256color", LC_ALL="C.UTF-8")
        os.execv(PYTRACE.command[0], [*PYTRACE.command, *words])
    termios.tcsetwinsize(terminal, (24, 80))
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:
        pass  # its last process has ended
    _, status, usage = os.wait4(child, 0)
    os.close(terminal)
    if status:
        raise RunError(f"pytrace {' '.join(words)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime


def _live(row: Row, plan: Plan) -> list[Line]:
    shares: list[float] = []
    printed: list[float] = []
    for _ in range(plan.of(2)):
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as out, tempfile.NamedTemporaryFile(dir="/dev/shm") as result:
            program = f"{built('flood.c', '-pthread')} {result.name}"
            start, starting = _on_terminal("--live", "-e", _COUNTS, "-c", f"{program} 1 1")
            wall, processor = _on_terminal("--live", "-e", _COUNTS, "-c", f"{program} {COUNTED} 1")
            calls = int(Path(result.name).read_text()) / 1e6
            shares.append(100 * (processor - starting - calls) / (wall - start))
            _on_terminal("--live", "-o", out.name, "-e", SCRIPT, "-c", f"{program} {CALLS} 1")
            printed.append(float(sum(line.startswith(b"flood ") for line in out)))
    return [
        Line(row.name, row.title, Measure("processor", "%"), shares, limit=100 * SHARE),
        Line(row.name, "printf at full rate beside it", Measure("printed", "lines", less=False), printed, limit=CALLS),
    ]


ROWS = [Row("live.keys", f"a live view of {KEYS:,} keys at full rate, without the start", _live, slow=True)]
