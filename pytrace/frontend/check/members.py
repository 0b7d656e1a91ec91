"""Typing rules of type names, members, elements and casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import msgspec
from msgspec.structs import replace

from pytrace.base.dispatch import handles, handles_names, methods
from pytrace.core import types
from pytrace.core.builtins import bare_builtin
from pytrace.core.diagnostics import did_you_mean, similar
from pytrace.core.probe_kinds import TracepointTarget
from pytrace.core.source import Span, expansion_chain
from pytrace.core.types import (
    INT8,
    UINT8,
    UINT64,
    AddressSpace,
    Array,
    Bool,
    Buffer,
    Enum,
    Field,
    Float,
    Inet,
    Int,
    InterfaceName,
    KSym,
    NetworkNamespace,
    Pointer,
    Record,
    String,
    Struct,
    Tuple,
    Type,
    Username,
    USym,
    Void,
    in_kernel_only,
)
from pytrace.frontend.check.calls import ArgumentChecks
from pytrace.frontend.check.checker import Checker
from pytrace.frontend.check.conversions import UNKNOWN, Flexible, Unknown, is_integer, literal, settle, wrap
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import (
    SCRIPT_ORIGIN,
    BoundsCheck,
    FieldPath,
    LayoutReliance,
    ProbeArgument,
    TypeDescription,
    Unreadable,
)

NAMED: dict[str, Type] = {
    "void": types.VOID,
    "bool": types.BOOL,
    "int8": types.INT8,
    "int16": types.INT16,
    "int32": types.INT32,
    "int64": types.INT64,
    "uint8": types.UINT8,
    "uint16": types.UINT16,
    "uint32": types.UINT32,
    "uint64": types.UINT64,
    "float": types.FLOAT,
    "double": types.DOUBLE,
    "inet": Inet(),
    "macaddr_t": types.Mac(),
    "timestamp": types.Timestamp(),
    "username": types.Username(),
    "ifname_t": types.InterfaceName(),
    "netns_t": types.NetworkNamespace(),
    "cgroup_path_t": types.CgroupPath(),
    "ksym_t": types.KSym(),
    "usym_t": types.USym(),
    "kstack_t": types.Stack(user=False),
    "ustack_t": types.Stack(user=True),
    "count_t": types.Count(),
    "sum_t": types.Sum(),
    "usum_t": types.Sum(signed=False),
    "avg_t": types.Avg(),
    "uavg_t": types.Avg(signed=False),
    "min_t": types.Min(),
    "umin_t": types.Min(signed=False),
    "max_t": types.Max(),
    "umax_t": types.Max(signed=False),
    "stats_t": types.Stats(),
    "ustats_t": types.Stats(signed=False),
    "hist_t": types.Hist(),
    "lhist_t": types.LHist(),
    "tseries_t": types.TSeries(),
}
"""Types by their names in the language; strings and buffers are in :func:`_named_type`."""
C_NAMES: dict[str, Type] = {
    "char": types.INT8,
    "short": types.INT16,
    "int": types.INT32,
    "long": types.INT64,
    "unsigned": types.UINT32,
    "u8": types.UINT8,
    "u16": types.UINT16,
    "u32": types.UINT32,
    "u64": types.UINT64,
    "s8": types.INT8,
    "s16": types.INT16,
    "s32": types.INT32,
    "s64": types.INT64,
    "int8_t": types.INT8,
    "int16_t": types.INT16,
    "int32_t": types.INT32,
    "int64_t": types.INT64,
    "uint8_t": types.UINT8,
    "uint16_t": types.UINT16,
    "uint32_t": types.UINT32,
    "uint64_t": types.UINT64,
    "size_t": types.UINT64,
    "ssize_t": types.INT64,
    "uintptr_t": types.UINT64,
}
"""C types that are the same everywhere, for kernels without BTF."""
_SIZED: dict[str, Callable[[int], Type]] = {"string": String, "buffer": Buffer, "inet": lambda _size: Inet()}


def _type_hints(name: str) -> tuple[str, ...]:
    """Types with similar names; a common suffix ``_t`` does not count."""
    ending = name.endswith("_t")
    known = sorted((*NAMED, *_SIZED, *C_NAMES), key=lambda item: item.endswith("_t") == ending)
    stems = {item.removesuffix("_t"): item for item in known}
    suggestions = [stems[stem] for stem in similar(name.removesuffix("_t"), stems)]
    return (f"did you mean {' or '.join(repr(item) for item in suggestions)}?",) if suggestions else ()


_MARKS = {"kptr": AddressSpace.KERNEL, "uptr": AddressSpace.USER}


def loaded(type_: Type) -> Type:
    """The type of a value read from memory: a character array becomes a string."""
    if isinstance(type_, Array) and type_.element == INT8 and type_.count > 0:
        return String(type_.count)
    return type_


def type_names(type_: Type) -> tuple[str, str]:
    """The kind of a type in one word, and its full name."""
    return type_.tag, str(type_)


_SCALARS = Int | Flexible | Enum | Bool | Pointer
_MACHINE_TYPED = frozenset({"retval", "ctx"})
"""Builtins whose type comes from BTF or DWARF; that of ``curtask`` is the same everywhere, and bpftrace warns, too."""


def _cast_hint(target: Array) -> str:
    if target.size in (1, 2, 4, 8):
        return f"cast the value to int{8 * target.size} first"
    return "only arrays of 1, 2, 4 or 8 bytes can be made from an integer"


def cast_span(node: nodes.Cast) -> Span:
    """The ``(T)`` of a cast."""
    inner = node.operand.span
    if inner.source is not node.span.source or not node.span.start < inner.start <= node.span.end:
        # The operand is the argument of a macro.
        return node.type.span
    text = node.span.source.text[node.span.start : inner.start]
    return replace(node.span, end=node.span.start + len(text.rstrip()))


class TypeNames(msgspec.Struct, eq=False):
    """Resolves type expressions to value types."""

    checker: Checker

    def resolve(self, node: nodes.TypeExpr) -> Type:
        """The value type that *node* denotes; UNKNOWN after an error.

        A ``string`` without capacity is ``String(0)``, an array without count ``Array(element, 0)``: the user of the
        type fills them in.
        """
        type_: Type = methods(TypeNames)[type(node)](self, node)
        return type_

    @handles(nodes.NamedType)
    def _named_type(self, node: nodes.NamedType) -> Type:
        sized = _SIZED.get(node.name)
        if sized is not None and (node.capacity is not None or node.name != "inet"):
            return sized(node.capacity or 0)
        type_ = NAMED.get(node.name) or self.checker.definitions.typedef(node.name) or C_NAMES.get(node.name)
        if type_ is None:
            type_ = self._tag_omitted(node)
        if type_ is None:
            hints = _type_hints(node.name) or self.checker.definitions.skipped("defined in")
            return self.checker.error(f"there is no type {node.name!r}", node.span, hints=hints)
        if isinstance(type_, types.Stack) and self.checker.config.max_stack_depth > type_.limit:
            return types.Stack(type_.user, self.checker.config.max_stack_depth, chunked=True)
        return type_

    def _tag_omitted(self, node: nodes.NamedType) -> Type | None:
        """``task_struct`` without ``struct``, as in scripts for early versions of bpftrace."""
        for kind in ("struct", "union"):
            struct = self.checker.definitions.struct(kind, node.name)
            if struct is not None:
                self.checker.warn(
                    f"{node.name!r} is the name of a {kind}", node.span, hints=[f"write {kind} {node.name}"]
                )
                return struct
        return None

    @handles(nodes.StructTypeExpr)
    def _struct(self, node: nodes.StructTypeExpr) -> Type:
        return self._tagged_type(node, node.span)

    def _tagged_type(self, node: nodes.StructTypeExpr, place: Span) -> Type:
        """``struct X``, ``union X`` or ``enum X``, or the target of a pointer; *place* is for messages."""
        definitions = self.checker.definitions
        type_ = definitions.enum(node.name) if node.kind == "enum" else definitions.struct(node.kind, node.name)
        if type_ is None:
            # Suggestions need all type names of the kernel, which are slow to read: on errors only.
            hints = did_you_mean(node.name, definitions.names(node.kind)) or definitions.skipped("defined in")
            return self.checker.error(f"unknown {node.kind} {node.name!r}", place, hints=hints, kernel=True)
        return type_

    @handles(nodes.PointerTypeExpr)
    def _pointer(self, node: nodes.PointerTypeExpr) -> Type:
        target = node.target
        if isinstance(target, nodes.StructTypeExpr):
            pointee = self._tagged_type(target, target.span if target.kind == "enum" else node.span)
        else:
            pointee = self.resolve(target)
        return UNKNOWN if isinstance(pointee, Unknown) else Pointer(pointee)

    @handles(nodes.ArrayTypeExpr)
    def _array(self, node: nodes.ArrayTypeExpr) -> Type:
        element = self.resolve(node.element)
        if isinstance(element, Unknown):
            return UNKNOWN
        if node.count is None:
            return Array(element, 0)
        count = self.checker.constant_integer(node.count, "the number of elements")
        if count is None:
            return UNKNOWN
        if count < 1:
            return self.checker.error(f"an array cannot have {count} elements", node.count.span)
        return Array(element, count)

    @handles(nodes.TupleTypeExpr)
    def _tuple(self, node: nodes.TupleTypeExpr) -> Type:
        members = tuple(self._with_capacity(self.resolve(member)) for member in node.members)
        return UNKNOWN if any(isinstance(member, Unknown) for member in members) else Tuple(members)

    def _with_capacity(self, type_: Type) -> Type:
        """Set the capacity of a ``string`` inside another type, which no value determines."""
        return String(self.checker.config.max_strlen) if isinstance(type_, String) and not type_.capacity else type_

    @handles(nodes.TypeofExpr)
    def _typeof(self, node: nodes.TypeofExpr) -> Type:
        return self.operand_type(node.operand)

    def operand_type(self, operand: nodes.Expr | nodes.TypeExpr) -> Type:
        """The operand type of ``typeof``, ``sizeof`` and the like; the types that it depends on are locked."""
        if isinstance(operand, nodes.TypeExpr):
            return self.resolve(operand)
        if isinstance(operand, nodes.Identifier):
            type_ = self._bare_type(operand.name)
            if type_ is not None:
                return type_
        if isinstance(operand, nodes.MapRef) and self.checker.map(operand).keyed is not False:
            return self._key_type(operand)
        return settle(self.checker.unevaluated(operand))

    def _key_type(self, operand: nodes.MapRef) -> Type:
        """The type of a bare map name: that of its key if it is keyed, which a later statement may decide."""
        state = self.checker.map(operand)
        if state.keyed is None:
            return self.checker.unevaluated(operand) if self.checker.final else UNKNOWN
        with self.checker.lock(operand.span):
            return settle(state.key.type) if self.checker.relies_on(state.key) else UNKNOWN

    def _bare_type(self, name: str) -> Type | None:
        """The C type that a bare name denotes in ``sizeof(pid_t)``, unless it is the name of a value."""
        if bare_builtin(name) or self.checker.definitions.enumerator(name) is not None:
            return None
        return self.checker.definitions.typedef(name) or C_NAMES.get(name)


class Members(msgspec.Struct, eq=False):
    """Typing rules of members, tuple fields, elements and type queries."""

    checker: Checker
    checks: ArgumentChecks
    type_names: TypeNames

    def inherit(self, type_: Type, base: Pointer) -> Type:
        """The type of a value reached through *base*: its pointers point into the address space of *base*.

        In user memory so do those of the kernel's structures (``struct iovec.iov_base``), whatever their type says.
        """
        if not isinstance(type_, Pointer):
            return type_
        user_probe = self.checker.unit is not None and self.checker.unit.kind.space is AddressSpace.USER
        if base.space is AddressSpace.USER or (base.space is AddressSpace.NONE and user_probe):
            return Pointer(type_.target, AddressSpace.USER)
        if type_.space is not AddressSpace.NONE:
            return type_
        space = AddressSpace.KERNEL if base.space is AddressSpace.BPF else base.space
        return Pointer(type_.target, space, base.trusted)

    def reached_through(self, node: nodes.Expr) -> Pointer | None:
        """The pointer that a member or element in memory is reached through, at any depth; None for values."""
        while True:
            if isinstance(node, nodes.FieldAccess | nodes.Index):
                base = node.base
            elif isinstance(node, nodes.Unary) and node.operator == "*":
                base = node.operand
            else:
                return None
            type_ = self.checker.program.types.get(base)
            if isinstance(type_, Pointer):
                return type_
            node = base

    def mark_of_number(self, node: nodes.Expr) -> AddressSpace | None:
        """The address space of ``kptr(N)`` or ``uptr(N)``, whose type is that of the number."""
        space = _MARKS.get(node.name) if isinstance(node, nodes.Call) else None
        return space if space is not None and is_integer(self.checker.settled(node)) else None

    # ------------------------------------------------------------------------------------------ members

    @handles(nodes.FieldAccess)
    def field_access(self, node: nodes.FieldAccess) -> Type:
        """``base.name``."""
        base = node.base
        if isinstance(base, nodes.Identifier) and base.name == "args":
            return self._argument(node, base)
        type_ = self.checker.value(base)
        if isinstance(type_, Unknown):
            return UNKNOWN
        if isinstance(type_, Record):
            return self._record_field(node, type_)
        if isinstance(type_, Pointer) and isinstance(type_.target, Struct):
            member_type = self._struct_field(node, type_.target, "pointer")
            if type_.space is AddressSpace.KERNEL and self.checker.options.verbose:
                self._note_space(base, type_.target)
            return self.inherit(member_type, type_)
        if isinstance(type_, Struct):
            member_type = self._struct_field(node, type_, "memory")
            pointer = self.reached_through(base)
            return member_type if pointer is None else self.inherit(member_type, pointer)
        if isinstance(type_, Pointer) and isinstance(type_.target, Record):
            return self.checker.error("a pointer to a record has no members", node.span)
        hints = ["cast it to a pointer to a struct first"] if is_integer(type_) or isinstance(type_, Pointer) else []
        return self.checker.error(f"{settle(type_)} has no member {node.name!r}", node.span, hints=hints)

    def _argument(self, node: nodes.FieldAccess, base: nodes.Identifier) -> Type:
        if not self.checks.require_args(base) or self.checker.unit is None:
            return UNKNOWN
        argument = self.checker.unit.context.argument(node.name)
        if (argument is None or isinstance(argument.place, Unreadable)) and self.checks.report_lost(node):
            return UNKNOWN
        if argument is None:
            known = [item.name for item in self.checker.unit.context.arguments]
            hints = did_you_mean(node.name, known) or ((f"there are {', '.join(known)}",) if known else ())
            message = f"{self.checker.unit.targets[0].probe} has no argument {node.name!r}"
            return self.checker.error(message, node.span, hints=hints, kernel=not self.checker.unit.kind.user)
        type_ = self.argument_type(argument)
        self.checker.program.fields[node] = FieldPath("argument", type_, argument=argument)
        return loaded(type_)

    def _note_space(self, base: nodes.Expr, struct: Struct) -> None:
        """Type information of kernels that GCC has built does not say which arguments of functions are ``__user``."""
        place = self.checker.program.fields.get(base) if isinstance(base, nodes.FieldAccess) else None
        if place is not None and place.argument is not None and not in_kernel_only(struct):
            text = base.span.text
            message = f"{text} may point to kernel or user memory: its members are read where its address is"
            if all(note.message != message for note in self.checker.diagnostics.notes):
                self.checker.diagnostics.note(message, base.span)

    def argument_type(self, argument: ProbeArgument) -> Type:
        """Type of a member of ``args``; pointers in system call tracepoints are user pointers."""
        type_ = argument.type
        unit = self.checker.unit
        if isinstance(type_, Pointer) and type_.space is AddressSpace.NONE and unit is not None and unit.targets:
            place = unit.targets[0].place
            if isinstance(place, TracepointTarget) and place.category == "syscalls":
                return replace(type_, space=AddressSpace.USER)
        return type_

    def _record_field(self, node: nodes.FieldAccess, type_: Record) -> Type:
        if node.name not in type_.names:
            hints = did_you_mean(node.name, type_.names)
            if f'"{node.name}"' in type_.names:
                hints = ("a field whose name is in quotes can be printed only; without quotes it can be read, too",)
            return self.checker.error(f"the record has no field {node.name!r}", node.span, hints=hints)
        index = type_.names.index(node.name)
        settled = settle(type_)
        assert isinstance(settled, Record)
        member = settle(type_.members[index])
        self.checker.program.fields[node] = FieldPath("record", member, settled.offsets[index], index=index)
        description = self.checker.program.find_fact(node.base, TypeDescription)
        if description is not None:
            self.checker.set_constant(node, description.values[index])
        return type_.members[index]

    def _struct_field(self, node: nodes.FieldAccess, type_: Struct, how: str) -> Type:
        field = type_.find(node.name)
        if field is None and self.checks.report_lost(node):
            return UNKNOWN
        if field is None:
            hints = did_you_mean(node.name, type_.names())
            if not type_.fields and type_.size == 0:
                hints = (f"{type_} is an incomplete type here: its members are not known",)
            message = f"{type_} has no member {node.name!r}"
            return self.checker.error(message, node.span, hints=hints, kernel=self._is_of_kernel(type_))
        self.checker.program.fields[node] = FieldPath(how, field.type, field.offset, field.bit_offset, field.bit_size)
        return loaded(field.type)

    # ------------------------------------------------------------------------------------------ tuples, elements

    @handles(nodes.TupleAccess)
    def tuple_access(self, node: nodes.TupleAccess) -> Type:
        """``base.0``."""
        type_ = self.checker.value(node.base)
        if isinstance(type_, Unknown):
            return UNKNOWN
        if not isinstance(type_, Tuple):
            return self.checker.error(f"{settle(type_)} is not a tuple", node.span)
        return self._tuple_member(node, type_, node.index)

    def _tuple_member(self, node: nodes.Expr, type_: Tuple, index: int) -> Type:
        if not 0 <= index < len(type_.members):
            return self.checker.error(
                f"the tuple has {len(type_.members)} fields, so there is no field {index}", node.span
            )
        return type_.members[index]

    @handles(nodes.Index)
    def index(self, node: nodes.Index) -> Type:
        """``base[index]``."""
        type_ = self.checker.value(node.base)
        position = self.checker.integer(node.index, "the index")
        if isinstance(type_, Unknown) or isinstance(position, Unknown):
            return UNKNOWN
        number = self.checker.constant(node.index)
        fixed = number if isinstance(number, int) else None
        if isinstance(type_, Tuple):
            if fixed is None:
                return self.checker.error("the index of a tuple must be a constant", node.index.span)
            return self._tuple_member(node, type_, fixed)
        if isinstance(type_, Pointer):
            return self._pointed_element(node, type_)
        if isinstance(type_, Array | String):
            return self._element(node, type_, fixed)
        return self.checker.error(f"{settle(type_)} cannot be indexed", node.span)

    def _pointed_element(self, node: nodes.Index, type_: Pointer) -> Type:
        if type_.target.size == 0 and not isinstance(type_.target, Array):
            return self.checker.error(f"{type_} cannot be indexed: the size of {type_.target} is not known", node.span)
        return loaded(self.inherit(type_.target, type_))

    def _element(self, node: nodes.Index, type_: Array | String, fixed: int | None) -> Type:
        count = type_.count if isinstance(type_, Array) else type_.capacity
        if fixed is not None and (fixed < 0 or (fixed >= count and count > 0)):
            return self.checker.error(f"index {fixed} is outside of {type_}, which has {count} elements", node.span)
        self.checker.program.facts[node] = BoundsCheck(fixed is None and count > 0)
        if isinstance(type_, String):
            return UINT8
        element = loaded(type_.element)
        pointer = self.reached_through(node.base)
        return element if pointer is None else self.inherit(element, pointer)

    # ------------------------------------------------------------------------------------------ type queries

    @handles(nodes.Sizeof)
    def size_of(self, node: nodes.Sizeof) -> Type:
        """``sizeof(T or expression)``."""
        type_ = self.type_names.operand_type(node.operand)
        if isinstance(type_, Unknown):
            return UINT64
        if self.checker.options.ahead:
            if self._is_of_kernel(type_):
                self.checker.set_fact(node, type_.size, "size", type_.kind, type_.name)
                return UINT64
            self.checker.program.facts[node] = LayoutReliance(type_)
        self.checker.set_constant(node, type_.size)
        return literal(type_.size)

    def _is_of_kernel(self, type_: Type) -> TypeGuard[Struct]:
        return (
            isinstance(type_, Struct)
            and bool(type_.name)
            and self.checker.kernel.struct(type_.kind, type_.name) == type_
        )

    @handles(nodes.Offsetof)
    def offset_of(self, node: nodes.Offsetof) -> Type:
        """``offsetof(T or expression, a.b[2].c)``."""
        type_ = self.type_names.operand_type(node.operand)
        if isinstance(type_, Unknown):
            return UINT64
        if isinstance(type_, Pointer) and isinstance(node.operand, nodes.Expr):
            type_ = type_.target
        offset = 0
        relied: list[tuple[Struct, Field]] = []
        for step in node.path:
            if step.isdigit():
                if not isinstance(type_, Array | String):
                    return self.checker.error(f"{type_} cannot be indexed by {step}", node.span)
                # Arrays of characters are strings.
                type_ = type_.element if isinstance(type_, Array) else INT8
                offset += int(step) * type_.size
                continue
            if not isinstance(type_, Struct):
                return self.checker.error(f"{type_} has no member {step!r}", node.span)
            field = type_.find(step)
            if field is None:
                hints = did_you_mean(step, type_.names())
                message = f"{type_} has no member {step!r}"
                return self.checker.error(message, node.span, hints=hints, kernel=self._is_of_kernel(type_))
            if field.bit_size:
                return self.checker.error(f"{step!r} is a bitfield, which has no byte offset", node.span)
            relied.append((type_, field))
            offset, type_ = offset + field.offset, field.type
        if self.checker.options.ahead:
            if len(node.path) == len(relied) == 1 and self._is_of_kernel(relied[0][0]):
                struct, member = relied[0]
                self.checker.set_fact(node, offset, "member", struct.kind, struct.name, member.name, str(member.type))
                return UINT64
            self.checker.program.facts[node] = LayoutReliance(type_, tuple(relied))
        self.checker.set_constant(node, offset)
        return literal(offset)

    @handles(nodes.TypeInfo)
    def type_info(self, node: nodes.TypeInfo) -> Type:
        """``typeinfo(x)``: a record of constants, described by a :class:`TypeDescription`."""
        if not self.checks.unstable("typeinfo", node):
            return UNKNOWN
        type_ = self.type_names.operand_type(node.operand)
        if isinstance(type_, Unknown):
            return UNKNOWN
        base, full = type_names(type_)
        values = (self._btf_id(type_), base.encode(errors="surrogateescape"), full.encode(errors="surrogateescape"))
        members = (
            nodes.IntLiteral(node.span, values[0]),
            nodes.StringLiteral(node.span, values[1]),
            nodes.StringLiteral(node.span, values[2]),
        )
        record = nodes.RecordLiteral(node.span, ("btf_id", "base_type", "full_type"), members)
        record_type = self.checker.value(record)
        self.checker.program.facts[node] = TypeDescription(*values, record)
        return record_type

    def _btf_id(self, type_: Type) -> int:
        """Id of a type in the kernel's BTF; 0 for one that the kernel proper does not define."""
        if isinstance(type_, Struct) and type_.name and type_.origin == "vmlinux":
            return self.checker.kernel.type_id(type_.kind, type_.name)
        if isinstance(type_, Enum) and type_ == self.checker.kernel.enum(type_.name):
            return self.checker.kernel.type_id("enum", type_.name)
        return 0


