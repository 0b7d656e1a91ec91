"""Load-time values of ahead-of-time files, and the struct layouts that a file relies on.

The values are in a read-only data section of their own, which the runtime fills in before loading
(``runtime.load.ahead_of_time``); the verifier then treats them as constants, so a branch that a parameter disables has
no cost, and offsets of struct members, which are load-time values as well, are those of the running kernel.

Layouts that cannot be adjusted in this way are recorded (*relies*) and checked when the file is loaded.
"""

from __future__ import annotations

from typing import TypeGuard

from pytrace.base.dispatch import handlers, handles, handles_names
from pytrace.codegen.emit.program import Ahead, Part
from pytrace.codegen.ir.values import Memory, Number, Operand, Scalar, signed_constant
from pytrace.core.builtins import argument_number
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

_ARGUMENTS = frozenset({"args", "retval"})


def collect(checked: CheckedProgram, ahead: Ahead) -> None:
    """Record everything that *checked* relies on."""
    _Reliance(checked, ahead).program()


class _Reliance:
    """Records what a checked program relies on in an ahead-of-time file."""

    def __init__(self, checked: CheckedProgram, ahead: Ahead) -> None:
        self._checked, self._ahead = checked, ahead
        self._rules = handlers(self)

    def program(self) -> None:
        """Record everything."""
        for unit in self._checked.units:
            self._unit(unit)
        units, functions = self._checked.units, self._checked.functions
        for body in [unit.body for unit in units] + [function.body for function in functions]:
            for node in nodes.walk(body):
                self._node(node)
        for row in self._checked.decided:
            self._ahead.rely(*row)
        types = [type_ for event in self._checked.event_list for type_ in event.args]
        values = self._checked.maps.values()
        types += [type_ for info in values for type_ in (info.key, info.value) if type_ is not None]
        for type_ in types:
            for inner in parts((type_,)):
                self._ahead.rely_on_type(inner)
                if isinstance(inner, Enum):
                    self._members(inner)

    def _members(self, type_: Enum) -> None:
        """Enum values are printed as names of members, so the members' values must be the same on the target kernel."""
        if self._ahead.kernel.enum(type_.name) == type_:
            self._ahead.rely("names", type_.name, type_.width)

    def _node(self, node: nodes.Node) -> None:
        rule = self._rules.get(type(node))
        if rule is not None:
            rule(node)
        if isinstance(node, nodes.Expr) and node not in self._checked.constants:
            type_ = self._checked.types.get(node)
            if isinstance(type_, Struct) and not isinstance(
                node, nodes.FieldAccess | nodes.Unary | nodes.Index | nodes.Identifier
            ):
                self._ahead.rely_on_size(type_)

    @handles(nodes.Identifier)
    def _name(self, node: nodes.Identifier) -> None:
        """An enumerator of the kernel, or ``goid``."""
        self._goroutine(node)
        value = self._checked.constants.get(node)
        if isinstance(value, int) and isinstance(self._checked.types.get(node), Enum):
            if self._ahead.kernel.enumerator(node.name) is not None:
                self._ahead.rely("enumerator", node.name, value)

    @handles(nodes.CallPart)
    def _part_of_call(self, node: nodes.CallPart) -> None:
        self._goroutine(node)

    @handles_names("goid")
    def _goroutine(self, node: nodes.Identifier | nodes.Call | nodes.CallPart) -> None:
        number = self._checked.find_fact(node, GoroutineNumber)
        for path in number.paths if number is not None else ():
            self._ahead.exact(path, "goid is where its version of Go has it")

    def _target(self, node: nodes.Expr) -> None:
        """Pointer arithmetic: relies on the size of the pointer's target."""
        type_ = self._checked.types.get(node)
        if isinstance(type_, Pointer):
            self._ahead.rely_on_size(type_.target)
        elif type_ is not None:
            self._ahead.rely_on_size(type_)

    @handles(nodes.Index)
    def _index(self, node: nodes.Index) -> None:
        self._target(node.base)

    @handles(nodes.Binary)
    def _binary(self, node: nodes.Binary) -> None:
        if node.operator in ("+", "-"):
            for side in (node.left, node.right):
                if isinstance(self._checked.types.get(side), Pointer):
                    self._target(side)

    @handles(nodes.Unary)
    def _unary(self, node: nodes.Unary) -> None:
        if node.operator in ("++", "--"):
            self._target(node.operand)

    @handles(nodes.Offsetof, nodes.Sizeof, nodes.TypeInfo)
    def _type_question(self, node: nodes.Expr) -> None:
        """Sizes and offsets of types that contain kernel structs; and typeinfo, whose ids differ between kernels."""
        reliance = self._checked.find_fact(node, LayoutReliance)
        if reliance is not None:
            self._ahead.rely_on_size(reliance.type)
            for struct, member in reliance.members:
                self._ahead.rely_on_member(struct, member)
        description = self._checked.find_fact(node, TypeDescription)
        if description is not None and description.btf_id:
            self._ahead.rely("build", "typeinfo(), whose numbers are those of one kernel build")

    def _unit(self, unit: ProbeUnit) -> None:
        if unit.kind.user:
            self._binary_target(unit)
            return
        used = self._used(unit)
        for argument in used:
            if isinstance(argument.place, ContextField | DataLoc):
                for target in unit.targets:
                    self._field(target.place, argument)
        slots = any(isinstance(argument.place, Slot) for argument in used) or _positional(unit)
        if not (slots or used):
            return
        for target in unit.targets:
            self._prototype(target.place)

    def _binary_target(self, unit: ProbeUnit) -> None:
        """Record how the targets of a unit are located in a binary that has changed."""
        arguments = [item.place for item in self._used(unit)]
        for target in unit.targets:
            if isinstance(target.place, StaticProbeTarget):
                self._static_probe(target.place)
                continue
            place = target.of(UserTarget)
            path, symbol = place.path, place.symbol
            symbols = self._ahead.kernel.user_symbols(path, symbol)
            symbol_row = next((item for item in symbols if item.name == symbol), None)
            if symbol_row is None:
                self._ahead.exact(path, "the probe is on an address")
                continue
            if len({item.address for item in symbols if item.name == symbol}) > 1:
                self._ahead.exact(path, f"several functions are named {symbol!r}")
                continue
            self._ahead.binaries["symbol", path, symbol, str(symbol_row.offset)] = None
            if place.offset != symbol_row.offset:
                self._ahead.exact(path, "the probe is inside a function")
            if any(isinstance(place, RegisterLocation | RegisterParts | CountedText) for place in arguments):
                self._ahead.exact(path, "the code takes arguments from where its debug information says")

    def _static_probe(self, place: StaticProbeTarget) -> None:
        for item in self._ahead.kernel.usdt_probes(place.path, place.provider, place.name):
            self._ahead.binaries["usdt", place.path, item.provider, item.name, str(item.offset), item.arguments] = None

    @handles(nodes.Call)
    def _call(self, node: nodes.Call) -> None:
        rule = self._rules.get(node.name)
        if rule is not None:
            rule(node)

    @handles_names("uaddr")
    def _user_address(self, node: nodes.Call) -> None:
        symbol = self._checked.find_fact(node, UserSymbol)
        if symbol is not None:
            self._ahead.exact(symbol.path, "uaddr() returns addresses in it")

    @handles_names(
        "kfunc_allowed", "kfunc_exist", "probe_exist", "type_exist", "member_exist", "constant_exist", "symbol_exist"
    )
    def _existence(self, node: nodes.Call) -> None:
        """Record the answer of an existence query, as it decided which code was compiled."""
        existence = self._checked.find_fact(node, Existence)
        if existence is not None:
            self._ahead.rely(*existence.row)

    def _used(self, unit: ProbeUnit) -> list[ProbeArgument]:
        """The members of ``args`` that a body reads; all of them where ``args`` is taken as a whole."""
        context, arguments, members = unit.context, {}, set()
        for node in nodes.walk(unit.body):
            if isinstance(node, nodes.FieldAccess):
                path = self._checked.fields.get(node)
                if path is not None and path.argument is not None:
                    arguments[path.argument.name] = path.argument
                    members.add(node.base)
            elif isinstance(node, nodes.Identifier) and node.name in _ARGUMENTS and node not in members:
                all_of_them = context.arguments if node.name == "args" else (context.result,)
                arguments.update({item.name: item for item in all_of_them if item is not None})
        return list(arguments.values())

    def _field(self, place: ProbeTarget, argument: ProbeArgument) -> None:
        """A field of a tracepoint's record, or of the context of an iterator."""
        if isinstance(place, TracepointTarget):
            for field in self._ahead.kernel.tracepoint_fields(place.category, place.event) or ():
                if field.name == argument.name:
                    row = (field.offset, field.size, field.declaration)
                    self._ahead.rely("tracepoint", place.category, place.event, field.name, *row)
        elif isinstance(place, IteratorTarget):
            context = self._ahead.kernel.iterators().get(place.iterator)
            member = context.find(argument.name) if context is not None else None
            if context is not None and member is not None:
                self._ahead.rely_on_member(context, member)

    def _prototype(self, place: ProbeTarget) -> None:
        """The types of a function or raw tracepoint."""
        if isinstance(place, RawTracepointTarget):
            prototype = self._ahead.kernel.raw_tracepoint_prototype(place.event)
            if prototype is not None:
                self._ahead.rely("rawtracepoint", place.event, prototype.text)
        elif _has_prototype(place):
            prototype = self._ahead.kernel.function(place.function, place.module)
            if prototype is not None:
                self._ahead.rely("function", prototype.name, place.module, prototype.text)


def _positional(unit: ProbeUnit) -> bool:
    return bool(unit.context.slots) and any(
        isinstance(node, nodes.Identifier) and argument_number(node.name) is not None
        for node in nodes.walk(unit.body)
    )


def _has_prototype(place: ProbeTarget) -> TypeGuard[KernelFunctionTarget | TypedFunctionTarget]:
    """Whether a target is in a kernel function with a known name."""
    if isinstance(place, TypedFunctionTarget):
        return place.program_id is None
    return isinstance(place, KernelFunctionTarget) and place.address is None


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
