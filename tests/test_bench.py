"""What scripts/bench makes of its samples: ratios, goals, tables, plots. It measures nothing here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benching import report, runs
from benching.plots import Plot
from benching.rows import FLOOR, Line, Measure, Plan, Row, paired
from benching.runs import PYTRACE, RunError, Tracer, bpftrace
from benching.subjects import events, scale, starts

from tests.support import wide_maps

COST = Measure("added", "ns", 0.7)


def line(ours: list[float], theirs: list[float], measure: Measure = COST, row: str = "events.x") -> Line:
    return Line(row, "an event", measure, ours, theirs, again=[value * 1.1 for value in ours])


def beside_floor(ours: list[float], theirs: list[float], floors: list[float]) -> Line:
    return Line("events.x", "an event", replace(COST, floor_goal=1.1), ours, theirs, floors)


ROW = Row("events.x", "an event", lambda *_: [])


def test_the_median_of_paired_ratios_decides() -> None:
    one = line([10, 20, 30], [20, 25, 100])
    assert one.ratios == [0.5, 0.8, 0.3]
    assert one.ratio == 0.5
    assert one.reached is True
    assert line([8, 8, 1], [10, 10, 10]).reached is False
    assert one.noise == pytest.approx(0.1)


def test_more_is_better_where_the_measure_says_so() -> None:
    assert line([200], [100], Measure("lines", "lines", less=False)).ratio == 0.5


def test_costs_that_noise_hides_count_as_next_to_nothing() -> None:
    assert line([-5], [10]).ratio == pytest.approx(0.01)
    assert line([5, 5], [-1, 10]).ratios == [0.5]
    assert line([5], [0]).ratio is None


def test_a_limit_stands_where_there_is_no_peer() -> None:
    rate = Measure("parsed", "lines/s", less=False)
    assert Line("compile.parse", "parse", rate, [30_000.0], limit=25_000).reached is True
    assert Line("compile.parse", "parse", rate, [20_000.0], limit=25_000).reached is False
    assert Line("x.y", "no goal", Measure("wall", "s"), [1.0], [2.0]).reached is None


def test_tables_have_the_same_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line([10, 20, 30], [20, 25, 100])]
    cells = report.rows_of(lines)[0]
    assert cells == (
        "events.x", "an event: added", "ns", "20.0", "25.0", "", "0.30", "0.50", "", "2 ns", "3", "≤ 0.7", "yes",
    )  # fmt: skip
    assert len(cells) == len(report.HEADINGS)
    monkeypatch.setattr(report, "FOLDER", tmp_path)
    report.document("bench", report.columns(lines, "a machine", ["x.y failed: why"]))
    rows = [row.split("\t") for row in (tmp_path / "bench.tsv").read_text().splitlines()]
    assert {len(row) for row in rows} == {len(report.HEADINGS)}
    assert rows[1][:7] == ["events.x", "an event: added", "ns", "20.0", "25.0", "", "0.30"]
    assert [row[0] for row in rows[2:]] == ["a machine", "x.y failed: why"]


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    first.write_text(report.as_json([line([1], [2]), line([5], [6], row="events.y")], "one"))
    second.write_text(report.as_json([line([3], [4])], "two"))
    lines, machine = report.read([first, second])
    assert machine == "two"
    assert {item.row: item.ours for item in lines} == {"events.x": [3], "events.y": [5]}
    assert lines[0] == line([3], [4])


def test_the_mean_of_events_is_geometric() -> None:
    lines = [line([2.0 if number % 2 else 8.0], [16.0], row=f"events.{number}") for number in range(10)]
    mean = report.rows_of(lines)[-1]
    assert mean[:2] == ("events", "geometric mean of all: ratio")
    assert mean[6] == "0.25"


def test_pairs_alternate_and_failures_of_the_peer_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "CACHE", tmp_path)  # its lock; others may measure
    peer = Tracer("other", ("other",))
    order: list[str] = []

    def once(tracer: Tracer) -> dict[str, float]:
        order.append(tracer.name)
        return {"added": 1.0}

    paired(ROW, Plan(runs=2, noise=False, peer=peer), (COST,), once, ahead=False)
    assert order == ["pytrace", "other", "other", "pytrace"]
    order.clear()
    (both,) = paired(ROW, Plan(runs=2, peer=peer), (COST,), once, floor=True)
    round_ = ["pytrace", "other", "floor"]
    assert order == ["pytrace", *round_, "pytrace", *round_[::-1], "pytrace"]
    assert both.ours == both.theirs == both.floors == both.again == [1.0, 1.0]
    (alone,) = paired(ROW, Plan(runs=1), (COST,), once)
    assert (alone.ours, alone.theirs, alone.floors, alone.peer) == ([1.0], [], [], "")

    def failing(tracer: Tracer) -> dict[str, float]:
        if tracer is peer:
            raise RunError("no such probe")
        return {"added": 1.0}

    (only,) = paired(ROW, Plan(runs=2, noise=False, peer=peer), (COST,), failing, ahead=False, floor=True)
    assert (only.ours, only.theirs, only.floors) == ([1.0, 1.0], [], [1.0, 1.0])
    assert only.note == "the peer fails: no such probe"


def test_a_floor_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "CACHE", tmp_path)

    def once(tracer: Tracer) -> dict[str, float]:
        if tracer is FLOOR:
            runs.compiled(tmp_path / "nothing.c")
        return {"added": 1.0}

    (tmp_path / "nothing.c").write_text("int main(void) { return nothing; }")
    (only,) = paired(ROW, Plan(runs=1), (COST,), once, floor=True)
    assert (only.ours, only.floors, only.to_floor) == ([1.0], [], None)
    assert only.note.startswith("the floor fails: cc nothing.c: ")
    with pytest.raises(RunError, match=r"no-compiler nothing\.c: .*No such file"):
        runs._made(tmp_path / "nothing.c", "nothing", ["no-compiler"], ())


def test_a_cost_has_a_goal_beside_the_floor() -> None:
    cheap, dear = beside_floor([10, 12], [20, 20], [10, 10]), beside_floor([12, 12], [20, 20], [10, 10])
    assert (cheap.to_floor, cheap.reached) == (pytest.approx(1.1), True)
    assert (dear.to_floor, dear.reached) == (pytest.approx(1.2), False)
    assert beside_floor([10], [10], [10]).reached is False
    assert beside_floor([10], [], [10]).reached is True
    cells = dict(zip(report.HEADINGS, report.rows_of([dear])[0], strict=True))
    assert (cells["floor"], cells["to floor"], cells["goal"]) == ("10.0", "1.20", "≤ 0.7, floor ≤ 1.1")


def test_rows_with_a_floor_name_programs_of_it() -> None:
    source = (runs.PROGRAMS / "floor.bpf.c").read_text()
    for name in (*events.BY_HAND, "pair"):
        assert f"events.{name}" in {row.name for row in events.ROWS}
        assert f"MAP({name}, BPF_MAP_TYPE_" in source
        assert f"int {name}_entry(" in source


def test_starts_have_their_goals() -> None:
    names = [row.name for row in starts.ROWS]
    assert names == [f"start.{way}.{script}" for way in starts.WAYS for script in ("begin", "ten", "opensnoop")]
    assert (starts.CACHED, starts.COMPILED) == ((0.2, None, 0.6), (0.4, 0.8, 0.6))


def test_a_failed_run_says_its_error_without_warnings() -> None:
    script = "echo 'WARNING: as always' >&2; echo 'ERROR: no such probe' >&2; exit 3"
    with pytest.raises(RunError, match=r"^sh ended with 3: ERROR: no such probe$"):
        runs.run(["sh", "-c", script])


def test_rows_are_chosen_by_the_first_parts_of_their_names() -> None:
    row = Row("start.cached.begin", "", lambda *_: [])
    assert all(row.matches(word) for word in ("start", "start.cached", "start.cached.begin", "start."))
    assert not any(row.matches(word) for word in ("star", "start.ca", "cached"))


def test_growth_of_linear_costs_is_one() -> None:
    assert scale.growth([(1, 5.0), (10, 14.0), (100, 104.0)]) == [pytest.approx(1.0)]
    assert scale.growth([(1, 1.0), (10, 10.0), (100, 1000.0)]) == [pytest.approx(11.0)]


def test_plots_are_xml_with_a_line_for_each_name() -> None:
    plot = Plot("keys", "Keys & values", "keys", "s", {"pytrace": [(1, 0.5), (1000, 2)], "bpftrace": [(1, 1), (10, 1)]})
    tree = ElementTree.fromstring(plot.svg())
    texts = [item.text for item in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Keys & values", "pytrace", "bpftrace", "1k"} <= set(texts)
    assert len(list(tree.iter("{http://www.w3.org/2000/svg}polyline"))) == 2


def test_tracers_are_known() -> None:
    assert PYTRACE.command[0].endswith("pytrace")
    assert bpftrace("'/a b/loader' --argv0 bpftrace /usr/bin/bpftrace").command == (
        "/a b/loader", "--argv0", "bpftrace", "/usr/bin/bpftrace",
    )  # fmt: skip


def test_the_version_of_the_peer_is_printed(tmp_path: Path) -> None:
    program = tmp_path / "bpftrace"
    program.write_text("#!/bin/sh\necho bpftrace v9.9.9\n")
    program.chmod(0o755)
    assert report.machine(bpftrace(str(program))).endswith(" of this source beside bpftrace v9.9.9.")
    assert "there is no other bpftrace" in report.machine(None)


@pytest.mark.parametrize("processors", [1, 3, 512])
def test_maps_of_many_processors_print_their_sums(processors: int) -> None:
    text = wide_maps.text(wide_maps.specs(processors)["@keyed"], processors)
    assert text.count(b"\n") >= wide_maps.KEYS
    assert b"@keyed[999]: %d\n" % sum(range(processors)) in text
