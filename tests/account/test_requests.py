"""Where the time of requests goes, and what the slowest do differently, from maps as the script leaves them."""

from __future__ import annotations

import json

import pytest

from pytrace.account.account import Account, Requests, json_text
from pytrace.account.reading import ON_CPU, Reading
from pytrace.account.requests import requests
from pytrace.account.screen import screen
from pytrace.core import types
from pytrace.results.snapshot import Frame, MapData, Portable, SnapshotData, StackTrace

WORKER, KEEPER = 8, 9
LOCK, SLEEP, WAKER, WORK = 5000, 5001, 5002, 5003
MS = 1_000_000
LENGTH = 10 * MS
COUNT = 200


def trace(names: str) -> StackTrace:
    frames = []
    for word in names.split():
        name, _, line = word.partition(":")
        module = "/opt/app" if line else "/lib/libc.so.6"
        frames.append(Frame(name, 0, module, "", "app.c" if line else "", int(line or 0)))
    return StackTrace(tuple(frames))


def kernel(names: str) -> StackTrace:
    return StackTrace(tuple(Frame(name, 0, "[kernel]", "", "", 0) for name in names.split()), user=False)


@pytest.fixture(scope="module")
def made() -> tuple[Account, Requests]:
    """Requests of 1 ms on a CPU and of 2 ms asleep; every hundredth waits for a lock as well, which a sleeper holds."""
    waits, asked, sampled = {}, {}, {}
    cpu = 0
    for number in range(COUNT):
        begin = number * LENGTH
        waits[WORKER, begin + MS] = (begin + 3 * MS, SLEEP, 0, 0, 0, cpu + MS)
        end = begin + 3 * MS
        if number % 100 == 50:
            waits[WORKER, end] = (end + 5 * MS, LOCK, 0, WAKER, KEEPER, cpu + MS)
            end += 5 * MS
        waits[WORKER, end] = (begin + LENGTH, SLEEP, 0, 0, 0, cpu + MS)
        asked[WORKER, begin] = end
        sampled[WORKER, begin + MS // 2] = WORK
        cpu += MS
    over = COUNT * LENGTH
    waits[KEEPER, 0] = (over, SLEEP, 0, 0, 0, 0)
    nap = kernel("do_nanosleep")
    maps: dict[str, dict[Portable, Portable]] = {
        "@over": {None: over},
        "@life": {
            WORKER: (7, "worker", 0, over, 0, 0, 0, cpu, 0, cpu, 0),
            KEEPER: (7, "keeper", 0, over, 0, 0, 0, 0, 0, 0, 0),
        },
        "@time": {(WORKER, ON_CPU, 0): (1, cpu, MS)},
        "@place": {
            LOCK: (7, "worker", 202, 0, kernel("futex_wait"), trace("pthread_mutex_lock look_up:12 handle:20")),
            SLEEP: (7, "worker", 230, 0, nap, trace("nap:3")),
            WAKER: (7, "keeper", 0xFFFE, 0, kernel("futex_wake"), trace("give:30")),
            WORK: (7, "worker", 0xFFFF, 1, kernel(""), trace("compute:8 handle:21")),
        },
        "@wait": waits, "@request": asked, "@sample": sampled,
    }  # fmt: skip
    snapshot = SnapshotData((), {name: MapData(name, None, types.Sum(), rows) for name, rows in maps.items()})
    reading = Reading(snapshot, "app", "-p 7", attached=True, alive={})
    found = requests(reading, "call:./app:handle")
    account = reading.account()
    account.requests = found
    return account, found


def test_requests_have_percentiles(made: tuple[Account, Requests]) -> None:
    _, found = made
    assert (found.count, found.median, found.p90, found.p99, found.most) == (COUNT, 3 * MS, 3 * MS, 3 * MS, 8 * MS)
    assert (found.slow_count, found.typical, found.slow) == (2, 3 * MS, 8 * MS)
    assert found.ns == COUNT * 3 * MS + 2 * 5 * MS


def test_parts_say_what_the_slowest_do_differently(made: tuple[Account, Requests]) -> None:
    _, found = made
    first, *others = found.parts
    assert (first.cause.name, first.place.function, first.typical, first.slow) == ("lock", "look_up", 0, 5 * MS)
    assert [(step.place.function, step.cause.name, step.ns) for step in first.behind] == [("nap", "sleep", 10 * MS)]
    assert {(part.cause.name, part.place.function, part.more) for part in others} == {
        ("sleep", "nap", 0), ("cpu", "compute", 0),
    }  # fmt: skip
    # All time of requests is in one of the parts.
    assert sum(part.share for part in found.parts) == pytest.approx(1)
    assert sum(part.slow for part in found.parts) == found.slow
    assert found.share("cpu") == pytest.approx(COUNT * MS / found.ns)


def test_the_screen_of_requests(made: tuple[Account, Requests]) -> None:
    account, _ = made
    assert list(screen(account)) == [
        "./app:handle: 200 requests, median 3.0 ms, p99 3.0 ms, longest 8.0 ms",
        "the slowest 1 % (2, 8.0 ms on average) beside the median (3.0 ms):",
        "  +5.0 ms  waiting for a lock       look_up (app.c:12)  0 ns → 5.0 ms",
        "           meanwhile: nap (app.c:3) sleeping by itself 100%",
        "all requests:",
        "   66 %   sleeping by itself       nap (app.c:3)",
        "   33 %   on CPU                   compute (app.c:8)",
        "    2 %   waiting for a lock       look_up (app.c:12)",
        "next: pytrace why --all --request ./app:handle -p 7",
    ]
    assert json.loads(json_text(account))["requests"]["count"] == COUNT
    account.requests = requests(Reading(SnapshotData(()), "app", "-p 7", attached=True, alive={}), "call:./app:other")
    assert next(screen(account)) == "./app:other: no request began and ended while it was traced"
