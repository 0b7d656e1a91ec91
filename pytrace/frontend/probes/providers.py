"""Providers, the front end's part of a probe kind: their base classes, and what all of them need.

That is the parts of an attach point, and what a probe's body reads of its context.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import ClassVar, TypeVar

import msgspec
from msgspec.structs import replace

from pytrace.core.builtins import argument_number, builtin
from pytrace.core.diagnostics import Diagnostics, counted, did_you_mean
from pytrace.core.kernel_info import DefinedEvent, FunctionPrototype, KernelFunction, KernelInfo, UsdtProbe
from pytrace.core.options import CompileOptions, Config
from pytrace.core.probe_kinds import (
    TOKEN,
    AnyTarget,
    FileTarget,
    ProbeKind,
    ProbeTarget,
    TypedFunctionTarget,
    UserTarget,
    unquoted,
)
from pytrace.core.source import Span
from pytrace.core.text import parse_integer
from pytrace.frontend.probes import contexts
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


def split_point(
    point: nodes.AttachPoint, parameters: Sequence[str], diagnostics: Diagnostics, *, ahead: bool = False
) -> tuple[Part, ...] | None:
    """The parts of *point*, the provider first; None after an error was reported."""
    text, span = point.text, point.span
    offset = span.text.find(text)
    if offset >= 0:
        # Without name=, which the node's span includes.
        span = Span(span.source, span.start + offset, span.start + offset + len(text))
    parts = _Parts(span)
    for match in TOKEN.finditer(text):
        if match["separator"]:
            parts.end(match["separator"], match.start(), match.end())
        elif match["quoted"]:
            parts.quote(unquoted(match["quoted"]))
        elif match["parameter"]:
            value = _parameter(match["parameter"], parameters)
            if value is None:
                where = _within(span, match.start(), match.end())
                hint = f"the script was given {counted(len(parameters), 'parameter')}"
                hint = "give it with --aot, which fixes attach points" if ahead else hint
                diagnostics.error(f"{match.group()} in an attach point has no value", where, hints=[hint])
                return None
            parts.value(value, match)
        elif match["option"]:
            name, value = _option(match["option"], point.options)
            if value is None:
                where = _within(span, match.start(), match.end())
                _report_unknown(name, point.options, where, diagnostics)
                return None
            parts.value(value, match)
            parts.plain(match["option"][len(name) :])
        elif match["bad"]:
            _report_bad(match["bad"], _within(span, match.start(), match.end()), diagnostics)
            return None
        else:
            parts.plain(match["plain"])
    parts.end("", len(text), len(text))
    return tuple(parts.done)


class _Parts:
    """Collects the parts of one attach point while its text is read."""

    def __init__(self, span: Span) -> None:
        self.done: list[Part] = []
        self._span = span
        self._text, self._start, self._before = "", 0, ""
        self._quoted, self._plus = False, -1

    def plain(self, text: str) -> None:
        """Add text outside of quotes."""
        plus = text.find("+")
        if plus >= 0 and self._plus < 0:
            self._plus = len(self._text) + plus
        self._text += text

    def value(self, text: str, match: re.Match[str]) -> None:
        """Add the text of a parameter or option, which may contain several parts."""
        for index, part in enumerate(text.split(":")):
            if index:
                self.end(":", match.end(), match.start())
            self.plain(part)

    def quote(self, text: str) -> None:
        """Add text between quotes."""
        self._text += text
        self._quoted = True

    def end(self, separator: str, end: int, following: int) -> None:
        """End a part before offset *end*; the next one starts at offset *following*, after *separator*."""
        where = _within(self._span, self._start, end)
        self.done.append(Part(self._text, where, self._before, self._quoted, self._plus))
        self._text, self._start, self._before = "", following, separator
        self._quoted, self._plus = False, -1


def _parameter(digits: str, parameters: Sequence[str]) -> str | None:
    number = int(digits[-10:]) if not digits[:-10].strip("0") else 0
    return parameters[number - 1] if 1 <= number <= len(parameters) else None


def _option(text: str, options: Sequence[tuple[str, str]]) -> tuple[str, str | None]:
    """The longest name of an option that *text* starts with, up to a dash, and its value; None when there is none."""
    known = dict(options)
    name = text
    while name not in known and "-" in name:
        name = name.rpartition("-")[0]
    return (name, known[name]) if name in known else (text, None)


def _report_unknown(
    name: str, options: Sequence[tuple[str, str]], span: Span, diagnostics: Diagnostics
) -> None:
    known = [known for known, _ in options]
    hints = [*did_you_mean(name, known)]
    if not hints:
        declared = ", ".join(known) or "none"
        hints = [f"'$' stands before the number of a parameter or the name of an option; options declared: {declared}"]
    diagnostics.error(f"the script declares no option {name!r}", span, hints=hints)


def _report_bad(character: str, span: Span, diagnostics: Diagnostics) -> None:
    if character == '"':
        diagnostics.error("this quote is not closed", span)
    else:
        diagnostics.error(
            "'$' in an attach point must be followed by the number of a parameter or the name of an option",
            span,
            hints=["put the part in double quotes to use the character as it is"],
        )


def _within(span: Span, start: int, end: int) -> Span:
    return Span(span.source, min(span.start + start, span.end), min(span.start + max(end, start + 1), span.end))


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


def uses_of(roots: Iterable[nodes.Node | None]) -> Uses:
    """The combined uses of *roots*."""
    names: set[str] = set()
    fields: set[str] = set()
    members: set[nodes.Node] = set()
    bare = False
    for root in roots:
        if root is None:
            continue
        for node in nodes.walk(root):
            if isinstance(node, nodes.FieldAccess) and _is_args(node.base):
                fields.add(node.name)
                members.add(node.base)
            elif isinstance(node, nodes.Identifier | nodes.Call):
                names.add(node.name)
                bare = bare or (_is_args(node) and node not in members)
    return Uses(frozenset(names), frozenset(fields), bare)


def _is_args(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Identifier | nodes.Call) and node.name == "args"


_STACKS = frozenset({"kstack"})
"""Builtins whose result contains the kernel frames of the tracepoint itself."""


def type_specific(roots: Iterable[nodes.Node], functions: Mapping[str, nodes.Function]) -> str:
    """A builtin or function in *roots* that behaves differently in another program type; empty if there is none.

    A kernel stack has other frames at its top, and kfuncs and functions of an imported object file may be restricted to
    one program type. *functions* are those of the script, by name.
    """
    waiting = list(roots)
    seen: set[str] = set()
    while waiting:
        for node in nodes.walk(waiting.pop()):
            if not isinstance(node, nodes.Call | nodes.Identifier):
                continue
            function = functions.get(node.name) if isinstance(node, nodes.Call) else None
            if function is not None and node.name not in seen:
                seen.add(node.name)
                waiting.append(function.body)
            elif node.name in _STACKS or (
                isinstance(node, nodes.Call) and function is None and builtin(node.name) is None
            ):
                return node.name
    return ""


_TEXT_CALLS = frozenset({
    "assert_str", "cat", "delete", "errorf", "find", "has_key", "heading", "one_of", "print", "printf", "row",
    "sprintf", "str", "str_concat", "strcontains", "strlen", "strncmp", "strstr", "system", "warnf",
})  # fmt: skip
"""Builtins that read a text up to its NUL."""
_TEXT_OPERATORS = (nodes.Index, nodes.Cast, nodes.Unary)


def bytes_of(roots: Iterable[nodes.Node], names: Iterable[str]) -> str:
    """A text field in *names* that *roots* access other than as a string; empty if there is none.

    Such code can observe the bytes after the NUL, or the address.
    """
    texts = frozenset(names)
    for root in roots:
        for node in nodes.walk(root):
            exposes = isinstance(node, _TEXT_OPERATORS) or (
                isinstance(node, nodes.Call) and node.name not in _TEXT_CALLS
            )
            for child in nodes.children(node) if exposes else ():
                if isinstance(child, nodes.FieldAccess) and _is_args(child.base) and child.name in texts:
                    return child.name
    return ""


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
        return name not in self.options.disabled and self.kernel.feature(name)


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


class SampledProvider(Provider):
    """A provider of perf events, whose context is that of a sample and has no arguments."""

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        del match
        return ProbeContext(ctx_type=contexts.perf_event(scope.kernel) if "ctx" in uses else None)


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
