"""Which code reads aggregations."""

from __future__ import annotations

import pytest

from pytrace import pipeline
from pytrace.codegen.ir.helpers import MAP_DELETE_ELEM, MAP_LOOKUP_ELEM, MAP_LOOKUP_PERCPU_ELEM, Helper
from pytrace.codegen.lower import generator
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from tests.codegen.emit.test_program import KERNEL, compiled, functions


def calls(text: str, helper: Helper[..., object]) -> int:
    """How often a script calls a helper."""
    compilation = pipeline.Compilation(Source("stdin", text, None), CompileOptions(), KERNEL, Diagnostics())
    checked = pipeline.front_end(compilation).checked
    texts = generator.llvm_texts(checked, KERNEL, compilation.options)
    return texts.original.count(f"inttoptr (i64 {helper.number} to ptr)")


@pytest.mark.parametrize("call", ["count()", "sum(pid)", "avg(pid)", "min(pid)", "max(pid)"])
def test_copies_of_all_cpus_are_read(call: str) -> None:
    """A key's by a helper, in a loop of the program's own; those without a key lie in a data section."""
    assert calls(f"begin {{ @[1] = {call}; print(@); }}", MAP_LOOKUP_PERCPU_ELEM) == 0, "the runtime reads it"
    assert calls(f"begin {{ @[1] = {call}; $x = @[1]; print($x); }}", MAP_LOOKUP_PERCPU_ELEM) == 1
    assert calls(f"begin {{ @ = {call}; $x = @; print($x); }}", MAP_LOOKUP_PERCPU_ELEM) == 0


@pytest.mark.parametrize("call", ["count()", "sum(pid)", "avg(pid)"])
def test_a_value_of_all_cpus_is_looked_up_once(call: str) -> None:
    text = f"config = {{ max_map_keys = 1000000 }} begin {{ @[1] = {call}; "
    assert calls(text + "$x = @[1]; print($x); }", MAP_LOOKUP_PERCPU_ELEM) == 0
    assert calls(text + "$x = @[1]; print($x); }", MAP_LOOKUP_ELEM) == calls(text + "}", MAP_LOOKUP_ELEM) + 1


def test_all_buckets_of_a_key_are_deleted_in_a_loop() -> None:
    text = "begin { @[1] = hist(pid); delete(@, 1); }"
    assert calls(text, MAP_DELETE_ELEM) == 1
    assert len(functions(compiled(text))) == 2


def test_a_key_is_there_when_one_of_its_buckets_is() -> None:
    plain = calls("begin { @[1] = hist(pid); }", MAP_LOOKUP_ELEM)
    assert calls("begin { @[1] = hist(pid); print(has_key(@, 1)); }", MAP_LOOKUP_ELEM) == plain + 1
