"""Facts about nodes: the accessor holds the writer and the reader together."""

from __future__ import annotations

import inspect

import pytest

from pytrace.core.diagnostics import InternalError
from pytrace.core.source import Source, Span
from pytrace.frontend.syntax import nodes, typed_program
from pytrace.frontend.syntax.typed_program import ArgumentIndex, CheckedProgram, Clock, Fact

NODE = nodes.Identifier(Span(Source("stdin", "nsecs"), 0, 5), "nsecs")


def test_a_fact_is_read_by_its_class() -> None:
    program = CheckedProgram()
    program.facts[NODE] = Clock("tai")
    assert program.fact(NODE, Clock).name == "tai"
    assert program.find_fact(NODE, Clock) == Clock("tai")


def test_another_fact_and_none_are_errors_of_pytrace() -> None:
    program = CheckedProgram()
    with pytest.raises(InternalError, match="expected Clock for Identifier, found None"):
        program.fact(NODE, Clock)
    program.facts[NODE] = ArgumentIndex(3)
    with pytest.raises(InternalError, match=r"expected Clock for Identifier, found ArgumentIndex\(index=3\)"):
        program.fact(NODE, Clock)
    assert program.find_fact(NODE, Clock) is None


def test_every_fact_says_what_it_belongs_to() -> None:
    kinds = [item for item in vars(typed_program).values() if inspect.isclass(item) and issubclass(item, Fact)]
    assert len(kinds) > 15
    assert all(kind.__doc__ for kind in kinds)
