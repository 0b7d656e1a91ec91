"""Random scripts that fill, change and print maps print what the language reference says, as text and as JSON.

The same scripts each time; ``--random-programs 1000 --random-seed 5000`` runs others, and more of them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.generated.choices import shrink
from tests.support.mapped.checking import wrong
from tests.support.mapped.scripts import Script, generate
from tests.support.server import Server

FORMS = ("json", "text")
AS_MANY = 2
"""Scripts of each format for one of the other random programs."""
SHRINKS = 150
"""Runs that a failure is made smaller by."""


@pytest.mark.parametrize("form", FORMS)
def test_random_maps(
    server: Server, tmp_path: Path, programs: Path, form: str, pytestconfig: pytest.Config
) -> None:
    first = int(pytestconfig.getoption("--random-seed"))
    count = AS_MANY * int(pytestconfig.getoption("--random-programs"))
    for seed in range(first + FORMS.index(form), first + count * len(FORMS), len(FORMS)):
        script = generate(seed, programs=str(programs))
        found = wrong(server, tmp_path, script, form)
        if found:
            shorter = smaller(server, tmp_path, script, form, found)
            pytest.fail(f"seed {seed}: {found}\n{shown(script)}\n--- made smaller\n{shown(shorter)}")


def shown(script: Script) -> str:
    """A script with what stands behind it on the command line."""
    return f"{script.text}{' '.join(map(repr, script.arguments))}"


def smaller(server: Server, folder: Path, script: Script, form: str, found: str) -> Script:
    """A shorter script that is wrong in the same way."""
    programs = script.programs

    def fails(made: list[int]) -> bool:
        return kind(wrong(server, folder, generate(None, made, programs), form)) == kind(found)

    return generate(None, shrink(script.made, fails, SHRINKS), programs)


def kind(found: str) -> str:
    """A message without what differs from one script to the next."""
    return re.sub(r"\d+", "", found)[:20]
