"""Snapshots of real runs in the formats of tables, metrics and time lines, read by other people's readers."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machine import need
from tests.support.patience import patience
from tests.support.saved import ROOT, save

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
    assert {item.labels["key"]: item.value for item in calls.samples} == {"0": 20, "1": 20}
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
