"""Strings, buffers and memory."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.codegen.emit import events, memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers, machine
from pytrace.codegen.ir.values import I64, TRUE, Made, Memory, Number, Operand, Ptr, Remote, Scalar
from pytrace.codegen.lower import members
from pytrace.codegen.lower.builtins.families import Emission
from pytrace.codegen.lower.builtins.string_search import search
from pytrace.codegen.lower.builtins.symbol_family import argument
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import BOOL, INT64, UINT8, UINT64, AddressSpace, Array, Buffer, Int, Pointer, String
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import BufferLength, ComparedLength, CountedString, ShortText, StringLength

FOLLOWED = 1024
"""Maximum iterations of an inline loop, each of which the verifier follows."""


def _expr(node: nodes.Call, index: int) -> nodes.Expr:
    item = node.args[index]
    if not isinstance(item, nodes.Expr):
        raise InternalError(f"{node.name} takes values")
    return item


def source_of(e: Emitter, operand: Operand) -> tuple[Number, AddressSpace]:
    """Address and address space of an argument's text: the target of a pointer or integer, or the text itself."""
    type_ = operand.type
    if isinstance(type_, Pointer):
        return e.memory.number(operand), e.foreign.pointed_space(type_.space)
    if type_.scalar:
        return e.memory.number(operand), e.foreign.pointed_space(AddressSpace.NONE)
    if isinstance(operand, Remote):
        return operand.address, operand.space
    # Opaque, because LLVM adds to an address of known alignment with |, which the verifier rejects.
    return e.b.opaque(e.b.address(e.place(operand).pointer)), AddressSpace.KERNEL


# ---------------------------------------------------------------------------------------------- str and buf


def _str(e: Emitter, node: nodes.Call) -> Operand:
    type_ = e.type(node)
    if not isinstance(type_, String):
        raise InternalError("str returns a string")
    fact = e.checked.find_fact(node, StringLength)
    if fact is not None and fact.counted is not None:
        limit = None if fact.whole else e.number(_expr(node, 1))
        return _counted(e, node, type_, fact.counted, limit)
    address, space = source_of(e, e.value(_expr(node, 0)))
    if fact is not None and not fact.whole:
        return e.strings.counted(node, type_, address, e.number(_expr(node, 1)), space)

    def write(pointer: Ptr, align: int) -> None:
        with e.at_node(node):
            e.strings.read_string(pointer, type_.capacity, address, space, align)

    def tail(pointer: Ptr, limit: int) -> I64:
        with e.at_node(node):
            return e.strings.string_tail(pointer, min(limit, type_.capacity), address, space)

    def only(pointer: Ptr, cleared: int) -> None:
        with e.at_node(node):
            e.strings.read_string_only(pointer, type_.capacity, address, space, cleared)

    return Made(type_, write, tail, only, True, address if space is AddressSpace.USER else None)


def _counted(e: Emitter, node: nodes.Call, type_: String, place: CountedString, limit: Number | None) -> Operand:
    """The text of an object that has its address and length."""
    source = e.value(_expr(node, 0))
    if isinstance(source.type, Pointer):
        source = Remote(e.memory.number(source), source.type.target, e.foreign.pointed_space(source.type.space))
    space = source.space if isinstance(source, Remote) else AddressSpace.USER
    if not isinstance(source, Remote):
        source = e.place(source)

    def word(offset: int) -> Number:
        if isinstance(source, Remote):
            return e.foreign.read_scalar(e.b.add(source.address, offset), UINT64, space).value
        return e.b.load(e.b.offset(source.pointer, offset))

    address = word(place.address)
    if place.in_front:
        length: Number = e.foreign.read_scalar(e.b.sub(address, place.in_front), UINT64, space).value
    else:
        length = word(place.length)
    if place.short is not None:
        address, length = _short_or_long(e, source, place.short, address, length)
    if limit is not None:
        length = e.b.select(e.b.icmp("ult", limit, length), limit, length)
    return e.strings.counted(node, type_, address, length, space)


def _short_or_long(
    e: Emitter, source: Operand, short: ShortText, address: Number, length: Number
) -> tuple[Number, Number]:
    """Address and length of a text that is in its object if it is short."""
    if not isinstance(source, Remote):
        raise InternalError("a copy of an object is refused")

    def bits(place: int, shift: int, count: int) -> Number:
        value = e.foreign.read_scalar(e.b.add(source.address, place), UINT8, source.space).value
        return e.b.op("and", e.b.op("lshr", value, shift), (1 << count) - 1)

    long = e.b.truth(bits(short.flag, short.flag_bit, 1))
    size = bits(short.length, short.length_shift, short.length_bits)
    inside = e.b.add(source.address, short.text)
    return e.b.select(long, address, inside), e.b.select(long, length, size)


