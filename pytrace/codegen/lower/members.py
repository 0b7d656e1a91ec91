"""Lowering of struct members, array elements and pointer dereferences."""

from __future__ import annotations

from pytrace.codegen.emit import memory
from pytrace.codegen.emit.context import text_view
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.values import Memory, Number, Operand, Remote, Scalar
from pytrace.codegen.lower.operators import target_size
from pytrace.core.diagnostics import InternalError, PlacedError
from pytrace.core.probes.kinds import RAWTRACEPOINT, Context
from pytrace.core.types import AddressSpace, Array, Pointer, String, Struct, Type
from pytrace.core.types.basic_types import plainly_read
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import BoundsCheck, CheckedProgram, FieldPath, Slot, VariableInfo


def follow(e: Emitter, operand: Operand, pointer: Type, type_: Type) -> Operand:
    """The target of a pointer, as a value of *type_*."""
    if not isinstance(pointer, Pointer):
        raise InternalError(f"{pointer} is no pointer")
    return at_address(e, _address(e, operand), type_, pointer.space, _direct(operand))


def _address(e: Emitter, operand: Operand) -> Number:
    """A pointer to be dereferenced: the typed register itself if plain loads may follow it."""
    return operand.value if isinstance(operand, Scalar) and operand.direct else e.memory.number(operand)


def _direct(operand: Operand) -> bool:
    """Whether plain loads may follow a pointer: only while the verifier knows the provenance of the register."""
    return isinstance(operand, Scalar) and operand.direct


def at_address(e: Emitter, address: Number, type_: Type, space: AddressSpace, direct: bool) -> Operand:
    """The value at an address."""
    if space is AddressSpace.BPF and direct:
        pointer = e.b.pointer(address)
        return e.memory.load(pointer, type_) if type_.scalar else Memory(pointer, type_)
    remote = Remote(address, type_, e.foreign.pointed_space(space), direct)
    return _scalar_at(e, remote) if type_.scalar else remote


def _scalar_at(e: Emitter, remote: Remote) -> Scalar:
    if not remote.direct:
        return e.foreign.read_scalar(remote.address, remote.type, remote.space)
    scalar = e.memory.load(e.b.pointer(remote.address), remote.type)
    type_ = remote.type
    if isinstance(type_, Pointer) and not type_.trusted and isinstance(type_.target, Struct):
        # The verifier still treats it as a pointer, and allows only pointer arithmetic on it.
        return Scalar(e.launder(scalar.value), type_)
    return Scalar(scalar.value, type_, direct=isinstance(type_, Pointer) and type_.trusted)


# ---------------------------------------------------------------------------------------------- members


def field(e: Emitter, node: nodes.FieldAccess) -> Operand:
    """A member of a struct, of a pointer's target, of a record, or of ``args``."""
    path = e.checked.fields[node]
    type_ = e.type(node)
    if path.how == "argument":
        if path.argument is None:
            raise InternalError("argument without a place")
        return text_view(e.probe.argument(path.argument), type_)
    base = e.value(node.base)
    if path.how == "record":
        return e.memory.member_of(base, path.index)
    if path.how == "pointer":
        pointer = e.type(node.base)
        if not isinstance(pointer, Pointer):
            raise InternalError(f"{pointer} is no pointer")
        base = _target(e, base, pointer)
    distance = e.load_time.member_offset(node, path, movable=isinstance(base, Remote))
    return text_view(_member(e, base, path, type_, distance), type_)


def _target(e: Emitter, base: Operand, pointer: Pointer) -> Operand:
    if isinstance(base, Scalar) and base.pointer:
        return Memory(base.pointer, pointer.target, 8, context=True)
    address = _address(e, base)
    direct = _direct(base)
    if pointer.space is AddressSpace.BPF and direct:
        return Memory(e.b.pointer(address), pointer.target, 8)
    return Remote(address, pointer.target, e.foreign.pointed_space(pointer.space), direct)


