"""Answers of hosts: messages, clocks, the largest keys."""

from __future__ import annotations

import json
import random
import re
from itertools import permutations
from pathlib import Path

import pytest

from pytrace.core import types
from pytrace.core.costs import ProbeCost, RunCost
from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Type
from pytrace.interface.snapshots import Snapshot
from pytrace.remote import answer as answers
from pytrace.remote import messages
from pytrace.remote.answer import BOUND, LEFT_OUT, WIDTH, Answer, fitting, labelled, trimmed
from pytrace.remote.fleet import left_out_warnings
from pytrace.remote.host_results import aligned
from pytrace.remote.hosts import LATEST, Host, Offset
from pytrace.remote.messages import (
    Attached,
    Beat,
    Clock,
    Code,
    End,
    FromAgent,
    Hello,
    Inquiry,
    Limits,
    Lines,
    Misfit,
    Need,
    Options,
    Refused,
    Request,
    Send,
    Stated,
    Stop,
    ToAgent,
    Variant,
    Warned,
)
from pytrace.remote.messages import Snapshot as MessagesSnapshot
from pytrace.results import file_form
from pytrace.results.merge import merge
from pytrace.results.snapshot import Portable, SnapshotData, Value
from tests.support.rows import each_row
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot, table

# ---------------------------------------------------------------------------------------------- answer
# Snapshots of hosts merged as they come, by host and as one.


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


def test_a_host_that_takes_the_identity_of_another_run_leaves_nobody_out() -> None:
    answer, other = Answer(None), Answer(None)
    for number in (1, 2):
        answer.add(f"web{number}", of_host(1))
        other.add(f"web{number}", of_host(number))
    found, expected = answer.result(), other.result()
    assert found.maps.keys() == expected.maps.keys()
    assert len({run.identity for run in found.runs}) == 2
    assert "run-1" in {run.identity for run in found.runs}
    assert {run for table in found.tables for run in table.rows} <= {run.identity for run in found.runs}


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
    assert "@usecs: 4,803 values: p50 " in picture
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


# ---------------------------------------------------------------------------------------------- messages
# Messages of controllers and agents: lines of JSON, checked by type and length.


REQUEST = Request(
    protocol=1, script="a\udcff.bt", text="begin { @ = 1; }\n", compiled=b"\0\xff", parameters=("1", "x"),
    named=(("flag", None), ("n", "5")),
    options=Options(comm=("bash",), max_rate={"": 10.5}), limits=Limits(duration=1.5, budget="1%", max_memory="5M"),
)  # fmt: skip

COST = RunCost(5, 2, (ProbeCost("k:f", 3, 4, 5, 6, True),), 1, 2, 3)


@pytest.mark.parametrize(
    "message",
    [
        REQUEST, Code(digest="a", size=5, once=True), Variant(b"\xff"), Variant(), Beat(), Beat(1 << 60), Stop(),
        Inquiry(facts="0" * 64, questions=(("modules",), ("tracepoints", "sched", "*")), whole=True),
    ],
)  # fmt: skip
def test_what_a_controller_says(message: ToAgent) -> None:
    line = messages.encode(message)
    assert line.count(b"\n") == 1
    assert messages.to_agent(line) == message


@each_row(
    "message",
    [
        Hello(protocol=1, version="0.1", host="web", kernel="6.1", machine="x86_64", wall=1 << 60, monotonic=5),
        Clock(5, 1 << 60, -5),
        Misfit(lacks=("ringbuf",), cpus=256),
        Misfit(facts="a" * 64),
        Stated(facts="a" * 64, data=b"x"),
        Need(python="3.12", machine="x86_64"),
        Send(start=5),
        Refused(text="ERROR: no\nHINT: x\n", status=1),
        Attached(probes=3, compiled_here=True),
        MessagesSnapshot(number=2, data=bytes(range(256))),
        Warned("Lost 3 events"),
        End(reason="duration", status=0, losses={"lost": {"k:f": 3}}, cost=COST),
    ],
)
def test_what_an_agent_says(message: FromAgent) -> None:
    line = messages.encode(message)
    assert line.count(b"\n") == 1
    assert messages.from_agent(line) == message


