"""Attach points of Python functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytrace.core.probe_kinds import PythonTarget
from pytrace.frontend.probes.uprobes import LONGEST_PATTERN, PYTHON_OBJECT, python_files
from pytrace.frontend.syntax.typed_program import PythonValue
from tests.frontend.expanding import Expanded
from tests.support.facts import RecordedKernel

KERNEL = replace(RecordedKernel(), arch="x86_64", features=frozenset({"bpf_loop"}))


def expanded(text: str, kernel: RecordedKernel = KERNEL, **options: Any) -> Expanded:
    return Expanded(text, kernel, **{"child": True, **options})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/srv/app.py", ("/srv/app.py",)),
        ("*/app.py", ("*/app.py",)),
        ("*", ("*",)),
        ("<string>", ("<string>",)),
        ("app.py", ("app.py", "*/app.py")),
        ("shop.cart", ("shop/cart.py", "*/shop/cart.py", "shop/cart/__init__.py", "*/shop/cart/__init__.py",
                       "<frozen shop.cart>")),
        ("my-script", ("my-script", "*/my-script")),
    ],
)  # fmt: skip
def test_what_a_file_or_module_stands_for(text: str, expected: tuple[str, ...]) -> None:
    assert python_files(text) == expected


def test_targets() -> None:
    (target,) = expanded("pythonret:/srv/app.py:C.* { }").unit.targets
    assert (target.probe, target.place) == ("pythonret:/srv/app.py:C.*", PythonTarget(("/srv/app.py",), "C.*"))


def test_each_attach_point_has_a_program() -> None:
    assert len(expanded("py:a.py:f, py:b.py:f { }").units) == 2


def test_any_name_is_an_argument() -> None:
    context = expanded("pyr:a.py:f { print((args.b, args.a, retval)); }").unit.context
    assert [(item.name, item.type, item.place) for item in context.arguments] == [
        ("a", PYTHON_OBJECT, PythonValue(0)), ("b", PYTHON_OBJECT, PythonValue(1)),
    ]  # fmt: skip
    assert context.result is not None
    assert context.result.place == PythonValue(2)
    assert expanded("py:a.py:f { }").unit.context.result is None


@pytest.mark.parametrize(
    ("text", "message", "options"),
    [
        ("python:f { }", "python probes have the form python:FILE:FUNCTION or python:MODULE:FUNCTION", {}),
        ("python:a:b:c { }", "python probes have the form python:FILE:FUNCTION or python:MODULE:FUNCTION", {}),
        ("python:a@b { }", "python probes have the form python:FILE:FUNCTION or python:MODULE:FUNCTION", {}),
        ("python:a.py:f { }", "python probes need a process", {"child": False}),
        ("python:a.py:f { }", "python probes need a process", {"ahead": True}),
        (
            f"python:a.py:{'f' * (LONGEST_PATTERN + 1)} {{ }}",
            f"the pattern has more than {LONGEST_PATTERN} characters",
            {},
        ),
    ],
)
def test_mistakes(text: str, message: str, options: dict[str, Any]) -> None:
    assert expanded(text, **options).errors == [message]


def test_machines_that_cannot() -> None:
    assert expanded("python:a:f { }", replace(KERNEL, arch="aarch64")).errors == [
        "python probes are for x86-64, not aarch64"
    ]
    assert expanded("python:a:f { }", replace(KERNEL, features=frozenset())).errors == [
        "python probes need a kernel with bpf_loop (Linux 5.17)"
    ]
