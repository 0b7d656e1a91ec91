"""Hosts, their names and kinds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
import zstandard

from pytrace.core import kernel_info
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import FEATURES
from pytrace.core.types import Stack, StackMode, Tuple
from pytrace.remote import messages, variants
from pytrace.remote.hosts import (
    Host,
    Hosts,
    Offset,
    State,
)
from pytrace.remote.messages import Function, Hello, Inquiry, Misfit, NamedPlace, NamePlaces, Place, Stated, Variant
from pytrace.remote.naming import ANSWERING, Naming, place_of, places
from pytrace.remote.variants import MOST_KINDS, MOST_TRIES, STATING, Kind, Outcome, Variants, packed, unpacked
from pytrace.results.snapshot import Frame, SnapshotData, StackTrace
from tests.support.snapshots import COUNT, STRING, map_data, snapshot, table

# ---------------------------------------------------------------------------------------------- hosts
# The report about hosts: how many answered, and why others did not.


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
    assert Hosts(HOSTS, fold).summary(100) == "398 of 400 hosts answered; 1 refused (kernel 4.19), 1 silent since 12 s"
    assert Hosts(HOSTS[:398], fold).summary(100) == "398 of 398 hosts answered"
    assert Hosts([], fold).summary(100) == "0 of 0 hosts answered"
    several = [host("a", State.SILENT, heard=90), host("b", State.SILENT, heard=95), Host("c", State.FAILED)]
    assert Hosts(several, fold).summary(100) == "0 of 3 hosts answered; 1 failed, 2 silent since 5 to 10 s"


def test_what_hosts_send_is_bounded_and_has_no_control_characters() -> None:
    hosts = [host(f"web{number}", State.REFUSED, kernel=f"{number}\x1b[2J" + "x" * 4000) for number in range(9)]
    line = Hosts(hosts, fold).summary(0)
    assert line.startswith("0 of 9 hosts answered; 9 refused (kernel 0\\x1b[2Jxxx")
    assert line.endswith("xxx, …)")
    assert len(line) < 600


def test_hosts_with_one_reason_or_warning_are_told_together() -> None:
    hosts = [host("a", State.FAILED, "no route"), host("b", State.REFUSED, "x", warned="w"),
             host("c", State.FAILED, "no route", warned="w")]  # fmt: skip
    assert Hosts(hosts, fold).complaints() == ["a,c: no route", "b: x"]
    assert Hosts(hosts, fold).warnings() == ["b,c: w"]


def test_hosts_without_an_answer_are_counted_by_state_and_label() -> None:
    hosts = [*HOSTS, host("web400", State.REFUSED), host("web401", State.RUNNING), Host("web402", State.WAITING)]
    assert Hosts(hosts, fold).without_answer(None) == {"refused": 2, "silent": 1}
    assert Hosts(hosts[-5:], fold).without_answer(str) == {
        "web398: refused": 1, "web399: silent": 1, "web400: refused": 1,
    }  # fmt: skip
    assert Hosts(HOSTS[:398], fold).without_answer(None) == {}


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
    assert Host("h", complaint=complaint).reason(status) == text


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
    one = Host("h", complaint=text[:5])
    one.complain(text[5:].encode())
    assert one.complaint == last


def test_wrong_clocks_are_told() -> None:
    hosts = [host(name, State.ANSWERED) for name in "abcde"]
    offsets = (2_540_000_000, -100_000_000, 99_000_000, 2_460_000_000, 500_000_000)
    for one, ahead in zip(hosts, offsets, strict=True):
        one.clock = Offset(ahead, 600_000_000 if one.name == "e" else 1000)
    assert Hosts(hosts, fold).clocks() == [
        "a,d: its clock is 2.5 s ahead of this machine's; times were corrected",
        "b: its clock is 0.1 s behind this machine's; times were corrected",
    ]


# ---------------------------------------------------------------------------------------------- naming
# Who is asked for the functions of user stacks: one host for each place, and another one only if that one is.


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
    assert naming.late(ANSWERING) == []
    assert naming.late(ANSWERING + 2) == ["b"]
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


# ---------------------------------------------------------------------------------------------- variants
# Compiled forms for kinds of hosts: each is compiled once, and what hosts say of themselves is bounded.


class Compiler:
    """Notes what is compiled."""

    def __init__(self) -> None:
        self.done: list[tuple[list[str], int]] = []

    def __call__(self, kind: Kind, _facts: bytes) -> Outcome:
        self.done.append((sorted(kind.lacks), kind.cpus))
        if "btf" in kind.lacks:
            raise TraceError("it needs types")
        return Outcome(b"x" * (messages.LONGEST_REQUEST if "tai_clock" in kind.lacks else 1 + len(kind.lacks)))


def answered(variants: Variants, host: Host, *lacks: str, cpus: int = 0) -> bytes:
    variants.wanted(host, Misfit(lacks=lacks, cpus=cpus))
    message = messages.to_agent(variants.line(host))
    assert isinstance(message, Variant)
    return message.compiled


def test_one_variant_for_each_kind() -> None:
    compiler = Compiler()
    variants = Variants(compiler)
    hosts = [Host(f"web{number}") for number in range(6)]
    assert {answered(variants, host, "ringbuf") for host in hosts[:3]} == {b"xx"}
    # A host that lacks what the variant uses instead gets one without both.
    assert answered(variants, hosts[0], "batch_ops") == b"xxx"
    assert {answered(variants, hosts[4], cpus=96), answered(variants, hosts[5], cpus=128)} == {b"x"}
    assert compiler.done == [(["ringbuf"], 0), (["batch_ops", "ringbuf"], 0), ([], 128)]
    assert variants.number == 3


def test_what_cannot_be_compiled_or_is_too_large_is_compiled_there() -> None:
    compiler = Compiler()
    variants = Variants(compiler)
    assert {answered(variants, Host(name), "btf") for name in "ab"} == {b""}
    assert answered(variants, Host("c"), "tai_clock") == b""
    assert len(compiler.done) == 2
    assert answered(Variants(None), Host("d"), "ringbuf") == b""


def test_what_hosts_say_is_bounded() -> None:
    compiler = Compiler()
    variants = Variants(compiler)
    # Names that are none are not compiled for.
    assert answered(variants, Host("x"), "nonsense", "ringbuf") == b"xx"
    assert compiler.done == [(["ringbuf"], 0)]
    other = Host("y")
    for name in FEATURES[: MOST_TRIES + 3]:
        answered(variants, other, name)
    assert len(compiler.done) == 1 + MOST_TRIES
    for number in range(200):
        answered(variants, Host(f"z{number}"), *FEATURES[number % 7 : number % 11 + 7], cpus=number)
    assert variants.number == MOST_KINDS


def test_a_variant_that_is_not_there_yet_is_asked_for_again() -> None:
    """As at a gateway, whose controller compiles it. The question counts once."""
    known: list[Outcome] = []
    variants, host = Variants(lambda _kind, _facts: known[0] if known else None), Host("web1")
    variants.wanted(host, Misfit(lacks=("ringbuf",)))
    for _ in range(2 * MOST_TRIES):
        assert (variants.line(host), host.misfit) == (b"", True)
    known.append(Outcome(b"x"))
    assert messages.to_agent(variants.line(host)) == Variant(b"x")
    assert (host.misfit, host.variants) == (False, 1)
    line, last = variants.of_kind(Misfit(lacks=("ringbuf",), cpus=4), Host("gateway"))
    assert (messages.to_agent(line), last) == (Variant(b"x", ("ringbuf",), 4), True)


# ---------------------------------------------------------------------------------------------- facts


class OfFacts:
    """Compiles for facts, the second time that it is asked; those named in *asks* do not say enough."""

    def __init__(self, **asks: str) -> None:
        self.asks = asks
        self.given: list[bytes] = []

    def __call__(self, kind: Kind, data: bytes) -> Outcome | None:
        if not data:
            return Outcome(wanted=True)
        facts = unpacked(data)
        self.given.append(facts)
        if self.given.count(facts) < 2:
            return None
        asked = self.asks.get(facts.decode())
        return Outcome(questions=((asked,),)) if asked else Outcome(b"for " + facts)


def digest(facts: str) -> str:
    return kernel_info.facts_digest(facts.encode())


def says(variants: Variants, host: Host, facts: str, *, data: bool = False) -> None:
    """A host says what it is, or sends it."""
    if host.inquired:
        variants.stated(host, Stated(facts=digest(facts), data=packed(facts.encode()) if data else b""))
    else:
        variants.wanted(host, Misfit(facts=digest(facts)))


def hears(variants: Variants, host: Host) -> messages.ToAgent | None:
    line = variants.line(host)
    return messages.to_agent(line) if line else None


def test_one_host_of_each_kind_sends_its_facts() -> None:
    compiler = OfFacts()
    variants = Variants(compiler)
    one, two, three, other = (Host(name, State.WAITING) for name in ("one", "two", "three", "other"))
    for host in (one, two):
        says(variants, host, "6.1")
    whole = Inquiry(facts=digest("6.1"), whole=True)
    assert [hears(variants, host) for host in (one, two, two)] == [whole, None, None]
    says(variants, other, "5.15")
    assert hears(variants, other) == Inquiry(facts=digest("5.15"), whole=True)
    says(variants, one, "6.1", data=True)
    assert hears(variants, two) is None
    assert [hears(variants, host) for host in (one, two)] == [Variant(b"for 6.1")] * 2
    says(variants, three, "6.1")
    assert hears(variants, three) == Variant(b"for 6.1")
    assert compiler.given == [b"6.1"] * 2
    assert (variants.number, variants._facts) == (1, {})


def test_what_the_facts_do_not_say_is_asked_of_all_of_that_kind() -> None:
    """They may differ then."""
    variants = Variants(OfFacts(old="tracepoints"))
    one, two = Host("one"), Host("two")
    for host in (one, two):
        says(variants, host, "old")
    hears(variants, one)
    says(variants, one, "old", data=True)
    hears(variants, one)
    more = Inquiry(facts=digest("old"), questions=(("tracepoints",),))
    assert [hears(variants, host) for host in (one, two)] == [more, more]
    says(variants, one, "old, with a")
    says(variants, two, "old, with b")
    for host, facts in ((one, "old, with a"), (two, "old, with b")):
        assert hears(variants, host) == Inquiry(facts=digest(facts), whole=True)
        says(variants, host, facts, data=True)
        hears(variants, host)
        assert hears(variants, host) == Variant(b"for " + facts.encode())
    assert variants.number == 2


def test_a_host_that_does_not_send_its_facts() -> None:
    """Another one is asked after a while, or as soon as it is given up; and it cannot ask for ever."""
    now = [0.0]
    variants = Variants(OfFacts(), lambda: now[0])
    hosts = [Host(str(number), State.WAITING) for number in range(3)]
    for host in hosts:
        says(variants, host, "x")
    whole = Inquiry(facts=digest("x"), whole=True)
    assert [hears(variants, host) for host in hosts] == [whole, None, None]
    now[0] = STATING
    assert [hears(variants, host) for host in hosts[1:]] == [whole, None]
    hosts[1].state = State.LOST
    assert hears(variants, hosts[2]) == whole
    says(variants, hosts[2], "x")
    for number in range(MOST_TRIES):
        now[0] += STATING
        heard = hears(variants, hosts[2])
        if isinstance(heard, Inquiry):
            says(variants, hosts[2], f"x{number}")
    assert heard == Variant()


@pytest.mark.parametrize(
    ("stated", "error"),
    [
        (Stated(facts=digest("y"), data=packed(b"y")), "that it was not asked for"),
        (Stated(facts=digest("x"), data=packed(b"y")), "the facts about its kernel have another digest than it said"),
        (Stated(facts=digest("x"), data=b"y"), "the facts about a kernel are damaged: "),
        (Stated(facts=digest("x"), data=packed(b"y")[:-2]), "the facts about a kernel are damaged: "),
    ],
)
def test_lies(stated: Stated, error: str) -> None:
    """Nobody else is compiled for by them."""
    variants, liar, other = Variants(OfFacts()), Host("liar"), Host("other")
    for host in (liar, other):
        says(variants, host, "x")
    assert hears(variants, liar) == Inquiry(facts=digest("x"), whole=True)
    with pytest.raises(TraceError, match=error):
        variants.stated(liar, stated)
    liar.state = State.LOST
    assert hears(variants, other) == Inquiry(facts=digest("x"), whole=True)
    with pytest.raises(TraceError, match="it was not asked for"):
        variants.stated(Host("third"), Stated(facts=digest("x")))


def test_facts_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    large = packed(bytes(5000))
    unknown = zstandard.ZstdCompressor(write_content_size=False).compress(b"x")
    with pytest.raises(TraceError, match="too large"):
        unpacked(unknown)
    monkeypatch.setattr(variants, "LARGEST_FACTS", 4999)
    with pytest.raises(TraceError, match="too large"):
        unpacked(large)
    monkeypatch.setattr(variants, "LARGEST_PACKED_FACTS", 10)
    with pytest.raises(TraceError, match="more than are sent"):
        packed(bytes(range(100)))
