from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import pytrace
from pytrace.core.diagnostics import Diagnostics, InternalError
from pytrace.interface.errors import LossWarning, ScriptError, TraceWarning, placed, warn


def test_a_warning_is_of_the_line_that_called() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn("text", LossWarning)
    assert [(item.filename, str(item.message)) for item in caught] == [(__file__, "text")]
    assert issubclass(LossWarning, TraceWarning)


def test_errors_have_places_and_hints() -> None:
    with pytest.raises(ScriptError) as caught:
        pytrace.compile("begin {\n  nothing(1);\n  other(2);\n}", cached=False)
    first, second = caught.value.diagnostics
    assert (first.span.source.name, first.span.first.line, first.span.first.column) == ("script", 2, 3)
    assert (second.span.first.line, second.message) == (3, "unknown function 'other'")
    assert str(caught.value).startswith("script:2:3-13: ERROR: unknown function 'nothing'")


def test_all_have_one_base() -> None:
    assert issubclass(pytrace.ScriptError, pytrace.Error)
    assert issubclass(pytrace.TraceError, pytrace.Error)
    assert not issubclass(InternalError, pytrace.Error)
    with pytest.raises(pytrace.Error, match="unknown function 'other'"):
        pytrace.compile("begin { other(2); }", cached=False)
    with pytest.raises(pytrace.Error, match="No such file"):
        pytrace.compile(Path("/nonexistent.bt"), cached=False)


def test_other_errors_pass() -> None:
    with pytest.raises(InternalError), placed(Diagnostics()):
        raise InternalError("a bug")
