"""Targets as users write them for multi-purpose tools: patterns in bcc's syntax (``vfs_*``, ``t:sched:*``) or attach
points, and what expressions know there.
"""

from __future__ import annotations

import platform
import re

import msgspec

from pytrace.core import probe_kinds
from pytrace.core.builtins import BUILTINS, Mode
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.probe_kinds import (
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
from pytrace.core.probe_kinds import TRACEPOINT as TRACEPOINT_PROBE
from pytrace.core.probe_kinds import USDT as USDT_PROBE
from pytrace.core.types import Pointer, Void
from pytrace.multitools.expressions import Call, Names, Parameter, SpecText, Token, Translator, signature, text_end

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

_FLOATING_REGISTERS = 8
"""Of those that pass floating-point arguments, of x86-64 and 64-bit Arm; further arguments are on the stack."""


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
    def call(self) -> str:
        """The attach point of whole calls of functions."""
        kind, _, rest = self.entry.partition(":")
        return f"call:{rest}" if kind == UPROBE else f"call:kernel:{rest}"

    @property
    def untyped(self) -> bool:
        """Whether arguments are numbered (``arg0``)."""
        return not self.entry.startswith("fentry:")


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

    @classmethod
    def parse(cls, spec: SpecText, *, regexp: bool = False) -> TraceTarget:
        """Parse a target; with *regexp* its name may be a regular expression.

        Raises:
            TraceError: the text has too few or too many parts.
        """
        found = _CONTROL.search(spec.text)
        if found is not None:
            raise spec.error("control characters are in no name", at=found.start(), length=1)
        parts = probe_kinds.split_attach_point(spec.text)
        first = parts[0]
        kind = probe_kind(first) if len(parts) > 1 and first not in _LETTERS else None
        if kind is not None and kind.name in _FAMILIES:
            return _native(spec, kind.name, parts)
        if first == "t":
            if len(parts) != 3 or not all(parts):
                raise spec.error(f"{spec.text!r} is no tracepoint: t:CATEGORY:EVENT is expected")
            return cls(spec, TRACEPOINT, parts[1], parts[2])
        if first == "u" and len(parts) in (3, 4):
            return _checked(cls(spec, USDT, _library(parts[1]), ":".join(parts[2:])))
        if first in ("p", "r") and len(parts) > 1:
            container = parts[1] if len(parts) > 2 else ""
            name = ":".join(parts[2:]) if len(parts) > 2 else parts[1]
            return _function(spec, container, name, returns=first == "r", regexp=regexp)
        if len(parts) == 1:
            return _function(spec, "", first, regexp=regexp)
        return _function(spec, first, ":".join(parts[1:]), regexp=regexp)

    @property
    def wild(self) -> bool:
        """Whether it may match several functions or events."""
        return bool(_WILD.search(self.name) or _WILD.search(self.container))

    @property
    def mangled(self) -> bool:
        """Whether its functions are given by mangled names of C++ or Rust, as symbols have them."""
        return self.family == USER and self.name.startswith(("_Z", "_R")) and "+" not in self.name

    def resolve(self, kernel: KernelInfo, pid: int | None = None) -> TraceTarget:
        """Resolve ``u:FILE:NAME`` to USDT probes as in bcc, or functions as in the language, whichever matches.

        Raises:
            TraceError: the file has neither.
        """
        if self.family != USDT or self.kind:
            return self
        provider, _, name = self.name.rpartition(":")
        paths = kernel.binaries(_binary(self.container, kernel, pid), pid)
        if not paths or any(kernel.usdt_probes(path, provider or "*", name) for path in paths):
            return self
        if not provider and any(kernel.user_symbols(path, name) for path in paths):
            return TraceTarget(self.spec, USER, self.container, name, self.returns)
        location = paths[0] if len(paths) == 1 else f"{len(paths)} files"
        forms = f"usdt:{self.container}:PROVIDER:PROBE and uprobe:{self.container}:FUNCTION"
        hints = (
            f"u: is whichever matches; {forms} say which is meant",
            f"pytrace -l 'usdt:{self.container}:*' lists the probes",
        )
        raise self.spec.error(f"there is neither a USDT probe nor a function {self.name!r} in {location}", hints=hints)

    def attach(self, kernel: KernelInfo, pid: int | None = None) -> Attachment:
        """The attach points on this machine; the front end reports functions and events that do not exist.

        Raises:
            TraceError: this kernel does not support probes of that kind.
        """
        if self.family == KERNEL:
            return self._of_kernel(kernel)
        if self.family == OTHER:
            return Attachment(":".join(map(quoted, (self.container, *self.name.split(":")))), prefix=0)
        if self.family == TRACEPOINT:
            return Attachment(f"tracepoint:{quoted(self.container)}:{quoted(self.name)}", prefix=len("tracepoint:"))
        container = _binary(self.container, kernel, pid)
        paths = kernel.binaries(container, pid)
        path = len(paths[0].encode()) + 1 if len(paths) == 1 else 0
        if self.family == USDT:
            parts = ":".join(quoted(part) for part in self.name.split(":"))
            return Attachment(f"usdt:{quoted(container, path=True)}:{parts}", prefix=len("usdt:") + path)
        plain = self.name.removeprefix(_CPP)
        # The qualified name of a method is that of a C++ function, however its symbol is mangled; what is known by its
        # mangled name is shown demangled.
        language = _CPP if plain != self.name or "::" in plain or self.mangled else ""
        name = f"{quoted(container, path=True)}:{language}{quoted(plain)}"
        shown = len("uprobe:") + path + (len(language) if path else 0)
        return Attachment(f"uprobe:{name}", f"uretprobe:{name}", prefix=shown)

    def _of_kernel(self, kernel: KernelInfo) -> Attachment:
        """A single typed function is traced by fentry, which costs least; several, also of one name, by kprobes, which
        attach at once.
        """
        name = f"{quoted(self.container)}:{quoted(self.name)}" if self.container else quoted(self.name)
        kprobes = Attachment(f"kprobe:{name}", f"kretprobe:{name}")
        if self.kind in (KPROBE, KRETPROBE):
            return kprobes
        typed = kernel.has_btf and kernel.feature("fentry")
        single = not self.wild and "+" not in self.name
        if typed and single and kernel.feature("kprobe") and self.kind not in _TYPED:
            single = all(item.number == 1 for item in kernel.kernel_functions(self.name, self.container))
        prototype = kernel.function(self.name, self.container) if typed and single else None
        if prototype is not None and not prototype.variadic:
            arguments = tuple(parameter for parameter, _ in prototype.parameters)
            result = not isinstance(prototype.result, Void)
            return Attachment(f"fentry:{name}", f"fexit:{name}", arguments, result=result)
        if self.kind in _TYPED or (typed and not kernel.feature("kprobe")):
            return Attachment(f"fentry:{name}", f"fexit:{name}")
        if kernel.feature("kprobe"):
            return kprobes
        works = "tracepoints (t:CATEGORY:EVENT), functions of programs and libraries (LIBRARY:FUNCTION) and USDT probes"
        hints = (f"{works} work", f"'pytrace -l \"*{self.name.strip('*_')}*\"' lists the events of similar names")
        message = "this kernel has neither kprobes (CONFIG_KPROBE_EVENTS) nor fentry, so its functions cannot be traced"
        raise self.spec.error(message, hints=hints)


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


def _binary(container: str, kernel: KernelInfo, pid: int | None) -> str:
    """The binary; as in bcc, ``pthread`` stands for ``libpthread``."""
    if "/" in container or _WILD.search(container) or kernel.binaries(container, pid):
        return container
    return f"lib{container}" if kernel.binaries(f"lib{container}", pid) else container


def quoted(part: str, *, path: bool = False) -> str:
    """A part of an attach point, in quotes where the grammar needs them; a slash is plain in the *path* of a file."""
    return part if (_PLAIN_PATH if path else _PLAIN).match(part) or not part else _in_quotes(part)


def _in_quotes(part: str) -> str:
    """A name in quotes, as attach points and strings have it; there are no control characters in it."""
    return '"{}"'.format(part.replace("\\", "\\\\").replace('"', '\\"'))


# ---------------------------------------------------------------------------------------------- names in scope


_ARGUMENT = re.compile(r"arg([1-9]\d*)$")
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*)")
_TASK = {
    "$pid": "tid", "$tgid": "pid", "$PID": "pid", "$uid": "uid", "$gid": "gid", "$cpu": "cpu", "$task": "curtask",
    "$comm": "comm", "$COMM": "comm", "pid": "pid", "tid": "tid", "uid": "uid", "gid": "gid", "cpu": "cpu",
    "comm": "comm", "nsecs": "nsecs", "NULL": "0", "true": "true", "false": "false", "curtask": "curtask",
}  # fmt: skip
"""Values of the current task; ``$pid`` is the kernel's pid, that of the thread, as in bcc."""
FUNCTIONS = frozenset(
    row.name
    for row in BUILTINS
    if row.call and row.most != 0 and row.mode is not Mode.ASYNC and not row.unsafe
    and row.family not in ("aggregate", "map")
)  # fmt: skip
"""Functions of scripts that expressions may call as they are: all that give a value of their arguments."""
_VALUES = frozenset(
    row.name
    for row in BUILTINS
    if row.value and row.probes is None and row.mode is not Mode.ASYNC
) - {"args", "argN", "ctx", "retval"}  # fmt: skip
"""Builtins that are available in every probe; those that depend on the probe are in :class:`Scope`."""
_SWAPS = {"ntohs": "uint16", "htons": "uint16", "bpf_ntohs": "uint16", "bpf_htons": "uint16", "ntohl": "uint32",
          "htonl": "uint32", "bpf_ntohl": "uint32", "bpf_htonl": "uint32"}  # fmt: skip


