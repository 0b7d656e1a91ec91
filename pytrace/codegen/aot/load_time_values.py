"""Load-time values of ahead-of-time files, and the struct layouts that a file relies on.

The values are in a read-only data section of their own, which the runtime fills in before loading
(``pytrace.runtime.aot.prepare``); the verifier then treats them as constants, so a branch that a parameter disables has
no cost, and offsets of struct members, which are load-time values as well, are those of the running kernel.

Layouts that cannot be adjusted in this way are recorded (*relies*) and checked when the file is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from pytrace.codegen.ir.module import LOAD_TIME
from pytrace.codegen.ir.values import Memory, Number, Operand, Ptr, Scalar, global_pointer, signed_constant
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.manifest import AheadOfTime, OpenValue, Row
from pytrace.core.types import Array, Field, Pointer, Struct, Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import FieldPath, LoadTime

if TYPE_CHECKING:
    from pytrace.codegen.emit.emitter import Emitter


class Ahead(msgspec.Struct):
    """Load-time values of one ahead-of-time file, and the layouts that it relies on."""

    kernel: KernelInfo
    data: bytearray = msgspec.field(default_factory=bytearray)
    values: list[OpenValue] = msgspec.field(default_factory=list)
    relies: dict[Row, None] = msgspec.field(default_factory=dict)
    binaries: dict[Row, None] = msgspec.field(default_factory=dict)
    """Locations of the probes in user binaries, for ``pytrace.runtime.aot.moved_probes``."""
    _places: dict[tuple[str, Row, int], int] = msgspec.field(default_factory=dict)

    def place(self, what: str, parts: Row, initial: bytes) -> Ptr:
        """Address of a load-time value with the placeholder *initial*; equal values are deduplicated."""
        key = (what, parts, len(initial))
        if key not in self._places:
            self._places[key] = len(self.data)
            self.values.append(OpenValue(what, parts, len(self.data), len(initial)))
            self.data += initial + bytes(-len(initial) % 8)
        return global_pointer(LOAD_TIME, self._places[key])

    def section(self, copies: int) -> AheadOfTime:
        """The manifest section, for code with per-CPU data for *copies* CPUs."""
        return AheadOfTime(copies, tuple(self.values), tuple(self.relies), tuple(self.binaries))

    def rely(self, *row: object) -> None:
        """Record that the code is valid only if *row* holds (see ``pytrace.runtime.aot.layouts``)."""
        self.relies[tuple(str(part) for part in row)] = None

    def exact(self, path: str, why: str) -> None:
        """Record that a user binary must be unchanged."""
        self.binaries["exact", path, why] = None

    def rely_on_type(self, type_: Type, seen: set[Type] | None = None) -> None:
        """Record size and members of all kernel structs that values of *type_* contain."""
        seen = set() if seen is None else seen
        for inner in _held(type_):
            if inner in seen:
                continue
            seen.add(inner)
            if not self.is_kernel(inner):
                continue
            self.rely("size", inner.kind, inner.name, inner.size)
            for member in inner.fields:
                if member.name:
                    self.rely_on_member(inner, member)
                self.rely_on_type(member.type, seen)

    def rely_on_member(self, struct: Struct, member: Field) -> None:
        """Record the offset of a member, if the struct is the kernel's."""
        if self.is_kernel(struct):
            bits = (member.bit_offset, member.bit_size)
            self.rely("member", struct.kind, struct.name, member.name, member.offset, *bits, member.type)

    def rely_on_size(self, type_: Type) -> None:
        """Record the sizes of the kernel's structs that *type_* consists of."""
        for inner in _held(type_):
            if self.is_kernel(inner):
                self.rely("size", inner.kind, inner.name, inner.size)

    def is_kernel(self, type_: Struct) -> bool:
        """Whether a struct is the kernel's, and not the script's or synthesised for ``args``."""
        return bool(type_.name) and self.kernel.struct(type_.kind, type_.name) == type_


def _held(type_: Type) -> Iterable[Struct]:
    while isinstance(type_, Array):
        type_ = type_.element
    return (type_,) if isinstance(type_, Struct) else ()


def integer(e: Emitter, what: str, parts: Row, initial: int) -> Number:
    """A 64-bit load-time value; the constant *initial* when the script is not compiled ahead of time."""
    ahead = e.script.ahead
    if ahead is None:
        return signed_constant(initial)
    return e.b.load(ahead.place(what, parts, (initial % (1 << 64)).to_bytes(8, "little")))


def operand(e: Emitter, value: LoadTime, type_: Type) -> Operand:
    """The load-time value of an expression."""
    if type_.scalar:
        return Scalar(integer(e, value.what, value.parts, value.now), type_)
    ahead = e.script.ahead
    assert ahead is not None, "open values are only in ahead-of-time files"
    return Memory(ahead.place(value.what, value.parts, bytes(type_.size)), type_)


# ---------------------------------------------------------------------------------------------- struct members


def member_offset(e: Emitter, node: nodes.FieldAccess, path: FieldPath, *, movable: bool) -> Number:
    """Offset of a member of a struct.

    *movable* makes it a load-time value; otherwise it is a constant that the code relies on.
    """
    ahead = e.script.ahead
    owner = _owner(e, node) if ahead is not None else None
    if ahead is None or owner is None:
        return path.offset
    struct, names = owner
    if not struct.name:
        ahead.rely("build", f"a member {node.name!r} of an unnamed struct")
        return path.offset
    if not ahead.is_kernel(struct):
        return path.offset
    location = (struct.kind, struct.name, ".".join(names))
    bits = (path.bit_offset, path.bit_size)
    if not movable or path.bit_size:
        ahead.rely("member", *location, path.offset, *bits, path.type)
        return path.offset
    return integer(e, "member", (*location, str(path.type)), path.offset)


def _owner(e: Emitter, node: nodes.FieldAccess) -> tuple[Struct, tuple[str, ...]] | None:
    """The named struct from which a chain of member names leads to *node*."""
    names = [node.name]
    base = node.base
    while True:
        type_ = e.checked.types.get(base)
        struct = type_.target if isinstance(type_, Pointer) else type_
        if not isinstance(struct, Struct):
            return None
        field_path = e.checked.fields.get(base) if isinstance(base, nodes.FieldAccess) else None
        if struct.name or field_path is None or field_path.how not in ("pointer", "memory"):
            return struct, tuple(reversed(names))
        assert isinstance(base, nodes.FieldAccess)
        names.append(base.name)
        base = base.base


def struct_offset(e: Emitter, struct: Struct, name: str) -> Number:
    """Offset of a member that a builtin reads.

    Raises:
        TraceError: the type information, which may be that of a file, lacks it.
    """
    member = struct.find(name)
    if member is None:
        hint = "PYTRACE_BTF and PYTRACE_VMLINUX name files with the type information of this kernel"
        raise TraceError(f"the kernel's type information has no member {name} of {struct}", hints=(hint,))
    return integer(e, "member", (struct.kind, struct.name, name, str(member.type)), member.offset)
