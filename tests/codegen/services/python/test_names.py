"""Decisions by names: one for each pattern and argument of a script, however many probes ask."""

from __future__ import annotations

from pytrace.codegen.walkers import python_calls
from pytrace.core.python_format import CALL_ROW, FILE, NAME
from tests.codegen.services.python.test_calls import compiled


def test_the_longest_names_fit() -> None:
    assert max(FILE, NAME) + 8 <= python_calls._TEXT_SIZE
    assert python_calls._TEXT == CALL_ROW
    assert python_calls.WORK_SIZE % 8 == 0


def test_steps_suffice_for_the_worst_pattern() -> None:
    """Each star may take each character once, and the rest of the pattern is compared again."""
    assert FILE * 256 <= python_calls._STEPS


def test_patterns_are_in_the_program_once() -> None:
    elf = compiled("python:a.py:wanted { @ = count(); } pythonret:a.py:wanted { @ = count(); }").elf
    assert elf.count("wanted".encode("utf-32-le")) == 1


def test_any_file_is_not_compared() -> None:
    elf = compiled("python:*:wanted { @ = count(); }").elf
    assert elf.count("wanted".encode("utf-32-le")) == 1
