"""Providers, the front end's part of a probe kind: their base classes, and what all of them need.

That is the parts of an attach point, and what a probe's body reads of its context.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import ClassVar, TypeVar

import msgspec
from msgspec.structs import replace

from pytrace.core.builtins import argument_number
from pytrace.core.diagnostics import Diagnostics, did_you_mean
from pytrace.core.kernel_info import DefinedEvent, FunctionPrototype, KernelFunction, KernelInfo, UsdtProbe
from pytrace.core.options import CompileOptions, Config
from pytrace.core.probe_kinds import (
    AnyTarget,
    FileTarget,
    ProbeKind,
    ProbeTarget,
    TypedFunctionTarget,
    UserTarget,
)
from pytrace.core.source import Span
from pytrace.core.text import parse_integer
from pytrace.core.types import UINT64, VOID, AddressSpace, Field, Pointer, Struct, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import ProbeContext

# --------------------------------------------------------------------------------------------- parts of an attach point

# Splitting the text of an attach point into its parts.
#
# `provider:part:part` or `uprobe:path@file:line`: parts are split at `:` and `@` outside quotes; `"…"` quotes
# any part of the text, with `\` before a quote or backslash; `$N` is replaced by a positional parameter, `$name`
# by an option of the script; these texts may hold several parts with `:` between them.


class Part(msgspec.Struct, frozen=True):
    """One part: its *text* (quotes and parameters resolved), its span, and the separator *before* it."""

    text: str
    span: Span
    before: str = ""
    quoted: bool = False
    plus: int = -1
    """Offset of the first ``+`` outside of quotes in *text*; -1 when there is none."""

    @property
    def wild(self) -> bool:
        """Whether the part is a pattern. (``[…]`` marks a pattern as well, but is matched literally.)"""
        return "*" in self.text

    @property
    def number(self) -> bool:
        """Whether the part starts like a number."""
        return self.text[:1].isdigit() or (self.text[:1] == "-" and self.text[1:2].isdigit())


class Point(msgspec.Struct, frozen=True):
    """An attach point whose provider is known. *written* is the provider as written in the script."""

    kind: ProbeKind
    written: Part
    parts: tuple[Part, ...]
    span: Span

    @property
    def texts(self) -> tuple[str, ...]:
        """The parts' texts."""
        return tuple(part.text for part in self.parts)

    @property
    def name(self) -> str:
        """The probe name as written, with the provider's full name."""
        return self.kind.name + "".join(f"{part.before}{part.text}" for part in self.parts)


# ---------------------------------------------------------------------------------------------------- what a body reads

# The parts of its context that a probe's body reads, which decide what targets can share a program.


class Uses(msgspec.Struct, frozen=True):
    """The names of builtins (values and calls) in a body, and how it reads ``args``.

    *fields* are the members of ``args`` that it reads; *whole*: ``args`` is also used as a whole.
    """

    names: frozenset[str]
    fields: frozenset[str]
    whole: bool

    @property
    def args(self) -> bool:
        """Whether the body reads ``args`` at all."""
        return self.whole or bool(self.fields)

    @property
    def positional(self) -> tuple[int, ...]:
        """Indexes N of each ``argN`` that the body reads."""
        return tuple(sorted(number for name in self.names if (number := argument_number(name)) is not None))

    def __contains__(self, name: str) -> bool:
        return name in self.names


def is_args(node: nodes.Node) -> bool:
    """True for the builtin ``args``."""
    return isinstance(node, nodes.Identifier | nodes.Call) and node.name == "args"


# --------------------------------------------------------------------------------------------------------- base classes


T = TypeVar("T", bound=ProbeTarget)


