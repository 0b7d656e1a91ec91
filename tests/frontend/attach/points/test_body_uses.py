"""What a body reads of its context."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.probes import providers
from pytrace.frontend.syntax import parser


def uses(text: str) -> providers.Uses:
    program = parser.parse(Source("stdin", text), Diagnostics())
    return providers.uses_of([part for probe in program.probes for part in (probe.predicate, probe.body)])


@pytest.mark.parametrize(
    ("body", "fields", "whole"),
    [
        ("print(1);", set(), False),
        ("print(args.a);", {"a"}, False),
        ("print(args->a.b);", {"a"}, False),
        ("print(args);", set(), True),
        ("print(args.a); print(args);", {"a"}, True),
        ("@[args] = 1;", set(), True),
    ],
)
def test_args(body: str, fields: set[str], whole: bool) -> None:
    found = uses(f"kprobe:f {{ {body} }}")
    assert (found.fields, found.whole, found.args) == (fields, whole, bool(fields) or whole)


def test_predicates_count() -> None:
    assert uses("kprobe:f /args.a/ { }").fields == {"a"}


def test_positional_arguments_are_in_order() -> None:
    assert uses("kprobe:f { print(arg12); print((arg0, arg3)); print((arg, argx, arg0)); }").positional == (0, 3, 12)


def test_names_of_values_and_calls() -> None:
    found = uses("kprobe:f { printf(retval); { @x = comm; } }")
    assert {"printf", "retval", "comm"} <= found.names
    assert "retval" in found
    assert "pid" not in found
