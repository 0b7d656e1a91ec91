"""pytrace.live.saved_files: what a view says of files that were asked for."""

from __future__ import annotations

import re
from pathlib import Path

from pytrace.core.diagnostics import TraceError
from pytrace.live import saved_files
from pytrace.live.messages import Notice
from pytrace.results import file_form
from pytrace.results.snapshot import SnapshotData
from tests.support.snapshots import COUNT, STRING, map_data, snapshot


def test_files_are_named_by_the_time() -> None:
    assert re.fullmatch(r"pytrace-\d{8}-\d{6}\.html", saved_files.new_path("html"))


def test_snapshots_and_reports(tmp_path: Path) -> None:
    data = snapshot(map_data("@", STRING, COUNT, {"a": 3}))
    for name, write in (("x.pts", file_form.write), ("x.html", saved_files.write_report)):
        path = str(tmp_path / name)
        assert saved_files.written(data, path, write) == Notice(f"written: {path}")
    assert file_form.read(str(tmp_path / "x.pts")).maps["@"].entries == {"a": 3}
    assert "<html" in (tmp_path / "x.html").read_text()


def test_why_a_file_was_not_written() -> None:
    data = snapshot(map_data("@", STRING, COUNT, {}))

    def refused(_data: SnapshotData, _path: str) -> None:
        raise TraceError("too large", hints=("write less",))

    said = saved_files.written(data, "/nowhere/x.pts", file_form.write)
    assert said == Notice("/nowhere/x.pts cannot be written: No such file or directory", error=True)
    assert saved_files.written(data, "x", refused) == Notice("x was not written: too large; write less", error=True)
