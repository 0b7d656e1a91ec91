"""Accounts of many hosts side by side: which differ from the others, and by what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import msgspec

from pytrace.account.account import Account, Line
from pytrace.account.reading import Reading
from pytrace.account.screen import WIDTH, cut, percent, seconds
from pytrace.render import json
from pytrace.results.snapshot import MapData, Portable, SnapshotData, Value

DIFFERS = 0.1
"""A host differs whose share of a cause is so far from the median of the others."""
_ROWS, _NAMED = 12, 8
"""Causes of the table, and hosts that are named with what they do otherwise."""
_DAMAGE = (ArithmeticError, LookupError, TypeError, ValueError, msgspec.MsgspecError)
"""What data that a host made up, or that a map had no room for, leads to."""


class HostAccount(msgspec.Struct, frozen=True):
    """The account of one host."""

    host: str
    account: Account | None
    problem: str = ""
    """Why there is no account."""
    difference: float = 0.0
    """How far the share of one of its causes is from the median of the other hosts at most, 0 to 1."""
    causes: tuple[tuple[str, float, float], ...] = ()
    """Titles of causes, their share on this host and the median of the others, the most different first."""

    @property
    def busy(self) -> float:
        """Threads that were not idle, on average."""
        found = self.account
        if found is None or not found.wall:
            return 0.0
        return max(found.thread_time - found.idle_time, 0) / found.wall


def by_host(snapshot: SnapshotData) -> dict[str, SnapshotData]:
    """The snapshot of each host from an answer whose keys begin with the host."""
    maps: dict[str, dict[str, dict[Portable, Value]]] = defaultdict(lambda: defaultdict(dict))
    for name, data in snapshot.maps.items():
        for key, value in data.entries.items():
            host, *rest = key if isinstance(key, tuple) else (key,)
            maps[str(host)][name][tuple(rest) if len(rest) > 1 else rest[0] if rest else None] = value
    return {
        host: SnapshotData(snapshot.runs, {
            name: MapData(name, data.key, data.value, entries)
            for name, data in snapshot.maps.items() if (entries := of_host.get(name))
        })
        for host, of_host in maps.items()
    }  # fmt: skip


def compared(snapshot: SnapshotData, target: str, options: str) -> tuple[HostAccount, ...]:
    """The account of each host, those that differ most first. Data that make no sense are their host's problem."""
    accounts: dict[str, Account] = {}
    problems: dict[str, str] = {}
    for host, data in sorted(by_host(snapshot).items()):
        try:
            account = Reading(data, target, options, attached=True, alive={}).account()
            if not account.threads:
                problems[host] = "there was no such thread"
            elif not 0 <= account.accounted <= 2 or account.thread_time < 0:
                problems[host] = "its numbers make no sense"
            else:
                accounts[host] = account
        except _DAMAGE as error:
            problems[host] = f"its numbers make no sense ({type(error).__name__})"
    shares = {host: _shares(account) for host, account in accounts.items()}
    rows = [_host(host, account, shares) for host, account in accounts.items()]
    rows.sort(key=lambda row: (-round(row.difference, 3), row.host))
    return (*rows, *(HostAccount(host, None, text) for host, text in sorted(problems.items())))


def _shares(account: Account) -> dict[str, float]:
    shares: dict[str, float] = defaultdict(float)
    for line in account.lines:
        shares[line.cause.title] += line.share
    return shares


def _host(host: str, account: Account, shares: Mapping[str, Mapping[str, float]]) -> HostAccount:
    others = [of_host for name, of_host in shares.items() if name != host]
    if not others:
        return HostAccount(host, account, causes=tuple((title, share, 0.0) for title, share in shares[host].items()))
    titles = dict.fromkeys(title for of_host in shares.values() for title in of_host)
    rows = [(title, shares[host].get(title, 0.0), median(of.get(title, 0.0) for of in others)) for title in titles]
    # What a host has more of before what it has less of for it.
    rows.sort(key=lambda row: (-round(abs(row[1] - row[2]), 3), row[2] - row[1]))
    return HostAccount(host, account, difference=abs(rows[0][1] - rows[0][2]) if rows else 0.0, causes=tuple(rows))


def screen(rows: Sequence[HostAccount], *, everything: bool = False) -> Iterator[str]:
    """Lines of text: hosts that differ, then a table of causes by host."""
    known = [row for row in rows if row.account is not None]
    differ = [row for row in known if row.difference >= DIFFERS]
    target = known[0].account.target if known and known[0].account else ""
    some = f"{len(differ)} differ{'s' * (len(differ) == 1)}" if differ else "none differs"
    yield cut(f"{target}: {len(known)} host{'s' * (len(known) != 1)}, {some}")
    shown = differ if everything else differ[:_NAMED]
    for row in shown:
        yield cut(f"  {row.host}: {_difference(row)}")
        if (line := next((line for line in _lines(row) if line.cause.title == row.causes[0][0]), None)) and line.parts:
            yield cut(f"        {line.parts[0].place.text}{f' → {line.about}' * bool(line.about)}")
    if len(differ) > len(shown):
        yield f"  and {len(differ) - len(shown)} more (--all)"
    yield from _table(known, everything=everything)
    for row in rows:
        if row.account is None:
            yield cut(f"{row.host}: {row.problem}")


def _lines(row: HostAccount) -> Sequence[Line]:
    return () if row.account is None else row.account.lines


def _difference(row: HostAccount) -> str:
    """What a host does otherwise: ``syncing a file to disk 61 %, others 2 %``."""
    far = [each for each in row.causes if abs(each[1] - each[2]) >= DIFFERS / 2][:3]
    return "; ".join(f"{title} {_cell(share)}, others {_cell(usual)}" for title, share, usual in far)


def _table(known: Sequence[HostAccount], *, everything: bool) -> Iterator[str]:
    """Causes by host: of many hosts those that differ most, and the median of all."""
    room = (WIDTH - 30) // 9 - 1
    columns = known[:room]
    titles: dict[str, float] = defaultdict(float)
    for row in known:
        for title, share, _ in row.causes:
            titles[title] = max(titles[title], share)
    if not columns:
        return
    yield f"{'':28}{''.join(f' {row.host[-8:]:>8}' for row in columns)} {'median':>8}"
    busy = [row.busy for row in known]
    yield f"{'threads that do not idle':28}{''.join(f' {row.busy:8.2f}' for row in columns)} {median(busy):8.2f}"
    ordered = sorted(titles, key=lambda title: -titles[title])
    for title in ordered if everything else ordered[:_ROWS]:
        shares = [next((share for name, share, _ in row.causes if name == title), 0.0) for row in known]
        cells = "".join(f" {_cell(share):>8}" for share in shares[: len(columns)])
        yield f"{title[:28]:28}{cells} {_cell(median(shares)):>8}"
    wall = max(row.account.wall for row in known if row.account is not None)
    yield f"watched for {seconds(wall)}; hosts in the order of how far they differ from the others"


def _cell(share: float) -> str:
    return percent(share).strip() if share else "0 %"


def json_text(rows: Sequence[HostAccount]) -> bytes:
    """All hosts as JSON."""
    return json.document(msgspec.to_builtins(rows)).encode() + b"\n"
