"""Random programs pass the verifier and compute what the language reference says.

The same programs each time; ``--random-programs 1000 --random-seed 5000`` runs others, and more of them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.generated.checking import difference
from tests.support.generated.choices import shrink
from tests.support.generated.programs import Program, generate
from tests.support.generated.statements import TooLongError
from tests.support.server import Server

WAYS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "plain": ((), {}),
    "all_warnings": (("-k",), {}),
    "no_warnings": (("--no-warnings",), {}),
    "nothing_on_the_stack": ((), {"PYTRACE_ON_STACK_LIMIT": "0"}),
    "much_on_the_stack": ((), {"PYTRACE_ON_STACK_LIMIT": "200"}),
    "short_text": ((), {"PYTRACE_MAX_STRLEN": "64"}),
    "long_text": ((), {"PYTRACE_MAX_STRLEN": "65536"}),
}
SHRINKS = 150
"""Runs that a failure is made smaller by."""


@pytest.mark.parametrize("way", WAYS)
def test_random_programs(server: Server, tmp_path: Path, way: str, pytestconfig: pytest.Config) -> None:
    first = int(pytestconfig.getoption("--random-seed"))
    for seed in range(first, first + int(pytestconfig.getoption("--random-programs"))):
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
