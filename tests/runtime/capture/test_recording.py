"""A run as snapshots tell of it."""

from __future__ import annotations

import hashlib
import os

from msgspec.structs import replace

import pytrace
from pytrace.core.manifest import AheadOfTime, Parameters
from pytrace.core.options.run_options import RunOptions
from pytrace.core.types import INT64, Count, Record, String, Username
from pytrace.core.types.tables import RowTable, TableSchema
from pytrace.results.snapshot import SnapshotData
from pytrace.runtime.capture.recording import Recording, RowKeeper
from tests.support.captured import Places, forms
from tests.support.encode import Run

OPTIONS = RunOptions(script="x.bt", text="begin { }\udcff", parameters=("1", "--n=2"))


def recording(run: Run, options: RunOptions = OPTIONS, **manifest: object) -> Recording:
    renderer = run.renderer
    known = replace(renderer._manifest, **manifest)
    return Recording(known, options, renderer.views(), renderer.texts, Places())


def taken(made: Recording, rows: RowKeeper | None = None) -> SnapshotData:
    return made.snapshot((10, 20), (30, 40), {"lost": {"kprobe:f": 3}}, ((15, 5),), rows, lambda: None)


def test_a_run() -> None:
    (run,) = taken(recording(Run())).runs
    system = os.uname()
    assert (run.host, run.kernel, run.machine) == (system.nodename, system.release, system.machine)
    assert (run.start, run.start_monotonic, run.end, run.end_monotonic) == (10, 20, 30, 40)
    assert run.gaps == ((15, 5),)
    assert (run.script, run.parameters, run.version) == ("x.bt", ("1", "--n=2"), pytrace.__version__)
    assert run.script_hash == hashlib.sha256(b"begin { }\xff").hexdigest()


def test_snapshots_of_one_run_have_its_identity() -> None:
    first = recording(Run())
    other = recording(Run())
    assert taken(first).runs[0].identity == taken(first).runs[0].identity != taken(other).runs[0].identity


def test_maps_rows_and_losses() -> None:
    run = Run()
    run.keyed("@a", INT64, Count(), {1: 2})
    run.scalar("@b", INT64, 5)
    rows = RowKeeper()
    rows.keep(RowTable(1, TableSchema.of(["n"], [INT64])), (7,))
    snapshot = taken(recording(run), rows)
    assert {name: data.entries for name, data in snapshot.maps.items()} == {"@a": {1: 2}, "@b": {None: 5}}
    assert [table.rows for table in snapshot.tables] == [{snapshot.runs[0].identity: [(7,)]}]
    assert snapshot.losses == {"lost": {"kprobe:f": 3}}
    assert (snapshot.start, snapshot.end) == (10, 30)


def test_an_ahead_of_time_file_has_its_script_and_parameters_with_it() -> None:
    parameters = Parameters(("1", "1", "1"), (("n", "2"), ("flag", None)), ("n", "flag", "more"))
    ahead = AheadOfTime(4, parameters=parameters, script_hash="abc")
    options = replace(OPTIONS, text="", parameters=("1", "1", "--more=3", "--n=2"))
    (run,) = taken(recording(Run(), options, ahead=ahead)).runs
    assert (run.script_hash, run.parameters) == ("abc", ("1", "1", "1", "--more=3", "--n=2", "--flag"))


# ---------------------------------------------------------------------------------------------- rows


PROCESS = RowTable(2, TableSchema.of(["pid", "comm"], [INT64, String(8)]))
USER = RowTable(1, TableSchema.of(["user"], [Username()]))


def test_rows_are_kept_by_table_in_the_order_of_arrival() -> None:
    keeper = RowKeeper()
    keeper.keep(PROCESS, (1, b"init"))
    keeper.keep(USER, (0,))
    keeper.keep(PROCESS, (2, b"a\xff"))
    first, second = keeper.tables("run", forms(Run()))
    assert first.type == Record(("pid", "comm"), (INT64, String(8)))
    assert (first.rows, first.dropped, first.number) == ({"run": [(1, "init"), (2, "a\udcff")]}, 0, 2)
    assert (second.type, second.rows) == (Record(("user",), (Username(),)), {"run": [("root",)]})
    assert second.number == 1


def test_the_newest_rows_are_kept_and_the_others_counted() -> None:
    keeper = RowKeeper(3)
    for number in range(10):
        keeper.keep(PROCESS, (number, b""))
    keeper.keep(USER, (0,))
    first, second = keeper.tables("run", forms(Run()))
    assert [row[0] for row in first.rows["run"]] == [7, 8, 9]
    assert (first.dropped, second.dropped) == (7, 0)


def test_no_rows_make_no_tables() -> None:
    assert RowKeeper().tables("run", forms(Run())) == ()