def places(parameters: tuple[Parameter, ...]) -> list[int | None]:
    """The N of ``argN`` that each parameter is; None for those that are in floating-point registers, or take one's turn
    on the stack.
    """
    registers = 6 if platform.machine() == "x86_64" else 8
    whole = floating = stack = 0
    found: list[int | None] = []
    for item in parameters:
        if item.fraction:
            found.append(None)
            floating += 1
            stack += floating > _FLOATING_REGISTERS
        elif whole < registers:
            found.append(whole)
            whole += 1
        else:
            found.append(registers + stack)
            stack += 1
    return found


class Scope(msgspec.Struct, frozen=True):
    """The names that are available to the expressions of a probe.

    Attributes:
        arguments: names that replace ``argN`` in the script (fentry has no ``argN``); empty if ``argN`` is used.
        numbered: whether ``argN`` is available at all.
        fields: whether ``args`` is available.
        returns: whether ``retval`` is available.
        parameters: those of the signature.
        size: maximum bytes of strings; 0 for the default.
    """

    arguments: tuple[str, ...] = ()
    numbered: bool = True
    fields: bool = True
    returns: bool = False
    parameters: tuple[Parameter, ...] = ()
    size: int = 0

    def argument(self, number: int) -> str | None:
        """The script's name of an argument, counted from zero."""
        if not self.numbered:
            return None
        if not self.arguments:
            return f"arg{number}"
        return f"args.{self.arguments[number]}" if number < len(self.arguments) else None

    def parameter(self, name: str) -> str | None:
        """The variable for a parameter of the signature."""
        for number, parameter in zip(places(self.parameters), self.parameters, strict=True):
            if parameter.name == name and parameter.fraction:
                hints = ("BPF programs have the integer registers only",)
                raise TraceError(f"{name} is in a floating-point register, which cannot be read", hints=hints)
            if parameter.name == name:
                return f"${name}" if number is not None and self.argument(number) is not None else None
        return None

    def variables(self, *used: str) -> list[str]:
        """Statements that set the variables of those parameters that the expressions *used* contain."""
        names = {word for text in used for word in _VARIABLE.findall(text)}
        statements: list[str] = []
        for number, parameter in zip(places(self.parameters), self.parameters, strict=True):
            raw = None if number is None else self.argument(number)
            if raw is not None and parameter.name in names:
                statements.append(f"${parameter.name} = {parameter.value(raw)};")
        return statements

    def resolve(self, name: str) -> str | None:
        """The script's expression for a name."""
        parameter = self.parameter(name)
        if parameter is not None:
            return parameter
        match = _ARGUMENT.match(name)
        if match is not None:
            return self.argument(int(match[1]) - 1)
        if name in ("retval", "$retval"):
            return "retval" if self.returns else None
        if name == "args":
            return "args" if self.fields else None
        return _TASK.get(name, name if name in _VALUES else None)

    @property
    def known(self) -> tuple[str, ...]:
        """Names for error messages."""
        own = tuple(item.name for item in self.parameters if not item.fraction) if self.numbered else ()
        fields = ("args",) if self.fields else ()
        numbers = ("arg1", "arg2", "…") if self.numbered and not own else ()
        return (*own, *numbers, *fields, *(("retval",) if self.returns else ()), "$pid", "$tgid", "$uid", "$cpu")

    def names(self) -> Names:
        """The names of an expression in this scope."""
        return Names(self.resolve, self.known, self._special, FUNCTIONS)

    def string(self, expression: str) -> str:
        """The expression for the text at an address."""
        if expression in ("comm", "probe", "func") or expression.startswith(('"', "str(", "usym(", "ksym(")):
            return expression
        return f"str({expression}, {self.size})" if self.size else f"str({expression})"

    def _special(self, name: str) -> Call | None:
        if name == "STRCMP":
            return self._compare
        if name == "sizeof":
            return _sizeof
        return _swapped if name in _SWAPS else None

    def _compare(self, translator: Translator, token: Token) -> str:
        values = translator.arguments()
        texts = [value for value in values if value.startswith('"')]
        if len(values) != 2 or len(texts) != 1:
            raise translator.error('STRCMP takes a text in quotes and an expression: STRCMP("abc", arg1)', token)
        other = next(value for value in values if value != texts[0])
        return f"({self.string(other)} == {texts[0]})"


