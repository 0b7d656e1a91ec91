"""Load-time values of ahead-of-time files, and the struct layouts that a file relies on.

The values are in a read-only data section of their own, which the runtime fills in before loading
(``runtime.load.ahead_of_time``); the verifier then treats them as constants, so a branch that a parameter disables has
no cost, and offsets of struct members, which are load-time values as well, are those of the running kernel.

Layouts that cannot be adjusted in this way are recorded (*relies*) and checked when the file is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeGuard

from pytrace.codegen.emit.program import Part
from pytrace.codegen.emit.storage import Ahead
from pytrace.codegen.ir.values import Memory, Number, Operand, Scalar, signed_constant
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Row
from pytrace.core.probe_kinds import (
    IteratorTarget,
    KernelFunctionTarget,
    ProbeTarget,
    RawTracepointTarget,
    StaticProbeTarget,
    TracepointTarget,
    TypedFunctionTarget,
    UserTarget,
)
from pytrace.core.types import Enum, Pointer, Struct, Type, parts
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import (
    CheckedProgram,
    ContextField,
    CountedText,
    DataLoc,
    Existence,
    FieldPath,
    GoroutineNumber,
    LayoutReliance,
    LoadTime,
    ProbeArgument,
    ProbeUnit,
    RegisterLocation,
    RegisterParts,
    Slot,
    TypeDescription,
    UserSymbol,
)

if TYPE_CHECKING:
    pass


_ARGUMENTS = frozenset({"args", "retval"})


def collect(checked: CheckedProgram, ahead: Ahead) -> None:
    """Record everything that *checked* relies on."""
    for unit in checked.units:
        _unit(checked, unit, ahead)
    for body in [unit.body for unit in checked.units] + [function.body for function in checked.functions]:
        for node in nodes.walk(body):
            _node(checked, node, ahead)
    for row in checked.decided:
        ahead.rely(*row)
    types = [type_ for event in checked.event_list for type_ in event.args]
    types += [type_ for info in checked.maps.values() for type_ in (info.key, info.value) if type_ is not None]
    for type_ in types:
        for inner in parts((type_,)):
            ahead.rely_on_type(inner)
            if isinstance(inner, Enum):
                _members(inner, ahead)


def _members(type_: Enum, ahead: Ahead) -> None:
    """Enum values are printed as names of members, so the members' values must be the same on the target kernel."""
    if ahead.kernel.enum(type_.name) == type_:
        ahead.rely("names", type_.name, type_.width)


# ---------------------------------------------------------------------------------------------- nodes


def _node(checked: CheckedProgram, node: nodes.Node, ahead: Ahead) -> None:
    rule = _RULES.get(type(node))
    if rule is not None:
        rule(checked, node, ahead)
    if isinstance(node, nodes.Expr) and node not in checked.constants:
        type_ = checked.types.get(node)
        if isinstance(type_, Struct) and not isinstance(
            node, nodes.FieldAccess | nodes.Unary | nodes.Index | nodes.Identifier
        ):
            ahead.rely_on_size(type_)


def _name(checked: CheckedProgram, node: nodes.Identifier, ahead: Ahead) -> None:
    """An enumerator of the kernel, or ``goid``."""
    _goroutine(checked, node, ahead)
    value = checked.constants.get(node)
    if isinstance(value, int) and isinstance(checked.types.get(node), Enum):
        if ahead.kernel.enumerator(node.name) is not None:
            ahead.rely("enumerator", node.name, value)


def _goroutine(checked: CheckedProgram, node: nodes.Identifier | nodes.Call, ahead: Ahead) -> None:
    number = checked.find_fact(node, GoroutineNumber)
    for path in number.paths if number is not None else ():
        ahead.exact(path, "goid is where its version of Go has it")


def _target(checked: CheckedProgram, node: nodes.Expr, ahead: Ahead) -> None:
    """Pointer arithmetic: relies on the size of the pointer's target."""
    type_ = checked.types.get(node)
    if isinstance(type_, Pointer):
        ahead.rely_on_size(type_.target)
    elif type_ is not None:
        ahead.rely_on_size(type_)


def _index(checked: CheckedProgram, node: nodes.Index, ahead: Ahead) -> None:
    _target(checked, node.base, ahead)


def _binary(checked: CheckedProgram, node: nodes.Binary, ahead: Ahead) -> None:
    if node.operator in ("+", "-"):
        for side in (node.left, node.right):
            if isinstance(checked.types.get(side), Pointer):
                _target(checked, side, ahead)


