"""Other compiled forms of a script, for hosts that the first one does not fit: one for each kind of host."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.core.diagnostics import ScriptError, TraceError
from pytrace.core.kernel_info import FEATURES
from pytrace.remote import messages
from pytrace.remote.hosts import Host
from pytrace.remote.messages import Misfit, Variant

MOST_KINDS = 32
"""Kinds of hosts for which is compiled: hosts say what kind they are."""
MOST_TRIES = 8
"""Variants for one host: one that lacks a feature may lack what is used instead of it."""

Compile = Callable[[frozenset[str], int], bytes]
"""Compiles the script without the features, and for a number of CPUs; returns an ahead-of-time file.

Raises ScriptError or TraceError if it cannot be compiled so.
"""


class Variants:
    """The variants that were asked for."""

    def __init__(self, compile_: Compile | None) -> None:
        """*compile_*: None if there are no variants."""
        self._compile = compile_
        self._lines: dict[tuple[frozenset[str], int], bytes] = {}

    @property
    def number(self) -> int:
        """How many were compiled."""
        return len(self._lines)

    def line(self, host: Host, misfit: Misfit) -> bytes:
        """The message for a host. Without a variant, it compiles for itself."""
        host.lacks |= frozenset(misfit.lacks) & frozenset(FEATURES)
        # Of machines of many sizes, a few variants serve all.
        host.cpus = max(host.cpus, 1 << (misfit.cpus - 1).bit_length() if misfit.cpus else 0)
        host.variants += 1
        kind = host.lacks, host.cpus
        if kind not in self._lines:
            if self._compile is None or host.variants > MOST_TRIES or len(self._lines) >= MOST_KINDS:
                return messages.encode(Variant())
            self._lines[kind] = messages.encode(Variant(_compiled(self._compile, *kind)))
        return self._lines[kind]


def _compiled(compile_: Compile, lacks: frozenset[str], cpus: int) -> bytes:
    try:
        data = compile_(lacks, cpus)
    except (ScriptError, TraceError):
        return b""
    return data if len(data) * 4 // 3 < messages.LONGEST_REQUEST - 1024 else b""
