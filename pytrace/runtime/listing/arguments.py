"""The arguments of probes as text, for ``-lv``: one row for each kind that has any."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pytrace.core.kernel_info import COMMON_FIELDS_END
from pytrace.core.probes.kinds import FENTRY, FEXIT, ITER, KPROBE, PYTHON, PYTHONRET, RAWTRACEPOINT, TRACEPOINT, UPROBE
from pytrace.core.probes.targets import (
    IteratorTarget,
    KernelFunctionTarget,
    ProbeTarget,
    PythonTarget,
    RawTracepointTarget,
    TracepointTarget,
    TypedFunctionTarget,
    UserTarget,
)
from pytrace.runtime.btf.reader import TYPE_KINDS, Kind
from pytrace.runtime.btf.value_types import Member, TypeReader
from pytrace.runtime.listing import python_functions
from pytrace.runtime.live_kernel import LiveKernel


def of(kernel: LiveKernel, kind: str, place: ProbeTarget) -> list[str]:
    """``type name`` of each argument that a probe kind has at a place."""
    row = _ROWS.get(kind)
    return row(kernel, place) if row is not None else []


def definition(kernel: LiveKernel, word: str, name: str) -> list[str]:
    """The definition of a kernel type, line by line; empty when there is none."""
    found = kernel.types.find(name, *TYPE_KINDS[word]) if kernel.types else None
    return definition_text(*found) if found else []


def _tracepoint(kernel: LiveKernel, place: ProbeTarget) -> list[str]:
    if not isinstance(place, TracepointTarget):
        return []
    fields = kernel.tracepoint_fields(place.category, place.event) or ()
    return [item.declaration for item in fields if item.offset >= COMMON_FIELDS_END]


def _prototype(kernel: LiveKernel, place: ProbeTarget) -> tuple[TypeReader, int] | None:
    """The ``FUNC_PROTO`` of a function, with who defines it."""
    if kernel.types is None or not isinstance(place, KernelFunctionTarget | TypedFunctionTarget):
        return None
    if isinstance(place, TypedFunctionTarget) and place.program_id is not None:
        return None
    found = kernel.types.find(place.function, Kind.FUNC, module=place.module or "vmlinux")
    if found is None:
        return None
    reader, type_id = found
    words, at = reader.place(type_id)
    return reader, words[at + 2]


def _parameters(reader: TypeReader, proto_id: int, skip: int = 0) -> list[str]:
    pairs = reader.parameters(proto_id)[skip:]
    return [
        argument(reader, type_id, name or f"arg{number}") if type_id else "..."
        for number, (name, type_id) in enumerate(pairs)
    ]


def _entry(kernel: LiveKernel, place: ProbeTarget) -> list[str]:
    found = _prototype(kernel, place)
    return _parameters(*found) if found else []


def _exit(kernel: LiveKernel, place: ProbeTarget) -> list[str]:
    found = _prototype(kernel, place)
    if found is None:
        return []
    reader, proto_id = found
    words, at = reader.place(proto_id)
    result = [argument(reader, words[at + 2], "retval")] if words[at + 2] else []
    return [*_parameters(reader, proto_id), *result]


def _raw_tracepoint(kernel: LiveKernel, place: ProbeTarget) -> list[str]:
    if kernel.types is None or not isinstance(place, RawTracepointTarget):
        return []
    found = kernel.types.raw_tracepoint(place.event)
    if found is None:
        return []
    reader, proto_id, names = found
    pairs = reader.parameters(proto_id)[1:]
    return [argument(reader, type_id, name) for name, (_, type_id) in zip(names, pairs, strict=True)]


def _iterator(kernel: LiveKernel, place: ProbeTarget) -> list[str]:
    if kernel.types is None or not isinstance(place, IteratorTarget):
        return []
    found = kernel.types.find(f"bpf_iter__{place.iterator}", Kind.STRUCT)
    if found is None:
        return []
    reader, type_id = found
    lines = []
    for member in reader.members(type_id):
        # Pointers to objects are wrapped in unions that keep them 8 bytes wide on all machines.
        inner = reader.members(member.type_id) if not member.name else [member]
        lines += [argument(reader, item.type_id, item.name) for item in inner if item.name]
    return lines


def _user_function(kernel: LiveKernel, place: ProbeTarget) -> list[str]:
    if not isinstance(place, UserTarget) or not place.symbol:
        return []
    parameters = kernel.user_parameters(place.path, place.symbol) or ()
    return [f"{item.declaration} {item.name}" for item in parameters if item.readable]


def _python_function(_kernel: LiveKernel, place: ProbeTarget) -> list[str]:
    return python_functions.parameters(place.files[0], place.function) if isinstance(place, PythonTarget) else []


_ROWS: dict[str, Callable[[LiveKernel, ProbeTarget], list[str]]] = {
    TRACEPOINT: _tracepoint,
    RAWTRACEPOINT: _raw_tracepoint,
    FENTRY: _entry,
    FEXIT: _exit,
    KPROBE: _entry,
    ITER: _iterator,
    UPROBE: _user_function,
    PYTHON: _python_function,
    PYTHONRET: _python_function,
}


# ---------------------------------------------------------------------------------------------- C text


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
            declarator, type_id = f"{_grouped(declarator)}({_declared_parameters(reader, type_id)})", words[at + 2]
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


def _declared_parameters(reader: TypeReader, proto_id: int) -> str:
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


def definition_text(reader: TypeReader, type_id: int) -> list[str]:
    """A whole definition: ``vmlinux: struct X {``, members, ``};``."""
    owner = reader.btf.owner(type_id).name
    head = f"{owner}: {_KEYWORDS[Kind(reader.btf.kind(type_id))]} {reader.btf.type_name(type_id)}"
    return [f"{head} {{", *body(reader, type_id), "};"]
