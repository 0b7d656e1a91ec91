"""Who is asked for the functions of user stacks: one host for each place, and another one only if that one is gone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.types import Stack, StackMode, Tuple
from pytrace.remote import messages
from pytrace.remote.messages import Function, NamedPlace, NamePlaces, Place
from pytrace.remote.naming import Naming, place_of, places
from pytrace.results.snapshot import SnapshotData
from pytrace.results.values import Frame, StackTrace
from tests.support.snapshots import COUNT, STRING, map_data, snapshot, table

LIBC, SHELL = "ab" * 20, "cd" * 20
DETAILS = {LIBC: 1, SHELL: 1}


def of(*addresses: int, build_id: str = LIBC) -> SnapshotData:
    """A snapshot with a stack in a binary."""
    frames = tuple(Frame("", address, "/bin/x", build_id, address=address) for address in addresses)
    return snapshot(map_data("@", Stack(True), COUNT, {StackTrace(frames): 1}))


def ask(naming: Naming, host: str, now: float = 0) -> list[int] | None:
    """The addresses of which a host is asked; None if it need not wait any longer."""
    said = naming.said(host, now)
    if not said:
        return None if said is None else []
    question = messages.to_agent(said)
    assert isinstance(question, NamePlaces)
    return [place.address for place in question.places]


def answer(naming: Naming, host: str, known: Mapping[int, str], build_id: str = LIBC) -> None:
    """A host's answer: names by address, empty for unknown ones."""
    naming.answered(host, [
        NamedPlace(Place(build_id, address), 0, (Function(name),) if name else ()) for address, name in known.items()
    ], 1)  # fmt: skip


def names(naming: Naming) -> dict[int, list[str]]:
    return {place.address: [one.name for one in said.functions] for place, said in naming.names.items()}


def test_each_place_is_asked_once() -> None:
    """Hosts that know as much wait until it is named, and are asked for what the first one does not have."""
    naming = Naming()
    for host, addresses in (("a", (8, 16)), ("b", (16, 8)), ("c", (8, 24))):
        naming.begin(host, of(*addresses), DETAILS, 0)
    assert naming.waiting == ["a", "b", "c"]
    assert (ask(naming, "a"), ask(naming, "b"), ask(naming, "c"), ask(naming, "c")) == ([8, 16], [], [24], [])
    answer(naming, "a", {8: "f"})
    assert (ask(naming, "a"), ask(naming, "b")) == ([], [])
    answer(naming, "a", {16: ""})
    assert (ask(naming, "a"), ask(naming, "b"), naming.waiting) == (None, None, ["c"])
    answer(naming, "c", {24: "h"})
    assert ask(naming, "c") is None
    assert names(naming) == {8: ["f"], 16: [], 24: ["h"]}
    naming.begin("d", of(8, 16, 24), DETAILS, 2)
    assert ask(naming, "d") is None


def test_who_knows_more_is_asked() -> None:
    """This machine's files, and what was named before, count; what somebody knew is not lost by a worse answer."""
    naming = Naming(lambda build_id, path: 3 if (build_id, path) == (LIBC, "/bin/x") else 0)
    naming.begin("a", of(8), {LIBC: 3}, 0)
    assert ask(naming, "a") is None
    naming.begin("b", of(8), {}, 0)
    assert ask(naming, "b") is None
    naming.begin("c", of(8), {LIBC: 4}, 0)
    assert ask(naming, "c") == [8]
    other = Naming()
    for host, detail in (("a", 1), ("b", 3), ("c", 4)):
        other.begin(host, of(8), {LIBC: detail}, 0)
    for host, name in (("a", "exported"), ("b", "static"), ("c", "")):
        assert ask(other, host) == [8]
        answer(other, host, {8: name})
        assert ask(other, host) is None
    assert names(other) == {8: ["static"]}
    assert other.names[Place(LIBC, 8)].detail == 4


def test_a_lost_host_is_replaced() -> None:
    naming = Naming()
    naming.begin("a", of(8, 16), DETAILS, 0)
    naming.begin("b", of(8, 16), DETAILS, 0)
    assert (ask(naming, "a"), ask(naming, "b")) == ([8, 16], [])
    answer(naming, "a", {8: "f"})
    naming.gone("a")
    assert not naming.waits("a")
    assert ask(naming, "b") == [16]
    assert naming.late(messages.ANSWERING) == []
    assert naming.late(messages.ANSWERING + 2) == ["b"]
    naming.begin("c", of(16), DETAILS, 0)
    assert naming.late(messages.NAMING) == []
    assert naming.late(messages.NAMING + 1) == ["c"]


def test_lies_are_refused() -> None:
    """Names of what was asked of others, or of nobody; and questions have a limit."""
    last = messages.MOST_PLACES + 8
    asked = list(range(8, last))
    naming = Naming()
    naming.begin("a", of(*asked, last), DETAILS, 0)
    naming.begin("b", of(4), DETAILS, 0)
    assert (ask(naming, "a"), ask(naming, "b")) == (asked, [4])
    for host, address in (("a", 4), ("a", last), ("b", 8), ("c", 8)):
        with pytest.raises(TraceError, match="that it was not asked for"):
            answer(naming, host, {address: "lie"})
    answer(naming, "a", dict.fromkeys(asked, "f"))
    assert ask(naming, "a") == [last]
    assert names(naming) == {address: ["f"] for address in asked}
    long = messages.NamedPlaces((NamedPlace(Place(LIBC, 8), 1, (Function("x" * (messages.LONGEST_NAME + 1)),)),))
    with pytest.raises(TraceError, match="length"):
        messages.from_agent(messages.encode(long))


def test_a_gateway_names_what_is_in_its_results() -> None:
    told: list[NamedPlace] = []
    naming = Naming(tell=told.append)
    known = NamedPlace(Place(LIBC, 8), 1, (Function("f"),))
    naming.learn(of(8), [known, NamedPlace(Place(LIBC, 16), 4, (Function("lie"),))])
    assert names(naming) == {8: ["f"]}
    naming.learn(of(8), [NamedPlace(Place(LIBC, 8), 1, (Function("other"),))])
    assert told == [known]


def test_places_of_snapshots() -> None:
    """In keys, values and rows; not in kernel stacks and stacks that the script has without names."""
    first, second, third = (Frame("", address, "/x", LIBC, address=address) for address in (8, 16, 24))
    named = Frame("f", 2, "/x", LIBC, address=32)
    value = StackTrace((second, named))
    made = snapshot(
        map_data("@k", Tuple((STRING, Stack(True))), COUNT, {("a", StackTrace((first, second))): 1}),
        map_data("@v", STRING, Stack(True), {"a": value}),
        map_data("@kernel", Stack(False), COUNT, {StackTrace((third,), user=False): 1}),
        map_data("@raw", Stack(True, mode=StackMode.RAW), COUNT, {StackTrace((third,)): 1}),
        tables=(table(["s"], [Stack(True)], [(StackTrace((third._replace(address=25),)),)]),),
    )
    assert places(made) == [first, second, third._replace(address=25)]
    assert [place_of(frame) for frame in places(made)] == [Place(LIBC, 8), Place(LIBC, 16), Place(LIBC, 24)]
    others = Frame("", 8, "/x"), Frame("", 8, "/x", "../../etc", address=8), first._replace(address=1 << 64)
    assert not any(map(place_of, (named, *others)))
    assert place_of(first._replace(offset=0)) == place_of(first._replace(offset=99)) == Place(LIBC, 8)
