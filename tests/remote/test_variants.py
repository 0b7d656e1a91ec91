"""Compiled forms for kinds of hosts: each is compiled once, and what hosts say of themselves is bounded."""

from __future__ import annotations

import pytest
import zstandard

from pytrace.core import kernel_facts
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import FEATURES
from pytrace.remote import messages, variants
from pytrace.remote.hosts import Host, State
from pytrace.remote.messages import Inquiry, Misfit, Stated, Variant
from pytrace.remote.variants import MOST_KINDS, MOST_TRIES, STATING, Kind, Outcome, Variants, packed, unpacked


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
    return kernel_facts.digest(facts.encode())


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
    monkeypatch.setattr(variants, "LARGEST", 4999)
    with pytest.raises(TraceError, match="too large"):
        unpacked(large)
    monkeypatch.setattr(variants, "LARGEST_PACKED", 10)
    with pytest.raises(TraceError, match="more than are sent"):
        packed(bytes(range(100)))