def _member(e: Emitter, base: Operand, path: FieldPath, type_: Type, distance: Number) -> Operand:
    if path.bit_size:
        return _bitfield(e, base, path, type_)
    if isinstance(base, Remote):
        address = e.b.add(base.address, distance) if distance != 0 else base.address
        direct = base.direct and (not path.type.scalar or plainly_read(base.type, path.offset, path.type.size))
        remote = Remote(address, path.type, base.space, direct)
        return _scalar_at(e, remote) if path.type.scalar else remote
    struct = e.place(base)
    align = memory.natural(struct.align, path.offset)
    pointer = e.b.offset(struct.pointer, path.offset)
    if path.type.scalar:
        scalar = e.memory.load(pointer, path.type, align)
        return e.probe.typed(scalar.value, path.type) if struct.context else scalar
    return Memory(pointer, path.type, align, struct.context)


def _bitfield(e: Emitter, base: Operand, path: FieldPath, type_: Type) -> Operand:
    """Read only the bytes that contain the bits, as the next ones may be on an unmapped page, then shift.

    The bits have the signedness of the member's type, as GCC and Clang define it.
    """
    start = path.offset + path.bit_offset // 8
    shift = path.bit_offset % 8
    size = (shift + path.bit_size + 7) // 8
    first = _bytes(e, base, start, min(size, 8))
    value = e.b.op("lshr", first, shift) if shift else first
    if size > 8:
        rest = _bytes(e, base, start + 8, 1)
        value = e.b.op("or", value, e.b.op("shl", rest, 64 - shift))
    signed = memory.is_signed(type_)
    return Scalar(e.b.fit(value, path.bit_size, True) if signed else e.b.low_bits(value, path.bit_size), type_)


def _bytes(e: Emitter, base: Operand, offset: int, size: int) -> Number:
    """*size* bytes as an unsigned number, least significant byte first."""
    if isinstance(base, Remote):
        cell = e.cell
        e.b.store(0, cell)
        e.foreign.read(cell, size, e.b.add(base.address, offset), base.space)
        return e.b.load(cell)
    source = e.place(base)
    value: Number = 0
    for index in range(size):
        byte = e.b.load(e.b.offset(source.pointer, offset + index), 8)
        value = e.b.op("or", value, e.b.op("shl", byte, 8 * index))
    return value


def typed_address(e: Emitter, node: nodes.Expr, missing: Block) -> Number:
    """Address of a struct, or a pointer's target, in a register that is typed (BTF) for the verifier.

    Helpers with typed pointer parameters require this. Pointers of iterators may be null; then execution continues at
    *missing*.

    Raises:
        PlacedError: the value is not reached from the probe's arguments alone.
    """
    expression, node = node, _origin(e, node)
    if e.program.unit.kind.context is Context.ITERATOR and isinstance(node, nodes.FieldAccess):
        path = e.checked.fields[node]
        distance = e.load_time.member_offset(node, path, movable=True)
        if isinstance(node.base, nodes.Identifier):
            address = e.b.load(e.b.offset(e.context, path.offset))
        else:
            address = e.b.add(typed_address(e, node.base, missing), distance)
            if path.type.scalar:
                address = e.b.load(e.b.pointer(address))
        return _not_null(e, address, missing) if path.type.scalar else address
    maybe_null = _unchecked_argument(e, node)
    if maybe_null is not None:
        return _not_null(e, e.probe.slot(maybe_null.index), missing)
    if isinstance(node, nodes.FieldAccess) and _origin(e, node.base) is not node.base:
        path = e.checked.fields[node]
        distance = e.load_time.member_offset(node, path, movable=True)
        address = e.b.add(typed_address(e, node.base, missing), distance)
        return e.b.load(e.b.pointer(address)) if path.type.scalar else address
    operand = e.value(node)
    if isinstance(operand, Remote) and operand.direct:
        return operand.address
    if isinstance(operand, Scalar) and operand.direct:
        return operand.value
    raise PlacedError(
        "the kernel must know the type of this pointer",
        expression.span,
        hints=("reach it from args (ctx in iterators), not through a map or a variable that changes",),
    )


def _unchecked_argument(e: Emitter, node: nodes.Expr) -> Slot | None:
    """The slot of a struct pointer argument of a raw tracepoint, which the verifier treats as possibly null."""
    if e.program.unit.kind.name != RAWTRACEPOINT or not isinstance(node, nodes.FieldAccess):
        return None
    item = e.checked.fields[node].argument
    if item is None or not isinstance(item.type, Pointer) or not isinstance(item.type.target, Struct):
        return None
    return item.place if isinstance(item.place, Slot) and not item.type.trusted else None


