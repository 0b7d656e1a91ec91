"""Strings and bytes: reading, comparing, searching; names by number; addresses of networks; objects of Python."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.base.dispatch import handles_names
from pytrace.codegen.emit import events, memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers, machine
from pytrace.codegen.ir.values import I64, TRUE, Made, Memory, Number, Operand, Ptr, Remote, Scalar
from pytrace.codegen.lower.expressions import Builtins
from pytrace.codegen.lower.operators import Members
from pytrace.codegen.walkers.python_objects import PythonObjects
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import (
    AF_INET,
    BOOL,
    DOUBLE,
    INT64,
    UINT8,
    UINT64,
    AddressSpace,
    Array,
    Buffer,
    Inet,
    Int,
    InterfaceName,
    Mac,
    Pointer,
    String,
)
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import (
    BufferLength,
    ComparedLength,
    CountedString,
    NetworkAddress,
    ShortText,
    StringLength,
)

FOLLOWED = 1024
"""Maximum iterations of an inline loop, each of which the verifier follows."""


def _expr(node: nodes.Call, index: int) -> nodes.Expr:
    item = node.args[index]
    if not isinstance(item, nodes.Expr):
        raise InternalError(f"{node.name} takes values")
    return item


def _named(table: Callable[[Emitter], list[bytes]], *, absolute: bool = False) -> Callable[..., Operand]:
    """A name looked up by number in read-only data; an unknown number selects the table's last row."""

    def emit(family: StringBuiltins, node: nodes.Call) -> Operand:
        e = family.e
        type_ = e.type(node)
        rows = table(e)
        number = family.argument(node)
        if absolute:
            number = e.b.select(e.b.icmp("slt", number, 0), e.b.sub(0, number), number)
        data = b"".join(row[: type_.size - 1].ljust(type_.size, b"\0") for row in rows)
        index = e.b.at_most(number, len(rows) - 1)
        place = e.b.offset(e.module.constant(data), e.b.mul(index, type_.size))
        return Memory(place, type_)

    return emit


NEEDLE_FOLLOWED = 64
"""Maximum needle size for an inline loop, each iteration of which the verifier follows several times."""

_NEEDLE_INLINE = 32
"""Needles up to this size are compared without an inner loop."""


