from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.interface.snapshots import Snapshot, merge
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot, table


def made(count: int, of: str = "run-1") -> Snapshot:
    rows = table(["n"], [types.INT64], [(count,)], of=of)
    return Snapshot(snapshot(map_data("@a", STRING, COUNT, {"x": count}), of=run(of), tables=(rows,)))


def test_its_parts() -> None:
    found = made(3)
    assert found.maps["a"]["x"] == 3
    assert found.to_dict("@a") == {"x": 3}
    assert (len(found.tables), [item.identity for item in found.runs], found.losses) == (1, ["run-1"], {})
    assert repr(found) == "<Snapshot of 1 runs: maps @a>"


def test_snapshots_merge() -> None:
    first, second, third = made(1), made(2, "run-2"), made(3, "run-3")
    assert first.merge(second, third).data == merge([first, second, third]).data
    assert first.merge(second, third).to_dict("a") == {"x": 6}
    with pytest.raises(TraceError):
        first.merge(first)


def test_files(tmp_path: Path) -> None:
    made(3).save(tmp_path / "x.pts")
    assert Snapshot.load(str(tmp_path / "x.pts")).data == made(3).data
    with pytest.raises(TraceError, match="No such file"):
        Snapshot.load(tmp_path / "none")
    with pytest.raises(TraceError, match="not a snapshot"):
        Snapshot.load(__file__)
    with pytest.raises(TraceError, match=r"cannot write .*: No such file"):
        made(3).save(tmp_path / "no" / "x.pts")


def test_formats() -> None:
    assert b"@a[x]: 3" in made(3).format("text")
    assert made(3).format("json", "@a").count(b'"@a"') == 1
    with pytest.raises(TraceError, match="@b"):
        made(3).format("json", "@b")
    with pytest.raises(TraceError, match="there is no format"):
        made(3).format("nothing")


def test_notebooks() -> None:
    assert "<b>@a</b>" in made(3)._repr_html_()
    assert "<b>@a</b>" in made(3).maps["a"]._repr_html_()
