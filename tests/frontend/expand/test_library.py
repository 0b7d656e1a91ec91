"""The macros of the library."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.frontend.expand import library


def test_each_macro_is_in_the_table() -> None:
    """A macro that the table does not name would never be found."""
    files = [path.name for path in Path(library.FOLDER).glob("*.bt")]
    defined = {(macro.name, file) for file in files for macro in library.load(file)}
    assert {name for name, file in defined if library.FILES.get(name) == file} == set(library.FILES)
    public = {(name, file) for name, file in defined if not name.startswith("_")}
    assert public <= set(library.FILES.items())


@pytest.mark.parametrize("name", library.FILES)
def test_macros_by_name(name: str) -> None:
    found = library.macros(name)
    assert found
    assert {macro.name for macro in found} == {name}


def test_names_that_are_none() -> None:
    assert library.macros("printf") == []


def test_a_file_is_read_once() -> None:
    assert library.macros("assert")[0] is library.macros("assert")[0]
