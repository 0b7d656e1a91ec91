"""C types in casts, and signatures, which declare names and types of arguments: ``(struct sock *sk, size_t size)``."""

from __future__ import annotations

import platform
import re

import msgspec

from pytrace.multitools.specs.problems import SpecText

_INTEGERS = {
    "char": "int8", "short": "int16", "int": "int32", "long": "int64", "llong": "int64", "bool": "bool",
    "_Bool": "bool", "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "__s8": "int8", "__s16": "int16", "__s32": "int32", "__s64": "int64",
    "__u8": "uint8", "__u16": "uint16", "__u32": "uint32", "__u64": "uint64", "__be16": "uint16", "__be32": "uint32",
    "int8_t": "int8", "int16_t": "int16", "int32_t": "int32", "int64_t": "int64", "uint8_t": "uint8",
    "uint16_t": "uint16", "uint32_t": "uint32", "uint64_t": "uint64", "size_t": "uint64", "ssize_t": "int64",
    "uintptr_t": "uint64", "intptr_t": "int64", "off_t": "int64", "loff_t": "int64", "pid_t": "int32",
    "uid_t": "uint32", "gid_t": "uint32", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64",
    "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64", "uint": "uint32",
    "ulong": "uint64", "float": "float", "double": "double",
    "gfp_t": "uint32", "umode_t": "uint16", "sector_t": "uint64", "dev_t": "uint32",
}  # fmt: skip
_QUALIFIERS = {"const", "volatile", "restrict", "__restrict", "__user", "__kernel", "register"}
_PARTS = {"unsigned", "signed", "char", "short", "int", "long"}
_TAGS = {"struct", "union", "enum"}
_PARAMETER = re.compile(r"(?s)(.*?[\s*])([A-Za-z_]\w*)\s*(\[\s*\d*\s*\])?$")
_WORD = re.compile(r"[A-Za-z_]\w*|\*")


class NoTypeError(ValueError):
    """The text is not a C type."""


def is_type_word(word: str) -> bool:
    """Whether a type may begin with this word."""
    is_listed = word in _INTEGERS or word in _QUALIFIERS or word in _PARTS or word in _TAGS or word == "void"
    return is_listed or word.endswith("_t")


def script_type(text: str) -> str:
    """The type *text* (``const struct sock *``) as scripts write it (``struct sock *``).

    Raises:
        NoTypeError: it is not a C type.
    """
    words = _WORD.findall(text)
    if "".join(words) != "".join(text.split()):
        raise NoTypeError(text)
    stars = words.count("*")
    names = [word for word in words if word != "*" and word not in _QUALIFIERS]
    if names == ["long", "double"]:
        raise NoTypeError(text)
    if not names or ("*" in words[: len(words) - stars] and set(words[words.index("*") :]) - {"*"} - _QUALIFIERS):
        raise NoTypeError(text)
    return _base(names, text) + (" " + "*" * stars if stars else "")


def _base(names: list[str], text: str) -> str:
    if names[0] in _TAGS:
        if len(names) != 2:
            raise NoTypeError(text)
        return " ".join(names)
    if all(name in _PARTS for name in names):
        return _arithmetic(names)
    if len(names) != 1:
        raise NoTypeError(text)
    return _INTEGERS.get(names[0], names[0])


def _arithmetic(names: list[str]) -> str:
    width = "int32"
    for name, type_ in (("char", "int8"), ("short", "int16"), ("long", "int64")):
        if name in names:
            width = type_
    return f"u{width}" if "unsigned" in names else width


def is_text(text: str) -> bool:
    """Whether a C type is text: a pointer to characters."""
    try:
        return script_type(text) == "int8 *"
    except NoTypeError:
        return False


def is_user(text: str) -> bool:
    """Whether a C type is annotated as a pointer into user memory."""
    return "__user" in text.split() or "__user" in _WORD.findall(text)


# ---------------------------------------------------------------------------------------------- signatures


class Parameter(msgspec.Struct, frozen=True):
    """A parameter: its name, its type in scripts, and whether it is text or points into user memory."""

    name: str
    type: str
    text: bool
    user: bool

    @property
    def fraction(self) -> bool:
        """Whether it is passed in a floating-point register, which BPF programs cannot read."""
        return self.type in ("float", "double")

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


_FLOATING_REGISTERS = 8
"""Of those that pass floating-point arguments, of x86-64 and 64-bit Arm; further arguments are on the stack."""


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


def signature(spec: SpecText) -> tuple[Parameter, ...]:
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
