"""The report about hosts: how many answered, and why others did not."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pytrace.remote.clocks import Offset
from pytrace.remote.hosts import (
    Host,
    State,
    clocks,
    complaints,
    last_line,
    reason,
    summary,
    warnings,
    without_answer,
)
from pytrace.remote.messages import Hello


def fold(names: Iterable[str]) -> str:
    return ",".join(sorted(names))


def host(name: str, state: State, text: str = "", *, kernel: str = "6.1", heard: float = 0, warned: str = "") -> Host:
    hello = Hello(protocol=1, version="0.1", host=name, kernel=kernel, machine="x86_64", wall=0, monotonic=0)
    return Host(name, state, hello, heard, text, warnings=[warned, warned] if warned else [])


HOSTS = [
    *(host(f"web{number}", State.ANSWERED, warned="" if number else "Lost 3 events") for number in range(398)),
    host("web398", State.REFUSED, "cannot attach", kernel="4.19"),
    host("web399", State.SILENT, "nothing was heard", heard=88),
]


def test_the_summary_says_what_became_of_each() -> None:
    assert summary(HOSTS, 100) == "398 of 400 hosts answered; 1 refused (kernel 4.19), 1 silent since 12 s"
    assert summary(HOSTS[:398], 100) == "398 of 398 hosts answered"
    assert summary([], 100) == "0 of 0 hosts answered"
    several = [host("a", State.SILENT, heard=90), host("b", State.SILENT, heard=95), Host("c", State.FAILED)]
    assert summary(several, 100) == "0 of 3 hosts answered; 1 failed, 2 silent since 5 to 10 s"


def test_what_hosts_send_is_bounded_and_has_no_control_characters() -> None:
    hosts = [host(f"web{number}", State.REFUSED, kernel=f"{number}\x1b[2J" + "x" * 4000) for number in range(9)]
    line = summary(hosts, 0)
    assert line.startswith("0 of 9 hosts answered; 9 refused (kernel 0\\x1b[2Jxxx")
    assert line.endswith("xxx, …)")
    assert len(line) < 600


def test_hosts_with_one_reason_or_warning_are_told_together() -> None:
    hosts = [host("a", State.FAILED, "no route"), host("b", State.REFUSED, "x", warned="w"),
             host("c", State.FAILED, "no route", warned="w")]  # fmt: skip
    assert complaints(hosts, fold) == ["a,c: no route", "b: x"]
    assert warnings(hosts, fold) == ["b,c: w"]


def test_hosts_without_an_answer_are_counted_by_state_and_label() -> None:
    hosts = [*HOSTS, host("web400", State.REFUSED), host("web401", State.RUNNING), Host("web402", State.WAITING)]
    assert without_answer(hosts, None) == {"refused": 2, "silent": 1}
    assert without_answer(hosts[-5:], str) == {
        "web398: refused": 1, "web399: silent": 1, "web400: refused": 1,
    }  # fmt: skip
    assert without_answer(HOSTS[:398], None) == {}


@pytest.mark.parametrize(
    ("complaint", "status", "text"),
    [
        ("root@web3: Permission denied (publickey).", 255, "Permission denied (publickey)"),
        ("ssh: connect to host web3 port 22: Connection refused", 255, "Connection refused (port 22)"),
        ("ED25519 host key for 192.0.2.9 has changed and you have requested strict checking.", 255,
         "its host key has changed"),
        ("ssh: Could not resolve hostname web3: Name or service not known", 255,
         "Could not resolve hostname: Name or service not known"),
        ("Connection closed by 192.0.2.9 port 22", 255, "Connection closed (port 22)"),
        ("Unable to negotiate with web3 port 2222: no matching key type found.", 255,
         "Unable to negotiate (port 2222): no matching key type found"),
        ("bash: line 1: pytrace: command not found", 127, "bash: line 1: pytrace: command not found"),
        ("", 3, "the command ended with status 3"),
        ("", None, "the connection ended"),
    ],
)
def test_reasons_do_not_name_the_host(complaint: str, status: int | None, text: str) -> None:
    assert reason(complaint, status) == text


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("Warning: x\nPermission denied.\n\n", "Permission denied.\n"),
        ("ERROR: x\nHINT: y\n", "ERROR: x\n"),
        ("Host key for h has changed.\nHost key verification failed.\n", "Host key for h has changed.\n"),
        ("channel 0: open failed: No route to host\nstdio forwarding failed\nConnection closed by UNKNOWN port 65535\n",
         "channel 0: open failed: No route to host\n"),
        ("Host key verification failed.\n", "Host key verification failed.\n"),
        ("Permission den", "Permission den"),
        ("\n", ""),
    ],
)  # fmt: skip
def test_the_line_that_says_why(text: str, last: str) -> None:
    assert last_line(text) == last


def test_wrong_clocks_are_told() -> None:
    hosts = [host(name, State.ANSWERED) for name in "abcde"]
    offsets = (2_540_000_000, -100_000_000, 99_000_000, 2_460_000_000, 500_000_000)
    for one, ahead in zip(hosts, offsets, strict=True):
        one.clock = Offset(ahead, 600_000_000 if one.name == "e" else 1000)
    assert clocks(hosts, fold) == [
        "a,d: its clock is 2.5 s ahead of this machine's; times were corrected",
        "b: its clock is 0.1 s behind this machine's; times were corrected",
    ]
