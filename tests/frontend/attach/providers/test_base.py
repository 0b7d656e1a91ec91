"""What providers share: reports of what is missing, numbers, patterns, suggestions."""

from __future__ import annotations

from typing import Any

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions, Config
from pytrace.core.probe_kinds import PROBE_KINDS, NoTarget, TypedFunctionTarget, UserTarget
from pytrace.core.source import Source, Span
from pytrace.frontend.probes.providers import Match, Part, Scope, by_pattern, matches_pattern, nearest, number_of
from tests.support.facts import RecordedKernel
from tests.support.rows import each_row

SPAN = Span(Source("stdin", "kprobe:x"), 0, 8)


def scope(missing: str = "error", *, quiet: bool = False, **options: Any) -> Scope:
    config = Config(missing_probes=missing)
    return Scope(CompileOptions(**options), RecordedKernel(), config, Diagnostics(), quiet=quiet)


@pytest.mark.parametrize(
    ("setting", "errors", "warnings"),
    [("error", ["gone"], []), ("warn", [], ["gone; probe skipped"]), ("ignore", [], [])],
)
def test_what_is_missing_is_reported_as_configured(setting: str, errors: list[str], warnings: list[str]) -> None:
    where = scope(setting)
    where.missing("gone", SPAN)
    assert [item.message for item in where.diagnostics.errors] == errors
    assert [item.message for item in where.diagnostics.warnings] == warnings


def test_while_a_pattern_is_tried_nothing_is_a_mistake() -> None:
    where = scope(quiet=True)
    where.missing("gone", SPAN)
    where.error("wrong", SPAN)
    where.unmatched("nothing", SPAN)
    where.end_block(attached=False)
    assert not where.diagnostics.items


@pytest.mark.parametrize(
    ("attached", "verbose", "errors", "notes"), [(False, False, 1, 0), (True, False, 0, 0), (True, True, 0, 1)]
)
def test_patterns_without_a_match(attached: bool, verbose: bool, errors: int, notes: int) -> None:
    where = scope(verbose=verbose)
    where.unmatched("nothing matches", SPAN)
    where.end_block(attached=attached)
    assert (len(where.diagnostics.errors), len(where.diagnostics.notes)) == (errors, notes)
    where.end_block(attached=False)
    assert len(where.diagnostics.errors) == errors, "each block has its own patterns"


def test_features_may_be_hidden() -> None:
    assert scope().feature("kprobe")
    assert not scope(disabled=frozenset({"kprobe"})).feature("kprobe")
    assert not scope().feature("kprobe_multi")


def test_a_listing_attaches_nothing() -> None:
    assert scope().attaching
    assert not scope(mode="list").attaching


@pytest.mark.parametrize(
    ("text", "number", "message"),
    [
        ("5", 5, ""), ("0x10", 16, ""), ("-5", -5, ""), ("x", None, "the count must be a number, not 'x'"),
        (str(2**64 - 1), 2**64 - 1, ""), (str(2**64), None, "the count does not fit 64 bits"),
    ],
)  # fmt: skip
def test_numbers(text: str, number: int | None, message: str) -> None:
    where = scope()
    assert number_of(Part(text, SPAN), where, "the count") == number
    assert [item.message for item in where.diagnostics.errors] == ([message] if message else [])


@each_row(
    ("pattern", "name", "fits"),
    [
        ("abc", "abc", True), ("abc", "abcd", False), ("*", "", True), ("a*", "abc", True), ("*c", "abc", True),
        ("a*c", "ac", True), ("a*a", "a", False), ("a*b*c", "axbxc", True), ("a*b*c", "acb", False),
        ("a*bb*b", "abb", False), ("a?c", "abc", False), ("*b*b*", "ab", False), ("*b*b*", "bxb", True),
    ],
)  # fmt: skip
def test_patterns(pattern: str, name: str, fits: bool) -> None:
    assert matches_pattern(pattern, name) is fits


def test_suggestions() -> None:
    assert nearest("vfs_raed", ["vfs_read", "do_exit"], "kprobe:{}") == ["did you mean kprobe:vfs_read?"]
    assert nearest("zzz", ["vfs_read"]) == []


def test_places_that_a_pattern_found_may_be_gone_later() -> None:
    kind = PROBE_KINDS[0]
    found = by_pattern(
        [
            Match(kind, "a", UserTarget("/bin/a", 1), SPAN),
            Match(kind, "b", TypedFunctionTarget("f", program_id=1), SPAN),
        ]
    )
    assert [item.place.by_pattern for item in found] == [True, True]
    with pytest.raises(AssertionError):
        by_pattern([Match(kind, "c", NoTarget(), SPAN)])