def _not_null(e: Emitter, address: Number, missing: Block) -> Number:
    """*address*, after a null check."""
    e.b.jump_if(e.b.icmp("eq", address, 0), missing)
    return address


# ---------------------------------------------------------------------------------------------- provenance of pointers

_ARGUMENTS = frozenset({"args", "ctx"})


def _origin(e: Emitter, node: nodes.Expr) -> nodes.Expr:
    """*node* without pointer-to-pointer casts, and with variables replaced by the expressions assigned to them."""
    if e.program.origins is None:
        e.program.origins = _of_variables(e.checked, e.program.unit.body)
    while True:
        if isinstance(node, nodes.Cast) and _is_pointer(e, node) and _is_pointer(e, node.operand):
            node = node.operand
        elif isinstance(node, nodes.Variable) and e.checked.variables[node] in e.program.origins:
            node = e.program.origins[e.checked.variables[node]]
        else:
            return node


def _is_pointer(e: Emitter, node: nodes.Expr) -> bool:
    return isinstance(e.type(node), Pointer)


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


# ---------------------------------------------------------------------------------------------- elements


def index(e: Emitter, node: nodes.Index) -> Operand:
    """``base[index]``."""
    base_type, type_ = e.type(node.base), e.type(node)
    constant = e.checked.constants.get(node.index)
    if isinstance(base_type, Pointer):
        return _pointer_index(e, node, base_type, type_)
    base = e.value(node.base)
    if isinstance(base_type, Array | String):
        element = base_type.element if isinstance(base_type, Array) else type_
        if constant is not None:
            return text_view(_element(e, base, element, int(constant) * element.size), type_)
        return _checked_element(e, node, base, base_type, element)
    if constant is None:
        raise InternalError("tuple index is not constant")
    return e.memory.member_of(base, int(constant))


def _pointer_index(e: Emitter, node: nodes.Index, pointer: Pointer, type_: Type) -> Operand:
    base = e.value(node.base)
    start = e.memory.number(base)
    by = e.b.mul(e.number(node.index), target_size(pointer))
    return text_view(at_address(e, e.b.add(start, by), type_, pointer.space, direct=False), type_)


def _element(e: Emitter, base: Operand, element: Type, distance: Number) -> Operand:
    if isinstance(base, Remote):
        # The verifier allows loads through BTF pointers at constant offsets only.
        direct = base.direct and isinstance(distance, int) and distance >= 0
        remote = Remote(e.b.add(base.address, distance), element, base.space, direct)
        return _scalar_at(e, remote) if element.scalar else remote
    array = e.place(base)
    align = memory.natural(array.align, distance) if isinstance(distance, int) else min(array.align, element.align)
    pointer = e.b.offset(array.pointer, distance)
    return e.memory.load(pointer, element, align) if element.scalar else Memory(pointer, element, align)


def _checked_element(e: Emitter, node: nodes.Index, base: Operand, array: Type, element: Type) -> Operand:
    """An element at a variable index; an index out of bounds is reported, and the value is zero."""
    count = array.count if isinstance(array, Array) else array.size
    number = e.b.opaque(e.number(node.index))
    # Memory may be read at a variable offset: the verifier allows it for map values and the stack.
    place = base if isinstance(base, Remote) else e.place(base)
    target = e.temporary(element.size)
    good, bad, done = e.b.block(), e.b.block(), e.b.block()
    e.b.branch(e.b.icmp("ult", number, count), good, bad, likely=True)
    e.b.start(good)
    distance = e.b.mul(number, element.size) if element.size != 1 else number
    e.memory.write(_element(e, place, element, distance), target, element)
    e.b.jump(done)
    e.b.start(bad)
    e.memory.zero(target, element.size, 8 if element.size % 8 == 0 else 1)
    check = e.checked.find_fact(node, BoundsCheck)
    if check is not None and check.needed:
        e.events.report(node, "array_bounds")
    e.b.jump(done)
    e.b.start(done)
    copy = Memory(target, element)
    return e.memory.load(target, element) if element.scalar else copy