class Casts(msgspec.Struct, eq=False):
    """Typing rules of explicit casts."""

    checker: Checker
    type_names: TypeNames
    members: Members

    @handles(nodes.Cast)
    def cast(self, node: nodes.Cast) -> Type:
        """``(T)operand``."""
        target = self.type_names.resolve(node.type)
        source = self.checker.value(node.operand)
        if isinstance(target, Unknown) or isinstance(source, Unknown):
            return target
        rule = methods(Casts).get(type(target))
        result: Type | None = None if rule is None else rule(self, node, target, source)
        if result is None:
            if source == target:
                return target
            return self.checker.error(f"cannot cast {settle(source)} to {target}", node.span)
        self._warn_same(node, result, source)
        return result

    def _warn_same(self, node: nodes.Cast, target: Type, source: Type) -> None:
        operand = node.operand
        read = isinstance(operand, nodes.MapRef | nodes.MapIndex)
        # A cast in a macro serves arguments of all types; literals take the type that is needed.
        unknown = isinstance(source, Flexible) or bool(expansion_chain(node.span)) or self._is_of_machine(operand)
        if source != target or unknown or isinstance(node.type, nodes.TypeofExpr) or read:
            return
        self.checker.warn(f"the value already has type {target}", cast_span(node), hints=["leave the cast out"])

    def _is_of_machine(self, node: nodes.Expr) -> bool:
        """Whether the type of a value comes from BTF or DWARF: on another machine it may differ, so scripts cast it."""
        while isinstance(node, nodes.FieldAccess | nodes.Index) or (
            isinstance(node, nodes.Unary) and node.operator == "*"
        ):
            base = node.operand if isinstance(node, nodes.Unary) else node.base
            if isinstance(node, nodes.FieldAccess):
                type_ = self.checker.program.types.get(base)
                struct = type_.target if isinstance(type_, Pointer) else type_
                of_script = isinstance(struct, Struct) and struct.origin.startswith(SCRIPT_ORIGIN)
                if self.checker.program.fields[node].how != "record" and not of_script:
                    return True
            node = base
        return isinstance(node, nodes.Identifier | nodes.Call) and node.name in _MACHINE_TYPED

    @handles_names(Int)
    def _to_integer(self, node: nodes.Cast, target: Type, source: Type) -> Type | None:
        assert isinstance(target, Int)
        if isinstance(source, Float):
            return target
        if isinstance(source, _SCALARS):
            value = self.checker.constant(node.operand)
            if isinstance(value, int):
                self.checker.set_constant(node, wrap(int(value), target))
            return target
        if isinstance(source, Array) and source.size == target.width:
            return target
        if isinstance(source, KSym | USym | Username | InterfaceName | NetworkNamespace):
            return target
        if (
            isinstance(source, String)
            and self.checker.constant(node.operand) is None
            and source.capacity == target.width
        ):
            # Character arrays in structs are strings, but a script may need their bytes as a number.
            return target
        return None

    @handles_names(Bool)
    def _to_bool(self, node: nodes.Cast, target: Type, source: Type) -> Type | None:
        if not isinstance(source, _SCALARS | String):
            return None
        value = self.checker.constant(node.operand)
        if isinstance(value, int | bytes):
            self.checker.set_constant(node, bool(value.partition(b"\0")[0] if isinstance(value, bytes) else value))
        return target

    @handles_names(Float)
    def _to_fraction(self, node: nodes.Cast, target: Type, source: Type) -> Type | None:
        """A ``float`` as a ``double``; bytes as a number."""
        if isinstance(source, Float) and source.size <= target.size:
            return target
        if isinstance(source, Array) and source.size == target.size:
            return target
        if is_integer(source):
            hints = [f"*({target} *)ADDRESS reads one"]
            return self.checker.error(f"an integer cannot be cast to {target}", node.span, hints=hints)
        return None

    @handles_names(Enum)
    def _to_enum(self, node: nodes.Cast, target: Type, source: Type) -> Type | None:
        assert isinstance(target, Enum)
        if not isinstance(source, Int | Flexible | Enum | Bool):
            return None
        value = self.checker.constant(node.operand)
        if isinstance(value, int):
            if all(value != number for _name, number in target.members):
                return self.checker.error(f"{value} is not a member of {target}", node.span)
            self.checker.set_constant(node, int(value))
        return target

    @handles_names(Pointer)
    def _to_pointer(self, node: nodes.Cast, target: Type, source: Type) -> Type | None:
        assert isinstance(target, Pointer)
        if isinstance(source, Pointer):
            trusted = source.trusted and source.target == target.target
            return Pointer(target.target, source.space if target.space is AddressSpace.NONE else target.space, trusted)
        if isinstance(source, Array | String):
            space = self._space(node.operand)
            if space is None:
                return None
            return Pointer(target.target, space if target.space is AddressSpace.NONE else target.space)
        if not isinstance(source, Int | Flexible | Enum):
            return None
        mark = self.members.mark_of_number(node.operand)
        if mark is not None and target.space is AddressSpace.NONE:
            return Pointer(target.target, mark)
        value = self.checker.constant(node.operand)
        if isinstance(value, int):
            # As in bpftrace: numbers are zero-extended to addresses, also negative ones.
            self.checker.set_constant(node, wrap(int(value), Int(settle(source).size, signed=False)))
        return target

    def _space(self, node: nodes.Expr) -> AddressSpace | None:
        """The address space of an array that decays to a pointer; None when it has no address."""
        while isinstance(node, nodes.FieldAccess | nodes.Index):
            base = self.checker.program.types.get(node.base)
            if isinstance(base, Pointer):
                return base.space
            path = self.checker.program.fields.get(node) if isinstance(node, nodes.FieldAccess) else None
            if path is not None and path.how == "argument":
                return AddressSpace.KERNEL
            node = node.base
        if isinstance(node, nodes.Variable | nodes.MapRef | nodes.MapIndex):
            return AddressSpace.BPF
        if isinstance(node, nodes.Unary) and node.operator == "*":
            followed = self.checker.program.types.get(node.operand)
            return followed.space if isinstance(followed, Pointer) else None
        return None

    @handles_names(Array)
    def _to_array(self, node: nodes.Cast, target: Type, source: Type) -> Type | None:
        assert isinstance(target, Array)
        size = settle(source).size
        if isinstance(source, Int | Flexible | Enum | Bool):
            return self._integer_to_array(node, target, source)
        if isinstance(source, String | Array | Buffer):
            if target.count == 0:
                target = Array(target.element, max(1, size // max(1, target.element.size)))
            if isinstance(source, Array) and source.size != target.size:
                return None
            return target
        return None

    def _integer_to_array(self, node: nodes.Cast, target: Array, source: Type) -> Type | None:
        if not isinstance(target.element, Int | Bool):
            return None
        value = self.checker.constant(node.operand)
        size = settle(source).size
        if target.count == 0:
            count = size // target.element.size
            return Array(target.element, count) if count else None
        if target.size == size:
            return target
        if isinstance(value, int) and isinstance(source, Flexible) and target.size in (1, 2, 4, 8):
            # A literal has no width of its own: it takes the array's when it fits.
            carrier = Int(target.size, signed=value < 0)
            if carrier.low <= value <= carrier.high:
                self.checker.program.types[node.operand] = carrier
                return target
        message = f"{settle(source)} has {size} bytes, {target} has {target.size}"
        return self.checker.error(message, node.span, hints=[_cast_hint(target)])

    @handles_names(String)
    def _to_string(self, _node: nodes.Cast, target: Type, source: Type) -> Type | None:
        assert isinstance(target, String)
        if not isinstance(source, String | Array):
            return None
        return target if target.capacity else String(source.size)

    @handles_names(Struct)
    def _to_struct(self, node: nodes.Cast, target: Type, _source: Type) -> Type | None:
        return self.checker.error(
            f"nothing can be cast to {target}", node.span, hints=[f"cast a pointer: ({target} *)…"]
        )

    @handles_names(Void)
    def _to_void(self, node: nodes.Cast, _target: Type, _source: Type) -> Type | None:
        return self.checker.error("nothing can be cast to void", node.span)
