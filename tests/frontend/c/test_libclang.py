"""The classes of libclang's binding have what :mod:`pytrace.frontend.c.libclang` says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from clang import cindex

from pytrace.frontend.c import libclang

CLASSES = {
    libclang.Kind: cindex.CursorKind,
    libclang.Location: cindex.SourceLocation,
    libclang.Extent: cindex.SourceRange,
    libclang.Token: cindex.Token,
    libclang.CType: cindex.Type,
    libclang.Cursor: cindex.Cursor,
    libclang.Problem: cindex.Diagnostic,
    libclang.TranslationUnit: cindex.TranslationUnit,
    libclang.Index: cindex.Index,
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
