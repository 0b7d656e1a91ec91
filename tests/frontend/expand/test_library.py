"""The macros of the library."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.frontend.expand import imports


def test_each_macro_is_in_the_table() -> None:
    """A macro that the table does not name would never be found."""
    files = [path.name for path in Path(imports.LIBRARY_FOLDER).glob("*.bt")]
    defined = {(macro.name, file) for file in files for macro in imports.load_library(file)}
    assert {name for name, file in defined if imports.LIBRARY_FILES.get(name) == file} == set(imports.LIBRARY_FILES)
    public = {(name, file) for name, file in defined if not name.startswith("_")}
    assert public <= set(imports.LIBRARY_FILES.items())


@pytest.mark.parametrize("name", imports.LIBRARY_FILES)
def test_macros_by_name(name: str) -> None:
    found = imports.library_macros(name)
    assert found
    assert {macro.name for macro in found} == {name}


def test_names_that_are_none() -> None:
    assert imports.library_macros("printf") == []


def test_a_file_is_read_once() -> None:
    assert imports.library_macros("assert")[0] is imports.library_macros("assert")[0]
