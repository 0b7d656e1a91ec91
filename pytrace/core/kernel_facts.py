"""Facts about one machine as data: what a compilation of one script asks its :class:`KernelInfo`, with the answers.

A machine that cannot compile states them, and another one compiles with them
(``runtime.load.remote_kernel.RemoteKernel``). Equal facts have equal digests. The form is bounded, as facts may come
from a machine that is not trusted.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import FEATURES

MOST_CPUS = 8192
"""``CONFIG_NR_CPUS`` of the largest kernels (arch/x86/Kconfig)."""
LARGEST = 64 << 20
"""Bytes of facts; the type information of a kernel has 5 to 15 MB, that of a module 100 KB."""
LARGEST_PACKED = 23 << 20
"""Bytes of compressed facts, which fit into a message."""
MOST_QUESTIONS = 16384

Word: TypeAlias = Annotated[str, Meta(max_length=4096)]
Question: TypeAlias = Annotated[tuple[Word, ...], Meta(min_length=1, max_length=4)]
"""A kind of :mod:`pytrace.runtime.load.remote_kernel`, and what it is about."""
Questions: TypeAlias = Annotated[tuple[Question, ...], Meta(max_length=MOST_QUESTIONS)]
Answer: TypeAlias = Annotated[tuple[Annotated[str, Meta(max_length=1 << 20)], ...], Meta(max_length=1 << 18)]
Digest: TypeAlias = Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?\Z")]
"""SHA-256, in hex; empty for none."""
Release: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}\Z")]
"""Paths are made of it."""
Machine: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9_]{1,32}\Z")]
Module: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,128}\Z")]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine says of itself."""

    machine: Machine
    release: Release
    build: tuple[Word, ...]
    """The fact of :func:`pytrace.runtime.machine.fingerprints.kernel_fact`."""
    cpus: Annotated[int, Meta(ge=1, le=MOST_CPUS)]
    """CPUs that code must have room for: the next power of two, so that machines of many sizes are one kind."""
    features: Annotated[tuple[Word, ...], Meta(max_length=len(FEATURES))]
    btf: bytes = b""
    """Type information of the kernel proper; empty without."""
    modules: dict[Module, bytes] = {}
    """That of modules which an answer names."""
    answers: Annotated[tuple[tuple[Question, Answer], ...], Meta(max_length=MOST_QUESTIONS)] = ()
    """Sorted by questions."""

    def encoded(self) -> bytes:
        """The form that :func:`digest` is of.

        Raises:
            TraceError: they are too large, or a name in them is no text.
        """
        try:
            data = _ENCODER.encode(self)
        except UnicodeEncodeError as error:
            raise TraceError(f"the facts about this kernel have a name that is no text: {error.object!r}") from None
        if len(data) > LARGEST:
            raise TraceError(f"the facts about this kernel have {len(data)} bytes, more than are sent")
        return data


_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


def rounded_cpus(cpus: int) -> int:
    """The power of two that a number of CPUs counts as: of machines of many sizes, a few variants serve all."""
    return 1 << (cpus - 1).bit_length()


def digest(encoded: bytes) -> str:
    """What encoded facts are known by."""
    return hashlib.sha256(encoded).hexdigest()


def decoded(encoded: bytes) -> Facts:
    """Facts that were encoded.

    Raises:
        TraceError: they are damaged.
    """
    try:
        return msgspec.msgpack.decode(encoded, type=Facts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"the facts about a kernel are damaged: {error}") from None
