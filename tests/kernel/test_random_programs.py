"""Random programs and scripts of maps compute what the language reference says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.generated.checking import difference
from tests.support.generated.choices import shrink
from tests.support.generated.programs import Program, generate
from tests.support.generated.statements import TooLongError
from tests.support.mapped.checking import wrong
from tests.support.mapped.scripts import Script
from tests.support.mapped.scripts import generate as generate_script
from tests.support.numbers import logarithmic
from tests.support.server import Server

# The same programs each time; ``--random-programs 1000 --random-seed 5000`` runs others, and more of them.

WAYS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "plain": ((), {}),
    "all_warnings": (("-k",), {}),
    "no_warnings": (("--no-warnings",), {}),
    "nothing_on_the_stack": ((), {"PYTRACE_ON_STACK_LIMIT": "0"}),
    "much_on_the_stack": ((), {"PYTRACE_ON_STACK_LIMIT": "200"}),
    "short_text": ((), {"PYTRACE_MAX_STRLEN": "64"}),
    "long_text": ((), {"PYTRACE_MAX_STRLEN": "65536"}),
}
EVERY = 4
"""Of the programs that run plainly each other way has one of so many, other ones than the way before."""
SHRINKS = 150
"""Runs that a failure is made smaller by."""


@pytest.mark.parametrize("way", WAYS)
def test_random_programs(server: Server, tmp_path: Path, way: str, pytestconfig: pytest.Config) -> None:
    first = int(pytestconfig.getoption("--random-seed"))
    last, number = first + int(pytestconfig.getoption("--random-programs")), [*WAYS].index(way)
    for seed in range(first + number % EVERY, last, EVERY) if number else range(first, last):
        try:
            program = generate(seed)
        except TooLongError:
            continue
        wrong = run(server, tmp_path, program, way)
        if wrong:
            shorter = smaller(server, tmp_path, program, way, wrong)
            pytest.fail(f"seed {seed}: {wrong}\n{program.text}\n--- made smaller\n{shorter}")


def run(server: Server, folder: Path, program: Program, way: str) -> str:
    """What is wrong with one run; empty when nothing is."""
    options, environment = WAYS[way]
    path = folder / "random.bt"
    path.write_text(program.text)
    command = ("-q", "-f", "json", "--no-cache", *options, str(path))
    return difference(program, server.run(command, timeout=60, environment=environment))


def smaller(server: Server, folder: Path, program: Program, way: str, wrong: str) -> str:
    """A shorter program that is wrong in the same way."""
    seen: set[str] = set()

    def fails(made: list[int]) -> bool:
        try:
            other = generate(None, made)
        except TooLongError:
            return False
        if other.text in seen:
            return False
        seen.add(other.text)
        return kind(run(server, folder, other, way)) == kind(wrong)

    return generate(None, shrink(program.made, fails, SHRINKS)).text


def kind(wrong: str) -> str:
    """A message without what differs from one program to the next."""
    return re.sub(r"\d+", "", wrong)[:20]


# ---------------------------------------------------------------------------------------------- random maps
# Random scripts that fill, change and print maps print what the language reference says, as text and as JSON.
# The same scripts each time; ``--random-programs 1000 --random-seed 5000`` runs others, and more of them.


FORMS = ("json", "text")
AS_MANY = 2
"""Scripts of each format for one of the other random programs."""


@pytest.mark.parametrize("form", FORMS)
def test_random_maps(server: Server, tmp_path: Path, programs: Path, form: str, pytestconfig: pytest.Config) -> None:
    first = int(pytestconfig.getoption("--random-seed"))
    count = AS_MANY * int(pytestconfig.getoption("--random-programs"))
    for seed in range(first + FORMS.index(form), first + count * len(FORMS), len(FORMS)):
        script = generate_script(seed, programs=str(programs))
        found = wrong(server, tmp_path, script, form)
        if found:
            shorter = smaller_script(server, tmp_path, script, form, found)
            pytest.fail(f"seed {seed}: {found}\n{shown(script)}\n--- made smaller\n{shown(shorter)}")


def shown(script: Script) -> str:
    """A script with what stands behind it on the command line."""
    return f"{script.text}{' '.join(map(repr, script.arguments))}"


def smaller_script(server: Server, folder: Path, script: Script, form: str, found: str) -> Script:
    """A shorter script that is wrong in the same way."""
    programs = script.programs

    def fails(made: list[int]) -> bool:
        return kind_script(wrong(server, folder, generate_script(None, made, programs), form)) == kind_script(found)

    return generate_script(None, shrink(script.made, fails, SHRINKS), programs)


def kind_script(found: str) -> str:
    """A message without what differs from one script to the next."""
    return re.sub(r"\d+", "", found)[:20]


# ---------------------------------------------------------------------------------------------- histograms
# Programs put values into the buckets that the reference's formulas name.


_PROPERTY = settings(
    max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_EDGES = [0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1]
_SIGNED = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-3, 200) | st.sampled_from(_EDGES)
_UNSIGNED = st.integers(0, 2**64 - 1) | st.sampled_from([*_EDGES, 2**63, 2**64 - 1])


def counted(server: Server, values: list[int], *functions: str, unsigned: bool = False) -> list[list[dict[str, Any]]]:
    """The one bucket of each value, for each function.

    The program reads the values out of a map, so that none is a constant to it.
    """
    kind = "uint64" if unsigned else "int64"
    stored = " ".join(f"@v[{index}] = ({kind}){value};" for index, value in enumerate(values))
    filled = " ".join(f"@h{at}[$kv.0] = {function.replace('N', '$kv.1')};" for at, function in enumerate(functions))
    text = f"begin {{ {stored} for ($kv : @v) {{ {filled} }} clear(@v); exit(); }}"
    done = server.run(("-q", "-f", "json", "--no-cache", "-e", text), timeout=60)
    assert done.status == 0, done.stderr
    maps = {name: map_ for line in done.stdout.splitlines() for name, map_ in json.loads(line)["data"].items()}
    found = []
    for at in range(len(functions)):
        full = [[bucket for bucket in maps[f"@h{at}"][str(index)] if bucket["count"]] for index in range(len(values))]
        assert all(len(buckets) == 1 and buckets[0]["count"] == 1 for buckets in full)
        found.append([buckets[0] for buckets in full])
    return found


@pytest.mark.parametrize("unsigned", [False, True], ids=["signed", "unsigned"])
def test_logarithmic(server: Server, unsigned: bool) -> None:
    @_PROPERTY
    @given(st.lists(_UNSIGNED if unsigned else _SIGNED, min_size=1, max_size=40))
    def check(values: list[int]) -> None:
        found = counted(server, values, *(f"hist(N, {bits})" for bits in range(6)), unsigned=unsigned)
        for bits, buckets in enumerate(found):
            for value, bucket in zip(values, buckets, strict=True):
                number = logarithmic(value, bits)
                if number == 0:
                    assert "min" not in bucket
                    assert int(bucket["max"]) == -1
                    continue
                low, high = int(bucket["min"]), int(bucket["max"])
                assert low <= value <= high
                assert logarithmic(low, bits) == logarithmic(high, bits) == number
                assert logarithmic(low - 1, bits) == number - 1
                assert logarithmic(high + 1, bits) == number + 1

    check()


def test_linear(server: Server) -> None:
    @_PROPERTY
    @given(st.integers(0, 50), st.integers(1, 20), st.integers(1, 20), st.integers(0, 19), st.data())
    def check(low: int, step: int, steps: int, rest: int, data: st.DataObject) -> None:
        high = low + step * steps + rest % step
        values = data.draw(st.lists(st.integers(low - 3, high + 3) | _SIGNED, min_size=1, max_size=40))
        last = 1 + (high - low) // step
        (buckets,) = counted(server, values, f"lhist(N, {low}, {high}, {step})")
        for value, bucket in zip(values, buckets, strict=True):
            number = 0 if value < low else last if value > high else 1 + (value - low) // step
            assert bucket.get("min") == (None if number == 0 else low + (number - 1) * step)
            assert bucket.get("max") == (None if number == last else low + number * step - 1)

    check()
