"""Reads of a probe's arguments, return value and registers, for each kind of context."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from pytrace.base.dispatch import by_class, on
from pytrace.codegen.emit import counted_strings, loops, memory, raw_tracepoints
from pytrace.codegen.emit.current_task import kernel_field, read_word
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.machine import Registers, registers_of
from pytrace.codegen.ir.values import I64, Made, Memory, Number, Operand, Ptr, Remote, Scalar
from pytrace.core.diagnostics import InternalError
from pytrace.core.probes.kinds import Context
from pytrace.core.types import UINT64, AddressSpace, Array, Float, Int, Pointer, String, Struct, Type
from pytrace.frontend.syntax.typed_program import (
    Argument,
    ArgumentLocation,
    CallRegister,
    CallResult,
    ContextField,
    CountedText,
    DataLoc,
    ProbeArgument,
    PythonValue,
    RawField,
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


def registers(e: Emitter) -> Registers:
    """The register table of the machine that the script is compiled for."""
    return registers_of(e.script.kernel.arch or os.uname().machine)


def register(e: Emitter, name: str) -> I64:
    """A register at the probe (``pt_regs`` is at the start of kprobe and perf event contexts)."""
    return e.b.load(e.b.offset(e.context, registers(e).offset(name)))


def function_argument(e: Emitter, index: int) -> Number:
    """Argument *index* by the calling convention."""
    table = registers(e)
    if index < len(table.arguments):
        return register(e, table.arguments[index])
    # Further arguments are on the stack, above the return address on machines that store it there.
    offset = table.stack_offset + 8 * (index - len(table.arguments))
    address = e.b.add(register(e, table.stack), offset)
    return memory.read_scalar(e, address, UINT64, e.space).value


def typed(e: Emitter, value: Number, type_: Type) -> Scalar:
    """A scalar from the context, which may be a typed (BTF) pointer.

    The verifier allows only loads at constant offsets through such a pointer, and none through pointers of iterators,
    which may be null.
    """
    if not isinstance(type_, Pointer):
        return Scalar(value, type_)
    if type_.trusted and e.program.unit.kind.context is not Context.ITERATOR:
        return Scalar(value, type_, direct=True)
    return Scalar(e.launder(value), type_)


def function_address(e: Emitter) -> I64:
    """Address of the traced function."""
    known = e.script.kernel.feature("get_func_ip")
    if known and not e.program.unit.kind.user:
        return e.b.helper(helpers.GET_FUNC_IP, e.raw_context)
    table = registers(e)
    if not e.program.unit.kind.user:
        # At a kprobe on x86, the program counter is behind the int3 or in the call of ftrace, by as much.
        return e.b.add(register(e, table.pc), -1 if table.pc == "ip" else 0)
    # bpf_get_func_ip returns 0 for uprobes before Linux 6.7. At a return the program counter is the caller's.
    reported = e.b.helper(helpers.GET_FUNC_IP, e.raw_context) if known else e.b.add(0, 0)
    counter = register(e, table.pc)
    if not e.program.unit.kind.returns or _helper_suffices(e):
        return e.b.select(e.b.icmp("eq", reported, 0), counter, reported)
    before = e.b.current
    with e.b.when(e.b.icmp("eq", reported, 0)):
        # On x86 the return address was on the stack, and has been popped by now.
        place = e.b.add(register(e, table.stack), -8 if table.pc == "ip" else 0)
        returning = _returning_function(e, place, counter)
        after = e.b.current
    return e.b.phi([(reported, before), (returning, after)])


def slot(e: Emitter, index: int) -> I64:
    """Element *index* of a context that is an array of ``u64``."""
    return e.b.load(e.b.offset(e.context, 8 * index))


def _by_register(e: Emitter, value: Number, type_: Type) -> Operand:
    """A value passed in a register: small structs are contained in it, scalars are truncated to their width."""
    if type_.scalar:
        return Scalar(memory.fit(e, value, type_), type_)
    pointer = e.temporary(max(8, type_.size))
    memory.zero(e, pointer, max(8, type_.size))
    e.b.store(value, pointer)
    return Memory(pointer, type_)


def _context_field(e: Emitter, place: ContextField, type_: Type) -> Operand:
    pointer = e.b.offset(e.context, place.offset)
    if type_.scalar and place.offset % type_.size == 0:
        return typed(e, memory.load(e, pointer, type_).value, type_)
    address = e.b.add(e.b.address(e.raw_context), place.offset)
    if type_.scalar:
        return memory.read_scalar(e, address, type_, AddressSpace.KERNEL)
    return Remote(address, type_, AddressSpace.KERNEL)


def _data_loc(e: Emitter, place: DataLoc, type_: Type) -> Operand:
    word = e.b.load(e.b.offset(e.context, place.offset), 32)
    distance = e.b.op("and", word, 65535)
    if place.relative:
        distance = e.b.add(distance, place.offset + 4)
    address = e.b.add(e.b.address(e.raw_context), distance)
    if type_.scalar:
        return Scalar(address, type_)
    return Remote(address, type_, AddressSpace.KERNEL)


def _slot(e: Emitter, place: Slot, type_: Type) -> Operand:
    value = slot(e, place.index)
    return typed(e, value, type_) if isinstance(type_, Pointer) else _by_register(e, value, type_)


def _argument(e: Emitter, place: Argument, type_: Type) -> Operand:
    return _by_register(e, function_argument(e, place.index), type_)


def _return_value(e: Emitter, _place: ReturnValue, type_: Type) -> Operand:
    return _by_register(e, register(e, registers(e).result), type_)


def _call_register(e: Emitter, place: CallRegister, type_: Type) -> Operand:
    return _by_register(e, raw_tracepoints.call_register(e, place.offset, place.size, signed=place.signed), type_)


def _call_result(e: Emitter, _place: CallResult, type_: Type) -> Operand:
    return _by_register(e, e.b.load(e.b.offset(e.context, raw_tracepoints.CALL_RESULT)), type_)


def _python_value(e: Emitter, place: PythonValue, type_: Type) -> Operand:
    assert e.program.python is not None
    return Scalar(e.b.load(e.area(e.program.python.objects + 8 * place.index)), type_)


def _location(e: Emitter, place: RegisterLocation, type_: Type) -> Operand:
    location = location_value(e, place)
    if not place.dereference:
        fitted = e.b.fit(location, 8 * place.size, place.signed)
        return _by_register(e, fitted, type_) if type_.size <= 8 else Remote(location, type_, AddressSpace.USER)
    if type_.scalar:
        scalar = memory.read_scalar(e, location, Int(place.size, place.signed), AddressSpace.USER)
        return Scalar(memory.fit(e, scalar.value, type_), type_)
    return Remote(location, type_, AddressSpace.USER)


def _register_parts(e: Emitter, place: RegisterParts, type_: Type) -> Operand:
    pointer = e.temporary(type_.size + 7 & ~7)
    memory.zero(e, pointer, type_.size + 7 & ~7)
    for offset, size, name in place.parts:
        e.b.store(e.b.fit(register(e, name), 8 * size, False), e.b.offset(pointer, offset), 8 * size)
    return Memory(pointer, type_)


def _unreadable(e: Emitter, place: Unreadable, type_: Type) -> Operand:
    return Memory(e.module.constant(place.text.encode().ljust(type_.size, b"\0")), type_, 1)


def _counted_text(e: Emitter, place: CountedText, type_: Type) -> Operand:
    if not isinstance(type_, String):
        raise InternalError("what has a length is a string")
    address, length = (memory.number(e, _location(e, part, UINT64)) for part in (place.address, place.length))
    return counted_strings.read(e, e.node, type_, address, length, AddressSpace.USER)


def location_value(e: Emitter, place: RegisterLocation) -> Number:
    """Register (plus index register times scale) plus offset."""
    value = register(e, place.register) if place.register else 0
    if place.index:
        value = e.b.add(value, e.b.mul(register(e, place.index), place.scale))
    return e.b.add(value, place.offset) if place.offset else value


_PLACES: Mapping[type[ArgumentLocation], Callable[[Emitter, ArgumentLocation, Type], Operand]] = by_class(
    on(ContextField, _context_field),
    on(DataLoc, _data_loc),
    on(Slot, _slot),
    on(Argument, _argument),
    on(ReturnValue, _return_value),
    on(RegisterLocation, _location),
    on(RegisterParts, _register_parts),
    on(CountedText, _counted_text),
    on(Unreadable, _unreadable),
    on(CallRegister, _call_register),
    on(CallResult, _call_result),
    on(RawField, raw_tracepoints.field),
    on(PythonValue, _python_value),
)


def argument(e: Emitter, item: ProbeArgument) -> Operand:
    """A typed argument of the probe."""
    return _PLACES[type(item.place)](e, item.place, item.type)


def all_arguments(e: Emitter, type_: Struct) -> Operand:
    """``args`` as a whole, a struct with one field for each argument."""
    context = e.program.unit.context

    def write(pointer: Ptr, align: int) -> None:
        memory.zero(e, pointer, type_.size, min(align, type_.align))
        for item in context.arguments:
            field = type_.find(item.name)
            if field is None:
                raise InternalError(f"args has no member {item.name}")
            value = text_view(argument(e, item), field.type)
            memory.write(e, value, e.b.offset(pointer, field.offset), field.type, memory.natural(align, field.offset))

    return Made(type_, write, reads=True)


def positional(e: Emitter, index: int) -> Number:
    """``argN``."""
    unit = e.program.unit
    if unit.context.positional:
        place = unit.context.positional[index]
        type_ = Float(place.size) if place.fraction else Int(place.size, place.signed)
        return memory.number(e, _location(e, place, type_))
    if unit.context.slots:
        return e.launder(slot(e, index))
    return function_argument(e, index)


# ---------------------------------------------------------------------------------------------- uretprobes

RETURN_INSTANCES = 16
"""Maximum number of ``struct return_instance`` that are searched."""


def _helper_suffices(e: Emitter) -> bool:
    """Whether to use only ``bpf_get_func_ip``: on kernels with the instances of Linux 6.13, or without BTF of these."""
    instance = e.script.kernel.struct("struct", "return_instance")
    task = e.script.kernel.struct("struct", "task_struct")
    if instance is None or task is None or task.find("utask") is None:
        return True
    return e.script.ahead is None and instance.find("cons_cnt") is not None


def _returning_function(e: Emitter, place: Number, otherwise: Number) -> Number:
    """Address of the function whose return address was at stack address *place*; *otherwise* if there is none.

    The kernel keeps a ``struct return_instance`` for each probed call that has not returned, innermost first
    (``kernel/events/uprobes.c``). Calls that an exception or ``longjmp`` left are still listed, so the returning one is
    identified by the stack address of its return address.
    """
    task = e.b.helper(helpers.GET_CURRENT_TASK)
    uprobes = read_word(e, e.b.add(task, kernel_field(e, "task_struct", "utask")))
    function, instance = e.b.register(), e.b.register()
    e.b.store(otherwise, function)
    e.b.store(_kernel_word(e, uprobes, "uprobe_task", "return_instances"), instance)

    def step(_index: Number, leave: Callable[[], None]) -> None:
        current = e.b.load(instance)
        with e.b.when(e.b.icmp("eq", _kernel_word(e, current, "return_instance", "stack"), place)):
            e.b.store(_kernel_word(e, current, "return_instance", "func"), function)
            leave()
        e.b.store(_kernel_word(e, current, "return_instance", "next"), instance)

    loops.counted(e, RETURN_INSTANCES, step)
    return e.b.load(function)


def _kernel_word(e: Emitter, address: Number, owner: str, name: str) -> Number:
    return read_word(e, e.b.add(address, kernel_field(e, owner, name)))
