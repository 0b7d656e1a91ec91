"""One row of the builtin table."""

from __future__ import annotations

from enum import Enum

import msgspec


class Mode(Enum):
    """Where a builtin is evaluated."""

    KERNEL = "kernel"
    """In the BPF program."""
    ASYNC = "async"
    """The program sends an event that the runtime handles."""
    COMPILE = "compile"
    """When the script is compiled."""


class Builtin(msgspec.Struct, frozen=True):
    """One row.

    *signature* is shown in documentation and messages. *least* … *most* is the number of arguments of a call
    (most None: any number); *value* says that the bare name may be used without parentheses. *probes* are the kinds
    that allow it (None for all). *family* names the module of its check and emission.
    """

    name: str
    family: str
    signature: str
    doc: str
    mode: Mode = Mode.KERNEL
    least: int = 0
    most: int | None = 0
    value: bool = False
    call: bool = True
    unsafe: bool = False
    probes: frozenset[str] | None = None
    example: str = ""
    """A script that shows the use, for the documentation; a test compiles it."""
    no_loop: bool = False
    """Not allowed in the body of a ``for`` over a map (reads the context)."""
    yields: bool = False
    """A function of the script with its name takes precedence: bpftrace has no such builtin."""

    @property
    def bare(self) -> bool:
        """Whether the name without parentheses denotes this builtin; otherwise it may be a constant or type."""
        return self.value or self.least == 0
