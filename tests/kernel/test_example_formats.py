"""Example scripts and snapshots of real runs in each format, read by other people's readers."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.results.formats.format_row import Format, WriteOptions, content
from pytrace.results.formats.table import FORMATS, select
from pytrace.results.snapshot import SnapshotData
from tests.support import pictures, readers
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.saved import ROOT, save
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


# ---------------------------------------------------------------------------------------------- table formats
# Snapshots of real runs in the formats of tables, metrics and time lines, read by other people's readers.


SCRIPT = """
uprobe:PROGRAMS/calls:add {
  /* Calls by parity */
  @calls[arg0 % 2] = count(); @sum = sum((uint64)arg1); @h_us[comm] = hist(arg0); @l = lhist(arg0, 0, 20, 5);
  @stats = stats((uint64)arg0); @stacks[ustack] = count();
  row((ts=nsecs, pid=pid, tid=tid, comm=comm, took_ns=arg0, even=arg0 % 2 == 0));
}
"""


def show(*arguments: str | Path) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "pytrace", "show", *map(str, arguments)], cwd=ROOT, capture_output=True, check=False,
        timeout=patience(60),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_one_run_in_every_format(tmp_path: Path, programs: Path) -> None:
    need("uprobe")
    arrow = pytest.importorskip("pyarrow.parquet")
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    live = tmp_path / "live.csv"
    script = SCRIPT.replace("PROGRAMS", str(programs))
    run = save(tmp_path, "-q", "-f", "csv", "-o", live, "-e", script, "-c", f"{programs}/calls 40")
    # The same CSV as that of the run.
    assert show(run.path, "-f", "csv") == live.read_bytes()
    assert next(csv.reader(live.read_text().splitlines())) == ["ts", "pid", "tid", "comm", "took_ns", "even"]
    # Metrics.
    text = show(run.path, "-f", "openmetrics").decode()
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    calls = families["pytrace_calls"]
    assert (calls.type, calls.documentation) == ("counter", "Calls by parity")
    assert {item.labels["arg0"]: item.value for item in calls.samples} == {"0": 20, "1": 20}
    assert [item.value for item in families["pytrace_l"].samples] == [0, 5, 10, 15, 20, 40]
    assert [item.value for item in families["pytrace_stats"].samples] == [40, sum(range(40))]
    # Tables.
    show(run.path, "--map", "rows", "-o", tmp_path / "rows.parquet")
    rows = arrow.read_table(tmp_path / "rows.parquet").to_pydict()
    assert rows["took_ns"] == list(range(40))
    assert rows["even"] == [True, False] * 20
    # The time line.
    show(run.path, "-o", tmp_path / "trace.pftrace")
    trace = messages.Trace.FromString((tmp_path / "trace.pftrace").read_bytes())
    begins = [packet.timestamp for packet in trace.packet if packet.track_event.type == 1]
    start, end = run.snapshot.start, run.snapshot.end
    assert len(begins) == 40
    assert all(start - 10**9 <= time <= end + 10**9 for time in begins)
    assert sum(packet.HasField("perf_sample") for packet in trace.packet) == 40
