"""Builtins that read objects of Python, anywhere in a script's body."""

from __future__ import annotations

from tests.codegen.services.python.test_calls import compiled


def test_in_loops_and_predicates() -> None:
    body = "/pyint(args.n) > 2/ { for ($i : 0..3) { @[$i, pystr(args.name, 8)] = sum(pyint(args.n)); } }"
    assert compiled(f"python:a.py:f {body}").elf
