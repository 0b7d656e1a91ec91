"""The members of parts, and those that the viewer's scripts read: each is on both sides."""

from __future__ import annotations

import re

import msgspec
import pytest

from pytrace.results.report import page, parts
from pytrace.results.report.document import Document
from tests.results.report.test_document import unpacked

SOURCES = page.folder() / "web" / "src"
SCRIPTS: dict[type[parts.Part], tuple[str, ...]] = {
    parts.FlamePart: ("flame", "tree"), parts.TablePart: ("table",), parts.HistogramPart: ("histogram", "key_heat"),
    parts.LinesPart: ("lines", "histogram"), parts.HeatPart: ("heat", "histogram"),
}  # fmt: skip
"""The scripts that show parts of a class, besides ``main.js``."""


def source(name: str) -> str:
    return (SOURCES / f"{name}.js").read_text()


def reads(name: str, variable: str) -> set[str]:
    """The members of an object that a script names."""
    text = source(name)
    unpacked = re.findall(rf"const {{([^}}]*)}} = {variable};", text)
    return {*re.findall(rf"(?<![\w.]){variable}\??\.(\w+)", text), *re.findall(r"\w+", " ".join(unpacked))}


def members(class_: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(class_)}


@pytest.mark.parametrize("class_", SCRIPTS)
def test_the_viewer_reads_each_member_of_a_part(class_: type[parts.Part]) -> None:
    used = set().union(*(reads(name, "part") for name in ("main", *SCRIPTS[class_])))
    assert members(class_) <= used


def test_the_viewer_reads_no_other_members() -> None:
    for name in {name for names in SCRIPTS.values() for name in names}:
        shown = [members(class_) for class_, names in SCRIPTS.items() if name in names]
        assert reads(name, "part") <= set().union(*shown), name
    assert reads("main", "part") <= {*members(parts.Part), "kind"}
    for name in ("main", "flame", "tree", "table", "histogram", "key_heat", "lines", "heat"):
        assert reads(name, "data") <= members(parts.Contents), name
    assert set().union(*(reads(name, "data") for name in ("main", "tree"))) == members(parts.Contents)


def test_each_kind_has_a_view() -> None:
    views = re.search(r"const VIEWS = {([^}]*)}", source("main"))
    assert views is not None
    assert set(re.findall(r"\w+", views[1])) == {class_.__struct_config__.tag for class_ in SCRIPTS}


def test_a_part_is_written_with_its_kind() -> None:
    document = Document()
    table = parts.TablePart(name=document.text("@"), help=document.text(""), columns=[(0, "", 1)], rows=[[3]], sort=0)
    document.parts.append(table)
    assert unpacked(document)["parts"] == [
        {"kind": "table", "name": 0, "help": 1, "note": "", "columns": [[0, "", 1]], "rows": [[3]], "sort": 0}
    ]  # fmt: skip
