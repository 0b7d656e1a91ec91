"""Whether this kernel has the layouts that an ahead-of-time file was compiled for.

A *row* is a tuple of texts, its kind first, as ``codegen.emit.load_time`` writes them down:

- ``member``, kind, struct, path of names, offset, bit offset, bits, type
- ``size``, kind, struct, bytes
- ``tracepoint``, category, event, field, offset, size, declaration
- ``function``, name, module, prototype; ``rawtracepoint``, event, prototype
- ``enumerator``, name, value
- ``names``, enumeration, bytes: its names are printed (:func:`renamed` brings those of this kernel)
- ``kfunc``, name, 1 or 0: whether the kernel has a function
- ``type_exist``, kind, name, 1 or 0; ``member_exist``, kind, name, path, 1 or 0; ``constant_exist``, name, 1 or 0;
  ``symbol_exist``, name, 1 or 0
- ``build``, what: right on the very kernel build only
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.manifest import Manifest
from pytrace.core.types import Array, Enum, Field, Pointer, Struct, Type, rebuilt

Row = tuple[str, ...]


def differences(kernel: KernelInfo, rows: Iterable[Row]) -> list[str]:
    """Differences between *rows* and this kernel, a sentence each."""
    return [text for row in rows if (text := _difference(kernel, row))]


def _difference(kernel: KernelInfo, row: Row) -> str:
    check = _CHECKS.get(row[0]) if row else None
    if check is None:
        return f"unknown fact {row[0] if row else ''!r}"
    try:
        return check(kernel, row)
    except (TypeError, ValueError):
        return f"the fact {row[0]!r} has another form than this version writes"


def member(kernel: KernelInfo, kind: str, name: str, path: str) -> Field | None:
    """The member of a struct that the names of *path* lead to; its offset is from the start of the last struct."""
    struct: object = kernel.struct(kind, name)
    found: Field | None = None
    for step in path.split("."):
        if isinstance(struct, Pointer):
            struct = struct.target
        found = struct.find(step) if isinstance(struct, Struct) else None
        if found is None:
            return None
        struct = found.type
    return found


def renamed(manifest: Manifest, kernel: KernelInfo, rows: Iterable[Row]) -> Manifest:
    """*manifest* with the names that enumerations have on this kernel."""
    names = {row[1] for row in rows if row[0] == "names"}
    present = {name: found for name in names if (found := kernel.enum(name)) is not None}

    def current(type_: Type) -> Type:
        return present.get(type_.name, type_) if isinstance(type_, Enum) else type_

    return manifest.with_types(lambda type_: rebuilt(type_, current)) if present else manifest


def _member(kernel: KernelInfo, row: Row) -> str:
    _, kind, name, path, offset, bit_offset, bits, type_text = row
    title = f"{kind} {name}"
    found = member(kernel, kind, name, path)
    if found is None:
        missing = kernel.struct(kind, name) is None
        return f"there is no {title} here" if missing else f"{title} has no member {path} here"
    if str(found.type) != type_text:
        return f"{title}: member {path} is of type {found.type} here, it was {type_text}"
    here = (found.offset, found.bit_offset, found.bit_size)
    if here != (int(offset), int(bit_offset), int(bits)):
        return f"{title}: member {path} is at {_place(*here)} here, it was at {_place(offset, bit_offset, bits)}"
    return ""


def _place(offset: int | str, bit_offset: int | str, bits: int | str) -> str:
    return f"offset {offset}" + (f" (bit {bit_offset}, {bits} bits)" if int(bits) else "")


def _size(kernel: KernelInfo, row: Row) -> str:
    _, kind, name, size = row
    found = kernel.struct(kind, name)
    if found is None:
        return f"there is no {kind} {name} here"
    return "" if found.size == int(size) else f"{kind} {name} has {found.size} bytes here, it had {size}"


def _tracepoint(kernel: KernelInfo, row: Row) -> str:
    _, category, event, name, offset, size, declaration = row
    fields = kernel.tracepoint_fields(category, event)
    title = f"tracepoint {category}:{event}"
    if fields is None:
        return f"there is no {title} here"
    found = next((item for item in fields if item.name == name), None)
    if found is None:
        return f"{title} has no field {name} here"
    if (found.offset, found.size) != (int(offset), int(size)):
        now = f"{found.size} bytes at offset {found.offset} here"
        return f"{title}: field {name} has {now}, it had {size} at offset {offset}"
    if found.declaration != declaration:
        return f"{title}: field {name} is {found.declaration!r} here, it was {declaration!r}"
    return ""


def _function(kernel: KernelInfo, row: Row) -> str:
    _, name, module, text = row
    found = kernel.function(name, module)
    return _prototype(f"function {name}", None if found is None else found.text, text)


def _raw_tracepoint(kernel: KernelInfo, row: Row) -> str:
    _, event, text = row
    found = kernel.raw_tracepoint_prototype(event)
    return _prototype(f"raw tracepoint {event}", None if found is None else found.text, text)


def _prototype(title: str, here: str | None, text: str) -> str:
    if here is None:
        return f"there is no {title} here"
    return "" if here == text else f"{title} is {here} here, it was {text}"


def _enumerator(kernel: KernelInfo, row: Row) -> str:
    found = kernel.enumerator(row[1])
    if found is None:
        return f"there is no enumerator {row[1]} here"
    return "" if found[1] == int(row[2]) else f"enumerator {row[1]} is {found[1]} here, it was {row[2]}"


def _names(kernel: KernelInfo, row: Row) -> str:
    found = kernel.enum(row[1])
    if found is None:
        return f"there is no enum {row[1]} here"
    return "" if found.width == int(row[2]) else f"enum {row[1]} has {found.width} bytes here, it had {row[2]}"


def _kfunc(kernel: KernelInfo, row: Row) -> str:
    there = kernel.function(row[1]) is not None
    return "" if there == (row[2] == "1") else f"there is {'a' if there else 'no'} function {row[1]} here"


def _type_exists(kernel: KernelInfo, row: Row) -> str:
    there = _type(kernel, row[1], row[2]) is not None
    shown = f"{row[1]} {row[2]}"
    return "" if there == (row[3] == "1") else f"there is {'a' if there else 'no'} {shown} here"


def _type(kernel: KernelInfo, kind: str, name: str) -> Type | None:
    if kind == "enum":
        return kernel.enum(name)
    return kernel.typedef(name) if kind == "typedef" else kernel.struct(kind, name)


def _member_exists(kernel: KernelInfo, row: Row) -> str:
    found = _type(kernel, row[1], row[2])
    for step in row[3].split("."):
        inner = found.target if isinstance(found, Pointer) else found
        inner = inner.element if isinstance(inner, Array) else inner
        field = inner.find(step) if isinstance(inner, Struct) else None
        found = field.type if field is not None else None
    there = found is not None
    shown = f"{row[1]} {row[2]} has {'a' if there else 'no'} member {row[3]} here"
    return "" if there == (row[4] == "1") else shown


def _constant_exists(kernel: KernelInfo, row: Row) -> str:
    there = kernel.enumerator(row[1]) is not None
    return "" if there == (row[2] == "1") else f"there is {'a' if there else 'no'} constant {row[1]} here"


def _symbol_exists(kernel: KernelInfo, row: Row) -> str:
    try:
        there = kernel.kernel_symbol(row[1]) is not None
    except TraceError:
        there = False
    return "" if there == (row[2] == "1") else f"there is {'a' if there else 'no'} symbol {row[1]} here"


def _build(_kernel: KernelInfo, row: Row) -> str:
    return f"it uses {row[1]}"


_CHECKS: dict[str, Callable[[KernelInfo, Row], str]] = {
    "member": _member,
    "size": _size,
    "tracepoint": _tracepoint,
    "function": _function,
    "rawtracepoint": _raw_tracepoint,
    "enumerator": _enumerator,
    "names": _names,
    "kfunc": _kfunc,
    "type_exist": _type_exists,
    "member_exist": _member_exists,
    "constant_exist": _constant_exists,
    "symbol_exist": _symbol_exists,
    "build": _build,
}