class Scope(msgspec.Struct):
    """The inputs of expansion, and its diagnostics. Reports return no targets, which a provider can return in turn."""

    options: CompileOptions
    kernel: KernelInfo
    config: Config
    diagnostics: Diagnostics
    quiet: bool = False
    """Set while a provider pattern is tried on one kind, where it is no error to have no match."""
    decides: bool = False
    """The script uses ``in_scope``: it applies the process filters itself."""
    probe_filter: re.Pattern[str] | None = None
    """``--probe-filter``."""
    names: dict[tuple[str, str], Span] = msgspec.field(default_factory=dict)
    """Names of test and bench probes seen so far."""
    user: bool = False
    """Set while a probe on files is expanded."""
    empty: list[tuple[str, Span, tuple[str, ...], bool]] = msgspec.field(default_factory=list)
    """Messages about patterns of the current block without matches, shown if no other attach point matches."""

    def unmatched(self, message: str, span: Span, hints: Iterable[str] = ()) -> list[Match]:
        """Report a pattern without matches; no error if another attach point of the block has some."""
        if not self.quiet:
            self.empty.append((message, span, tuple(hints), self.user))
        return []

    def end_block(self, *, attached: bool) -> None:
        """Called after all attach points of a block; *attached* when they have any targets."""
        for message, span, hints, user in self.empty:
            self.user = user
            if not attached:
                self.missing(message, span, hints)
            elif self.options.verbose:
                self.diagnostics.note(f"{message}; the other attach points of this probe are still attached", span)
        self.empty.clear()

    def missing(self, message: str, span: Span, hints: Iterable[str] = ()) -> list[Match]:
        """Report a probe that cannot be attached, as configured by ``missing_probes``."""
        if self.ignores_missing:
            return []
        if self.config.missing_probes == "warn":
            self.diagnostics.warn(f"{message}; probe skipped", span, hints=hints, cause=True)
        else:
            self.diagnostics.error(message, span, hints=hints, kernel=not self.user)
        return []

    def error(self, message: str, span: Span, hints: Iterable[str] = ()) -> list[Match]:
        """Report an error in an attach point."""
        if not self.quiet:
            self.diagnostics.error(message, span, hints=hints)
        return []

    @property
    def ignores_missing(self) -> bool:
        """Whether :meth:`missing` reports nothing: hints, which search all names of the kernel, are for nobody then."""
        return self.quiet or self.config.missing_probes == "ignore"

    @property
    def attaching(self) -> bool:
        """Whether the probes will be attached, which the kernel must support."""
        return self.options.mode != "list"

    def feature(self, name: str) -> bool:
        """Whether the kernel has a feature that ``--no-feature`` does not hide."""
        return name not in self.options.no_features and self.kernel.feature(name)


class UserFunction(msgspec.Struct, frozen=True):
    """A function of a binary, with its size in bytes; *inside*: the probe is after its first instruction.

    *go*: it is code of Go, which runs on stacks that move.
    """

    path: str
    symbol: str
    inside: bool = False
    size: int = 0
    go: bool = False
    address: int = 0
    """Its virtual address in the file."""


_Subject = DefinedEvent | KernelFunction | FunctionPrototype | UserFunction | UsdtProbe


class Match(msgspec.Struct, frozen=True):
    """One target of an attach point.

    *probe* is the full name, *place* the target. *subject* is further data for building the context; *wild*: a pattern
    matched it.
    """

    kind: ProbeKind
    probe: str
    place: AnyTarget
    span: Span
    subject: _Subject | None = None
    wild: bool = False
    call: int | None = None
    """The number of the system call, if a raw tracepoint program traces it."""
    raw: bool = False
    """Whether a program of the raw tracepoint of the same name traces it."""

    @property
    def exits(self) -> bool:
        """Whether this is an instruction at which a function is left."""
        return isinstance(self.place, UserTarget) and self.place.leaving is not None

    def of(self, kind: type[T]) -> T:
        """The target, which is of the given class."""
        assert isinstance(self.place, kind), self.probe
        return self.place


