"""pystr() and pyint(), and what takes no objects of Python."""

from __future__ import annotations

import pytest

from pytrace.core.options import CompileOptions
from tests.codegen.services.python.test_calls import compiled
from tests.codegen.services.python.test_stacks import KERNEL
from tests.frontend.checking import refused


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("print(pystr((1, 2)));", "pystr() takes an argument or result of a Python function, not (int8,int8)"),
        ("print(pyint(\"a\"));", "pyint() takes an argument or result of a Python function, not string[2]"),
        ("print(pyfloat(\"a\"));", "pyfloat() takes an argument or result of a Python function, not string[2]"),
        ("@ = sum(pyfloat(args.x));", "sum() takes an integer, not double"),
        ("print(pystr(args.x, 5000));", "the size of pystr() must be 1 to 1023, not 5000"),
        ("print(str(args.x));", "str() reads C strings, and this is a Python object"),
        ("print(args);", "python probes have no args here"),
    ],
)  # fmt: skip
def test_mistakes(body: str, message: str) -> None:
    assert message in refused(f"python:a.py:f {{ {body} }}", CompileOptions(child=True), KERNEL)[1]


def test_values() -> None:
    body = "@[func, pystr(args.name, 16)] = sum(pyint(args.n)); if (args.x == 0) { print(args.x); }"
    assert compiled(f"python:a.py:f {{ {body} }}").elf
