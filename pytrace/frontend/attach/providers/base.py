"""What a provider is: the code behind a row of the probe table, on the front end's side."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import ClassVar

from pytrace.base.fast_dataclass import dataclass, field, replace
from pytrace.core.compile_options import CompileOptions
from pytrace.core.config import Config
from pytrace.core.diagnostics import Diagnostics, similar
from pytrace.core.kernel_info import FunctionPrototype, KernelFunction, KernelInfo, UsdtProbe
from pytrace.core.probes.kinds import ProbeKind
from pytrace.core.probes.targets import FileTarget, ProbeTarget, TypedFunctionTarget
from pytrace.core.source import Span
from pytrace.frontend.ast.typed_program import ProbeContext
from pytrace.frontend.attach.points import contexts
from pytrace.frontend.attach.points.body_uses import Uses
from pytrace.frontend.attach.points.parts import Part, Point

MOST_PERIOD = 2**63 - 1
"""Nanoseconds or events between two hits (``sample_period`` of ``struct perf_event_attr``, checked for its sign)."""


@dataclass(slots=True)
class Scope:
    """What expansion may look at, and where it reports."""

    options: CompileOptions
    kernel: KernelInfo
    config: Config
    diagnostics: Diagnostics
    quiet: bool = False
    """Set while a pattern as provider is tried on one kind: what this kind lacks is no mistake."""
    names: dict[tuple[str, str], Span] = field(default_factory=dict)
    """Names of test and bench probes seen so far."""
    empty: list[tuple[str, Span, tuple[str, ...]]] = field(default_factory=list)
    """What is to be said about patterns of the present block that match nothing, if no other attach point matches."""

    def unmatched(self, message: str, span: Span, hints: Iterable[str] = ()) -> None:
        """Report a pattern that matches nothing, which is no mistake beside another attach point that does."""
        if not self.quiet:
            self.empty.append((message, span, tuple(hints)))

    def end_block(self, *, attached: bool) -> None:
        """The attach points of one block have been looked at; *attached* when they stand for any place."""
        for message, span, hints in self.empty:
            if not attached:
                self.missing(message, span, hints)
            elif self.options.verbose:
                self.diagnostics.note(f"{message}; the other attach points of this probe are still attached", span)
        self.empty.clear()

    def missing(self, message: str, span: Span, hints: Iterable[str] = ()) -> None:
        """Report a probe that cannot be attached, as the ``missing_probes`` key wants it."""
        if self.quiet or self.config.missing_probes == "ignore":
            return
        if self.config.missing_probes == "warn":
            self.diagnostics.warn(f"{message}; probe skipped", span, hints=hints, cause=True)
        else:
            self.diagnostics.error(message, span, hints=hints)

    def error(self, message: str, span: Span, hints: Iterable[str] = ()) -> None:
        """Report a mistake in an attach point."""
        if not self.quiet:
            self.diagnostics.error(message, span, hints=hints)

    @property
    def attaching(self) -> bool:
        """Whether the probes will be attached, so that the kernel must be able to."""
        return self.options.mode != "list"

    def feature(self, name: str) -> bool:
        """Whether the kernel has a feature that ``--no-feature`` does not hide."""
        return name not in self.options.disabled and self.kernel.feature(name)


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function of a binary that is entered (*inside* False), or inside of which a probe is."""

    path: str
    symbol: str
    inside: bool = False


Subject = KernelFunction | FunctionPrototype | UserFunction | UsdtProbe


@dataclass(frozen=True, slots=True)
class Match:
    """One place that an attach point stands for.

    *probe* is the full name, *place* what is attached to. *subject* is what the provider needs beside it to build the
    context; *wild* says that a pattern found it.
    """

    kind: ProbeKind
    probe: str
    place: ProbeTarget
    span: Span
    subject: Subject | None = None
    wild: bool = False


def by_pattern(matches: Iterable[Match]) -> list[Match]:
    """Places in files or BPF programs that a pattern found, and that may go before they are attached to."""
    found = []
    for match in matches:
        place = match.place
        assert isinstance(place, FileTarget | TypedFunctionTarget), f"{match.probe} is found by no pattern of files"
        found.append(replace(match, place=replace(place, by_pattern=True)))
    return found


class Provider:
    """The code of one probe kind.

    ``expand`` checks the shape of an attach point and gives the places; ``context`` says what a body sees at one
    of them. *single* providers get one unit for each place.
    """

    single: ClassVar[bool] = False
    shape: ClassVar[str] = ""
    """The form of an attach point, for messages."""

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        """The places that *point* stands for; empty after a message, or when there are none."""
        raise NotImplementedError(type(self).__name__)

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        """What a body that *uses* so much sees at *match*."""
        raise NotImplementedError(type(self).__name__)

    def multi(self, matches: list[Match], scope: Scope) -> str:
        """Which multi link can carry all of *matches* with one program; empty for none."""
        del matches, scope
        return ""

    def apart(self, match: Match) -> Hashable:
        """What keeps a place from sharing a program with others (places of equal value may share)."""
        del match
        return ()

    def fit(self, point: Point) -> bool:
        """Whether the shape of *point* could be one of this provider (for a pattern as provider)."""
        raise NotImplementedError(type(self).__name__)

    def bad_shape(self, point: Point, scope: Scope) -> list[Match]:
        """Report that *point* has not the form of this kind."""
        scope.error(f"{point.kind.name} probes have the form {self.shape.format(point.kind.name)}", point.span)
        return []


class BinaryProvider(Provider):
    """A provider of probes in user binaries, of which one link attaches many."""

    def multi(self, matches: list[Match], scope: Scope) -> str:
        return "uprobe_multi" if len(matches) > 1 and scope.feature("uprobe_multi") else ""


class SampledProvider(Provider):
    """A provider of perf events, whose context is that of a sample and has no arguments."""

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        del match
        return ProbeContext(ctx_type=contexts.perf_event(scope.kernel) if "ctx" in uses else None)


def number_of(part: Part, scope: Scope, what: str, read: Callable[[str], int | None]) -> int | None:
    """The number that *part* writes, or None after an error."""
    found = read(part.text)
    if found is None:
        scope.error(f"{what} must be a number, not {part.text!r}", part.span)
    elif abs(found) >= 2**64:
        scope.error(f"{what} does not fit 64 bits", part.span)
        return None
    return found


def nearest(name: str, known: Iterable[str], form: str = "{}") -> list[str]:
    """A hint (or none) that names what *name* may have meant; *form* turns a name into what to write."""
    found = similar(name, known)
    if not found:
        return []
    return [f"did you mean {' or '.join(form.format(item) for item in found)}?"]


def matches_pattern(pattern: str, name: str) -> bool:
    """Whether *name* matches a pattern in which ``*`` alone is special."""
    pieces = pattern.split("*")
    if len(pieces) == 1:
        return pattern == name
    if not name.startswith(pieces[0]) or not name.endswith(pieces[-1]):
        return False
    at, end = len(pieces[0]), len(name) - len(pieces[-1])
    for piece in pieces[1:-1]:
        at = name.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return at <= end
