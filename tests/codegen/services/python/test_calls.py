"""What a script with probes of Python functions consists of; what they see is in tests/kernel/test_python_stacks.py."""

from __future__ import annotations

from pytrace import pipeline
from pytrace.codegen.walkers import python_calls, python_threads
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from tests.codegen.services.python.test_stacks import KERNEL
from tests.codegen.services.python.test_stacks import TEXT as STACKS
from tests.codegen.services.test_user_unwinding import symbols

TEXT = "python:a.py:f { @[func] = count(); } pythonret:a.py:f { @r = sum(pyint(retval) + pyint(args.n)); }"


def compiled(text: str) -> CompiledScript:
    return pipeline.compile_script(Source("stdin", text, None), CompileOptions(child=True), KERNEL, Diagnostics())


def test_maps_are_there_once() -> None:
    script = compiled(f"{TEXT} python:b.py:g {{ print(pystack); }}")
    names = symbols(script)
    assert script.manifest.python is not None
    assert script.manifest.python.calls == python_calls._CALLS
    for name in (python_calls._CALLS, python_calls._CHOICES, python_threads.PROCESSES, python_threads.CODE_FUNCTION):
        assert names.count(name) == 1


def test_stacks_need_no_second_rows() -> None:
    script = compiled(STACKS)
    assert script.manifest.python == python_threads.MAPS
    assert python_calls._CALLS not in symbols(script)


def test_a_program_for_each_attach_point() -> None:
    assert [program.kind for program in compiled(TEXT).manifest.programs] == ["python", "pythonret"]
