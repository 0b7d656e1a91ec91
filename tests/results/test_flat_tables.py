"""Flat tables as frames of pandas and Polars."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.results.flat_tables import ColumnKind, FlatColumn, FlatTable

BIG = (1 << 64) - 1

TABLE = FlatTable("@", (
    FlatColumn("n", ColumnKind.SIGNED, [-1, None, 3]),
    FlatColumn("u", ColumnKind.UNSIGNED, [BIG, 0, 1]),
    FlatColumn("flag", ColumnKind.BOOL, [True, False, True]),
    FlatColumn("text", ColumnKind.TEXT, ["a", "", "c"]),
    FlatColumn("raw", ColumnKind.BYTES, [b"\xff", b"", b"x"]),
    FlatColumn("time", ColumnKind.TIME, [1_700_000_000_000_000_001, 0, 1]),
    FlatColumn("stack", ColumnKind.LINES, [["f", "main"], [], ["g"]]),
))  # fmt: skip


def test_pandas() -> None:
    pytest.importorskip("pandas")
    frame = TABLE.to_pandas()
    assert str(frame["n"].dtype) == "Int64"
    assert str(frame["u"].dtype) == "uint64"
    assert list(frame["u"]) == [BIG, 0, 1]
    assert [frame["n"][0], frame["n"][2]] == [-1, 3]
    assert bool(frame["n"].isna()[1])
    assert str(frame["time"].dtype) == "datetime64[ns, UTC]"
    assert frame["time"][0].value == 1_700_000_000_000_000_001
    assert list(frame["flag"]) == [True, False, True]
    assert list(frame["stack"][0]) == ["f", "main"]


def test_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = TABLE.to_polars()
    assert frame.schema == {
        "n": polars.Int64, "u": polars.UInt64, "flag": polars.Boolean, "text": polars.String, "raw": polars.Binary,
        "time": polars.Datetime("ns", "UTC"), "stack": polars.List(polars.String),
    }  # fmt: skip
    assert frame["u"].to_list() == [BIG, 0, 1]
    assert frame["n"].to_list() == [-1, None, 3]
    assert frame["stack"].to_list() == [["f", "main"], [], ["g"]]


def test_signed_and_unsigned_of_64_bits_in_one_column() -> None:
    pytest.importorskip("pyarrow")
    mixed = FlatTable("@", (FlatColumn("x", ColumnKind.SIGNED, [BIG, -1]),))
    assert [int(item) for item in mixed.to_arrow().column(0).to_pylist()] == [BIG, -1]
    pytest.importorskip("polars")
    assert mixed.to_polars()["x"].to_list() == [BIG, -1]


def test_a_missing_library_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    before = importlib.import_module

    def missing(name: str, *arguments: Any) -> Any:
        if name == "pyarrow":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return before(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(TraceError, match="needs the Python package pyarrow") as caught:
        TABLE.to_arrow()
    assert "pip install 'pyarrow" in caught.value.hints[0]
