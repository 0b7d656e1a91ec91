"""Names and functions of the tools' expressions: arguments, parameters of a signature, values of the task."""

from __future__ import annotations

import re

import msgspec

from pytrace.core.builtins import BUILTINS, Mode
from pytrace.core.diagnostics import TraceError
from pytrace.multitools.specs.c_types import Parameter, places
from pytrace.multitools.specs.expressions import Call, Names, Token, Translator

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


def unknown_at_return(error: TraceError) -> TraceError:
    """The same error, with a hint about names at the return of a function."""
    hint = "at the return of a function only retval is known; argdist's $entry(NAME) remembers an argument"
    return TraceError(error.message, hints=(*error.hints, hint))
