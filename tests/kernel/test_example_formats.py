"""Each example script gives valid output in every format that fits what it shows, read by other people's readers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.results.formats.format_row import Format, WriteOptions, content
from pytrace.results.formats.table import FORMATS, select
from pytrace.results.snapshot import SnapshotData
from tests.support import pictures, readers
from tests.support.machine import need
from tests.support.saved import save
from tests.support.usage import EXAMPLES, NEEDS

SCRIPTS = sorted(EXAMPLES.glob("*.bt"))
WORK = "sh -c 'ls / >/dev/null; /bin/true; i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; sleep 0.2'"
"""Opens files, starts and ends processes, keeps a processor busy, and sleeps."""


def _text(data: bytes, _path: Path) -> None:
    assert data.decode(errors="surrogateescape")


def _json(data: bytes, _path: Path) -> None:
    assert [json.loads(line) for line in data.decode(errors="surrogateescape").splitlines()]


def _csv(data: bytes, _path: Path) -> None:
    assert list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))


def _folded(data: bytes, _path: Path) -> None:
    assert all(re.fullmatch(r"\S.* \d+", line) for line in data.decode().splitlines())


def _speedscope(_data: bytes, path: Path) -> None:
    assert readers.speedscope(path)["profiles"]


def _firefox(_data: bytes, path: Path) -> None:
    assert readers.firefox(path)


def _svg(data: bytes, _path: Path) -> None:
    assert pictures.texts(data)


def _html(data: bytes, _path: Path) -> None:
    assert data.startswith(b"<!DOCTYPE html>")


def _pprof(_data: bytes, path: Path) -> None:
    assert readers.pprof(path)["sample"]


def _openmetrics(data: bytes, _path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    assert list(parser.text_string_to_metric_families(data.decode()))


def _arrow(data: bytes, _path: Path) -> None:
    assert pytest.importorskip("pyarrow.ipc").open_file(data).read_all().column_names


def _parquet(data: bytes, _path: Path) -> None:
    assert pytest.importorskip("pyarrow.parquet").read_table(io.BytesIO(data)).column_names


def _perfetto(data: bytes, _path: Path) -> None:
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    assert messages.Trace.FromString(data).packet


READ: dict[str, Callable[[bytes, Path], None]] = {
    "text": _text, "json": _json, "csv": _csv, "folded": _folded, "speedscope": _speedscope,
    "firefox": _firefox, "svg": _svg, "html": _html, "pprof": _pprof,
    "openmetrics": _openmetrics, "arrow": _arrow, "parquet": _parquet, "perfetto": _perfetto,
}  # fmt: skip

ONE_AT_A_TIME = {"arrow", "parquet"}
"""Formats of one map or table."""


def test_each_format_has_a_reader() -> None:
    assert set(READ) == {row.name for row in FORMATS}


@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem for path in SCRIPTS])
@pytest.mark.needs("readers")
def test_an_example_in_every_format(script: Path, tmp_path: Path) -> None:
    kinds = re.findall(r"(?m)^(\w+:syscalls|\w+)(?=:)", script.read_text())
    for feature in dict.fromkeys(NEEDS[kind] for kind in NEEDS if kind in kinds):
        need(feature)
    snapshot = save(tmp_path, "-q", script, "-c", WORK).snapshot
    snapshot.maps = {name: data for name, data in snapshot.maps.items() if data.entries}
    written = [row.name for row in FORMATS if _written(row.name, snapshot, tmp_path)]
    if snapshot.maps or snapshot.tables:
        assert {"text", "json", "csv"} <= set(written)


def _written(name: str, snapshot: SnapshotData, folder: Path) -> bool:
    """Write what fits the format *name* and read it back; False where nothing fits, which has to be said."""
    row = next(row for row in FORMATS if row.name == name)
    choices = [(part,) for part in snapshot.maps] if name in ONE_AT_A_TIME else [()]
    done = False
    for names in choices:
        part = _part(row, snapshot, names)
        if part is None or not (part.maps or part.tables):
            continue
        file, path = io.BytesIO(), folder / f"out.{name}"
        row.writer()(part, WriteOptions(), file)
        path.write_bytes(file.getvalue())
        READ[name](file.getvalue(), path)
        done = True
    return done


def _part(row: Format, snapshot: SnapshotData, names: tuple[str, ...]) -> SnapshotData | None:
    """What fits a format; None when nothing does, which has to be said."""
    fits = {name for name in names or snapshot.maps if content(snapshot.maps[name]) in row.shows}
    if fits or snapshot.tables or not snapshot.maps:
        return select(snapshot, row, names).snapshot
    with pytest.raises(TraceError, match=f"^format {row.name} cannot show "):
        select(snapshot, row, names)
    return None
