"""Reads of a probe's arguments, return value and registers, for each kind of context.

Where a program of a raw tracepoint stands in for a tracepoint, fields are computed as the kernel's ``TP_fast_assign``
computes them; for system calls there are registers, result, and the index of the target that fired.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from pytrace.base.dispatch import handles, handles_names, methods
from pytrace.codegen.emit import memory
from pytrace.codegen.emit.program import Part
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.machine import Registers, registers_of
from pytrace.codegen.ir.values import I1, I64, Made, Memory, Number, Operand, Ptr, Remote, Scalar
from pytrace.core.diagnostics import InternalError
from pytrace.core.probe_kinds import Context
from pytrace.core.system_calls import ABIS
from pytrace.core.types import UINT64, AddressSpace, Array, Float, Int, Pointer, String, Struct, Type
from pytrace.frontend.syntax.typed_program import (
    Argument,
    CallRegister,
    CallResult,
    ContextField,
    CountedText,
    DataLoc,
    ProbeArgument,
    ProbeUnit,
    PythonValue,
    RawField,
    RawRead,
    RegisterLocation,
    RegisterParts,
    ReturnValue,
    Slot,
    Unreadable,
)


def text_view(operand: Operand, type_: Type) -> Operand:
    """A ``char[N]`` member as a string."""
    if isinstance(type_, String) and isinstance(operand.type, Array):
        if isinstance(operand, Memory):
            return Memory(operand.pointer, type_, operand.align)
        if isinstance(operand, Remote):
            return Remote(operand.address, type_, operand.space)
    return operand


# ---------------------------------------------------------------------------------------------- uretprobes

_RETURN_INSTANCES = 16
"""Maximum number of ``struct return_instance`` that are searched."""

_MINOR_BITS = 20
"""``MINORBITS`` of include/linux/kdev_t.h."""
_SECTOR_SHIFT = 9
"""``SECTOR_SHIFT`` of include/linux/blk_types.h."""


# ---------------------------------------------------------------------------------------------- system calls

_CALL_RESULT = 8
"""Offset of the system call's result in the context of the raw tracepoint ``sys_exit``."""


# ---------------------------------------------------------------------------------------------- formulas


