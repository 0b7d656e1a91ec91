"""The grammar itself: no conflicts, current tables, quick import, linear time, and the reference programs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytrace.diagnostics import Diagnostics, render_all
from pytrace.frontend import formatter, grammar_tables, parser, visitor
from pytrace.frontend.table_generator import generate
from pytrace.source import Source
from tests.support.pace import unit

ROOT = Path(__file__).parents[2]
PROGRAMS = [json.loads(line) for line in (ROOT / "tests/cases/outputs.jsonl").read_text().splitlines()]
SYNTAX_ERRORS = {
    "error_unterminated": "1:15-23",  # the peer points behind it
    "error_missing_brace": "1:18-18",
    "error_bad_token": "1:17-18",
    "error_c_after_probe": "1:19-27",  # the peer underlines all of it
}


def test_no_conflicts_and_nothing_unused() -> None:
    assert generate().messages == []


def test_shipped_tables_are_current() -> None:
    assert Path(grammar_tables.__file__).read_text() == generate().text, "run scripts/generate-tables"


def test_import_is_lazy() -> None:
    code = "import sys, pytrace.frontend.parser as p; print('ply' in sys.modules, 'ply.yacc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout == "False False\n", done.stderr


@pytest.mark.parametrize("row", PROGRAMS, ids=[row["name"] for row in PROGRAMS])
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
    assert visitor.same(parser.parse(Source("stdin", text), diagnostics), program)
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


def _seconds(text: str) -> float:
    started = time.process_time()
    diagnostics = Diagnostics()
    parser.parse(Source("t", text), diagnostics)
    assert not diagnostics.items
    return time.process_time() - started


@pytest.mark.parametrize(("line", "lines"), [(PROBE, 10_000), (ANGLE, 2000)], ids=["probes", "angles"])
def test_speed_and_linearity(line: str, lines: int) -> None:
    copies = lines // line.count("\n")
    first = min(_seconds(line * (copies // 10)) for _ in range(2))
    second = _seconds(line * copies)
    assert second < lines / 10 * unit(), "slower than about 2000 lines a second on a machine of 2024"
    assert second < first * 10 * 2.5 + 0.1, "not linear"


def test_one_long_block_is_linear() -> None:
    def seconds(count: int) -> float:
        return _seconds("begin <\n" + "@a[comm, pid] = sum($x > 5 ? 1 : 2);\n" * count + ">\n")

    assert seconds(4000) < min(seconds(400) for _ in range(2)) * 10 * 2.5 + 0.1
