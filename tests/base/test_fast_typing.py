"""pytrace.base.fast_typing: annotations and aliases of modules on the cached start work at run time."""

from __future__ import annotations

import subprocess
import sys
import typing

import pytest

from pytrace.base import fast_typing


@pytest.mark.parametrize("name", [name for name in fast_typing.__all__ if name != "TYPE_CHECKING"])
def test_each_name_is_one_of_typing(name: str) -> None:
    assert hasattr(typing, name)


def test_forms_take_parameters_and_unions() -> None:
    for form in (fast_typing.Any, fast_typing.ClassVar, fast_typing.Never):
        assert form[int] is not None
        assert (form | None) is not None
        assert (None | form) is not None


def test_classes_may_be_generic_and_protocols() -> None:
    variable = fast_typing.TypeVar("variable", bound=int)

    class Box(fast_typing.Generic[variable]):
        pass

    class Shape(fast_typing.Protocol):
        pass

    assert Box[int] is Box
    assert isinstance(Shape(), Shape)


def test_a_cast_gives_the_value() -> None:
    value = object()
    assert fast_typing.cast(int, value) is value


def test_parameters_and_new_types() -> None:
    parameters = fast_typing.ParamSpec("parameters")
    assert parameters.args is parameters.kwargs is fast_typing.Any
    assert fast_typing.Concatenate[int, parameters] is not None
    register = fast_typing.NewType("register", str)
    assert register("%v7") == "%v7"
    assert (register | int) is not None
    assert register is not fast_typing.NewType("other", str)


def test_an_overload_is_the_function() -> None:
    assert fast_typing.overload(test_a_cast_gives_the_value) is test_a_cast_gives_the_value


def test_typing_is_not_imported() -> None:
    code = "import sys, pytrace.base.fast_typing; print('typing' in sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
