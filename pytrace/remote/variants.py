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

Compile = Callable[[frozenset[str], int], bytes | None]
"""Compiles the script without the features, and for a number of CPUs; returns an ahead-of-time file, None if that is
not there yet.

Raises ScriptError or TraceError if it cannot be compiled so.
"""


class Variants:
    """The variants that were asked for."""

    def __init__(self, compile_: Compile | None) -> None:
        """*compile_*: None if there are no variants."""
        self._compile = compile_
        self._files: dict[tuple[frozenset[str], int], bytes] = {}

    @property
    def number(self) -> int:
        """How many were compiled."""
        return len(self._files)

    def wanted(self, host: Host, misfit: Misfit) -> None:
        """Note what a host asks for."""
        host.misfit = True
        host.lacks |= frozenset(misfit.lacks) & frozenset(FEATURES)
        # Of machines of many sizes, a few variants serve all.
        host.cpus = max(host.cpus, 1 << (misfit.cpus - 1).bit_length() if misfit.cpus else 0)
        host.variants += 1

    def line(self, host: Host) -> bytes:
        """The message for a host, empty if it is not there yet. Without a variant, it compiles for itself."""
        compiled = b"" if host.variants > MOST_TRIES else self._of_kind(host.lacks, host.cpus)
        host.misfit = compiled is None
        return b"" if compiled is None else messages.encode(Variant(compiled))

    def of_kind(self, misfit: Misfit) -> bytes:
        """The message for a gateway that has hosts of this kind."""
        compiled = self._of_kind(frozenset(misfit.lacks) & frozenset(FEATURES), misfit.cpus)
        return messages.encode(Variant(compiled or b"", misfit.lacks, misfit.cpus))

    def _of_kind(self, lacks: frozenset[str], cpus: int) -> bytes | None:
        kind = lacks, cpus
        if kind not in self._files:
            if self._compile is None or len(self._files) >= MOST_KINDS:
                return b""
            compiled = _compiled(self._compile, *kind)
            if compiled is None:
                return None
            self._files[kind] = compiled
        return self._files[kind]


def _compiled(compile_: Compile, lacks: frozenset[str], cpus: int) -> bytes | None:
    try:
        data = compile_(lacks, cpus)
    except (ScriptError, TraceError):
        return b""
    return data if data is None or len(data) * 4 // 3 < messages.LONGEST_REQUEST - 1024 else b""
