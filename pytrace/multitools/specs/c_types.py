"""C types in signatures and casts, and their names in scripts."""

from __future__ import annotations

import re

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
    "ulong": "uint64", "gfp_t": "uint32", "umode_t": "uint16", "sector_t": "uint64", "dev_t": "uint32",
}  # fmt: skip
_QUALIFIERS = {"const", "volatile", "restrict", "__restrict", "__user", "__kernel", "register"}
_PARTS = {"unsigned", "signed", "char", "short", "int", "long"}
_TAGS = {"struct", "union", "enum"}
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
