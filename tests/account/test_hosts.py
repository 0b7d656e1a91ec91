"""Accounts of many hosts: which differ, by what, and hosts whose numbers make no sense."""

from __future__ import annotations

import json

from pytrace.account.hosts import HostAccount, by_host, compared, json_text, screen
from pytrace.core import types
from pytrace.results.snapshot import Frame, MapData, Portable, SnapshotData, StackTrace, Value

SECOND = 1_000_000_000
SYNC, SLEEP = 5000, 5001


def stacks(kernel: str, function: str) -> tuple[StackTrace, StackTrace]:
    own = Frame(function, 0, "/opt/app", "", "app.c", 7)
    return StackTrace((Frame(kernel, 0, "[kernel]", "", "", 0),), user=False), StackTrace((own,))


def host(synced: int) -> dict[str, dict[Portable, Value]]:
    """A thread that syncs a file so many milliseconds of a second, and else sleeps."""
    ns = synced * 1_000_000
    return {
        "@over": {None: SECOND},
        "@life": {8: (8, "app", 0, SECOND, 0, 0, 0, 0, 0, 0, 0)},
        "@time": {(8, SYNC, 0): (9, ns, ns), (8, SLEEP, 0): (9, SECOND - ns, SECOND)},
        "@place": {
            SYNC: (8, "app", 74, 0, *stacks("jbd2_log_wait_commit", "save")),
            SLEEP: (8, "app", 230, 0, *stacks("do_nanosleep", "nap")),
        },
    }  # fmt: skip


def answer(**hosts: dict[str, dict[Portable, Value]]) -> SnapshotData:
    """What a fleet answers: keys begin with the host."""
    maps: dict[str, dict[Portable, Value]] = {}
    for name, of_host in hosts.items():
        for map_, rows in of_host.items():
            for key, value in rows.items():
                whole = name if key is None else (name, *key) if isinstance(key, tuple) else (name, key)
                maps.setdefault(map_, {})[whole] = value
    return SnapshotData((), {name: MapData(name, None, types.Sum(), rows) for name, rows in maps.items()})


def accounts(**hosts: dict[str, dict[Portable, Value]]) -> tuple[HostAccount, ...]:
    return compared(answer(**hosts), "app", "--comm app")


def test_the_snapshot_of_each_host_is_as_it_was() -> None:
    found = by_host(answer(web1=host(20), web2=host(30)))
    assert {name: data.entries for name, data in found["web2"].maps.items()} == host(30)


def test_hosts_that_differ_come_first_with_what_they_do_otherwise() -> None:
    rows = accounts(web1=host(20), web2=host(30), web3=host(610), web4=host(20))
    assert rows[0].host == "web3"
    assert (rows[0].difference > 0.5, rows[1].difference < 0.02) == (True, True)
    text = list(screen(rows))
    assert text[0] == "app: 4 hosts, 1 differs"
    assert text[1].startswith("  web3: syncing a file to disk 61 %, others 2 %; sleeping by itself 39 %, ")
    assert text[2] == "        save (app.c:7)"
    assert text[3].split() == ["web3", "web1", "web2", "web4", "median"]
    assert next(row for row in text if row.startswith("syncing"))[28:].split(" %") == [
        "     61", "      2", "      3", "      2", "      2", "",
    ]  # fmt: skip
    assert max(map(len, text)) <= 80


def test_many_hosts_fit_a_screen() -> None:
    rows = accounts(**{f"web{number}": host(number % 1000) for number in range(0, 3000, 50)})
    text = list(screen(rows))
    assert len(text) <= 40
    assert max(map(len, text)) <= 80
    assert any("more (--all)" in row for row in text)


def test_numbers_that_make_no_sense_are_their_hosts_problem() -> None:
    wrong, negative, none = host(20), host(20), host(20)
    wrong["@place"] = {SYNC: "nothing"}
    negative["@time"] = {(8, SYNC, 0): (1, -5 * SECOND, 1)}
    del none["@life"]
    rows = accounts(web1=host(20), web2=wrong, web3=negative, web4=none)
    assert {row.host: row.problem for row in rows} == {
        "web1": "", "web2": "its numbers make no sense (ValidationError)", "web3": "its numbers make no sense",
        "web4": "there was no such thread",
    }  # fmt: skip
    assert list(screen(rows))[-3:] == [
        "web2: its numbers make no sense (ValidationError)", "web3: its numbers make no sense",
        "web4: there was no such thread",
    ]  # fmt: skip
    assert [row["host"] for row in json.loads(json_text(rows))] == ["web1", "web2", "web3", "web4"]
    assert next(iter(screen(()))) == ": 0 hosts, none differs"
