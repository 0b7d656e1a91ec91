"""Makers: a form is made once for each type, by its row."""

from __future__ import annotations

import pytest

from pytrace.core import types
from pytrace.render.forms import Decoders, PythonForms, Restored, TextForms, as_python
from pytrace.results.formats.portable_forms import PortableNames


def test_forms_are_made_once() -> None:
    made = TextForms(PortableNames())
    assert made.form(types.INT64) is made.form(types.INT64)
    first, second = types.Struct("struct", "", 8, ()), types.Struct("struct", "", 8, ())
    assert first == second
    assert made.form(first) is not made.form(second), "anonymous structs compare equal"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (types.BOOL, "?"), (types.INT8, "b"), (types.UINT32, "I"), (types.Pointer(types.VOID), "Q"),
        (types.Count(), "Q"), (types.Fixed(10, 1, True), "q"), (types.KSym(), "Q"),
    ],
)  # fmt: skip
def test_numbers_are_fields_of_structures(kind: types.Type, code: str) -> None:
    assert Decoders().code(kind) == code
    assert Decoders().convert(kind) == (code, None)


def test_python_programs_get_numbers_at_any_nesting() -> None:
    fixed = types.Fixed(100, 2, True)
    kind = types.Tuple((types.INT64, types.Record(("a",), (fixed,))))
    assert as_python(kind)((1, (150,))) == (1, (fixed.number(150),))
    plain = (1, 2)
    assert PythonForms().form(types.Tuple((types.INT64, types.INT64)))(plain) is plain


def test_restored_values_decode_as_before() -> None:
    assert Restored().form(types.Tuple((types.String(4), types.Inet())))(("a", "127.0.0.1")) == (
        b"a", (types.AF_INET, bytes((127, 0, 0, 1))),
    )  # fmt: skip
