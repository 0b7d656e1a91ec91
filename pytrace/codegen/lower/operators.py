"""Lowering of operators: arithmetic, logic and comparison; struct members, array elements and pointer dereferences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from pytrace.base.dispatch import handles
from pytrace.codegen.emit import comparison, memory
from pytrace.codegen.emit.context import text_view
from pytrace.codegen.emit.program import Part
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.values import I1, I64, TRUE, Memory, Number, Operand, Operation, Order, Remote, Scalar, ordering
from pytrace.core.diagnostics import InternalError, PlacedError
from pytrace.core.probe_kinds import RAWTRACEPOINT, Context
from pytrace.core.types import (
    BOOL,
    DOUBLE,
    AddressSpace,
    Array,
    Float,
    Pointer,
    String,
    Struct,
    Type,
    in_kernel_only,
    plainly_read,
)
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import BoundsCheck, CheckedProgram, FieldPath, Signedness, Slot, VariableInfo

_PLAIN: dict[str, Operation] = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}
_ORDER: dict[str, Order] = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def _target_size(pointer: Pointer) -> int:
    """Size of a pointer's target in bytes; 1 for void and incomplete types."""
    return pointer.target.size or 1


def _direct(operand: Operand) -> bool:
    """Whether plain loads may follow a pointer: only while the verifier knows the provenance of the register."""
    return isinstance(operand, Scalar) and operand.direct


# ---------------------------------------------------------------------------------------------- provenance of pointers

_ARGUMENTS = frozenset({"args", "ctx"})


def _of_variables(checked: CheckedProgram, body: nodes.Block) -> dict[VariableInfo, nodes.Expr]:
    """The assigned expressions of variables that are reached from a probe argument and not changed later."""
    origins: dict[VariableInfo, nodes.Expr] = {}
    changed: set[VariableInfo] = set()
    for node in walk(body):
        if isinstance(node, nodes.Let) and node.value is not None:
            origins[checked.variables[node.variable]] = node.value
        elif isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Variable):
            info = checked.variables[node.target]
            if node.operator == "=" and info.span == node.target.span and info not in origins:
                origins[info] = node.value
            else:
                changed.add(info)
        else:
            changed.update(checked.variables[item] for item in _written(node) if item in checked.variables)
    return {info: value for info, value in origins.items() if info not in changed and _lasting(value)}


def _written(node: nodes.Node) -> list[nodes.Variable]:
    """Variables that a node other than an assignment may change."""
    if isinstance(node, nodes.Unary):
        places: tuple[nodes.Node, ...] = (node.operand,) if node.operator in ("++", "--", "&") else ()
    elif isinstance(node, nodes.For):
        places = (node.variable,)
    else:
        places = node.args if isinstance(node, nodes.Call) and node.name == "find" else ()
    return [place for place in places if isinstance(place, nodes.Variable)]


def _lasting(value: nodes.Expr) -> bool:
    """Whether *value* is an argument, a variable, or a member reached from one."""
    while isinstance(value, nodes.Cast | nodes.FieldAccess):
        value = value.operand if isinstance(value, nodes.Cast) else value.base
    return isinstance(value, nodes.Variable) or (isinstance(value, nodes.Identifier) and value.name in _ARGUMENTS)


