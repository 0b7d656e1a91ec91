"""Signatures, which declare names and types of function arguments: ``(struct sock *sk, size_t size)``."""

from __future__ import annotations

import re

import msgspec

from pytrace.multitools.specs.c_types import NoTypeError, is_text, is_user, script_type
from pytrace.multitools.specs.problems import SpecText

_PARAMETER = re.compile(r"(?s)(.*?[\s*])([A-Za-z_]\w*)\s*(\[\s*\d*\s*\])?$")


class Parameter(msgspec.Struct, frozen=True):
    """A parameter: its name, its type in scripts, and whether it is text or points into user memory."""

    name: str
    type: str
    text: bool
    user: bool

    def value(self, argument: str) -> str:
        """The expression for the parameter; *argument* is that for the argument.

        ``args.NAME`` has the kernel's type, which the declared one overrides: ``struct sockaddr_in *`` for a
        ``struct sockaddr *``.
        """
        if argument.startswith("args.") and self.text:
            return f"uptr({argument})" if self.user else argument
        if self.type == "uint64":
            return argument
        if self.text:
            return f"uptr((int8 *){argument})" if self.user else argument
        value = f"({self.type}){argument}"
        return f"uptr({value})" if self.user and self.type.endswith("*") else value


def parse(spec: SpecText) -> tuple[Parameter, ...]:
    """The parameters of a signature without its parentheses.

    Raises:
        TraceError: a parameter is not a type and a name.
    """
    if not spec.text or spec.text == "void":
        return ()
    parameters: list[Parameter] = []
    start = 0
    for part in spec.text.split(","):
        piece = spec.part(start, start + len(part))
        start += len(part) + 1
        parameter = _parameter(piece)
        if any(parameter.name == other.name for other in parameters):
            raise piece.error(f"the signature has two parameters {parameter.name!r}")
        parameters.append(parameter)
    return tuple(parameters)


def _parameter(piece: SpecText) -> Parameter:
    match = _PARAMETER.match(piece.text)
    hints = ("write a signature as (struct sock *sk, size_t size)",)
    if match is None or (match[1].strip() in ("struct", "union", "enum")):
        raise piece.error(f"{piece.text!r} is not a parameter: a type and a name are expected", hints=hints)
    declared = match[1] + ("*" if match[3] else "")
    try:
        type_ = script_type(declared)
    except NoTypeError:
        raise piece.error(f"{match[1].strip()!r} is not a C type", length=len(match[1].rstrip()), hints=hints) from None
    return Parameter(match[2], type_, is_text(declared), is_user(declared))
