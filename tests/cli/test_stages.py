"""Tests of the stages that ``-d`` shows."""

from __future__ import annotations

import io
import sys

from pytrace import pipeline
from pytrace.cli import stages
from pytrace.codegen import generator
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.options.run_options import RunOptions
from pytrace.core.source import Source
from pytrace.pipeline import Compilation, Watch
from tests.support.facts import RecordedKernel

TEXT = "tracepoint:sched:sched_wakeup /pid > 1/ { $x = args.pid; @m[$x] = count(); }"


def compilation(watch: Watch | None = None) -> Compilation:
    return Compilation(Source("stdin", TEXT), CompileOptions(), RecordedKernel(), Diagnostics(), watch)


def test_the_tree_shows_one_node_a_line() -> None:
    lines = stages.tree(pipeline.parse(compilation())).splitlines()
    assert lines[0].startswith("Program")
    assert "    AttachPoint text='tracepoint:sched:sched_wakeup' name=None options=()" in lines
    assert any(line.strip() == "Variable name='x'" for line in lines)
    assert not any("span" in line for line in lines)


def test_children_are_indented_below_their_node() -> None:
    lines = stages.tree(pipeline.parse(compilation())).splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip().startswith("MapIndex"))
    indent = len(lines[at]) - len(lines[at].lstrip())
    assert lines[at + 1] == " " * (indent + 2) + "MapRef name='@m'"


def test_the_typed_tree_has_types_of_expressions_and_maps() -> None:
    text = stages.typed(pipeline.front_end(compilation()).checked)
    assert "map @m[int64]: count_t (percpuhash, 4096)" in text or "map @m[int32]: count_t (percpuhash, 4096)" in text
    assert "Identifier name='pid' : uint32" in text
    assert "(tracepoint:sched:sched_wakeup)" in text


def test_only_the_stages_that_were_asked_for_are_shown() -> None:
    out = io.StringIO()
    pipeline.front_end(compilation(stages.front_end_watch(frozenset({"types"}), out)))
    assert out.getvalue().count("== ") == 1
    assert "== programs with types" in out.getvalue()


def test_code_of_the_back_end() -> None:
    found, out = compilation(), io.StringIO()
    texts = generator.llvm_texts(pipeline.front_end(found).checked, found.kernel, found.options, verify=True)
    stages.show_back_end(texts, frozenset({"ir", "ir-opt", "asm"}), out)
    first, second, third = out.getvalue().split("\n== ")[1:]
    assert first.startswith("LLVM code\n")
    assert "alloca" in first
    assert second.startswith("LLVM IR, optimised\n")
    assert len(second) < len(first)
    assert third.startswith("BPF code\n")
    assert "\n\texit\n" in third


def test_stages_stay_out_of_json() -> None:
    assert stages.shown_on(RunOptions()) is sys.stdout
    assert stages.shown_on(RunOptions(format="json")) is sys.stderr