def _unary(checked: CheckedProgram, node: nodes.Unary, ahead: Ahead) -> None:
    if node.operator in ("++", "--"):
        _target(checked, node.operand, ahead)


def _type_question(checked: CheckedProgram, node: nodes.Expr, ahead: Ahead) -> None:
    """Sizes and offsets of types that contain kernel structs; and typeinfo, whose ids differ between kernels."""
    reliance = checked.find_fact(node, LayoutReliance)
    if reliance is not None:
        ahead.rely_on_size(reliance.type)
        for struct, member in reliance.members:
            ahead.rely_on_member(struct, member)
    description = checked.find_fact(node, TypeDescription)
    if description is not None and description.btf_id:
        ahead.rely("build", "typeinfo(), whose numbers are those of one kernel build")


# ---------------------------------------------------------------------------------------------- arguments of probes


def _unit(checked: CheckedProgram, unit: ProbeUnit, ahead: Ahead) -> None:
    if unit.kind.user:
        _binary_target(checked, unit, ahead)
        return
    used = _used(checked, unit)
    for argument in used:
        if isinstance(argument.place, ContextField | DataLoc):
            for target in unit.targets:
                _field(target.place, argument, ahead)
    slots = any(isinstance(argument.place, Slot) for argument in used) or _positional(unit)
    if not (slots or used):
        return
    for target in unit.targets:
        _prototype(target.place, ahead)


def _binary_target(checked: CheckedProgram, unit: ProbeUnit, ahead: Ahead) -> None:
    """Record how the targets of a unit are located in a binary that has changed."""
    arguments = [item.place for item in _used(checked, unit)]
    for target in unit.targets:
        if isinstance(target.place, StaticProbeTarget):
            _static_probe(target.place, ahead)
            continue
        place = target.of(UserTarget)
        path, symbol = place.path, place.symbol
        symbol_row = next((item for item in ahead.kernel.user_symbols(path, symbol) if item.name == symbol), None)
        if symbol_row is None:
            ahead.exact(path, "the probe is on an address")
            continue
        ahead.binaries["symbol", path, symbol, str(symbol_row.offset)] = None
        if place.offset != symbol_row.offset:
            ahead.exact(path, "the probe is inside a function")
        if any(isinstance(place, RegisterLocation | RegisterParts | CountedText) for place in arguments):
            ahead.exact(path, "the code takes arguments from where its debug information says")


def _static_probe(place: StaticProbeTarget, ahead: Ahead) -> None:
    for item in ahead.kernel.usdt_probes(place.path, place.provider, place.name):
        ahead.binaries["usdt", place.path, item.provider, item.name, str(item.offset), item.arguments] = None


def _call(checked: CheckedProgram, node: nodes.Call, ahead: Ahead) -> None:
    rule = _CALLS.get(node.name)
    if rule is not None:
        rule(checked, node, ahead)


def _user_address(checked: CheckedProgram, node: nodes.Call, ahead: Ahead) -> None:
    symbol = checked.find_fact(node, UserSymbol)
    if symbol is not None:
        ahead.exact(symbol.path, "uaddr() returns addresses in it")


def _existence(checked: CheckedProgram, node: nodes.Call, ahead: Ahead) -> None:
    """Record the answer of an existence query, as it decided which code was compiled."""
    existence = checked.find_fact(node, Existence)
    if existence is not None:
        ahead.rely(*existence.row)


_CALLS: dict[str, Callable[[CheckedProgram, nodes.Call, Ahead], None]] = {
    "goid": _goroutine,
    "kfunc_allowed": _existence,
    "kfunc_exist": _existence,
    "uaddr": _user_address,
    "probe_exist": _existence,
    "type_exist": _existence,
    "member_exist": _existence,
    "constant_exist": _existence,
    "symbol_exist": _existence,
}


def _used(checked: CheckedProgram, unit: ProbeUnit) -> list[ProbeArgument]:
    """The members of ``args`` that a body reads; all of them where ``args`` is taken as a whole."""
    context, arguments, members = unit.context, {}, set()
    for node in nodes.walk(unit.body):
        if isinstance(node, nodes.FieldAccess):
            path = checked.fields.get(node)
            if path is not None and path.argument is not None:
                arguments[path.argument.name] = path.argument
                members.add(node.base)
        elif isinstance(node, nodes.Identifier) and node.name in _ARGUMENTS and node not in members:
            all_of_them = context.arguments if node.name == "args" else (context.result,)
            arguments.update({item.name: item for item in all_of_them if item is not None})
    return list(arguments.values())