class Operators(Part):
    """Lowers arithmetic, logic and comparison."""

    @handles(nodes.Binary)
    def binary(self, node: nodes.Binary) -> Operand:
        """The value of a binary expression."""
        if node.operator in ("&&", "||"):
            return self._logical(node)
        if isinstance(self.e.type(node.left), Float) or isinstance(self.e.type(node.right), Float):
            return self._fractions(node)
        if node.operator in ("==", "!="):
            equal = self.e.comparison.equal(*self.e.in_order((node.left, node.right)))
            if node.operator == "!=":
                equal = self.b.differ(equal, TRUE)
            return Scalar(self.b.number(equal), BOOL)
        left = self.e.number(node.left)
        right = self.e.number(node.right)
        signed = self.checked.fact(node, Signedness).signed
        if node.operator in _ORDER:
            predicate = ordering(_ORDER[node.operator], signed=signed)
            return Scalar(self.b.number(self.b.icmp(predicate, left, right)), BOOL)
        left, right = self._scale(self.e.type(node.left), left, right, self.e.type(node.right))
        result = self.arithmetic(node, node.operator, left, right, signed)
        if self.script.sparing:
            # LLVM must not reorder a long sum, as all operands would then be live at the same time.
            result = self.b.opaque(result)
        return Scalar(result, self.e.type(node))

    def _fractions(self, node: nodes.Binary) -> Operand:
        """A comparison of floating-point numbers; an integer constant is one."""
        sides: list[Operand] = []
        for side in (node.left, node.right):
            constant = self.checked.constants.get(side)
            if isinstance(constant, int):
                sides.append(Scalar(comparison.bits_of(float(constant)), DOUBLE))
            else:
                sides.append(self.e.value(side))
        left, right = sides
        if node.operator in _ORDER:
            return Scalar(self.b.number(self.e.floats.compare(_ORDER[node.operator], left, right)), BOOL)
        equal = self.e.floats.equal(left, right)
        return Scalar(self.b.number(equal if node.operator == "==" else self.b.differ(equal, TRUE)), BOOL)

    def _scale(self, left_type: Type, left: Number, right: Number, right_type: Type) -> tuple[Number, Number]:
        """Scale the integer of pointer arithmetic to bytes."""
        if isinstance(left_type, Pointer) and not isinstance(right_type, Pointer):
            right = self.scaled(right, left_type)
        elif isinstance(right_type, Pointer) and not isinstance(left_type, Pointer):
            left = self.scaled(left, right_type)
        return left, right

    def scaled(self, count: Number, pointer: Pointer) -> Number:
        """*count* elements in bytes."""
        size = _target_size(pointer)
        return count if size == 1 else self.b.mul(count, size)

    def _logical(self, node: nodes.Binary) -> Operand:
        left = self.e.memory.truth(self.e.value(node.left))
        start = self.b.current
        undecided, decided = (self.b.when, 0) if node.operator == "&&" else (self.b.unless, 1)
        with undecided(left):
            right = self.b.number(self.e.memory.truth(self.e.value(node.right)))
            end = self.b.current
        return Scalar(self.b.phi([(decided, start), (right, end)]), BOOL)

    def arithmetic(self, node: nodes.Node, operator: str, left: Number, right: Number, signed: bool) -> I64:
        """A 64-bit operation (``+ - * / % & | ^ << >>``); *node* is where a division by zero is reported."""
        if operator in _PLAIN:
            return self.b.op(_PLAIN[operator], left, right)
        emit = self._SPECIAL.get(operator)
        if emit is None:
            raise InternalError(f"no code for operator {operator}")
        return emit(self, node, left, right, signed)

    def _shift_left(self, _node: nodes.Node, left: Number, right: Number, _signed: bool) -> I64:
        return self.b.op("shl", left, self.b.op("and", right, 63))

    def _shift_right(self, _node: nodes.Node, left: Number, right: Number, signed: bool) -> I64:
        return self.b.op("ashr" if signed else "lshr", left, self.b.op("and", right, 63))

    def _divide(self, node: nodes.Node, left: Number, right: Number, signed: bool) -> I64:
        return self._guarded(node, right, lambda: self._quotient(left, right, signed))

    def _modulo(self, node: nodes.Node, left: Number, right: Number, signed: bool) -> I64:
        return self._guarded(node, right, lambda: self._remainder(left, right, signed))

    def _magnitude(self, value: Number) -> tuple[I1, I64]:
        negative = self.b.icmp("slt", value, 0)
        return negative, self.b.select(negative, self.b.sub(0, value), value)

    def _quotient(self, left: Number, right: Number, signed: bool) -> I64:
        # The v3 instruction set has no signed division.
        if not signed:
            return self.b.op("udiv", left, right)
        left_negative, left_size = self._magnitude(left)
        right_negative, right_size = self._magnitude(right)
        size = self.b.op("udiv", left_size, right_size)
        differ = self.b.differ(left_negative, right_negative)
        return self.b.select(differ, self.b.sub(0, size), size)

    def _remainder(self, left: Number, right: Number, signed: bool) -> I64:
        if not signed:
            return self.b.op("urem", left, right)
        negative, size = self._magnitude(left)
        rest = self.b.op("urem", size, self._magnitude(right)[1])
        return self.b.select(negative, self.b.sub(0, rest), rest)

    def _guarded(self, node: nodes.Node, divisor: Number, divide: Callable[[], I64]) -> I64:
        """Division by zero is reported, and its result is 1."""
        if isinstance(divisor, int) and divisor:
            return divide()
        zero, good, done = self.b.block(), self.b.block(), self.b.block()
        self.b.branch(self.b.icmp("eq", divisor, 0), zero, good, likely=False)
        self.b.start(zero)
        self.e.events.report(node, "division_by_zero")
        zero_end = self.b.current
        self.b.jump(done)
        self.b.start(good)
        value = divide()
        good_end = self.b.current
        self.b.jump(done)
        self.b.start(done)
        return self.b.phi([(1, zero_end), (value, good_end)])

    _SPECIAL: ClassVar[Mapping[str, Callable[..., I64]]] = {
        "<<": _shift_left,
        ">>": _shift_right,
        "/": _divide,
        "%": _modulo,
    }


