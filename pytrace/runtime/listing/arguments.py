"""The arguments of probes as text, for ``-lv``: one row for each kind that has any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pytrace.runtime.btf import c_text
from pytrace.runtime.btf.reader import Kind
from pytrace.runtime.btf.value_types import TypeReader

if TYPE_CHECKING:
    from pytrace.runtime.live_kernel import LiveKernel

_COMMON_FIELDS_END = 8
"""Fields of a tracepoint below this offset are the same for all and cannot be read by programs."""

_TYPE_KINDS = {"struct": (Kind.STRUCT,), "union": (Kind.UNION,), "enum": (Kind.ENUM, Kind.ENUM64)}


def of(kernel: LiveKernel, kind: str, details: Mapping[str, Any]) -> list[str]:
    """``type name`` of each argument of a place; *details* as in :class:`pytrace.core.manifest.Target`."""
    row = _ROWS.get(kind)
    return row(kernel, details) if row is not None else []


def definition(kernel: LiveKernel, word: str, name: str) -> list[str]:
    """The definition of a kernel type, line by line; empty when there is none."""
    found = kernel.types.find(name, *_TYPE_KINDS[word]) if kernel.types else None
    return c_text.definition(*found) if found else []


def _tracepoint(kernel: LiveKernel, details: Mapping[str, Any]) -> list[str]:
    fields = kernel.tracepoint_fields(details["category"], details["event"]) or ()
    return [item.declaration for item in fields if item.offset >= _COMMON_FIELDS_END]


def _prototype(kernel: LiveKernel, details: Mapping[str, Any]) -> tuple[TypeReader, int] | None:
    """The ``FUNC_PROTO`` of a function, with who defines it."""
    if kernel.types is None or "program_id" in details:
        return None
    found = kernel.types.find(details["function"], Kind.FUNC, module=details["module"] or "vmlinux")
    if found is None:
        return None
    reader, type_id = found
    words, at = reader.place(type_id)
    return reader, words[at + 2]


def _parameters(reader: TypeReader, proto_id: int, skip: int = 0) -> list[str]:
    pairs = reader.parameters(proto_id)[skip:]
    return [
        c_text.argument(reader, type_id, name or f"arg{number}") if type_id else "..."
        for number, (name, type_id) in enumerate(pairs)
    ]


def _entry(kernel: LiveKernel, details: Mapping[str, Any]) -> list[str]:
    found = _prototype(kernel, details)
    return _parameters(*found) if found else []


def _exit(kernel: LiveKernel, details: Mapping[str, Any]) -> list[str]:
    found = _prototype(kernel, details)
    if found is None:
        return []
    reader, proto_id = found
    words, at = reader.place(proto_id)
    result = [c_text.argument(reader, words[at + 2], "retval")] if words[at + 2] else []
    return [*_parameters(reader, proto_id), *result]


def _raw_tracepoint(kernel: LiveKernel, details: Mapping[str, Any]) -> list[str]:
    found = kernel.types.raw_tracepoint(details["event"]) if kernel.types else None
    if found is None:
        return []
    reader, proto_id, names = found
    pairs = reader.parameters(proto_id)[1:]
    return [c_text.argument(reader, type_id, name) for name, (_, type_id) in zip(names, pairs, strict=True)]


def _iterator(kernel: LiveKernel, details: Mapping[str, Any]) -> list[str]:
    found = kernel.types.find(f"bpf_iter__{details['iterator']}", Kind.STRUCT) if kernel.types else None
    if found is None:
        return []
    reader, type_id = found
    lines = []
    for member in reader.members(type_id):
        # Pointers to objects are wrapped in unions that keep them 8 bytes wide on all machines.
        inner = reader.members(member.type_id) if not member.name else [member]
        lines += [c_text.argument(reader, item.type_id, item.name) for item in inner if item.name]
    return lines


def _user_function(kernel: LiveKernel, details: Mapping[str, Any]) -> list[str]:
    if not details.get("symbol"):
        return []
    parameters = kernel.user_parameters(details["path"], details["symbol"]) or ()
    return [f"{item.declaration} {item.name}" for item in parameters]


_ROWS: dict[str, Callable[[LiveKernel, Mapping[str, Any]], list[str]]] = {
    "tracepoint": _tracepoint,
    "rawtracepoint": _raw_tracepoint,
    "fentry": _entry,
    "fexit": _exit,
    "kprobe": _entry,
    "iter": _iterator,
    "uprobe": _user_function,
}
