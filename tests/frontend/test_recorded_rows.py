"""The recorded programs: wrong ones are refused, right ones are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytrace.core.options import CompileOptions
from tests.support.front import analyse
from tests.support.rows import each_row

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "cases" / "outputs.jsonl").read_text(encoding="utf-8").splitlines()
]
ELSEWHERE = {"error_unterminated", "error_missing_brace", "error_bad_token"}
"""Rows whose place belongs to the parser."""

WIDER = {"error_break_outside", "error_range_type", "error_return_val", "error_c_after_probe"}
"""Rows where the peer points at more than what is wrong."""


def options(row: dict[str, Any]) -> CompileOptions:
    """The options that a row was recorded with."""
    positional, named, behind = [], [], False
    for argument in row.get("args") or []:
        if argument == "--":
            behind = True
        elif behind and argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            named.append((name, value if equals else None))
        else:
            positional.append(argument)
    return CompileOptions(positional=tuple(positional), named=tuple(named), unsafe=bool(row.get("unsafe")))


@each_row("row", ROWS, ids=lambda row: row["name"])
def test_row(row: dict[str, Any]) -> None:
    result = analyse(row["program"], options(row))
    wrong = row["name"].startswith("error_") and row["exit"] != 0
    assert bool(result.errors) == wrong, result.errors
    places = [item["at"] for item in row.get("diagnostics", []) if item["class"] == "ERROR"]
    if not wrong or not places or row["name"] in ELSEWHERE | WIDER:
        return
    assert _inside(result.errors[0][0], places[0])


def _inside(found: str, wanted: str) -> bool:
    return _columns(wanted)[0] <= _columns(found)[0] and _columns(found)[1] <= _columns(wanted)[1]


def _columns(place: str) -> tuple[int, int]:
    first, last = place.split(":")[1].split("-")
    return int(first), int(last)
