"""The recorded programs of ``tests/cases/outputs.jsonl``: what bpftrace 0.27.1 printed, as text and as JSON.

One object a line: ``program`` and ``args`` were run with ``-q`` (``unsafe``: and ``--unsafe``); ``stdout``, ``json``
and ``exit`` are what came out, ``diagnostics`` the places of errors and warnings. ``order: any``: the lines of a map
may come in any order.  A row without ``stdout`` or ``json`` has no right answer recorded; those that matter have a
case of their own.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tests.support.cases import CASES
from tests.support.expect import Result

ROWS = CASES / "outputs.jsonl"


@dataclass(frozen=True)
class Difference:
    """A row whose result is different on purpose.

    *stdout*, *json*, *exit* and *diagnostics* replace what is recorded (None: as recorded). *section* is the heading
    in ``docs/start/differences.md`` that gives the reason.
    """

    section: str
    stdout: str | None = None
    json: tuple[str, ...] | None = None
    exit: int | None = None
    diagnostics: tuple[str, ...] | None = None


_SIGNED = "Signed division, remainder and right shift"
_ARRAYS = "Byte arrays in output"
_PRECISION = "Precision and flags of printf"
_LITERAL = "A cast of a literal to the type that it has"
_LIBRARY = "Warnings about the library's own code"
_DELETE = "Warnings of delete()"

DIFFERENCES: dict[str, Difference] = {
    "compound_assign": Difference(_SIGNED, diagnostics=()),
    "printf_s_any": Difference(
        _ARRAYS,
        stdout="5 true (1, a) [2,1]\n1 0\n0x10\n\n\n",
        json=(
            r'{"type": "printf", "data": "5 true (1, a) [2,1]\n"}',
            r'{"type": "printf", "data": "1 0\n"}',
            r'{"type": "printf", "data": "0x10\n"}',
        ),
        diagnostics=(),  # its cast of a literal
    ),
    **{
        name: Difference(
            _PRECISION,
            stdout="".join(f"{line}\n" for line in (*lines, "", "")),
            json=tuple(f'{{"type": "printf", "data": "{line}\\n"}}' for line in lines),
        )
        for name, lines in {
            "printf_int_10": ("[00065|]", "[-0003|]", "[00001|]"),
            "printf_int_12": ("[ 65]", "[-3]", "[ 1]"),
            "printf_int_23": ("[065]", "[-003]", "[001]"),
            "printf_str_3": ("[he|]", "[|]"),
            "printf_str_4": ("[        he|]", "[          |]"),
        }.items()
    },
    "address_of": Difference(
        "The address of a scalar map",
        stdout="5\n7\n\n\n@m: 7\n",
        json=(
            '{"type": "value", "data": 5}', '{"type": "value", "data": 7}', '{"type": "map", "data": {"@m": 7}}',
        ),
    ),
    "strftime": Difference(
        "Equal times are equal", stdout="true\n\n\n", json=('{"type": "value", "data": true}',)
    ),
    "map_scalar": Difference(_LITERAL, diagnostics=()),
    "agg_unsigned": Difference(_LITERAL, diagnostics=()),
    "uint_key": Difference(_LITERAL, diagnostics=()),
    "strerror": Difference(_LIBRARY, diagnostics=()),
    "map_delete": Difference(_DELETE, diagnostics=()),
    "map_empty": Difference(_DELETE, diagnostics=()),
}  # fmt: skip
"""By row name."""


@dataclass(frozen=True)
class Row:
    """One recorded program."""

    name: str
    program: str
    args: tuple[str, ...]
    unsafe: bool
    exit: int | None
    stdout: str | None
    json: tuple[str, ...] | None
    diagnostics: tuple[str, ...]
    any_order: bool
    peer: str

    def argv(self, output: str) -> tuple[str, ...]:
        """The command line for *output* ``text`` or ``json``."""
        options = ["-q", *(["--unsafe"] if self.unsafe else []), *(["-f", "json"] if output == "json" else [])]
        return (*options, "-e", self.program, *self.args)


def rows() -> list[Row]:
    """All rows, deliberate differences applied."""
    return [_row(json.loads(line)) for line in ROWS.read_text().splitlines()]


def _row(raw: dict[str, Any]) -> Row:
    difference = DIFFERENCES.get(raw["name"])
    stdout, lines, status = raw.get("stdout"), raw.get("json"), raw.get("exit")
    if difference:
        stdout = stdout if difference.stdout is None else difference.stdout
        lines = lines if difference.json is None else list(difference.json)
        status = status if difference.exit is None else difference.exit
    classes = tuple(item["class"] for item in raw.get("diagnostics", ()))
    if difference and difference.diagnostics is not None:
        classes = difference.diagnostics
    return Row(
        raw["name"], raw["program"], tuple(raw["args"]), raw.get("unsafe", False), status, stdout,
        None if lines is None else tuple(lines), classes, raw.get("order") == "any", raw.get("peer", ""),
    )  # fmt: skip


def problems(row: Row, output: str, result: Result) -> list[str]:
    """What differs from the record."""
    found = []
    if result.timed_out:
        found.append("did not end in time")
    if row.exit is not None and result.status != row.exit:
        found.append(f"exit status {result.status}, recorded {row.exit}")
    if re.search(r"^(Traceback|BUG: )", result.stderr, re.MULTILINE):
        found.append("a bug in pytrace was reported")
    if result.left_behind:
        found.append(f"processes left behind: {result.left_behind}")
    found += _text(row, result) if output == "text" else _json(row, result)
    found += _diagnostics(row, output, result)
    return found


def _text(row: Row, result: Result) -> list[str]:
    if row.stdout is None:
        return []
    wanted, got = row.stdout, result.stdout
    if row.peer:
        # Written by hand from what the peer should have done: the empty lines of the end are not in it.
        wanted, got = wanted.rstrip("\n"), got.rstrip("\n")
    if row.any_order:
        wanted, got = "\n".join(sorted(wanted.split("\n"))), "\n".join(sorted(got.split("\n")))
    return [] if wanted == got else [f"stdout is {got!r}, recorded {wanted!r}"]


def _json(row: Row, result: Result) -> list[str]:
    found = []
    got = result.stdout.splitlines()
    for line in got:
        try:
            json.loads(line)
        except ValueError as error:
            found.append(f"not JSON ({error}): {line!r}")
    if row.json is None or found:
        return found
    wanted = list(row.json)
    got = [_masked(line) for line in got]
    if row.any_order:
        same = [json.loads(line) for line in wanted] == [json.loads(line) for line in got]
    else:
        same = wanted == got
    return [] if same else [f"JSON is {got}, recorded {wanted}"]


def _masked(line: str) -> str:
    """Wording is pytrace's own: the text of run-time errors is not compared."""
    if '"runtime_error"' in line or '"helper_error"' in line:
        return re.sub(r'"msg": "(?:[^"\\]|\\.)*"', '"msg": "*"', line)
    return line


def _diagnostics(row: Row, output: str, result: Result) -> list[str]:
    """Every class that is recorded is shown, with a place; an error shows nothing else than a message."""
    found = []
    for kind in set(row.diagnostics):
        # Errors of a script's own making at run time go into the JSON stream.
        shown = result.stderr + (result.stdout if output == "json" else "")
        pattern = rf"^stdin:\d+.*: {kind}: |\"(errorf|warnf|runtime_error)\""
        if not re.search(pattern, shown, re.MULTILINE):
            found.append(f"no {kind} at a place in the script")
    return found
