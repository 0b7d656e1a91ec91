"""The grammar itself: quick import, linear time, and the reference programs."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import FrameType

import pytest

from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.source import Source
from pytrace.frontend.syntax import formatter, nodes, parser
from tests.support.pace import unit
from tests.support.rows import each_row

ROOT = Path(__file__).parents[3]
PROGRAMS = [json.loads(line) for line in (ROOT / "tests/cases/outputs.jsonl").read_text().splitlines()]
SYNTAX_ERRORS = {
    "error_unterminated": "1:15-23",  # the peer points behind it
    "error_missing_brace": "1:18-18",
    "error_bad_token": "1:17-18",
    "error_c_after_probe": "1:19-27",  # the peer underlines all of it
}


@each_row("row", PROGRAMS, ids=[row["name"] for row in PROGRAMS])
def test_reference_programs(row: dict[str, str]) -> None:
    diagnostics = Diagnostics()
    source = Source("stdin", row["program"])
    program = parser.parse(source, diagnostics)
    expected = SYNTAX_ERRORS.get(row["name"])
    if expected is not None:
        (found,) = diagnostics.errors
        assert str(found.span) == f"stdin:{expected}"
        return
    assert not diagnostics.items, render_all(diagnostics.items)
    text = formatter.format_source(source, diagnostics)
    assert nodes.same(parser.parse(Source("stdin", text), diagnostics), program)
    assert formatter.format_source(Source("stdin", text), diagnostics) == text


PROBE = """kprobe:vfs_read, kprobe:vfs_write /pid == 1234 && comm != "bash"/ {
    $start = @start[tid, pid];
    if ($start > 0 && arg2 >= 4096) {
        $delta = (nsecs - $start) / 1000;
        @usecs[comm, "read"] = hist($delta);
        printf("%-16s %-6d %d\\n", comm, pid, $delta);
    } else {
        delete(@start, (tid, pid));
    }
}
"""
ANGLE = "k:f < if (arg2 > 5) < @x[a > b ? 1 : 0] = $y > print(1) > if ($a) < $b = $c >> 2 >>\n"


def _calls(text: str) -> int:
    """Calls of functions, in Python and in C, that parsing takes: a measure of work that no other load changes."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    diagnostics = Diagnostics()
    sys.setprofile(count)
    try:
        parser.parse(Source("t", text), diagnostics)
    finally:
        sys.setprofile(None)
    assert not diagnostics.items
    return calls


@pytest.mark.parametrize("line", [PROBE, ANGLE], ids=["probes", "angles"])
def test_work_is_linear(line: str) -> None:
    few, many = (_calls(line * copies) for copies in (20, 200))
    assert few > 1000
    assert many < few * 10 * 1.25


def test_one_long_block_is_linear() -> None:
    def calls(count: int) -> int:
        return _calls("begin <\n" + "@a[comm, pid] = sum($x > 5 ? 1 : 2);\n" * count + ">\n")

    assert calls(1000) < calls(100) * 10 * 1.25


@pytest.mark.parametrize(
    "text",
    [PROBE * 800, ANGLE * 2000, "begin <\n" + "@a[comm, pid] = sum($x > 5 ? 1 : 2);\n" * 4000 + ">\n"],
    ids=["probes", "angles", "block"],
)
def test_long_scripts_end_soon(text: str) -> None:
    """What the count of calls does not see, such as text that is copied in each: a bound far from usual times."""
    started = time.process_time()
    parser.parse(Source("t", text), Diagnostics())
    assert time.process_time() - started < 3000 * unit()
