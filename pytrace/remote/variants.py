"""Other compiled forms of a script, for hosts that the first one does not fit: one for each kind of host.

A host that is of no kind by its features and CPUs alone is of the kind of its facts (:mod:`pytrace.core.kernel_info`):
it states their digest, and what was compiled for facts goes to hosts only that state the very same ones. So a host is
trusted with facts about itself, and by nobody else.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from pytrace.core import kernel_info
from pytrace.core.diagnostics import Error, TraceError
from pytrace.core.kernel_info import FEATURES, LARGEST_FACTS, LARGEST_PACKED_FACTS, Questions
from pytrace.remote import messages
from pytrace.remote.hosts import OVER, Host
from pytrace.remote.messages import Inquiry, Misfit, Stated, Variant

MOST_KINDS = 32
"""Kinds of hosts for which is compiled: hosts say what kind they are."""
MOST_TRIES = 8
"""Variants for one host: one that lacks a feature may lack what is used instead of it."""
LEVEL = 6
"""Of the compression of facts."""
_MOST_WINDOW = 8 << 20
STATING = 60.0
"""Seconds after which another host of a kind is asked for its facts."""


class Kind(msgspec.Struct, frozen=True):
    """What hosts have in common."""

    lacks: frozenset[str] = frozenset()
    """Features that they do not have."""
    cpus: int = 0
    """CPUs that the script must be compiled for; 0 if that does not matter."""
    facts: str = ""
    """Digest of facts, which the others are a part of."""


class Outcome(msgspec.Struct, frozen=True):
    """What became of compiling for a kind."""

    compiled: bytes = b""
    """An ahead-of-time file; empty if there is none."""
    error: str = ""
    """Why, as the command prints it."""
    questions: Questions = ()
    """Which its facts do not answer."""
    wanted: bool = False
    """Whether its facts are needed first."""


Compile = Callable[[Kind, bytes], Outcome | None]
"""Compiles the script for a kind of hosts, with its compressed facts once they are there; None while that takes time.