def _sizeof(translator: Translator, _token: Token) -> str:
    type_ = translator.type_argument()
    return f"sizeof({type_})" if type_ is not None else f"sizeof({', '.join(translator.arguments())})"


def _swapped(translator: Translator, token: Token) -> str:
    values = translator.arguments()
    if len(values) != 1:
        raise translator.error(f"{token.text} takes one value", token)
    return f"bswap(({_SWAPS[token.text]}){values[0]})"


# ---------------------------------------------------------------------------------------------- probes


class ProbeText(msgspec.Struct, frozen=True):
    """A target with its signature, and the *rest* of the text."""

    target: TraceTarget
    attachment: Attachment
    parameters: tuple[Parameter, ...]
    rest: SpecText

    @classmethod
    def parse(cls, spec: SpecText, kernel: KernelInfo, pid: int | None, *, stop: str) -> ProbeText:
        """Parse a target and its signature at the start of *spec*.

        The target ends before ``(`` or a character of *stop*.

        Raises:
            TraceError: the target is missing, or the signature has no end.
        """
        end = 0
        text = spec.text
        while end < len(text) and text[end] not in f"({stop}":
            # A part of the name may be in quotes (cpp:"ns::function(int)"); those of a format do not follow a colon.
            end += 1
            if text[end - 1] == ":" and text[end : end + 1] == '"':
                end = min(text_end(text, end), len(text))
        place_text = spec.part(0, end)
        if not place_text.text:
            raise spec.error("a probe is expected, such as p::vfs_read or t:sched:sched_switch", length=1)
        parameters: tuple[Parameter, ...] = ()
        if end < len(text) and text[end] == "(":
            close = text.find(")", end)
            if close < 0:
                raise spec.error("the signature has no end: ) is missing", at=end)
            parameters = signature(spec.part(end + 1, close))
            end = close + 1
        target = TraceTarget.parse(place_text).resolve(kernel, pid)
        if parameters and target.family not in (KERNEL, USER, USDT):
            raise place_text.error("tracepoints have no signature: their fields are args->NAME")
        attachment = target.attach(kernel, pid)
        if target.returns and not attachment.leave:
            raise target.spec.error("events have no return")
        return cls(target, attachment, parameters, spec.part(end, len(text)))

    @property
    def point(self) -> str:
        """The attach point."""
        return self.attachment.leave if self.target.returns else self.attachment.entry

    def scope(self, size: int) -> Scope:
        """Names that are available to expressions at the event; *size* is the length of strings."""
        family, returns = self.target.family, self.target.returns
        typed_return = returns and bool(self.attachment.arguments)
        return Scope(
            arguments=self.attachment.arguments,
            numbered=family != TRACEPOINT and (not returns or typed_return),
            fields=family == TRACEPOINT or (family in (KERNEL, USER) and not returns) or typed_return,
            returns=returns and self.attachment.result,
            parameters=self.parameters,
            size=size,
        )

    def event_name(self) -> str:
        """The script's expression for the name of the event."""
        if self.target.family in (KERNEL, USER):
            return "func"
        if self.target.wild:
            return "probe"
        return _in_quotes(self.target.name)

    def array_field(self, expression: str, kernel: KernelInfo) -> bool:
        """Whether an expression is a tracepoint field that contains its text, so that it needs no ``str``."""
        for arrow in ("args->", "args."):
            if self.target.family == TRACEPOINT and expression.startswith(arrow):
                name = expression[len(arrow) :]
                fields = kernel.tracepoint_fields(self.target.container, self.target.name) or ()
                return any(field.name == name and not isinstance(field.type, Pointer) for field in fields)
        return False
