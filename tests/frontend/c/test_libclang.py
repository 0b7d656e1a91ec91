"""The classes of libclang's binding have what :mod:`pytrace.frontend.expand.c_translation` says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from clang import cindex

from pytrace.frontend.expand import c_translation

CLASSES = {
    c_translation.Kind: cindex.CursorKind,
    c_translation.Location: cindex.SourceLocation,
    c_translation.Extent: cindex.SourceRange,
    c_translation.Token: cindex.Token,
    c_translation.CType: cindex.Type,
    c_translation.Cursor: cindex.Cursor,
    c_translation.Problem: cindex.Diagnostic,
    c_translation.TranslationUnit: cindex.TranslationUnit,
    c_translation.Index: cindex.Index,
}


@pytest.mark.parametrize("stated", CLASSES)
def test_the_binding_has_what_is_stated(stated: type) -> None:
    members = {name for name in (*stated.__annotations__, *vars(stated)) if not name.startswith("_")}
    assert members
    assert not {name for name in members if not hasattr(CLASSES[stated], name)}


def test_an_include_knows_its_file_and_its_place(tmp_path: Path) -> None:
    script, header = tmp_path / "a.c", tmp_path / "b.h"
    script.write_text('#include "b.h"\n')
    header.write_text("int x;\n")
    (included,) = cindex.Index.create().parse(str(script)).get_includes()
    assert (str(included.include), included.location.line) == (str(header), 1)