class StringBuiltins(Builtins):
    """Strings and bytes."""

    def __init__(self, e: Emitter) -> None:
        super().__init__(e)
        self.members = Members(e)

    def source_of(self, operand: Operand) -> tuple[Number, AddressSpace]:
        """Address and address space of an argument's text: the target of a pointer or integer, or the text itself."""
        type_ = operand.type
        if isinstance(type_, Pointer):
            return self.e.memory.number(operand), self.e.foreign.pointed_space(type_.space)
        if type_.scalar:
            return self.e.memory.number(operand), self.e.foreign.pointed_space(AddressSpace.NONE)
        if isinstance(operand, Remote):
            return operand.address, operand.space
        # Opaque, because LLVM adds to an address of known alignment with |, which the verifier rejects.
        return self.b.opaque(self.b.address(self.e.place(operand).pointer)), AddressSpace.KERNEL

    # ---------------------------------------------------------------------------------------------- str and buf

    @handles_names("str")
    def _str(self, node: nodes.Call) -> Operand:
        type_ = self.e.type(node)
        if not isinstance(type_, String):
            raise InternalError("str returns a string")
        fact = self.checked.find_fact(node, StringLength)
        if fact is not None and fact.counted is not None:
            limit = None if fact.whole else self.e.number(_expr(node, 1))
            return self._counted(node, type_, fact.counted, limit)
        address, space = self.source_of(self.e.value(_expr(node, 0)))
        if fact is not None and not fact.whole:
            return self.e.strings.counted(node, type_, address, self.e.number(_expr(node, 1)), space)

        def write(pointer: Ptr, align: int) -> None:
            with self.e.at_node(node):
                self.e.strings.read_string(pointer, type_.capacity, address, space, align)

        def tail(pointer: Ptr, limit: int) -> I64:
            with self.e.at_node(node):
                return self.e.strings.string_tail(pointer, min(limit, type_.capacity), address, space)

        def only(pointer: Ptr, cleared: int) -> None:
            with self.e.at_node(node):
                self.e.strings.read_string_only(pointer, type_.capacity, address, space, cleared)

        user = space is AddressSpace.USER or (space is AddressSpace.EITHER and self._given(_expr(node, 0)))
        return Made(type_, write, tail, only, True, address if user else None)

    def _given(self, address: nodes.Expr) -> bool:
        """Whether an address comes from the probe, and not from what the kernel has in its memory."""
        while isinstance(address, nodes.Cast):
            address = address.operand
        if isinstance(address, nodes.FieldAccess):
            return self.checked.fields[address].how == "argument"
        return not isinstance(address, nodes.Index) and not (isinstance(address, nodes.Call) and address.name == "kptr")

    def _counted(self, node: nodes.Call, type_: String, place: CountedString, limit: Number | None) -> Operand:
        """The text of an object that has its address and length."""
        source = self.e.value(_expr(node, 0))
        if isinstance(source.type, Pointer):
            source = Remote(
                self.e.memory.number(source), source.type.target, self.e.foreign.pointed_space(source.type.space)
            )
        space = source.space if isinstance(source, Remote) else AddressSpace.USER
        if not isinstance(source, Remote):
            source = self.e.place(source)

        def word(offset: int) -> Number:
            if isinstance(source, Remote):
                return self.e.foreign.read_scalar(self.b.add(source.address, offset), UINT64, space).value
            return self.b.load(self.b.offset(source.pointer, offset))

        address = word(place.address)
        if place.in_front:
            length: Number = self.e.foreign.read_scalar(self.b.sub(address, place.in_front), UINT64, space).value
        else:
            length = word(place.length)
        if place.short is not None:
            address, length = self._short_or_long(source, place.short, address, length)
        if limit is not None:
            length = self.b.select(self.b.icmp("ult", limit, length), limit, length)
        return self.e.strings.counted(node, type_, address, length, space)

    def _short_or_long(
        self, source: Operand, short: ShortText, address: Number, length: Number
    ) -> tuple[Number, Number]:
        """Address and length of a text that is in its object if it is short."""
        if not isinstance(source, Remote):
            raise InternalError("a copy of an object is refused")

        def bits(place: int, shift: int, count: int) -> Number:
            value = self.e.foreign.read_scalar(self.b.add(source.address, place), UINT8, source.space).value
            return self.b.op("and", self.b.op("lshr", value, shift), (1 << count) - 1)

        long = self.b.truth(bits(short.flag, short.flag_bit, 1))
        size = bits(short.length, short.length_shift, short.length_bits)
        inside = self.b.add(source.address, short.text)
        return self.b.select(long, address, inside), self.b.select(long, length, size)

    @handles_names("buf")
    def _buf(self, node: nodes.Call) -> Operand:
        type_ = self.e.type(node)
        if not isinstance(type_, Buffer):
            raise InternalError("buf returns a buffer")
        operand = self.e.value(_expr(node, 0))
        if isinstance(operand.type, Buffer):
            buffer = self.e.place(operand)
            address: Number = self.b.opaque(self.b.address(self.b.offset(buffer.pointer, Buffer.header)))
            space = AddressSpace.KERNEL
        else:
            address, space = self.source_of(operand)
        constant = self.checked.find_fact(node, BufferLength)
        if constant is not None:
            length: Number = min(constant.length, type_.capacity)
        else:
            requested = self.e.number(_expr(node, 1))
            length = self.b.at_most(requested, type_.capacity)
            self.e.count_cut(self.b.icmp("ugt", requested, type_.capacity))
        helper = memory.read_helper(self.e.foreign.resolve_space(space))

        def copy(pointer: Ptr) -> None:
            with self.e.at_node(node):
                self.e.foreign.call_helper(helper, pointer, length, address, type_.capacity)

        def write(pointer: Ptr, align: int) -> None:
            self.e.memory.zero(pointer, type_.size, min(4, align))
            self.b.store(length, pointer, 32)
            copy(self.b.offset(pointer, Buffer.header))

        def tail(pointer: Ptr, _limit: int) -> Number:
            copy(pointer)
            return length

        return Made(type_, write, tail, reads=True)

    @handles_names("path")
    def _path(self, node: nodes.Call) -> Operand:
        """``bpf_d_path``, which requires a typed pointer and a program attached to an allowlisted function."""
        type_ = self.e.type(node)

        def write(pointer: Ptr, align: int) -> None:
            with self.e.at_node(node):
                done = self.b.block()
                self.e.memory.zero(pointer, type_.size, align)
                address = self.members.typed_address(_expr(node, 0), done)
                error = self.b.helper(helpers.D_PATH, address, pointer, type_.size)
                self.e.events.check_helper(node, "bpf_d_path", error)
                self.b.jump(done)
                self.b.start(done)

        return Made(type_, write)

    # ---------------------------------------------------------------------------------------------- string queries

    def _text(self, node: nodes.Expr) -> Memory:
        """A string argument in the program's memory, aligned."""
        operand = self.e.value(node)
        type_ = operand.type
        if isinstance(type_, String):
            return self.e.place(operand)
        if isinstance(type_, Array):
            return self.e.place(memory.as_string(operand, type_.size))
        address, space = self.source_of(operand)
        capacity = self.e.strings.longest_string()
        pointer = self.e.scratch(capacity)
        self.e.strings.read_string(pointer, capacity, address, space)
        return Memory(pointer, String(capacity))

    @handles_names("strlen")
    def _strlen(self, node: nodes.Call) -> Operand:
        operand = self.e.value(_expr(node, 0))
        type_ = operand.type
        capacity = type_.size if isinstance(type_, String | Array) else self.e.strings.longest_string()
        address, space = self.source_of(operand)
        with self.e.temporaries():
            room = self.e.scratch(capacity + events.SLACK)
            return Scalar(self.e.strings.string_tail(room, capacity, address, space), UINT64)

    @handles_names("strcap")
    def _strcap(self, node: nodes.Call) -> Operand:
        type_ = self.e.type(_expr(node, 0))
        capacity = type_.size if isinstance(type_, String | Array) else self.e.strings.longest_string()
        return Scalar(capacity, UINT64)

    @handles_names("strncmp")
    def _strncmp(self, node: nodes.Call) -> Operand:
        """0 if the first n characters are equal, else 1."""
        length = self.checked.fact(node, ComparedLength).length
        left, right = self._text(_expr(node, 0)), self._text(_expr(node, 1))
        constants = [self.checked.constants.get(_expr(node, index)) for index in (0, 1)]
        for text in constants:
            if isinstance(text, bytes) and length > len(text):
                # Nothing is compared after the NUL of a constant string.
                length = len(text) + 1
        size = min(length, left.type.size, right.type.size)
        equal = self.e.comparison.bytes_equal(left, right, size)
        return Scalar(self.b.number(self.b.differ(equal, TRUE)), self.e.type(node))

    @handles_names("memcmp")
    def _memcmp(self, node: nodes.Call) -> Operand:
        """The difference of the first bytes that differ."""
        compared = self.checked.fact(node, ComparedLength)
        size = compared.length
        sides = [self._raw(_expr(node, index), size) for index in (0, 1)]
        count = size if compared.constant else self.b.at_most(self.e.number(_expr(node, 2)), size)
        result = self.b.register()
        self.b.store(0, result)

        def step(index: I64, leave: Callable[[], None]) -> None:
            one, other = (self.b.load(self.b.offset(side.pointer, index), 8) for side in sides)
            with self.b.when(self.b.icmp("ne", one, other)):
                self.b.store(self.b.sub(one, other), result)
                leave()

        if size <= FOLLOWED:
            self.e.loops.counted(count, step, most=None if compared.constant else size)
            return Scalar(self.b.load(result), INT64)
        return self._memcmp_long(node, sides, size, count)

    def _memcmp_long(self, node: nodes.Call, sides: list[Memory], size: int, count: Number) -> Operand:
        """For sizes too large to verify byte by byte: both sides are copied to scratch memory, for a callback."""
        places = [self.e.reserve(size + 8) for _ in sides]
        for side, place in zip(sides, places, strict=True):
            self.e.memory.copy(self.e.area(place), side.pointer, size, side.align)
        difference = self.e.reserve(8)
        self.b.store(0, self.e.area(difference))

        def body(inner: Emitter, index: I64) -> None:
            offset = inner.b.at_most(index, size - 1)
            one, other = (inner.b.load(inner.b.offset(inner.area(place), offset), 8) for place in places)
            with inner.b.when(inner.b.icmp("ne", one, other)):
                inner.b.store(inner.b.sub(one, other), inner.area(difference))
                inner.loops.leave()

        self.e.loops.run(node.span, count, body)
        return Scalar(self.b.load(self.e.area(difference)), INT64)

    def _raw(self, node: nodes.Expr, size: int) -> Memory:
        operand = self.e.value(node)
        type_ = operand.type
        if isinstance(type_, Buffer):
            buffer = self.e.place(operand)
            return Memory(self.b.offset(buffer.pointer, Buffer.header), type_, 4)
        if type_.scalar and not isinstance(type_, Pointer):
            return self.e.place(Scalar(self.e.memory.number(operand), UINT64))
        if isinstance(operand, Memory | Made) and not isinstance(type_, Pointer):
            return self.e.place(operand)
        address, space = self.source_of(operand)
        pointer = self.e.scratch(size)
        self.e.foreign.read(pointer, size, address, space)
        return Memory(pointer, String(max(1, size)))

    def _search(self, node: nodes.Call) -> Number:
        hay, needle = self._text(_expr(node, 0)), self._text(_expr(node, 1))
        constant = self.checked.constants.get(_expr(node, 1))
        return self._search_text(node, hay, needle, constant if isinstance(constant, bytes) else None)

    @handles_names("strstr")
    def _strstr(self, node: nodes.Call) -> Operand:
        return Scalar(self._search(node), INT64)

    @handles_names("strcontains")
    def _strcontains(self, node: nodes.Call) -> Operand:
        return Scalar(self.b.number(self.b.icmp("sge", self._search(node), 0)), BOOL)

    @handles_names("str_concat")
    def _str_concat(self, node: nodes.Call) -> Operand:
        type_ = self.e.type(node)
        left, right = self._text(_expr(node, 0)), self._text(_expr(node, 1))
        first, second = left.type.size, right.type.size
        pointer = self.e.scratch(type_.size + first + second + events.SLACK)
        self.e.memory.zero(pointer, type_.size + first + second)
        length = self.e.strings.string_tail(pointer, first, self.b.address(left.pointer), AddressSpace.KERNEL)
        end = self.b.offset(pointer, length)
        more = self.e.strings.string_tail(end, second, self.b.address(right.pointer), AddressSpace.KERNEL)
        if type_.size >= self.e.strings.longest_string():
            self.e.count_cut(self.b.icmp("uge", self.b.add(length, more), type_.size))
        return Memory(pointer, type_)

    # ---------------------------------------------------------------------------------------------- numbers and names

    @handles_names("bswap")
    def _bswap(self, node: nodes.Call) -> Operand:
        type_ = self.e.type(node)
        value = self.e.number(_expr(node, 0))
        if not isinstance(type_, Int) or type_.width == 1:
            return Scalar(self.e.memory.fit(value, type_), type_)
        return Scalar(self.b.swap_bytes(value, 8 * type_.width), type_)

    @handles_names("scaled")
    def _scaled(self, node: nodes.Call) -> Operand:
        factor = self.checked.constants[_expr(node, 1)]
        return Scalar(self.e.floats.scaled(self.e.value(_expr(node, 0)), int(factor)), INT64)

    def _search_text(self, node: nodes.Call, hay: Memory, needle: Memory, constant: bytes | None) -> Number:
        """Position of the needle in the haystack, or -1; *constant* is the needle if it is constant.

        Both strings are copied to scratch memory, for the loop's callback; the outer loop goes over positions,
        the inner comparison stops at the first difference.
        """
        room, needle_size = hay.type.size, needle.type.size
        hay_at, needle_at = self.e.reserve(room + needle_size + 8), self.e.reserve(needle_size + 8)
        self.e.memory.zero(self.e.area(hay_at), ((room + needle_size + 8) + 7) & ~7)
        self.e.memory.copy(self.e.area(hay_at), hay.pointer, room, hay.align)
        self.e.memory.zero(self.e.area(needle_at), (needle_size + 8 + 7) & ~7)
        self.e.memory.copy(self.e.area(needle_at), needle.pointer, needle_size, needle.align)
        result = self.e.reserve(8)
        self.b.store(-1, self.e.area(result))
        if constant is not None:
            # A haystack that fills its buffer has no NUL.
            count = max(0, room + 1 - len(constant))
        else:
            count = room

        def body(inner: Emitter, index: I64) -> None:
            position = inner.b.at_most(index, room - 1)
            start = inner.b.offset(inner.area(hay_at), position)

            def hit() -> None:
                StringBuiltins(inner)._hit(inner.area(result), position)

            if needle_size <= NEEDLE_FOLLOWED:
                StringBuiltins(inner)._match(start, inner.area(needle_at), constant, needle_size, hit)
            else:
                StringBuiltins(inner)._match_long(node, (hay_at, needle_at), position, (room, needle_size), hit)
            StringBuiltins(inner)._end_of_text(start)

        self.e.loops.run(node.span, count, body)
        if constant != b"":
            return self.b.load(self.e.area(result))
        return 0

    def _hit(self, place: Ptr, position: Number) -> None:
        self.b.store(position, place)
        self.e.loops.leave()

    def _end_of_text(self, start: Ptr) -> None:
        """End the search at the NUL of the haystack."""
        with self.b.when(self.b.icmp("eq", self.b.load(start, 8), 0)):
            self.e.loops.leave()

    def _match(
        self, start: Ptr, needle: Ptr, constant: bytes | None, needle_size: int, hit: Callable[[], None]
    ) -> None:
        """Emit *hit* for the case that the needle is at *start*."""
        differ = self.b.block()
        if constant is not None and len(constant) <= _NEEDLE_INLINE:
            for offset, byte in enumerate(constant):
                character = self.b.load(self.b.offset(start, offset), 8)
                self.b.jump_unless(self.b.icmp("eq", character, byte), differ)
            hit()
        else:
            matched = self.b.block()

            def step(index: I64, _leave: Callable[[], None]) -> None:
                want = self.b.load(self.b.offset(needle, index), 8)
                self.b.jump_if(self.b.icmp("eq", want, 0), matched)
                self.b.jump_unless(self.b.icmp("eq", want, self.b.load(self.b.offset(start, index), 8)), differ)

            self.e.loops.counted(needle_size, step)
            self.b.jump(matched)
            self.b.start(matched)
            hit()
        self.b.jump(differ)
        self.b.start(differ)

    def _match_long(
        self,
        node: nodes.Call,
        texts: tuple[int, int],
        position: Number,
        sizes: tuple[int, int],
        hit: Callable[[], None],
    ) -> None:
        """Like :func:`_match`, with a loop of its own over the needle."""
        room, needle_size = sizes
        begin, differs = self.e.reserve(8), self.e.reserve(8)
        self.b.store(position, self.e.area(begin))
        self.b.store(0, self.e.area(differs))

        def body(inner: Emitter, index: I64) -> None:
            step = inner.b.at_most(index, needle_size - 1)
            place = inner.b.at_most(inner.b.load(inner.area(begin)), room - 1)
            want = inner.b.load(inner.b.offset(inner.area(texts[1]), step), 8)
            with inner.b.when(inner.b.icmp("eq", want, 0)):
                inner.loops.leave()
            character = inner.b.load(inner.b.offset(inner.b.offset(inner.area(texts[0]), place), step), 8)
            with inner.b.unless(inner.b.icmp("eq", want, character)):
                inner.b.store(1, inner.area(differs))
                inner.loops.leave()

        self.e.loops.run(node.span, needle_size, body)
        with self.b.when(self.b.icmp("eq", self.b.load(self.e.area(differs)), 0)):
            hit()

    _signal_name = handles_names("signal_name")(_named(lambda _e: machine.signals()))
    _strerror = handles_names("strerror")(_named(lambda _e: machine.errors(), absolute=True))
    _syscall_name = handles_names("syscall_name")(_named(lambda e: machine.syscalls(e.script.kernel.arch)))