class ProbeContext(Part):
    """Reads the probe's context."""

    def registers(self) -> Registers:
        """The register table of the machine that the script is compiled for."""
        return registers_of(self.script.kernel.arch or os.uname().machine)

    def register(self, name: str) -> I64:
        """A register at the probe (``pt_regs`` is at the start of kprobe and perf event contexts)."""
        return self.b.load(self.b.offset(self.e.context, self.registers().offset(name)))

    def function_argument(self, index: int) -> Number:
        """Argument *index* by the calling convention."""
        table = self.registers()
        if index < len(table.arguments):
            return self.register(table.arguments[index])
        # Further arguments are on the stack, above the return address on machines that store it there.
        offset = table.stack_offset + 8 * (index - len(table.arguments))
        address = self.b.add(self.register(table.stack), offset)
        return self.e.foreign.read_scalar(address, UINT64, self.e.space).value

    def typed(self, value: Number, type_: Type) -> Scalar:
        """A scalar from the context, which may be a typed (BTF) pointer.

        The verifier allows only loads at constant offsets through such a pointer, and none through pointers of
        iterators, which may be null.
        """
        if not isinstance(type_, Pointer):
            return Scalar(value, type_)
        if type_.trusted and self.program.unit.kind.context is not Context.ITERATOR:
            return Scalar(value, type_, direct=True)
        return Scalar(self.e.launder(value), type_)

    def function_address(self) -> I64:
        """Address of the traced function."""
        known = self.script.kernel.feature("get_func_ip")
        if known and not self.program.unit.kind.user:
            return self.b.helper(helpers.GET_FUNC_IP, self.e.raw_context)
        table = self.registers()
        if not self.program.unit.kind.user:
            # At a kprobe on x86, the program counter is behind the int3 or in the call of ftrace, by as much.
            return self.b.add(self.register(table.pc), -1 if table.pc == "ip" else 0)
        # bpf_get_func_ip returns 0 for uprobes before Linux 6.7. At a return the program counter is the caller's.
        reported = self.b.helper(helpers.GET_FUNC_IP, self.e.raw_context) if known else self.b.add(0, 0)
        counter = self.register(table.pc)
        if not self.program.unit.kind.returns or self._helper_suffices():
            return self.b.select(self.b.icmp("eq", reported, 0), counter, reported)
        before = self.b.current
        with self.b.when(self.b.icmp("eq", reported, 0)):
            # On x86 the return address was on the stack, and has been popped by now.
            place = self.b.add(self.register(table.stack), -8 if table.pc == "ip" else 0)
            returning = self._returning_function(place, counter)
            after = self.b.current
        return self.b.phi([(reported, before), (returning, after)])

    def slot(self, index: int) -> I64:
        """Element *index* of a context that is an array of ``u64``."""
        return self.b.load(self.b.offset(self.e.context, 8 * index))

    def _by_register(self, value: Number, type_: Type) -> Operand:
        """A value passed in a register: small structs are contained in it, scalars are truncated to their width."""
        if type_.scalar:
            return Scalar(self.e.memory.fit(value, type_), type_)
        pointer = self.e.temporary(max(8, type_.size))
        self.e.memory.zero(pointer, max(8, type_.size))
        self.b.store(value, pointer)
        return Memory(pointer, type_)

    @handles(ContextField)
    def _context_field(self, place: ContextField, type_: Type) -> Operand:
        pointer = self.b.offset(self.e.context, place.offset)
        if type_.scalar and place.offset % type_.size == 0:
            return self.typed(self.e.memory.load(pointer, type_).value, type_)
        address = self.b.add(self.b.address(self.e.raw_context), place.offset)
        if type_.scalar:
            return self.e.foreign.read_scalar(address, type_, AddressSpace.KERNEL)
        return Remote(address, type_, AddressSpace.KERNEL)

    @handles(DataLoc)
    def _data_loc(self, place: DataLoc, type_: Type) -> Operand:
        word = self.b.load(self.b.offset(self.e.context, place.offset), 32)
        distance = self.b.op("and", word, 65535)
        if place.relative:
            distance = self.b.add(distance, place.offset + 4)
        address = self.b.add(self.b.address(self.e.raw_context), distance)
        if type_.scalar:
            return Scalar(address, type_)
        return Remote(address, type_, AddressSpace.KERNEL)

    @handles(Slot)
    def _slot(self, place: Slot, type_: Type) -> Operand:
        value = self.slot(place.index)
        return self.typed(value, type_) if isinstance(type_, Pointer) else self._by_register(value, type_)

    @handles(Argument)
    def _argument(self, place: Argument, type_: Type) -> Operand:
        return self._by_register(self.function_argument(place.index), type_)

    @handles(ReturnValue)
    def _return_value(self, _place: ReturnValue, type_: Type) -> Operand:
        return self._by_register(self.register(self.registers().result), type_)

    @handles(CallRegister)
    def _register_of_call(self, place: CallRegister, type_: Type) -> Operand:
        return self._by_register(self.call_register(place.offset, place.size, signed=place.signed), type_)

    @handles(CallResult)
    def _call_result(self, _place: CallResult, type_: Type) -> Operand:
        return self._by_register(self.b.load(self.b.offset(self.e.context, _CALL_RESULT)), type_)

    @handles(PythonValue)
    def _python_value(self, place: PythonValue, type_: Type) -> Operand:
        assert self.program.python is not None
        return Scalar(self.b.load(self.e.area(self.program.python.objects + 8 * place.index)), type_)

    @handles(RegisterLocation)
    def _location(self, place: RegisterLocation, type_: Type) -> Operand:
        location = self.location_value(place)
        if not place.dereference:
            fitted = self.b.fit(location, 8 * place.size, place.signed)
            return self._by_register(fitted, type_) if type_.size <= 8 else Remote(location, type_, AddressSpace.USER)
        if type_.scalar:
            scalar = self.e.foreign.read_scalar(location, Int(place.size, place.signed), AddressSpace.USER)
            return Scalar(self.e.memory.fit(scalar.value, type_), type_)
        return Remote(location, type_, AddressSpace.USER)

    @handles(RegisterParts)
    def _register_parts(self, place: RegisterParts, type_: Type) -> Operand:
        pointer = self.e.temporary(type_.size + 7 & ~7)
        self.e.memory.zero(pointer, type_.size + 7 & ~7)
        for offset, size, name in place.parts:
            self.b.store(self.b.fit(self.register(name), 8 * size, False), self.b.offset(pointer, offset), 8 * size)
        return Memory(pointer, type_)

    @handles(Unreadable)
    def _unreadable(self, place: Unreadable, type_: Type) -> Operand:
        return Memory(self.module.constant(place.text.encode().ljust(type_.size, b"\0")), type_, 1)

    @handles(CountedText)
    def _counted_text(self, place: CountedText, type_: Type) -> Operand:
        if not isinstance(type_, String):
            raise InternalError("what has a length is a string")
        address, length = (self.e.memory.number(self._location(part, UINT64)) for part in (place.address, place.length))
        return self.e.strings.counted(self.e.node, type_, address, length, AddressSpace.USER)

    def location_value(self, place: RegisterLocation) -> Number:
        """Register (plus index register times scale) plus offset."""
        value = self.register(place.register) if place.register else 0
        if place.index:
            value = self.b.add(value, self.b.mul(self.register(place.index), place.scale))
        return self.b.add(value, place.offset) if place.offset else value

    def argument(self, item: ProbeArgument) -> Operand:
        """A typed argument of the probe."""
        value: Operand = methods(type(self))[type(item.place)](self, item.place, item.type)
        return value

    def all_arguments(self, type_: Struct) -> Operand:
        """``args`` as a whole, a struct with one field for each argument."""
        context = self.program.unit.context

        def write(pointer: Ptr, align: int) -> None:
            self.e.memory.zero(pointer, type_.size, min(align, type_.align))
            for item in context.arguments:
                field = type_.find(item.name)
                if field is None:
                    raise InternalError(f"args has no member {item.name}")
                value = text_view(self.argument(item), field.type)
                self.e.memory.write(
                    value, self.b.offset(pointer, field.offset), field.type, memory.natural(align, field.offset)
                )

        return Made(type_, write, reads=True)

    def positional(self, index: int) -> Number:
        """``argN``."""
        unit = self.program.unit
        if unit.context.positional:
            place = unit.context.positional[index]
            type_ = Float(place.size) if place.fraction else Int(place.size, place.signed)
            return self.e.memory.number(self._location(place, type_))
        if unit.context.slots:
            return self.e.launder(self.slot(index))
        return self.function_argument(index)

    def _helper_suffices(self) -> bool:
        """Whether to use only ``bpf_get_func_ip``: on kernels with the instances of Linux 6.13, or without BTF of
        these.
        """
        instance = self.script.kernel.struct("struct", "return_instance")
        task = self.script.kernel.struct("struct", "task_struct")
        if instance is None or task is None or task.find("utask") is None:
            return True
        return self.script.ahead is None and instance.find("cons_cnt") is not None

    def _returning_function(self, place: Number, otherwise: Number) -> Number:
        """Address of the function whose return address was at stack address *place*; *otherwise* if there is none.

        The kernel keeps a ``struct return_instance`` for each probed call that has not returned, innermost
        first (``kernel/events/uprobes.c``). Calls that an exception or ``longjmp`` left are still listed, so
        the returning one is identified by the stack address of its return address.
        """
        task = self.b.helper(helpers.GET_CURRENT_TASK)
        uprobes = self.e.tasks.read_word(self.b.add(task, self.e.tasks.kernel_field("task_struct", "utask")))
        function, instance = self.b.register(), self.b.register()
        self.b.store(otherwise, function)
        self.b.store(self._kernel_word(uprobes, "uprobe_task", "return_instances"), instance)

        def step(_index: Number, leave: Callable[[], None]) -> None:
            current = self.b.load(instance)
            with self.b.when(self.b.icmp("eq", self._kernel_word(current, "return_instance", "stack"), place)):
                self.b.store(self._kernel_word(current, "return_instance", "func"), function)
                leave()
            self.b.store(self._kernel_word(current, "return_instance", "next"), instance)

        self.e.loops.counted(_RETURN_INSTANCES, step)
        return self.b.load(function)

    def _kernel_word(self, address: Number, owner: str, name: str) -> Number:
        return self.e.tasks.read_word(self.b.add(address, self.e.tasks.kernel_field(owner, name)))

    @handles(RawField)
    def _raw_field(self, place: RawField, type_: Type) -> Operand:
        """A field as a value of *type_*, its type in the tracepoint's record."""
        if place.formula == "text":
            return self._raw_text(place.reads[0], type_)
        values = [self._raw_number(read) for read in place.reads]
        value: Number = methods(type(self))[place.formula](self, values, place.numbers)
        return Scalar(self.e.memory.fit(value, type_), type_)

    def _raw_text(self, read: RawRead, type_: Type) -> Remote:
        if len(read.offsets) == 1 and read.direct:
            address = self.b.add(self._raw_base(read), read.offsets[0])
            return Remote(address, type_, AddressSpace.KERNEL, direct=True)
        address = self.b.add(self._last_struct(read), read.offsets[-1])
        return Remote(address, type_, AddressSpace.KERNEL)

    def _raw_base(self, read: RawRead) -> I64:
        """The argument, or the address of the current task."""
        if read.slot is None:
            return self.b.helper(helpers.GET_CURRENT_TASK)
        return self.b.load(self.b.offset(self.e.context, 8 * read.slot))

    def _last_struct(self, read: RawRead) -> I64:
        """Address of the struct that contains the last member, as a number."""
        address = self._raw_base(read)
        rest = read.offsets[:-1]
        if read.direct and rest:
            address = self.b.load(self.b.offset(self.b.pointer(address), rest[0]))
            rest = rest[1:]
        if read.slot is not None:
            address = self.e.launder(address)
        for offset in rest:
            address = self._kernel_number(self.b.add(address, offset), 8)
        return address

    def _raw_number(self, read: RawRead) -> Number:
        """The number at the end of a path; 0 if a pointer on the path is null, as in the kernel's own null checks."""
        if not read.offsets:
            return self.b.fit(self._raw_base(read), 8 * read.size, read.signed)
        if read.direct and len(read.offsets) == 1:
            place = self.b.offset(self.b.pointer(self._raw_base(read)), read.offsets[0])
            return self.b.load(place, 8 * read.size, read.signed)
        return self._kernel_number(self.b.add(self._last_struct(read), read.offsets[-1]), read.size, signed=read.signed)

    def _kernel_number(self, address: Number, size: int, *, signed: bool = False) -> I64:
        """A number in kernel memory; 0 on a fault, which is not reported."""
        cell = self.e.cell
        self.b.helper(helpers.PROBE_READ_KERNEL, cell, size, address)
        return self.b.load(cell, 8 * size, signed)

    def call_register(self, offset: int, size: int = 8, *, signed: bool = False) -> I64:
        """The value at *offset* in the ``struct pt_regs`` of the system call, which the verifier knows by type."""
        if self.e.kept is not None:
            return self.b.load(self.b.offset(self.e.kept, offset), 8 * size, signed)
        return self.b.load(self.b.offset(self.b.pointer(self.b.load(self.e.context)), offset), 8 * size, signed)

    def call_index(self, unit: ProbeUnit) -> I64:
        """Index of the current system call among the targets of *unit*."""
        most = max(unit.calls)
        indexes = dict(zip(unit.calls, range(len(unit.calls)), strict=True))
        table = b"".join(indexes.get(number, 0).to_bytes(2, "little") for number in range(most + 1))
        number = self.b.at_most(self.call_register(ABIS[self.script.kernel.arch].number, 4), most)
        return self.b.load(self.b.offset(self.module.constant(table), self.b.mul(number, 2)), 16)

    @handles_names("value")
    def _value(self, values: Sequence[Number], _numbers: Sequence[int]) -> Number:
        return values[0]

    @handles_names("ntohs")
    def _ntohs(self, values: Sequence[Number], _numbers: Sequence[int]) -> Number:
        return self.b.swap_bytes(values[0], 16)

    @handles_names("sectors")
    def _sectors(self, values: Sequence[Number], _numbers: Sequence[int]) -> Number:
        return self.b.op("lshr", values[0], _SECTOR_SHIFT)

    @handles_names("device")
    def _device(self, values: Sequence[Number], _numbers: Sequence[int]) -> Number:
        major, minor = values
        return self.b.op("or", self.b.op("shl", major, _MINOR_BITS), minor)

    @handles_names("traced_sector")
    def _traced_sector(self, values: Sequence[Number], numbers: Sequence[int]) -> Number:
        flags, sector = values
        start = self.b.select(self.b.icmp("eq", sector, -1), 0, sector)
        return self.b.select(self._passed_through(flags, numbers), 0, start)

    @handles_names("traced_sectors")
    def _traced_sectors(self, values: Sequence[Number], numbers: Sequence[int]) -> Number:
        flags, size = values
        return self.b.select(self._passed_through(flags, numbers), 0, self.b.op("lshr", size, _SECTOR_SHIFT))

    def _passed_through(self, flags: Number, numbers: Sequence[int]) -> I1:
        """Whether a request's operation is one of *numbers[1:]*; *numbers[0]* is the width of the operation in bits."""
        operation = self.b.op("and", flags, (1 << numbers[0]) - 1)
        matches: Number = 0
        for number in numbers[1:]:
            matches = self.b.op("or", matches, self.b.number(self.b.icmp("eq", operation, number)))
        return self.b.truth(matches)