def _buf(e: Emitter, node: nodes.Call) -> Operand:
    type_ = e.type(node)
    if not isinstance(type_, Buffer):
        raise InternalError("buf returns a buffer")
    operand = e.value(_expr(node, 0))
    if isinstance(operand.type, Buffer):
        buffer = e.place(operand)
        address: Number = e.b.opaque(e.b.address(e.b.offset(buffer.pointer, Buffer.header)))
        space = AddressSpace.KERNEL
    else:
        address, space = source_of(e, operand)
    constant = e.checked.find_fact(node, BufferLength)
    if constant is not None:
        length: Number = min(constant.length, type_.capacity)
    else:
        requested = e.number(_expr(node, 1))
        length = e.b.at_most(requested, type_.capacity)
        e.count_cut(e.b.icmp("ugt", requested, type_.capacity))
    helper = memory.read_helper(e.foreign.resolve_space(space))

    def copy(pointer: Ptr) -> None:
        with e.at_node(node):
            e.foreign.call_helper(helper, pointer, length, address, type_.capacity)

    def write(pointer: Ptr, align: int) -> None:
        e.memory.zero(pointer, type_.size, min(4, align))
        e.b.store(length, pointer, 32)
        copy(e.b.offset(pointer, Buffer.header))

    def tail(pointer: Ptr, _limit: int) -> Number:
        copy(pointer)
        return length

    return Made(type_, write, tail, reads=True)


def _path(e: Emitter, node: nodes.Call) -> Operand:
    """``bpf_d_path``, which requires a typed pointer and a program attached to an allowlisted function."""
    type_ = e.type(node)

    def write(pointer: Ptr, align: int) -> None:
        with e.at_node(node):
            done = e.b.block()
            e.memory.zero(pointer, type_.size, align)
            address = members.typed_address(e, _expr(node, 0), done)
            error = e.b.helper(helpers.D_PATH, address, pointer, type_.size)
            e.events.check_helper(node, "bpf_d_path", error)
            e.b.jump(done)
            e.b.start(done)

    return Made(type_, write)


# ---------------------------------------------------------------------------------------------- string queries


def _text(e: Emitter, node: nodes.Expr) -> Memory:
    """A string argument in the program's memory, aligned."""
    operand = e.value(node)
    type_ = operand.type
    if isinstance(type_, String):
        return e.place(operand)
    if isinstance(type_, Array):
        return e.place(memory.as_string(operand, type_.size))
    address, space = source_of(e, operand)
    capacity = e.strings.longest_string()
    pointer = e.scratch(capacity)
    e.strings.read_string(pointer, capacity, address, space)
    return Memory(pointer, String(capacity))


def _strlen(e: Emitter, node: nodes.Call) -> Operand:
    operand = e.value(_expr(node, 0))
    type_ = operand.type
    capacity = type_.size if isinstance(type_, String | Array) else e.strings.longest_string()
    address, space = source_of(e, operand)
    with e.temporaries():
        room = e.scratch(capacity + events.SLACK)
        return Scalar(e.strings.string_tail(room, capacity, address, space), UINT64)


def _strcap(e: Emitter, node: nodes.Call) -> Operand:
    type_ = e.type(_expr(node, 0))
    capacity = type_.size if isinstance(type_, String | Array) else e.strings.longest_string()
    return Scalar(capacity, UINT64)


def _strncmp(e: Emitter, node: nodes.Call) -> Operand:
    """0 if the first n characters are equal, else 1."""
    length = e.checked.fact(node, ComparedLength).length
    left, right = _text(e, _expr(node, 0)), _text(e, _expr(node, 1))
    constants = [e.checked.constants.get(_expr(node, index)) for index in (0, 1)]
    for text in constants:
        if isinstance(text, bytes) and length > len(text):
            # Nothing is compared after the NUL of a constant string.
            length = len(text) + 1
    size = min(length, left.type.size, right.type.size)
    equal = e.comparison.bytes_equal(left, right, size)
    return Scalar(e.b.number(e.b.differ(equal, TRUE)), e.type(node))


def _memcmp(e: Emitter, node: nodes.Call) -> Operand:
    """The difference of the first bytes that differ."""
    compared = e.checked.fact(node, ComparedLength)
    size = compared.length
    sides = [_raw(e, _expr(node, index), size) for index in (0, 1)]
    count = size if compared.constant else e.b.at_most(e.number(_expr(node, 2)), size)
    result = e.b.register()
    e.b.store(0, result)

    def step(index: I64, leave: Callable[[], None]) -> None:
        one, other = (e.b.load(e.b.offset(side.pointer, index), 8) for side in sides)
        with e.b.when(e.b.icmp("ne", one, other)):
            e.b.store(e.b.sub(one, other), result)
            leave()

    if size <= FOLLOWED:
        e.loops.counted(count, step, most=None if compared.constant else size)
        return Scalar(e.b.load(result), INT64)
    return _memcmp_long(e, node, sides, size, count)