# ----------------------------------------------------------------------------------------------- addresses of networks

_MAC = 6


class NetworkBuiltins(Builtins):
    """Addresses of networks."""

    def __init__(self, e: Emitter) -> None:
        super().__init__(e)
        self.members = Members(e)

    def _bytes_of(self, node: nodes.Expr) -> Operand:
        """The bytes of an address argument: the array itself, or a pointer's target."""
        operand = self.e.value(node)
        type_ = operand.type
        if isinstance(type_, Pointer):
            return Remote(self.e.memory.number(operand), type_.target, self.e.foreign.pointed_space(type_.space))
        return operand

    def _put(self, operand: Operand, pointer: Ptr, size: int) -> None:
        if isinstance(operand, Remote):
            self.e.foreign.read(pointer, size, operand.address, operand.space)
        elif isinstance(operand, Scalar):
            self.b.store(operand.value, pointer, 8 * size, 4)
        else:
            source = self.e.place(operand)
            self.e.memory.copy(pointer, source.pointer, size, 1)

    @handles_names("macaddr")
    def _macaddr(self, node: nodes.Call) -> Operand:
        if not isinstance(node.args[0], nodes.Expr):
            raise InternalError("macaddr takes an address")
        source = self._bytes_of(node.args[0])
        if isinstance(source, Scalar):
            # A number is the address of the six bytes.
            source = Remote(source.value, Mac(), self.e.foreign.pointed_space(AddressSpace.NONE))
        return Made(Mac(), lambda pointer, _align: self._put(source, pointer, _MAC), reads=isinstance(source, Remote))

    @handles_names("ifname")
    def _ifname(self, node: nodes.Call) -> Operand:
        return self.word(self.argument(node), InterfaceName())

    @handles_names("ntop")
    def _ntop(self, node: nodes.Call) -> Operand:
        """``u32`` family and 16 bytes of address."""
        fact = self.checked.fact(node, NetworkAddress)
        source = self._bytes_of(fact.address)
        # An array contains only its own bytes, whatever the family; a pointer's target is read in full.
        size = 16 if isinstance(self.e.type(fact.address), Pointer) else min(16, source.type.size)
        constant = fact.family
        family = constant if constant is not None else self.argument(node, 0)

        def write(pointer: Ptr, _align: int) -> None:
            self.e.memory.zero(pointer, Inet().size, 4)
            self.b.store(family, pointer, 32)
            place = self.b.offset(pointer, 4)
            if constant is not None or isinstance(source, Scalar):
                self._put(source, place, 4 if constant == AF_INET or isinstance(source, Scalar) else size)
                return
            short, long, done = self.b.block(), self.b.block(), self.b.block()
            self.b.branch(self.b.icmp("eq", family, AF_INET), short, long)
            for block, length in ((short, 4), (long, size)):
                self.b.start(block)
                self._put(source, place, length)
                self.b.jump(done)
            self.b.start(done)

        return Made(Inet(), write, reads=isinstance(source, Remote))

    @handles_names("socket_cookie")
    def _socket_cookie(self, node: nodes.Call) -> Operand:
        """``bpf_get_socket_cookie``, which requires a typed (BTF) pointer."""
        socket = node.args[0]
        if not isinstance(socket, nodes.Expr):
            raise InternalError("socket_cookie takes a socket")
        result, missing = self.b.register(), self.b.block()
        self.b.store(0, result)
        self.b.store(self.b.helper(helpers.GET_SOCKET_COOKIE, self.members.typed_address(socket, missing)), result)
        self.b.jump(missing)
        self.b.start(missing)
        return Scalar(self.b.load(result), UINT64)


# --------------------------------------------------------------------------------------------------- objects of Python

class PythonBuiltins(Builtins):
    """Objects of Python."""

    @handles_names("pystr")
    def _pystr(self, node: nodes.Call) -> Operand:
        type_ = self.e.type(node)
        if not isinstance(type_, String):
            raise InternalError("pystr returns a string")
        return PythonObjects(self.e).text(self.argument(node), type_)

    @handles_names("pyint")
    def _pyint(self, node: nodes.Call) -> Operand:
        return Scalar(PythonObjects(self.e).integer(self.argument(node)), INT64)

    @handles_names("pyfloat")
    def _pyfloat(self, node: nodes.Call) -> Operand:
        return Scalar(PythonObjects(self.e).fraction(self.argument(node)), DOUBLE)
