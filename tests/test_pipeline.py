"""Tests of the pass list."""

from __future__ import annotations

import pytest

from pytrace import pipeline
from pytrace.diagnostics import Diagnostics, InternalError, ScriptError
from pytrace.options import CompileOptions
from pytrace.pipeline import Compilation, Pass
from pytrace.source import Source
from tests.support.facts import RecordedKernel


def compilation(text: str, **options: bool) -> Compilation:
    return Compilation(Source("stdin", text), CompileOptions(**options), RecordedKernel(), Diagnostics())  # type: ignore[arg-type]


def test_each_pass_needs_only_what_earlier_ones_make() -> None:
    made: set[str] = set()
    for step in pipeline.PASSES:
        assert set(step.needs) <= made, step.name
        assert step.makes not in made
        made.add(step.makes)


def test_a_pass_without_what_it_needs_is_a_bug() -> None:
    with pytest.raises(InternalError, match="pass late lacks early"):
        pipeline.run(compilation(""), (Pass("late", ("early",), "x", lambda c: None),))


def test_passes_stop_after_the_first_error() -> None:
    found = compilation("begin { @ = ; }")
    with pytest.raises(ScriptError):
        pipeline.run(found)
    assert list(found.made) == ["parsed"]
    assert found.diagnostics.failed


def test_errors_of_later_passes() -> None:
    found = compilation("begin { print($x); }")
    with pytest.raises(ScriptError):
        pipeline.run(found)
    assert "units" in found.made
    assert "script" not in found.made


def test_a_listing_needs_no_analysis() -> None:
    found = pipeline.run(compilation("tracepoint:sched:* { print($x); }"), pipeline.UNITS)
    assert len([target for unit in found["units"] for target in unit.targets]) == 4


def test_warnings_and_facts_are_kept() -> None:
    class Kernel(RecordedKernel):
        def dependencies(self) -> tuple[tuple[str, ...], ...]:
            return (("kernel", "x"),)

    diagnostics = Diagnostics()
    script = pipeline.compile_script(Source("stdin", "begin { print($1); }"), CompileOptions(), Kernel(), diagnostics)
    assert script.manifest.facts == (("kernel", "x"),)
    (warning,) = script.manifest.warnings
    assert "parameter $1 was not given" in warning


def test_the_same_facts_make_the_same_bytes() -> None:
    text = "tracepoint:sched:* { @[comm, pid] = hist(5); } end { print(@, 5); }"
    first, second = (pipeline.run(compilation(text))["script"].to_bytes() for _ in range(2))
    assert first == second


def test_only_ahead_of_time_files_have_open_values() -> None:
    text = "begin { print((ncpus, curtask->pid)); }"
    assert "ahead" not in pipeline.finish(pipeline.run(compilation(text), pipeline.FRONT_END)).manifest.extra
    found = pipeline.finish(pipeline.run(compilation(text, ahead=True), pipeline.FRONT_END)).manifest.extra["ahead"]
    assert [item["what"] for item in found["values"]] == ["cpus", "member"]