def by_pattern(matches: Iterable[Match]) -> list[Match]:
    """Targets in files or BPF programs that matched a pattern, and that may disappear before they are attached to."""
    marked = []
    for match in matches:
        place = match.place
        assert isinstance(place, FileTarget | TypedFunctionTarget), f"{match.probe} is found by no pattern of files"
        marked.append(replace(match, place=replace(place, by_pattern=True)))
    return marked


class Provider:
    """The code of one probe kind.

    ``expand`` checks the parts of an attach point and returns its targets; ``context`` returns the context of a body at
    one of them. *single* providers have one unit per target.
    """

    single: ClassVar[bool] = False
    shape: ClassVar[str] = ""
    """The form of an attach point, for messages."""
    counts: ClassVar[range] = range(1, 3)
    """Numbers of parts after the provider that an attach point may have."""

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        """The targets of *point*; empty after an error, or when there are none."""
        raise NotImplementedError(type(self).__name__)

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        """The context that a body with *uses* has at *match*."""
        raise NotImplementedError(type(self).__name__)

    def multi(self, matches: list[Match], scope: Scope) -> str:
        """The kind of multi link that can attach one program to all *matches*; empty for none."""
        del matches, scope
        return ""

    def apart(self, match: Match) -> Hashable:
        """Grouping key: targets with equal keys may share a program."""
        del match
        return ()

    def fit(self, point: Point) -> bool:
        """Whether this provider accepts the parts of *point* (for a pattern as provider)."""
        return len(point.parts) in self.counts

    def bad_shape(self, point: Point, scope: Scope) -> list[Match]:
        """Report that the parts of *point* do not match :attr:`shape`."""
        return scope.error(f"{point.kind.name} probes have the form {self.shape.format(point.kind.name)}", point.span)


class BinaryProvider(Provider):
    """A provider of probes in user binaries; one link can attach many of them."""

    def multi(self, matches: list[Match], scope: Scope) -> str:
        return "uprobe_multi" if len(matches) > 1 and scope.feature("uprobe_multi") else ""


def perf_event(kernel: KernelInfo) -> Type:
    """The type of ``ctx`` in perf event programs: ``struct bpf_perf_event_data`` (uapi/linux/bpf_perf_event.h)."""
    struct = kernel.struct("struct", "bpf_perf_event_data")
    regs = kernel.struct("struct", "pt_regs")
    if struct is None and regs is not None:
        # Missing in the kernel's BTF if no kernel code uses it; its layout is part of the ABI.
        members = (
            Field("regs", regs, 0),
            Field("sample_period", UINT64, regs.size),
            Field("addr", UINT64, regs.size + 8),
        )
        struct = Struct("struct", "bpf_perf_event_data", regs.size + 16, members, origin="vmlinux", alignment=8)
    return Pointer(struct if struct is not None else VOID, AddressSpace.BPF)


def number_of(part: Part, scope: Scope, what: str) -> int | None:
    """The number that *part* denotes, or None after an error."""
    number = parse_integer(part.text)
    if number is None:
        scope.error(f"{what} must be a number, not {part.text!r}", part.span)
    elif abs(number) >= 2**64:
        scope.error(f"{what} does not fit 64 bits", part.span)
        return None
    return number


def nearest(name: str, known: Iterable[str], form: str = "{}") -> list[str]:
    """A hint with a name similar to *name*, or none; *form* formats the name as it is written in a script."""
    return list(did_you_mean(name, known, form))


def matches_pattern(pattern: str, name: str) -> bool:
    """Whether *name* matches a pattern in which only ``*`` is special."""
    pieces = pattern.split("*")
    if len(pieces) == 1:
        return pattern == name
    if not name.startswith(pieces[0]) or not name.endswith(pieces[-1]):
        return False
    offset, end = len(pieces[0]), len(name) - len(pieces[-1])
    for piece in pieces[1:-1]:
        offset = name.find(piece, offset, end)
        if offset < 0:
            return False
        offset += len(piece)
    return offset <= end