class Members(Part):
    """Lowers struct members, array elements and pointer dereferences."""

    def follow(self, operand: Operand, pointer: Type, type_: Type) -> Operand:
        """The target of a pointer, as a value of *type_*."""
        if not isinstance(pointer, Pointer):
            raise InternalError(f"{pointer} is no pointer")
        address, direct = self._address(operand, pointer)
        return self.at_address(address, type_, pointer.space, direct)

    def _address(self, operand: Operand, pointer: Pointer) -> tuple[Number, bool]:
        """A pointer to be dereferenced, and whether plain loads may follow it: then it is the typed register itself.

        A plain load at an address of user memory, which the verifier accepts as well, is 0: the kernel's type
        information does not say which arguments and members are ``__user`` when GCC has built it.
        """
        if _direct(operand) and (pointer.space is AddressSpace.BPF or in_kernel_only(pointer.target)):
            assert isinstance(operand, Scalar)
            return operand.value, True
        return self.e.memory.number(operand), False

    def at_address(self, address: Number, type_: Type, space: AddressSpace, direct: bool) -> Operand:
        """The value at an address."""
        if space is AddressSpace.BPF and direct:
            pointer = self.b.pointer(address)
            return self.e.memory.load(pointer, type_) if type_.scalar else Memory(pointer, type_)
        remote = Remote(address, type_, self.e.foreign.pointed_space(space), direct)
        return self._scalar_at(remote) if type_.scalar else remote

    def _scalar_at(self, remote: Remote) -> Scalar:
        if not remote.direct:
            return self.e.foreign.read_scalar(remote.address, remote.type, remote.space)
        scalar = self.e.memory.load(self.b.pointer(remote.address), remote.type)
        type_ = remote.type
        if isinstance(type_, Pointer) and not type_.trusted and isinstance(type_.target, Struct):
            # The verifier still treats it as a pointer, and allows only pointer arithmetic on it.
            return Scalar(self.e.launder(scalar.value), type_)
        return Scalar(scalar.value, type_, direct=isinstance(type_, Pointer) and type_.trusted)

    # ---------------------------------------------------------------------------------------------- members

    @handles(nodes.FieldAccess)
    def field(self, node: nodes.FieldAccess) -> Operand:
        """A member of a struct, of a pointer's target, of a record, or of ``args``."""
        path = self.checked.fields[node]
        type_ = self.e.type(node)
        if path.how == "argument":
            if path.argument is None:
                raise InternalError("argument without a place")
            return text_view(self.e.probe.argument(path.argument), type_)
        base = self.e.value(node.base)
        if path.how == "record":
            return self.e.memory.member_of(base, path.index)
        if path.how == "pointer":
            pointer = self.e.type(node.base)
            if not isinstance(pointer, Pointer):
                raise InternalError(f"{pointer} is no pointer")
            base = self._target(base, pointer)
        distance = self.e.load_time.member_offset(node, path, movable=isinstance(base, Remote))
        return text_view(self._member(base, path, type_, distance), type_)

    def _target(self, base: Operand, pointer: Pointer) -> Operand:
        if isinstance(base, Scalar) and base.pointer:
            return Memory(base.pointer, pointer.target, 8, context=True)
        address, direct = self._address(base, pointer)
        if pointer.space is AddressSpace.BPF and direct:
            return Memory(self.b.pointer(address), pointer.target, 8)
        return Remote(address, pointer.target, self.e.foreign.pointed_space(pointer.space), direct)

    def _member(self, base: Operand, path: FieldPath, type_: Type, distance: Number) -> Operand:
        if path.bit_size:
            return self._bitfield(base, path, type_)
        if isinstance(base, Remote):
            address = self.b.add(base.address, distance) if distance != 0 else base.address
            direct = base.direct and (not path.type.scalar or plainly_read(base.type, path.offset, path.type.size))
            remote = Remote(address, path.type, base.space, direct)
            return self._scalar_at(remote) if path.type.scalar else remote
        struct = self.e.place(base)
        align = memory.natural(struct.align, path.offset)
        pointer = self.b.offset(struct.pointer, path.offset)
        if path.type.scalar:
            scalar = self.e.memory.load(pointer, path.type, align)
            return self.e.probe.typed(scalar.value, path.type) if struct.context else scalar
        return Memory(pointer, path.type, align, struct.context)

    def _bitfield(self, base: Operand, path: FieldPath, type_: Type) -> Operand:
        """Read only the bytes that contain the bits, as the next ones may be on an unmapped page, then shift.

        The bits have the signedness of the member's type, as GCC and Clang define it.
        """
        start = path.offset + path.bit_offset // 8
        shift = path.bit_offset % 8
        size = (shift + path.bit_size + 7) // 8
        first = self._bytes(base, start, min(size, 8))
        value = self.b.op("lshr", first, shift) if shift else first
        if size > 8:
            rest = self._bytes(base, start + 8, 1)
            value = self.b.op("or", value, self.b.op("shl", rest, 64 - shift))
        signed = memory.is_signed(type_)
        return Scalar(
            self.b.fit(value, path.bit_size, True) if signed else self.b.low_bits(value, path.bit_size), type_
        )

    def _bytes(self, base: Operand, offset: int, size: int) -> Number:
        """*size* bytes as an unsigned number, least significant byte first."""
        if isinstance(base, Remote):
            cell = self.e.cell
            self.b.store(0, cell)
            self.e.foreign.read(cell, size, self.b.add(base.address, offset), base.space)
            return self.b.load(cell)
        source = self.e.place(base)
        value: Number = 0
        for index in range(size):
            byte = self.b.load(self.b.offset(source.pointer, offset + index), 8)
            value = self.b.op("or", value, self.b.op("shl", byte, 8 * index))
        return value

    def typed_address(self, node: nodes.Expr, missing: Block) -> Number:
        """Address of a struct, or a pointer's target, in a register that is typed (BTF) for the verifier.

        Helpers with typed pointer parameters require this. Pointers of iterators may be null; then execution
        continues at *missing*.

        Raises:
            PlacedError: the value is not reached from the probe's arguments alone.
        """
        expression, node = node, self._origin(node)
        if self.program.unit.kind.context is Context.ITERATOR and isinstance(node, nodes.FieldAccess):
            path = self.checked.fields[node]
            distance = self.e.load_time.member_offset(node, path, movable=True)
            if isinstance(node.base, nodes.Identifier):
                address = self.b.load(self.b.offset(self.e.context, path.offset))
            else:
                address = self.b.add(self.typed_address(node.base, missing), distance)
                if path.type.scalar:
                    address = self.b.load(self.b.pointer(address))
            return self._not_null(address, missing) if path.type.scalar else address
        maybe_null = self._unchecked_argument(node)
        if maybe_null is not None:
            return self._not_null(self.e.probe.slot(maybe_null.index), missing)
        if isinstance(node, nodes.FieldAccess) and self._origin(node.base) is not node.base:
            path = self.checked.fields[node]
            distance = self.e.load_time.member_offset(node, path, movable=True)
            address = self.b.add(self.typed_address(node.base, missing), distance)
            return self.b.load(self.b.pointer(address)) if path.type.scalar else address
        operand = self.e.value(node)
        if isinstance(operand, Remote) and operand.direct:
            return operand.address
        if isinstance(operand, Scalar) and operand.direct:
            return operand.value
        raise PlacedError(
            "the kernel must know the type of this pointer",
            expression.span,
            hints=("reach it from args (ctx in iterators), not through a map or a variable that changes",),
        )

    def _unchecked_argument(self, node: nodes.Expr) -> Slot | None:
        """The slot of a struct pointer argument of a raw tracepoint, which the verifier treats as possibly null."""
        if self.program.unit.kind.name != RAWTRACEPOINT or not isinstance(node, nodes.FieldAccess):
            return None
        item = self.checked.fields[node].argument
        if item is None or not isinstance(item.type, Pointer) or not isinstance(item.type.target, Struct):
            return None
        return item.place if isinstance(item.place, Slot) and not item.type.trusted else None

    def _not_null(self, address: Number, missing: Block) -> Number:
        """*address*, after a null check."""
        self.b.jump_if(self.b.icmp("eq", address, 0), missing)
        return address

    def _origin(self, node: nodes.Expr) -> nodes.Expr:
        """*node* without pointer-to-pointer casts, and with variables replaced by the expressions assigned to them."""
        if self.program.origins is None:
            self.program.origins = _of_variables(self.checked, self.program.unit.body)
        while True:
            if isinstance(node, nodes.Cast) and self._is_pointer(node) and self._is_pointer(node.operand):
                node = node.operand
            elif isinstance(node, nodes.Variable) and self.checked.variables[node] in self.program.origins:
                node = self.program.origins[self.checked.variables[node]]
            else:
                return node

    def _is_pointer(self, node: nodes.Expr) -> bool:
        return isinstance(self.e.type(node), Pointer)

    # ---------------------------------------------------------------------------------------------- elements

    @handles(nodes.Index)
    def index(self, node: nodes.Index) -> Operand:
        """``base[index]``."""
        base_type, type_ = self.e.type(node.base), self.e.type(node)
        constant = self.checked.constants.get(node.index)
        if isinstance(base_type, Pointer):
            return self._pointer_index(node, base_type, type_)
        base = self.e.value(node.base)
        if isinstance(base_type, Array | String):
            element = base_type.element if isinstance(base_type, Array) else type_
            if constant is not None:
                return text_view(self._element(base, element, int(constant) * element.size), type_)
            return self._checked_element(node, base, base_type, element)
        if constant is None:
            raise InternalError("tuple index is not constant")
        return self.e.memory.member_of(base, int(constant))

    def _pointer_index(self, node: nodes.Index, pointer: Pointer, type_: Type) -> Operand:
        base = self.e.value(node.base)
        start = self.e.memory.number(base)
        by = self.b.mul(self.e.number(node.index), _target_size(pointer))
        return text_view(self.at_address(self.b.add(start, by), type_, pointer.space, direct=False), type_)

    def _element(self, base: Operand, element: Type, distance: Number) -> Operand:
        if isinstance(base, Remote):
            # The verifier allows loads through BTF pointers at constant offsets only.
            direct = base.direct and isinstance(distance, int) and distance >= 0
            remote = Remote(self.b.add(base.address, distance), element, base.space, direct)
            return self._scalar_at(remote) if element.scalar else remote
        array = self.e.place(base)
        align = memory.natural(array.align, distance) if isinstance(distance, int) else min(array.align, element.align)
        pointer = self.b.offset(array.pointer, distance)
        return self.e.memory.load(pointer, element, align) if element.scalar else Memory(pointer, element, align)

    def _checked_element(self, node: nodes.Index, base: Operand, array: Type, element: Type) -> Operand:
        """An element at a variable index; an index out of bounds is reported, and the value is zero."""
        count = array.count if isinstance(array, Array) else array.size
        number = self.b.opaque(self.e.number(node.index))
        # Memory may be read at a variable offset: the verifier allows it for map values and the stack.
        place = base if isinstance(base, Remote) else self.e.place(base)
        target = self.e.temporary(element.size)
        good, bad, done = self.b.block(), self.b.block(), self.b.block()
        self.b.branch(self.b.icmp("ult", number, count), good, bad, likely=True)
        self.b.start(good)
        distance = self.b.mul(number, element.size) if element.size != 1 else number
        self.e.memory.write(self._element(place, element, distance), target, element)
        self.b.jump(done)
        self.b.start(bad)
        self.e.memory.zero(target, element.size, 8 if element.size % 8 == 0 else 1)
        check = self.checked.find_fact(node, BoundsCheck)
        if check is not None and check.needed:
            self.e.events.report(node, "array_bounds")
        self.b.jump(done)
        self.b.start(done)
        copy = Memory(target, element)
        return self.e.memory.load(target, element) if element.scalar else copy
