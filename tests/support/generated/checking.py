"""Compares what a random program printed with what it must print."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.expect import Result
from tests.support.generated.programs import Program

REFUSED = ("does not fit 64 bits", "division by zero")
"""Errors that a generated program may have: constants that the generator did not compute."""


def difference(program: Program, result: Result) -> str:
    """What is wrong with a run (``-f json``); empty when nothing is."""
    if result.timed_out:
        return "it did not end in time"
    if result.status:
        errors = [line for line in result.stderr.splitlines() if "ERROR" in line]
        if errors and any(text in errors[0] for text in REFUSED):
            return ""
        return f"status {result.status}: {errors[0] if errors else result.stderr[-500:]}"
    lines, maps, others = _parts(result.stdout)
    if others:
        return f"it reported {others[0]}"
    for at, (got, wanted) in enumerate(zip(lines, program.lines, strict=False)):
        if _text(got) != _text(wanted):
            return f"line {at}: {got!r}, expected {wanted!r}"
    if len(lines) != len(program.lines):
        return f"{len(lines)} lines, expected {len(program.lines)}"
    for name in sorted({*maps, *program.maps}):
        wanted = program.maps.get(name, {})
        if wanted is not None and _text(maps.get(name, {})) != _text(wanted):
            return f"{name}: {maps.get(name)!r}, expected {wanted!r}"
    return ""


def _parts(stdout: str) -> tuple[list[Any], dict[str, Any], list[str]]:
    """Lines of the program, maps, and what is neither: reports of helpers that failed, lost events."""
    lines: list[Any] = []
    maps: dict[str, Any] = {}
    others = []
    for text in stdout.splitlines():
        event = json.loads(text)
        match event["type"]:
            case "printf":
                lines.append(event["data"].removesuffix("\n"))
            case "value":
                lines.append(event["data"])
            case "map" | "stats" | "hist":
                maps.update(event["data"])
            case "attached_probes":
                pass
            case _:
                if not re.search(r"division|zero|no such key|bpf_map_lookup_elem", text):
                    others.append(text)
    return lines, maps, others


def _text(value: Any) -> str:
    """A value to compare: maps in any order, large integers with or without quotes."""
    return json.dumps(value, sort_keys=True).replace('"', "")