def test_a_snapshot_is_in_base64_and_unknown_members_are_ignored() -> None:
    said = json.loads(messages.encode(MessagesSnapshot(number=1, data=b"\xff\xfe")))
    assert said == {"type": "snapshot", "number": 1, "data": "//4=", "lost": 0, "over_budget": False,
                    "reports": []}  # fmt: skip
    assert messages.from_agent(json.dumps(said | {"later": 5}).encode()) == MessagesSnapshot(number=1, data=b"\xff\xfe")


def changed(**members: object) -> bytes:
    return json.dumps(json.loads(messages.encode(REQUEST)) | members).encode()


@each_row(
    ("line", "error"),
    [
        (b"", "not a request: not JSON"),
        (b"\xff", "not a request: not JSON"),
        (b"[" * 100_000, "not a request: not JSON"),
        (b"5", "Expected `object`, got `int`"),
        (b'{"type": "hello"}', "Invalid value 'hello' - at `$.type`"),
        (changed(protocol="1"), "Expected `int`, got `str` - at `$.protocol`"),
        (changed(script="x" * 5000), "Expected `str` of length <= 4096 - at `$.script`"),
        (changed(compiled="?"), "Invalid base64 encoded string - at `$.compiled`"),
        (changed(limits={}), "missing required field `duration`"),
        (changed(limits={"duration": float("nan")}), "NaN is no number of JSON"),
        (changed(limits={"duration": 1e300}), "duration is 1e+300, not 0.001 to 2.592e+06 seconds"),
        (changed(text="\ud800"), "surrogates not allowed"),
        (changed(limits={"duration": 1, "heartbeat": 0}), "heartbeat is 0.0, not 1 to"),
        (changed(limits={"duration": 1, "bytes": 0}), "Expected `int` >= 1 - at `$.limits.bytes`"),
        (changed(limits={"duration": 1, "events": 1 << 70}), "at `$.limits.events`"),
        (changed(limits={"duration": 1, "budget": "much"}), "budget is a percentage, as '1%' or '1%machine'"),
        (changed(limits={"duration": 1, "over_budget": "stop"}), "over_budget is one of sample, detach"),
        (changed(limits={"duration": 1, "max_memory": "lots"}), "'lots' is not an amount of memory"),
        (changed(options={"max_rate": {"k:*": 0}}), "max_rate is hits per second"),
    ],
)
def test_other_requests_are_errors(line: bytes, error: str) -> None:
    with pytest.raises(TraceError) as raised:
        messages.to_agent(line)
    assert error in str(raised.value)


def test_an_agent_says_nothing_else() -> None:
    for line, error in (
        (b'{"type": "run"}', "not a message of pytrace agent: Invalid value 'run'"),
        (b'{"type": "end", "reason": "bored", "status": 0}', "Invalid enum value 'bored'"),
    ):
        with pytest.raises(TraceError) as raised:
            messages.from_agent(line)
        assert error in str(raised.value)


def test_lines_are_joined_and_bounded() -> None:
    lines = Lines(5)
    assert lines.add(b"a") == []
    assert lines.add(b"b\ncd\n\nef") == [b"ab", b"cd", b""]
    assert lines.add(b"ghi") == []
    assert lines.add(b"\n") == [b"efghi"]
    with pytest.raises(TraceError, match="a line has more than 5 bytes"):
        lines.add(b"123456")


@pytest.mark.parametrize(
    ("read", "longest"),
    [(messages.to_agent, messages.LONGEST_LINE), (messages.from_agent, messages.LONGEST_MESSAGE)],
)  # fmt: skip
def test_longer_lines_are_not_taken_apart(read: object, longest: int) -> None:
    assert callable(read)
    with pytest.raises(TraceError, match="has at most"):
        read(b" " * (longest + 1))


