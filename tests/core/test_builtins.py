"""The builtin table is complete: each row has what it needs elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pytrace.core.builtins import BUILTINS, Builtin, builtin, builtin_names
from pytrace.core.probe_kinds import probe_names
from pytrace.frontend.check.analysis import Analysis
from tests.support.front import checker
from tests.support.rows import each_row


def test_each_row_has_a_check_and_no_check_lacks_a_row() -> None:
    analysis = Analysis(checker(""))
    assert all(callable(analysis.check_of(row)) for row in BUILTINS)
    assert set(analysis._builtins) == {row.name for row in BUILTINS}


@each_row("row", BUILTINS, ids=lambda row: row.name)
def test_row(row: Builtin) -> None:
    assert row.doc.endswith(".")
    assert row.name.removesuffix("N") in row.signature
    assert row.most is None or row.least <= row.most
    assert row.probes is None or row.probes <= set(probe_names())
    assert row.value or row.call


def test_look_up() -> None:
    argument, print_row = builtin("arg12"), builtin("printf")
    assert argument is not None
    assert argument.name == "argN"
    assert print_row is not None
    assert print_row.least == 1
    assert builtin("argN") is None
    assert builtin("argx") is None
    assert builtin("nosuch") is None
    assert "argN" not in builtin_names()


def test_names_are_unique() -> None:
    assert len({row.name for row in BUILTINS}) == len(BUILTINS)


def test_the_document_is_current() -> None:
    script = Path(__file__).parent.parent.parent / "scripts" / "generate-docs"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