def _positional(unit: ProbeUnit) -> bool:
    return bool(unit.context.slots) and any(
        isinstance(node, nodes.Identifier) and node.name.startswith("arg") and node.name[3:].isdigit()
        for node in nodes.walk(unit.body)
    )


def _field(place: ProbeTarget, argument: ProbeArgument, ahead: Ahead) -> None:
    """A field of a tracepoint's record, or of the context of an iterator."""
    if isinstance(place, TracepointTarget):
        for field in ahead.kernel.tracepoint_fields(place.category, place.event) or ():
            if field.name == argument.name:
                row = (field.offset, field.size, field.declaration)
                ahead.rely("tracepoint", place.category, place.event, field.name, *row)
    elif isinstance(place, IteratorTarget):
        context = ahead.kernel.iterators().get(place.iterator)
        member = context.find(argument.name) if context is not None else None
        if context is not None and member is not None:
            ahead.rely_on_member(context, member)


def _prototype(place: ProbeTarget, ahead: Ahead) -> None:
    """The types of a function or raw tracepoint."""
    if isinstance(place, RawTracepointTarget):
        prototype = ahead.kernel.raw_tracepoint_prototype(place.event)
        if prototype is not None:
            ahead.rely("rawtracepoint", place.event, prototype.text)
    elif _has_prototype(place):
        prototype = ahead.kernel.function(place.function, place.module)
        if prototype is not None:
            ahead.rely("function", prototype.name, place.module, prototype.text)


def _has_prototype(place: ProbeTarget) -> TypeGuard[KernelFunctionTarget | TypedFunctionTarget]:
    """Whether a target is in a kernel function with a known name."""
    if isinstance(place, TypedFunctionTarget):
        return place.program_id is None
    return isinstance(place, KernelFunctionTarget) and place.address is None


_RULES: Mapping[type[nodes.Node], Callable[..., None]] = {
    nodes.Identifier: _name,
    nodes.Index: _index,
    nodes.Binary: _binary,
    nodes.Call: _call,
    nodes.Unary: _unary,
    nodes.Offsetof: _type_question,
    nodes.Sizeof: _type_question,
    nodes.TypeInfo: _type_question,
}


class LoadTimeValues(Part):
    """Load-time values and offsets of members of the kernel's structs."""

    def integer(self, what: str, parts: Row, initial: int) -> Number:
        """A 64-bit load-time value; the constant *initial* when the script is not compiled ahead of time."""
        ahead = self.script.ahead
        if ahead is None:
            return signed_constant(initial)
        return self.b.load(ahead.place(what, parts, (initial % (1 << 64)).to_bytes(8, "little")))

    def operand(self, value: LoadTime, type_: Type) -> Operand:
        """The load-time value of an expression."""
        if type_.scalar:
            return Scalar(self.integer(value.what, value.parts, value.now), type_)
        ahead = self.script.ahead
        assert ahead is not None, "open values are only in ahead-of-time files"
        return Memory(ahead.place(value.what, value.parts, bytes(type_.size)), type_)

    # ---------------------------------------------------------------------------------------------- struct members

    def member_offset(self, node: nodes.FieldAccess, path: FieldPath, *, movable: bool) -> Number:
        """Offset of a member of a struct.

        *movable* makes it a load-time value; otherwise it is a constant that the code relies on.
        """
        ahead = self.script.ahead
        owner = self._owner(node) if ahead is not None else None
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
        return self.integer("member", (*location, str(path.type)), path.offset)

    def _owner(self, node: nodes.FieldAccess) -> tuple[Struct, tuple[str, ...]] | None:
        """The named struct from which a chain of member names leads to *node*."""
        names = [node.name]
        base = node.base
        while True:
            type_ = self.checked.types.get(base)
            struct = type_.target if isinstance(type_, Pointer) else type_
            if not isinstance(struct, Struct):
                return None
            field_path = self.checked.fields.get(base) if isinstance(base, nodes.FieldAccess) else None
            if struct.name or field_path is None or field_path.how not in ("pointer", "memory"):
                return struct, tuple(reversed(names))
            assert isinstance(base, nodes.FieldAccess)
            names.append(base.name)
            base = base.base

    def struct_offset(self, struct: Struct, name: str) -> Number:
        """Offset of a member that a builtin reads.

        Raises:
            TraceError: the type information, which may be that of a file, lacks it.
        """
        member = struct.find(name)
        if member is None:
            hint = "PYTRACE_BTF and PYTRACE_VMLINUX name files with the type information of this kernel"
            raise TraceError(f"the kernel's type information has no member {name} of {struct}", hints=(hint,))
        return self.integer("member", (struct.kind, struct.name, name, str(member.type)), member.offset)