# ---------------------------------------------------------------------------------------------- clocks
# Offsets of clocks, and times corrected by them.


SECOND = 10**9


def test_a_round_trip_bounds_the_error() -> None:
    """10 there, 30 back, 5 between: the host is 1000 ahead, and what is found is at most half of 40 from it."""
    found = Offset.measured(Clock(100, 1110, 1115), 145)
    assert found is not None
    assert found == Offset(990, 21)
    assert abs(found.ahead - 1000) <= found.error


@pytest.mark.parametrize("clock", [Clock(100, 1115, 1110), Clock(100, 1000, 2000), Clock(200, 5, 5)])
def test_answers_that_cannot_be_true(clock: Clock) -> None:
    assert Offset.measured(clock, 145) is None
    host = Host("h", clock=Offset(1, 1))
    host.take_clock(clock, 145)
    assert host.clock == Offset(1, 1)


def test_the_smaller_error_wins_and_clocks_that_may_be_equal_are_not_corrected() -> None:
    answer = Clock(100, 1110, 1115), 145
    best = Offset.measured(*answer)
    for known, after in ((None, best), (Offset(4, 22), best), (Offset(4, 20), Offset(4, 20))):
        host = Host("h", clock=known)
        host.take_clock(*answer)
        assert host.clock == after
    assert (Offset(5, 9).correction, Offset(-9, 5).correction) == (0, -9)


def clocks_of_host(reduce: str, value: tuple[int, int]) -> SnapshotData:
    series = map_data("@t", STRING, types.TSeries(SECOND, 10, reduce), {"x": {100: value}})
    return snapshot(series, of=run(start=100))


