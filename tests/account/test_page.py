"""The account as a page, from maps as the script leaves them."""

from __future__ import annotations

import re

import msgspec

from pytrace.account.account import json_text as account_json
from pytrace.account.page import page
from pytrace.account.reading import ON_CPU, Reading
from pytrace.account.screen import screen
from pytrace.cli import messages
from pytrace.core import types
from pytrace.results.snapshot import Frame, MapData, Portable, SnapshotData, StackTrace

LOCK, WAKER, SIGNALLER, MS = 5000, 5001, 5002, 1_000_000
FUTEX = 202


def trace(names: str, *, user: bool) -> StackTrace:
    module = "/opt/app" if user else "[kernel]"
    return StackTrace(tuple(Frame(name, 0, module, "", "", 0) for name in names.split()), user)


def reading(waits: int = 1, name: str = "app", by: int = WAKER, threads: int = 1) -> Reading:
    """One or more threads, which wait *waits* times of 10 for a lock that thread 7 releases."""
    futex = trace("futex_wait do_futex", user=False)
    maps: dict[str, dict[Portable, Portable]] = {
        "@over": {None: 100 * MS},
        "@life": dict.fromkeys(range(7, 8 + threads), (7, name, 0, 100 * MS, 0, 0, 0, 30 * MS, 0, 30 * MS, 0)),
        "@time": {
            **{(tid, ON_CPU, 0): (1, 100 * MS - 5 * waits * MS, MS) for tid in range(8, 8 + threads)},
            **{(tid, LOCK, 0): (waits, 5 * waits * MS, 5 * MS) for tid in range(8, 8 + threads)},
            (7, ON_CPU, 0): (1, 100 * MS, MS),
        },
        "@place": {
            LOCK: (7, name, FUTEX, 0, futex, trace("__lll_lock_wait pthread_mutex_lock <work>", user=True)),
            WAKER: (7, name, 0xFFFE, 0, trace("wake_up_q futex_wake", user=False), trace("<give>", user=True)),
            SIGNALLER: (7, name, 0xFFFE, 0, trace("complete_signal do_send_sig_info", user=False),
                        trace("kill interrupt", user=True)),
        },
        "@wait": {
            (8, at * 10 * MS): (at * 10 * MS + 5 * MS, LOCK, 0, by, 7, 0) for at in range(waits)
        },
        "@woken": {(LOCK, by): 5 * waits * MS},
    }  # fmt: skip
    data = {key: MapData(key, None, types.Sum(), entries) for key, entries in maps.items()}
    return Reading(SnapshotData((), data), f"{name} --option", "-c app", attached=False, alive={})


def html(made: Reading) -> str:
    return page(made.account(), made).decode()


def test_text_of_others_is_escaped_and_no_script_runs() -> None:
    text = html(reading(name="<script>alert(1)</script>\x1b[31m"))
    assert "<script" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text
    assert "default-src 'none'" in text


def test_it_shows_causes_threads_and_who_ended_waits() -> None:
    text = html(reading(waits=5))
    for part in ("Where the time went", "waiting for a lock", "&lt;work&gt;", "Critical path", "Threads over time",
                 "app (8)", "released by &lt;give&gt;", "Who wakes whom"):  # fmt: skip
        assert part in text
    # Boxes of the lock's colour: one for each wait, and those of the key and the bar.
    assert len(re.findall(r'<rect[^>]*fill="#d43d51"', text)) == 5


def test_flame_graphs_are_of_what_has_a_stack_and_have_units() -> None:
    """Time on a CPU without a sample has none, and no graph; that of the lock is in milliseconds."""
    text = html(reading(waits=5))
    assert "[no stack]" not in text
    assert len(re.findall(r"<title>all: ([^<]*)", text)) == 1
    assert "<title>all: 25 ms, 100.00%" in text


def test_it_stays_small() -> None:
    """Waits narrower than a pixel are joined, and of many threads the longest are drawn."""
    many = reading(waits=1, threads=3000)
    assert len(html(many)) < 400_000
    assert "more threads" in html(many)


def test_a_signal_releases_nothing() -> None:
    """A wait that a signal interrupts is not said to have ended as it should."""
    (line,) = (line for line in reading(by=SIGNALLER).account().lines if line.cause.name == "lock")
    assert [(who.relation, who.who) for who in line.by] == [("interrupted by a signal of", "kill (app)")]
    (line,) = (line for line in reading().account().lines if line.cause.name == "lock")
    assert [(who.relation, who.who) for who in line.by] == [("released by", "<give> (app)")]


def test_names_that_are_no_text_of_one_line() -> None:
    """Names of threads are any bytes: reports have one row for each, and JSON is valid."""
    made = reading(name="\udcff\n\x1b[2Jé")
    account = made.account()
    escaped = r"\xff\x0a\x1b[2Jé"
    text = messages.lines(screen(account, everything=True)).decode()
    assert escaped in text
    assert text.count("\n") == len(list(screen(account, everything=True)))
    assert b"\x1b" not in page(account, made)
    data = account_json(account)
    assert b"\\uffffffff\\n\\u001b[2J\xc3\xa9" in data
    assert msgspec.json.decode(data)["threads"][0]["name"] == "\uffffffff\n\x1b[2Jé"
