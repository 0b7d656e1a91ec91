"""Programs with more live values than BPF's registers and stack hold."""

from __future__ import annotations

import pytest

from pytrace import pipeline
from pytrace.codegen.ir import target
from pytrace.codegen.lower import generator
from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.frontend.syntax.typed_program import CheckedProgram
from tests.support.facts import RecordedKernel


def checked(text: str) -> CheckedProgram:
    compilation = pipeline.Compilation(Source("stdin", text, None), CompileOptions(), RecordedKernel(), Diagnostics())
    return pipeline.front_end(compilation).checked


def compile_text(text: str, *, sparing: bool) -> int:
    """Bytes of stack that a script needs."""
    code, _ = generator.generate(checked(text), RecordedKernel(), CompileOptions(), sparing=sparing)
    module = target.parse(code)
    target.optimise(module)
    return target.stack_needed(target.elf(module), code)


def wide(count: int) -> str:
    """A script with so many variables that all are used again and again."""
    names = [f"$v{at}" for at in range(count)]
    first = " ".join(f"{name} = (int64)rand + {at};" for at, name in enumerate(names))
    mixed = " ".join(f"{name} = {name} ^ {names[(at * 7 + 1) % count]};" for at, name in enumerate(names))
    return f"begin {{ {first} for ($i : 0..3) {{ @c = count(); }} {mixed} print({' + '.join(names)}); exit(); }}"


def test_few_variables_take_little() -> None:
    assert 0 <= compile_text("begin { print(1); exit(); }", sparing=False) <= 64


def test_calls_add_up() -> None:
    flat = compile_text("kprobe:vfs_read { $a = arg0; print(str($a)); }", sparing=False)
    nested = compile_text(
        "fn show($a: uint64): uint64 { print(str($a)); return $a; } "
        "fn both($a: uint64): uint64 { return show($a) + 1; } "
        "kprobe:vfs_read { print(both(arg0)); }",
        sparing=False,
    )
    assert flat < nested <= target.STACK_LIMIT


def test_many_variables_go_to_scratch_memory() -> None:
    text = wide(100)
    assert compile_text(text, sparing=False) > target.STACK_LIMIT
    assert compile_text(text, sparing=True) <= target.STACK_LIMIT
    assert generator.compile_program(checked(text), RecordedKernel(), CompileOptions()).elf


def test_copies_of_unaligned_text_take_no_stack() -> None:
    config = "config = { max_strlen = 64 } "
    text = config + "begin { @s = str(0); @t = ((int8)1, @s, (int8)2); print((@t.0, @t.1, @s)); exit(); }"
    assert compile_text(text, sparing=False) < 200


def test_what_cannot_be_helped_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "STACK_LIMIT", -1)
    with pytest.raises(TraceError, match="bytes of stack"):
        generator.compile_program(checked(wide(5)), RecordedKernel(), CompileOptions())
