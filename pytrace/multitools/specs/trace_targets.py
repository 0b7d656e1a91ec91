"""Targets of tools: patterns in bcc's syntax (``vfs_*``, ``c:malloc``, ``t:sched:*``) or attach points."""

from __future__ import annotations

import re

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.probes import kinds
from pytrace.core.probes.kinds import (
    FENTRY,
    FEXIT,
    HARDWARE,
    KPROBE,
    KRETPROBE,
    RAWTRACEPOINT,
    SOFTWARE,
    UPROBE,
    URETPROBE,
    probe_kind,
)
from pytrace.core.probes.kinds import TRACEPOINT as TRACEPOINT_PROBE
from pytrace.core.probes.kinds import USDT as USDT_PROBE
from pytrace.core.types import Void
from pytrace.multitools.specs.problems import SpecText

KERNEL, USER, TRACEPOINT, USDT, OTHER = "kernel", "user", "tracepoint", "usdt", "other"
"""Families of targets; OTHER are attach points that are only counted (``software:…``, ``hardware:…``)."""

_FAMILIES = {
    KPROBE: KERNEL, KRETPROBE: KERNEL, FENTRY: KERNEL, FEXIT: KERNEL, UPROBE: USER, URETPROBE: USER, USDT_PROBE: USDT,
    TRACEPOINT_PROBE: TRACEPOINT, RAWTRACEPOINT: OTHER, SOFTWARE: OTHER, HARDWARE: OTHER,
}  # fmt: skip
"""Families of the kinds of probes."""
_RETURNS = (KRETPROBE, FEXIT, URETPROBE)
_TYPED = (FENTRY, FEXIT)
_LETTERS = ("t", "u", "p", "r")
"""First parts with bcc's meaning, though some are also short names of providers."""
_PLAIN = re.compile(r"[\w.*+@~?-]+\Z", re.ASCII)
_PLAIN_PATH = re.compile(r"[\w./*+@~?-]+\Z", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WILD = re.compile(r"[*?\[]")
SHAPES = ("a place is written FUNCTION, LIBRARY:FUNCTION, /path/program:FUNCTION, t:CATEGORY:EVENT, "
          "u:LIBRARY:PROBE (USDT, else a function), p:LIBRARY:FUNCTION, r:LIBRARY:FUNCTION, or as an attach point "
          "(kprobe:FUNCTION)")


class TraceTarget(msgspec.Struct, frozen=True):
    """Functions or events to trace.

    Attributes:
        spec: the user's text.
        family: KERNEL, USER, TRACEPOINT, USDT or OTHER.
        container: module, library or category; for a USDT probe, the binary.
        name: function or event, or a pattern of these (for a USDT probe with its provider: ``provider:probe``).
        returns: whether the return of functions was requested.
        kind: the kind of probe, if it was requested by name; else empty.
    """

    spec: SpecText
    family: str
    container: str
    name: str
    returns: bool = False
    kind: str = ""

    @property
    def wild(self) -> bool:
        """Whether it may match several functions or events."""
        return bool(_WILD.search(self.name) or _WILD.search(self.container))

    @property
    def mangled(self) -> bool:
        """Whether its functions are given by mangled names of C++ or Rust, as symbols have them."""
        return self.family == USER and self.name.startswith(("_Z", "_R")) and "+" not in self.name


def parse(spec: SpecText, *, regexp: bool = False) -> TraceTarget:
    """Parse a target; with *regexp* its name may be a regular expression.

    Raises:
        TraceError: the text has too few or too many parts.
    """
    found = _CONTROL.search(spec.text)
    if found is not None:
        raise spec.error("control characters are in no name", at=found.start(), length=1)
    parts = kinds.split_attach_point(spec.text)
    first = parts[0]
    kind = probe_kind(first) if len(parts) > 1 and first not in _LETTERS else None
    if kind is not None and kind.name in _FAMILIES:
        return _native(spec, kind.name, parts)
    if first == "t":
        if len(parts) != 3 or not all(parts):
            raise spec.error(f"{spec.text!r} is no tracepoint: t:CATEGORY:EVENT is expected")
        return TraceTarget(spec, TRACEPOINT, parts[1], parts[2])
    if first == "u" and len(parts) in (3, 4):
        return _checked(TraceTarget(spec, USDT, _library(parts[1]), ":".join(parts[2:])))
    if first in ("p", "r") and len(parts) > 1:
        container = parts[1] if len(parts) > 2 else ""
        name = ":".join(parts[2:]) if len(parts) > 2 else parts[1]
        return _function(spec, container, name, returns=first == "r", regexp=regexp)
    if len(parts) == 1:
        return _function(spec, "", first, regexp=regexp)
    return _function(spec, first, ":".join(parts[1:]), regexp=regexp)


def _native(spec: SpecText, kind: str, parts: list[str]) -> TraceTarget:
    family = _FAMILIES[kind]
    if family == OTHER:
        return TraceTarget(spec, OTHER, kind, ":".join(parts[1:]))
    name = parts[-1] if family != USDT else ":".join(parts[2:])
    container = ":".join(parts[1:-1]) if family != USDT else parts[1]
    return _checked(TraceTarget(spec, family, container, name, kind in _RETURNS, kind))


_CPP = "cpp:"


def _function(spec: SpecText, container: str, name: str, *, returns: bool = False, regexp: bool = False) -> TraceTarget:
    plain = name.removeprefix(_CPP) if container else name
    if ":" in (plain.replace("::", "") if container else name) and not regexp:
        raise spec.error(f"{spec.text!r} has too many parts", hints=(SHAPES,))
    return _checked(TraceTarget(spec, USER if container else KERNEL, _library(container), name, returns))


def _checked(target: TraceTarget) -> TraceTarget:
    if not target.name or (target.family in (USER, USDT, TRACEPOINT) and not target.container):
        raise target.spec.error(f"{target.spec.text!r} names nothing to trace", hints=(SHAPES,))
    return target


def _library(name: str) -> str:
    return "libc" if name == "c" else name


def resolve(target: TraceTarget, kernel: KernelInfo, pid: int | None = None) -> TraceTarget:
    """Resolve ``u:FILE:NAME`` to USDT probes as in bcc, or functions as in the language, whichever matches.

    Raises:
        TraceError: the file has neither.
    """
    if target.family != USDT or target.kind:
        return target
    provider, _, name = target.name.rpartition(":")
    paths = kernel.binaries(_binary(target.container, kernel, pid), pid)
    if not paths or any(kernel.usdt_probes(path, provider or "*", name) for path in paths):
        return target
    if not provider and any(kernel.user_symbols(path, name) for path in paths):
        return TraceTarget(target.spec, USER, target.container, name, target.returns)
    location = paths[0] if len(paths) == 1 else f"{len(paths)} files"
    forms = f"usdt:{target.container}:PROVIDER:PROBE and uprobe:{target.container}:FUNCTION"
    hints = (
        f"u: is whichever matches; {forms} say which is meant",
        f"pytrace -l 'usdt:{target.container}:*' lists the probes",
    )
    raise target.spec.error(f"there is neither a USDT probe nor a function {target.name!r} in {location}", hints=hints)


# ---------------------------------------------------------------------------------------------- attach points


class Attachment(msgspec.Struct, frozen=True):
    """The attach points of a target.

    Attributes:
        entry: the attach point of the event, or of the entry of functions.
        leave: that of the return of functions, empty for events.
        arguments: names of the arguments by number if the provider has no ``argN`` (fentry).
        prefix: length of the text before the name of the function or event in ``probe``.
        result: whether the function may have a result; without one, fexit has no ``retval``.
    """

    entry: str
    leave: str = ""
    arguments: tuple[str, ...] = ()
    prefix: int = 0
    result: bool = True

    @property
    def untyped(self) -> bool:
        """Whether arguments are numbered (``arg0``)."""
        return not self.entry.startswith("fentry:")


def attach(target: TraceTarget, kernel: KernelInfo, pid: int | None = None) -> Attachment:
    """The attach points of a target on this machine; the front end reports functions and events that do not exist.

    Raises:
        TraceError: this kernel does not support probes of that kind.
    """
    if target.family == KERNEL:
        return _kernel(target, kernel)
    if target.family == OTHER:
        return Attachment(":".join(map(quoted, (target.container, *target.name.split(":")))), prefix=0)
    if target.family == TRACEPOINT:
        return Attachment(f"tracepoint:{quoted(target.container)}:{quoted(target.name)}", prefix=len("tracepoint:"))
    container = _binary(target.container, kernel, pid)
    paths = kernel.binaries(container, pid)
    path = len(paths[0].encode()) + 1 if len(paths) == 1 else 0
    if target.family == USDT:
        parts = ":".join(quoted(part) for part in target.name.split(":"))
        return Attachment(f"usdt:{quoted(container, path=True)}:{parts}", prefix=len("usdt:") + path)
    plain = target.name.removeprefix(_CPP)
    # The qualified name of a method is that of a C++ function, however its symbol is mangled; what is known by its
    # mangled name is shown demangled.
    language = _CPP if plain != target.name or "::" in plain or target.mangled else ""
    name = f"{quoted(container, path=True)}:{language}{quoted(plain)}"
    shown = len("uprobe:") + path + (len(language) if path else 0)
    return Attachment(f"uprobe:{name}", f"uretprobe:{name}", prefix=shown)


def _binary(container: str, kernel: KernelInfo, pid: int | None) -> str:
    """The binary; as in bcc, ``pthread`` stands for ``libpthread``."""
    if "/" in container or _WILD.search(container) or kernel.binaries(container, pid):
        return container
    return f"lib{container}" if kernel.binaries(f"lib{container}", pid) else container


def _kernel(target: TraceTarget, kernel: KernelInfo) -> Attachment:
    """A single typed function is traced by fentry, which costs least; several by kprobes, which attach at once."""
    name = f"{quoted(target.container)}:{quoted(target.name)}" if target.container else quoted(target.name)
    kprobes = Attachment(f"kprobe:{name}", f"kretprobe:{name}")
    if target.kind in (KPROBE, KRETPROBE):
        return kprobes
    typed = kernel.has_btf and kernel.feature("fentry")
    single = not target.wild and "+" not in target.name
    prototype = kernel.function(target.name, target.container) if typed and single else None
    if prototype is not None and not prototype.variadic:
        arguments = tuple(parameter for parameter, _ in prototype.parameters)
        result = not isinstance(prototype.result, Void)
        return Attachment(f"fentry:{name}", f"fexit:{name}", arguments, result=result)
    if target.kind in _TYPED or (typed and not kernel.feature("kprobe")):
        return Attachment(f"fentry:{name}", f"fexit:{name}")
    if not kernel.feature("kprobe"):
        raise _no_kernel_functions(target)
    return kprobes


def _no_kernel_functions(target: TraceTarget) -> TraceError:
    hints = (
        "tracepoints (t:CATEGORY:EVENT), functions of programs and libraries (LIBRARY:FUNCTION) and USDT probes work",
        f"'pytrace -l \"*{target.name.strip('*_')}*\"' lists the events of similar names",
    )
    message = "this kernel has neither kprobes (CONFIG_KPROBE_EVENTS) nor fentry, so its functions cannot be traced"
    return target.spec.error(message, hints=hints)


def quoted(part: str, *, path: bool = False) -> str:
    """A part of an attach point, in quotes where the grammar needs them; a slash is plain in the *path* of a file."""
    return part if (_PLAIN_PATH if path else _PLAIN).match(part) or not part else in_quotes(part)


def in_quotes(part: str) -> str:
    """A name in quotes, as attach points and strings have it; there are no control characters in it."""
    return '"{}"'.format(part.replace("\\", "\\\\").replace('"', '\\"'))


# ---------------------------------------------------------------------------------------------- regular expressions


def by_regexp(target: TraceTarget) -> tuple[TraceTarget, str]:
    """For a target whose name is a regular expression: a target with name ``*``, and the ``--probe-filter``.

    Names match from their beginning.

    Raises:
        TraceError: it is not a regular expression.
    """
    expression = _without_anchors(target.name)
    try:
        re.compile(expression)
    except re.error as problem:
        raise target.spec.error(f"{target.name!r} is not a regular expression: {problem}") from None
    everything = TraceTarget(target.spec, target.family, target.container, "*", target.returns, target.kind)
    return everything, rf":(?:{expression})[^:]*$|^interval:|:sched_process_exit$"


def _without_anchors(expression: str) -> str:
    """The expression without its ``^``, as the filter matches text in which names are not at the beginning."""
    characters: list[str] = []
    escaped = inside = False
    for character in expression:
        if character == "^" and not escaped and not inside:
            continue
        if not escaped:
            inside = character == "[" or (inside and character != "]")
        escaped = character == "\\" and not escaped
        characters.append(character)
    return "".join(characters)
