"""Compiled forms for kinds of hosts: each is compiled once, and what hosts say of themselves is bounded."""

from __future__ import annotations

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import FEATURES
from pytrace.remote import messages
from pytrace.remote.hosts import Host
from pytrace.remote.messages import Misfit, Variant
from pytrace.remote.variants import MOST_KINDS, MOST_TRIES, Variants


class Compiler:
    """Notes what is compiled."""

    def __init__(self) -> None:
        self.done: list[tuple[list[str], int]] = []

    def __call__(self, lacks: frozenset[str], cpus: int) -> bytes:
        self.done.append((sorted(lacks), cpus))
        if "btf" in lacks:
            raise TraceError("it needs types")
        return b"x" * (1 + len(lacks)) if "tai_clock" not in lacks else b"x" * messages.LONGEST_REQUEST


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
    known: list[bytes] = []
    variants, host = Variants(lambda _lacks, _cpus: known[0] if known else None), Host("web1")
    variants.wanted(host, Misfit(lacks=("ringbuf",)))
    for _ in range(2 * MOST_TRIES):
        assert (variants.line(host), host.misfit) == (b"", True)
    known.append(b"x")
    assert messages.to_agent(variants.line(host)) == Variant(b"x")
    assert (host.misfit, host.variants) == (False, 1)
    answer = messages.to_agent(variants.of_kind(Misfit(lacks=("ringbuf",), cpus=4)))
    assert answer == Variant(b"x", ("ringbuf",), 4)
