"""BTF types as C text: declarations for listings of arguments, whole definitions for ``-lv 'struct X'``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.runtime.btf.reader import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytrace.runtime.btf.value_types import Member, TypeReader

_QUALIFIERS = {Kind.CONST: "const", Kind.VOLATILE: "volatile", Kind.RESTRICT: "restrict"}
_KEYWORDS = {Kind.STRUCT: "struct", Kind.UNION: "union", Kind.ENUM: "enum", Kind.ENUM64: "enum"}


def declare(reader: TypeReader, type_id: int, name: str = "", indent: str = "") -> str:
    """A C declaration of *name* (or of nothing) as a type; unnamed structs are written out, indented by *indent*."""
    declarator, qualifiers = name, []
    btf = reader.btf
    while True:
        kind = btf.kind(type_id)
        words, at = reader.place(type_id) if type_id else ((), 0)
        if kind in _QUALIFIERS:
            qualifiers.append(_QUALIFIERS[Kind(kind)])
            type_id = words[at + 2]
        elif kind == Kind.PTR:
            # Qualifiers that were passed on the way here are those of the pointer itself.
            declarator, type_id = f"*{' '.join([*qualifiers, declarator])}", words[at + 2]
            qualifiers = []
        elif kind == Kind.ARRAY:
            declarator, type_id = f"{_grouped(declarator)}[{words[at + 5] or ''}]", words[at + 3]
        elif kind == Kind.FUNC_PROTO:
            declarator, type_id = f"{_grouped(declarator)}({_parameters(reader, type_id)})", words[at + 2]
        elif kind in (Kind.TYPE_TAG, Kind.DECL_TAG):
            type_id = words[at + 2]
        else:
            break
    base = " ".join([*qualifiers, _base(reader, type_id, indent)])
    return f"{base} {declarator}".rstrip()


def argument(reader: TypeReader, type_id: int, name: str) -> str:
    """``type name`` as listings have it: ``struct file * file``."""
    text = reader.texts.get(type_id)
    if text is None:
        text = reader.texts[type_id] = declare(reader, type_id)
    return f"{text} {name}".rstrip()


def _grouped(declarator: str) -> str:
    return f"({declarator})" if declarator.startswith("*") else declarator


def _parameters(reader: TypeReader, proto_id: int) -> str:
    texts = [
        declare(reader, type_id, name) if type_id or name else "..." for name, type_id in reader.parameters(proto_id)
    ]
    return ", ".join(texts) or "void"


def _base(reader: TypeReader, type_id: int, indent: str) -> str:
    btf = reader.btf
    kind, name = btf.kind(type_id), btf.type_name(type_id)
    if kind == Kind.FWD:
        words, at = reader.place(type_id)
        return f"{'union' if words[at + 1] >> 31 else 'struct'} {name}"
    keyword = _KEYWORDS.get(Kind(kind))
    if keyword is None:
        return name or "void"
    if name:
        return f"{keyword} {name}"
    return "\n".join([f"{keyword} {{", *body(reader, type_id, indent + "\t"), f"{indent}}}"])


def body(reader: TypeReader, type_id: int, indent: str = "\t") -> Iterator[str]:
    """The lines between the braces of a definition."""
    if reader.btf.kind(type_id) in (Kind.ENUM, Kind.ENUM64):
        for name, value in reader.enumerators(type_id):
            yield f"{indent}{name} = {value},"
        return
    for member in reader.members(type_id):
        yield f"{indent}{_member(reader, member, indent)};"


def _member(reader: TypeReader, member: Member, indent: str) -> str:
    text = declare(reader, member.type_id, member.name, indent)
    return f"{text}: {member.bit_size}" if member.bit_size else text


def definition(reader: TypeReader, type_id: int) -> list[str]:
    """A whole definition: ``vmlinux: struct X {``, members, ``};``."""
    owner = reader.btf.owner(type_id).name
    head = f"{owner}: {_KEYWORDS[Kind(reader.btf.kind(type_id))]} {reader.btf.type_name(type_id)}"
    return [f"{head} {{", *body(reader, type_id), "};"]
