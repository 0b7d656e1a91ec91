"""Snapshots of hosts merged as they come, by host and as one."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path

import pytest

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.interface.snapshots import Snapshot
from pytrace.remote import answer as answers
from pytrace.remote.answer import WIDTH, Answer, labelled
from pytrace.results import file_form
from pytrace.results.merge import merge
from pytrace.results.snapshot import SnapshotData
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot, table

NUMBER = types.Int(8, False)


def of_host(number: int, *, key: types.Type = STRING) -> SnapshotData:
    counts = {"bash": number, f"own-{number % 3}": 1} if key == STRING else {number: 1}
    maps = map_data("@c", key, COUNT, counts), map_data("@n", None, COUNT, {None: number})
    rows = table(["pid"], [NUMBER], [(number,)], of=f"run-{number}")
    made = snapshot(*maps, of=run(f"run-{number}", start=number), tables=(rows,))
    made.losses = {"lost": {"k:f": number}}
    return made


@pytest.mark.parametrize("number", [0, 1, WIDTH - 1, WIDTH, 3 * WIDTH + 1, WIDTH * WIDTH + 2])
def test_the_tree_is_one_merge(number: int) -> None:
    answer = Answer(None)
    for host in range(number):
        answer.add(f"web{host}", of_host(host))
    assert answer.result() == merge([of_host(host) for host in range(number)])
    # Few snapshots are held, whatever the number of hosts.
    for shape in answer._shapes:
        assert sum(map(len, shape.levels)) <= (WIDTH - 1) * len(shape.levels)


def test_by_host_and_by_label() -> None:
    by_host, by_zone = Answer(str), Answer({"web1": "a", "web2": "b", "web3": "a"}.__getitem__, "zone")
    for host in (1, 2, 3):
        by_host.add(f"web{host}", of_host(host))
        by_zone.add(f"web{host}", of_host(host))
    maps = by_host.result().maps
    assert dict(maps["@c"].entries)[("web2", "bash")] == 2
    assert maps["@n"].entries == {"web1": 1, "web2": 2, "web3": 3}
    assert [column.name for data in maps.values() for column in data.key_columns] == ["host", "key", "host"]
    assert by_host.result().losses == {"lost": {f"web{host}: k:f": host for host in (1, 2, 3)}}
    zones = by_zone.result()
    assert zones.maps["@n"].entries == {"a": 4, "b": 2}
    assert zones.maps["@c"].entries == {("a", "bash"): 4, ("b", "bash"): 2, ("a", "own-1"): 1, ("b", "own-2"): 1,
                                        ("a", "own-0"): 1}  # fmt: skip
    (rows,) = zones.tables
    assert rows.type.names == ("zone", "pid")
    assert dict(rows.rows) == {"run-1": [("a", 1)], "run-2": [("b", 2)], "run-3": [("a", 3)]}


def test_keys_of_several_parts_and_columns_of_the_same_name() -> None:
    key = types.Tuple((STRING, NUMBER))
    rows = table(["host"], [NUMBER], [(5,)])
    made = labelled(snapshot(map_data("@", key, COUNT, {("a", 1): 2}), tables=(rows,)), "host", "web1")
    assert made.maps["@"].entries == {("web1", "a", 1): 2}
    assert made.maps["@"].key == types.Tuple((made.tables[0].type.members[0], STRING, NUMBER))
    assert made.tables[0].type.names == ("host_", "host")


def test_a_run_that_is_there_is_refused_and_changes_nothing() -> None:
    answer = Answer(None)
    answer.add("web1", of_host(1))
    before = answer.result()
    with pytest.raises(TraceError, match="hold the same run"):
        answer.add("web2", of_host(1))
    assert answer.result() == before


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_most_hosts_decide_what_the_answer_is_of(order: tuple[int, ...]) -> None:
    sent = [of_host(0, key=NUMBER), of_host(1), of_host(2)]
    answer = Answer(None)
    for number in order:
        answer.add(f"web{number}", sent[number])
    assert answer.result() == merge(sent[1:])
    ((host, why),) = answer.outvoted().items()
    assert host == "web0"
    assert re.fullmatch(r"its results do not fit those of 2 hosts: map @c: keys .*", why)


def test_other_maps_and_kinds_without_end_are_no_part_of_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_SHAPES", 2)
    answer = Answer(None)
    for number in (1, 2):
        answer.add(f"web{number}", of_host(number))
    answer.add("web3", snapshot(map_data("@x", None, COUNT, {None: 1}), of=run("run-3")))
    assert answer.outvoted() == {"web3": "its results do not fit those of 2 hosts: they have other maps"}
    with pytest.raises(TraceError, match="other maps"):
        answer.add("web4", snapshot(map_data("@y", None, COUNT, {None: 1}), of=run("run-4")))
    assert answer.result().maps.keys() == {"@c", "@n"}


def test_an_answer_by_host_is_written_as_any_result() -> None:
    """Histograms by host are a heat map, hosts × buckets, in which the one slow host is alone at the top."""
    answer = Answer(str)
    for number in range(12):
        counts = dict.fromkeys(range(4, 8), 100) | ({16: 3} if number == 7 else {})
        made = snapshot(map_data("@usecs", None, types.Hist(), {None: counts}), of=run(f"run-{number}"))
        answer.add(f"web{number:02}", made)
    result = Snapshot(answer.result())
    picture = result.format("svg").decode()
    assert "@usecs (us): 4803" in picture
    assert [line for line in re.findall(r"<title>(.*?)</title>", picture) if "3 of 403" in line] == [
        "web07, [16K, 32K): 3 of 403 (0.74%)"
    ]
    for name in ("text", "json", "csv", "openmetrics"):
        assert b"web07" in result.format(name)
    # Its data is compressed.
    assert result.format("html").startswith(b"<!DOCTYPE html>")


def test_what_gateways_have_merged_is_one_merge() -> None:
    """They have put the labels on."""
    whole, root = Answer(str), Answer(str)
    for gateway in range(3):
        part = Answer(str)
        for host in range(5 * gateway, 5 * gateway + 5):
            whole.add(f"web{host}", of_host(host))
            part.add(f"web{host}", of_host(host))
        root.add(f"gateway g{gateway}", part.result(), merged=True)
    assert root.result() == whole.result()


def test_hosts_with_estimates_are_known(tmp_path: Path) -> None:
    answer = Answer({"web1": "a", "web2": "b", "web3": "b"}.__getitem__, "zone")
    for host in (1, 2, 3):
        made = of_host(host)
        made.maps["@n"].mark = "estimate" if host == 3 else ""
        answer.add(f"web{host}", made)
    path = str(tmp_path / "x.pts")
    file_form.write(answer.result(), path)
    maps = file_form.read(path).maps
    assert (maps["@n"].label, maps["@n"].estimated) == ("zone", ("b",))
    assert (maps["@c"].label, maps["@c"].estimated) == ("zone", ())