Raises Error if it cannot be compiled so.
"""


class Variants:
    """The variants that were asked for."""

    def __init__(self, compile_: Compile | None, clock: Callable[[], float] = time.monotonic) -> None:
        """*compile_*: None if there are no variants."""
        self._compile, self._clock = compile_, clock
        self._outcomes: dict[Kind, Outcome] = {}
        self._facts: dict[str, bytes] = {}
        """By digest, until they were compiled for."""
        self._asked: dict[str, tuple[Host, float]] = {}
        """Who is to send facts of a digest, and until when nobody else is asked."""

    @property
    def number(self) -> int:
        """How many were compiled."""
        return sum(1 for outcome in self._outcomes.values() if not outcome.questions)

    def wanted(self, host: Host, misfit: Misfit) -> None:
        """Note what a host asks for."""
        kind = kind_of(misfit)
        host.lacks, host.facts = host.lacks | kind.lacks, kind.facts
        host.cpus = max(host.cpus, kind.cpus)
        _wait(host)

    def stated(self, host: Host, stated: Stated) -> None:
        """Note the facts that a host states.

        Raises:
            TraceError: it was not asked, or they are others than it said.
        """
        if not host.inquired:
            raise TraceError("it states facts about its kernel that it was not asked for")
        if stated.data:
            self.given(host, stated)
        host.inquired, host.facts = False, stated.facts
        _wait(host)

    def given(self, peer: Host, stated: Stated) -> None:
        """Keep the facts that a host sends, or a gateway for one of its hosts.

        Raises:
            TraceError: it was not asked, or they are others than it said.
        """
        asked, _ = self._asked.get(stated.facts, (None, 0.0))
        if asked is not peer:
            raise TraceError("it sends facts about its kernel that it was not asked for")
        if kernel_info.facts_digest(unpacked(stated.data)) != stated.facts:
            raise TraceError("the facts about its kernel have another digest than it said")
        self._facts[stated.facts] = stated.data

    def line(self, host: Host) -> bytes:
        """The message for a host, empty if it is not there yet. Without a variant, it compiles for itself."""
        kind = Kind(facts=host.facts) if host.facts else Kind(host.lacks, host.cpus)
        answer = Variant() if host.variants > MOST_TRIES else self._answer(kind, host)
        if answer is None:
            return b""
        host.misfit, host.inquired = False, isinstance(answer, Inquiry)
        return messages.encode(answer)

    def of_kind(self, misfit: Misfit, gateway: Host) -> tuple[bytes, bool]:
        """The message for a gateway that has hosts of this kind, and whether it is the last about them."""
        kind = kind_of(misfit)
        answer = self._answer(kind, gateway)
        if isinstance(answer, Variant):
            answer = Variant(answer.compiled, misfit.lacks, misfit.cpus, kind.facts, answer.error)
        last = isinstance(answer, Variant) or (answer is not None and not answer.whole)
        return b"" if answer is None else messages.encode(answer), last

    def _answer(self, kind: Kind, host: Host) -> Variant | Inquiry | None:
        outcome = self._outcome(kind)
        if outcome is None:
            return None
        if outcome.wanted:
            asked, end = self._asked.get(kind.facts, (None, 0.0))
            if asked is not None and asked.state not in OVER and self._clock() < end:
                return None
            self._asked[kind.facts] = host, self._clock() + STATING
            return Inquiry(facts=kind.facts, whole=True)
        if outcome.questions:
            return Inquiry(facts=kind.facts, questions=outcome.questions)
        return Variant(outcome.compiled, error=outcome.error)

    def _outcome(self, kind: Kind) -> Outcome | None:
        if kind not in self._outcomes:
            if self._compile is None or len(self._outcomes) >= MOST_KINDS:
                return Outcome()
            outcome = _compiled(self._compile, kind, self._facts.get(kind.facts, b""))
            if outcome is None or outcome.wanted:
                return outcome
            self._outcomes[kind] = outcome
            self._facts.pop(kind.facts, None)
        return self._outcomes[kind]


def kind_of(misfit: Misfit) -> Kind:
    """The kind of a host that says this."""
    if misfit.facts:
        return Kind(facts=misfit.facts)
    cpus = kernel_info.rounded_cpus(misfit.cpus) if misfit.cpus else 0
    return Kind(frozenset(misfit.lacks) & frozenset(FEATURES), cpus)


def _wait(host: Host) -> None:
    """A host waits for an answer."""
    host.misfit = True
    host.variants += 1


def _compiled(compile_: Compile, kind: Kind, facts: bytes) -> Outcome | None:
    try:
        outcome = compile_(kind, facts)
    except Error:
        return Outcome()
    if outcome is None or len(outcome.compiled) * 4 // 3 < messages.LONGEST_REQUEST - 1024:
        return outcome
    return Outcome()


# ---------------------------------------------------------------------------------------------- facts


def packed(encoded: bytes) -> bytes:
    """Encoded facts, compressed.

    Raises:
        TraceError: they are too large.
    """
    import zstandard

    data = zstandard.ZstdCompressor(level=LEVEL).compress(encoded)
    if len(data) > LARGEST_PACKED_FACTS:
        raise TraceError(f"the facts about this kernel have {len(data)} bytes, more than are sent")
    return data


def unpacked(data: bytes) -> bytes:
    """What was :func:`packed`.

    Raises:
        TraceError: it is damaged, or too large.
    """
    import zstandard

    try:
        if not 0 <= zstandard.frame_content_size(data) <= LARGEST_FACTS or len(data) > LARGEST_PACKED_FACTS:
            raise TraceError("the facts about a kernel are too large")
        return zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW).decompress(data, max_output_size=LARGEST_FACTS)
    except zstandard.ZstdError as error:
        raise TraceError(f"the facts about a kernel are damaged: {error}") from None