def test_times_and_intervals_move() -> None:
    original = clocks_of_host("sum", (7, 3))
    moved = aligned(original, Offset(3 * SECOND // 2 + 7, 5))
    by = 3 * SECOND // 2 + 7
    assert moved.runs[0].start == max(original.runs[0].start - by, 0)
    assert moved.runs[0].start_monotonic == original.runs[0].start_monotonic
    assert moved.runs[0].clock == (by, 5)
    assert moved.maps["@t"].entries["x"] == {98: (7, 3)}
    last = aligned(clocks_of_host("", (7, 100 * SECOND)), Offset(-3 * SECOND, 5))
    assert last.maps["@t"].entries["x"] == {103: (7, 103 * SECOND)}


def test_a_difference_below_the_error_moves_nothing() -> None:
    moved = aligned(clocks_of_host("sum", (7, 3)), Offset(5 * SECOND, 6 * SECOND))
    assert moved.maps == clocks_of_host("sum", (7, 3)).maps
    assert moved.runs[0].clock == (5 * SECOND, 6 * SECOND)


def test_hosts_of_a_gateway_are_moved_once_more() -> None:
    """It has measured their clocks by its own, which is wrong itself."""
    once = aligned(clocks_of_host("sum", (7, 3)), Offset(3 * SECOND, 5))
    twice = aligned(once, Offset(2 * SECOND, 6))
    assert twice.runs[0].clock == (5 * SECOND, 11)
    assert twice.maps["@t"].entries["x"] == {95: (7, 3)}
    assert Offset(LATEST, LATEST).after(Offset(LATEST, LATEST)) == Offset(LATEST, LATEST)


@pytest.mark.parametrize("ahead", [LATEST, -LATEST])
def test_absurd_clocks_stay_within_what_snapshots_hold(ahead: int) -> None:
    moved = aligned(clocks_of_host("", (7, 5)), Offset(ahead, 1))
    assert file_form.from_bytes(file_form.to_bytes(moved), "x") == moved


# ---------------------------------------------------------------------------------------------- top keys
# Maps that are too large: the largest entries stay, and the bound of the error holds.


@pytest.mark.parametrize(
    ("type_", "entries", "kept", "bound"),
    [
        (COUNT, {"a": 5, "b": 9, "c": 7}, {"b"}, 7),
        (types.Sum(), {"a": -9, "b": 3, "c": 8}, {"a"}, 8),
        (types.Avg(), {"a": (100, 2), "b": (1, 5), "c": (1, 3)}, {"b"}, 3),
        (types.Stats(), {"a": (100, 2), "b": (1, 5)}, {"b"}, 2),
        (types.Hist(), {"a": {1: 5, 2: 5}, "b": {9: 9}}, {"a"}, 9),
        (types.Max(), {"a": -5, "b": 3}, {"b"}, 0),
        (types.Min(), {"a": -5, "b": 3}, {"a"}, 0),
    ],
)
def test_the_largest_stay(type_: Type, entries: dict[Portable, Value], kept: set[str], bound: int) -> None:
    made = trimmed(snapshot(map_data("@", STRING, type_, entries)), 1)
    assert set(made.maps["@"].entries) == kept
    assert made.losses.get(LEFT_OUT) == {"@": len(entries) - 1}
    assert made.losses.get(BOUND, {}).get("@", 0) == bound


def test_nothing_is_left_out_of_what_is_small_enough() -> None:
    small = snapshot(map_data("@", STRING, COUNT, {"a": 5}), map_data("@n", None, COUNT, {None: 3}))
    assert trimmed(small, 1) == small
    assert left_out_warnings(small) == []


def top_keys_of_host(number: int, chance: random.Random) -> SnapshotData:
    counts: dict[Portable, Value] = {f"k{chance.randrange(300)}": chance.randrange(1, 1000) for _ in range(60)}
    return snapshot(map_data("@", STRING, COUNT, counts), of=run(f"run-{number}"))


def test_the_bound_holds_for_answers_of_many_hosts() -> None:
    """Trimmed on the hosts, in each level of the tree, and at last."""
    chance = random.Random(5)
    hosts = [top_keys_of_host(number, chance) for number in range(100)]
    exact = merge(hosts).maps["@"].entries
    answer = Answer(None, most=50)
    for number, host in enumerate(hosts):
        answer.add(f"web{number}", trimmed(host, 40))
    found = answer.result()
    bound = found.losses[BOUND]["@"]
    entries = found.maps["@"].entries
    assert len(entries) == 50
    assert all(0 <= exact[key] - value <= bound for key, value in entries.items())  # type: ignore[operator]
    assert all(value <= bound for key, value in exact.items() if key not in entries)  # type: ignore[operator]
    (line,) = left_out_warnings(found)
    assert line.endswith(f" left out, as the answer was too large; numbers may be wrong by {bound} at most")


def test_a_snapshot_that_fits_a_message() -> None:
    chance = random.Random(1)
    counts: dict[Portable, Value] = {f"{chance.random()}": number for number in range(20_000)}
    rows = table(["n"], [NUMBER], [(chance.randrange(1 << 60),) for number in range(20_000)])
    large = snapshot(map_data("@", STRING, COUNT, counts), map_data("@n", None, COUNT, {None: 3}), tables=(rows,))
    whole = file_form.to_bytes(large)
    assert fitting(large, len(whole)) == whole
    data = fitting(large, 50_000)
    assert 25_000 < len(data) <= 50_000
    small = file_form.from_bytes(data, "x")
    assert small.losses[LEFT_OUT]["@"] == 20_000 - len(small.maps["@"].entries)
    assert min(small.maps["@"].entries.values()) == small.losses[BOUND]["@"] + 1  # type: ignore[type-var,operator]
    assert small.maps["@n"].entries == {None: 3}
    (kept,) = small.tables
    (newest,) = kept.rows.values()
    assert list(newest) == list(next(iter(rows.rows.values())))[-len(newest) :]
    assert kept.dropped == 20_000 - len(newest)