def _memcmp_long(e: Emitter, node: nodes.Call, sides: list[Memory], size: int, count: Number) -> Operand:
    """For sizes too large to verify byte by byte: both sides are copied to scratch memory, for a callback."""
    places = [e.reserve(size + 8) for _ in sides]
    for side, place in zip(sides, places, strict=True):
        e.memory.copy(e.area(place), side.pointer, size, side.align)
    difference = e.reserve(8)
    e.b.store(0, e.area(difference))

    def body(inner: Emitter, index: I64) -> None:
        offset = inner.b.at_most(index, size - 1)
        one, other = (inner.b.load(inner.b.offset(inner.area(place), offset), 8) for place in places)
        with inner.b.when(inner.b.icmp("ne", one, other)):
            inner.b.store(inner.b.sub(one, other), inner.area(difference))
            inner.loops.leave()

    e.loops.run(node.span, count, body)
    return Scalar(e.b.load(e.area(difference)), INT64)


def _raw(e: Emitter, node: nodes.Expr, size: int) -> Memory:
    operand = e.value(node)
    type_ = operand.type
    if isinstance(type_, Buffer):
        buffer = e.place(operand)
        return Memory(e.b.offset(buffer.pointer, Buffer.header), type_, 4)
    if type_.scalar and not isinstance(type_, Pointer):
        return e.place(Scalar(e.memory.number(operand), UINT64))
    if isinstance(operand, Memory | Made) and not isinstance(type_, Pointer):
        return e.place(operand)
    address, space = source_of(e, operand)
    pointer = e.scratch(size)
    e.foreign.read(pointer, size, address, space)
    return Memory(pointer, String(max(1, size)))


def _search(e: Emitter, node: nodes.Call) -> Number:
    hay, needle = _text(e, _expr(node, 0)), _text(e, _expr(node, 1))
    constant = e.checked.constants.get(_expr(node, 1))
    return search(e, node, hay, needle, constant if isinstance(constant, bytes) else None)


def _strstr(e: Emitter, node: nodes.Call) -> Operand:
    return Scalar(_search(e, node), INT64)


def _strcontains(e: Emitter, node: nodes.Call) -> Operand:
    return Scalar(e.b.number(e.b.icmp("sge", _search(e, node), 0)), BOOL)


def _str_concat(e: Emitter, node: nodes.Call) -> Operand:
    type_ = e.type(node)
    left, right = _text(e, _expr(node, 0)), _text(e, _expr(node, 1))
    first, second = left.type.size, right.type.size
    pointer = e.scratch(type_.size + first + second + events.SLACK)
    e.memory.zero(pointer, type_.size + first + second)
    length = e.strings.string_tail(pointer, first, e.b.address(left.pointer), AddressSpace.KERNEL)
    end = e.b.offset(pointer, length)
    more = e.strings.string_tail(end, second, e.b.address(right.pointer), AddressSpace.KERNEL)
    if type_.size >= e.strings.longest_string():
        e.count_cut(e.b.icmp("uge", e.b.add(length, more), type_.size))
    return Memory(pointer, type_)


# ---------------------------------------------------------------------------------------------- numbers and names


def _bswap(e: Emitter, node: nodes.Call) -> Operand:
    type_ = e.type(node)
    value = e.number(_expr(node, 0))
    if not isinstance(type_, Int) or type_.width == 1:
        return Scalar(e.memory.fit(value, type_), type_)
    return Scalar(e.b.swap_bytes(value, 8 * type_.width), type_)


def _named(table: Callable[[Emitter], list[bytes]], *, absolute: bool = False) -> Emission:
    """A name looked up by number in read-only data; an unknown number selects the table's last row."""

    def emit(e: Emitter, node: nodes.Call) -> Operand:
        type_ = e.type(node)
        rows = table(e)
        number = argument(e, node)
        if absolute:
            number = e.b.select(e.b.icmp("slt", number, 0), e.b.sub(0, number), number)
        data = b"".join(row[: type_.size - 1].ljust(type_.size, b"\0") for row in rows)
        index = e.b.at_most(number, len(rows) - 1)
        place = e.b.offset(e.module.constant(data), e.b.mul(index, type_.size))
        return Memory(place, type_)

    return emit


def _scaled(e: Emitter, node: nodes.Call) -> Operand:
    factor = e.checked.constants[_expr(node, 1)]
    return Scalar(e.floats.scaled(e.value(_expr(node, 0)), int(factor)), INT64)


EMIT: dict[str, Emission] = {
    "scaled": _scaled,
    "bswap": _bswap,
    "buf": _buf,
    "memcmp": _memcmp,
    "path": _path,
    "signal_name": _named(lambda _e: machine.signals()),
    "str": _str,
    "str_concat": _str_concat,
    "strcap": _strcap,
    "strcontains": _strcontains,
    "strerror": _named(lambda _e: machine.errors(), absolute=True),
    "strlen": _strlen,
    "strncmp": _strncmp,
    "strstr": _strstr,
    "syscall_name": _named(lambda e: machine.syscalls(e.script.kernel.arch)),
}
