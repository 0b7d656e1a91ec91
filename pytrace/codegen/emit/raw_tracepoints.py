"""Programs of raw tracepoints that stand in for tracepoints.

Fields are computed as the kernel's ``TP_fast_assign`` computes them; for system calls there are registers, result, and
the index of the target that fired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pytrace.codegen.emit import memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import I1, I64, Number, Operand, Remote, Scalar
from pytrace.core.probes.system_calls import ABIS
from pytrace.core.types import AddressSpace, Type
from pytrace.frontend.syntax.typed_program import ProbeUnit, RawField, RawRead

_MINOR_BITS = 20
"""``MINORBITS`` of include/linux/kdev_t.h."""
_SECTOR_SHIFT = 9
"""``SECTOR_SHIFT`` of include/linux/blk_types.h."""


def field(e: Emitter, place: RawField, type_: Type) -> Operand:
    """A field as a value of *type_*, its type in the tracepoint's record."""
    if place.formula == "text":
        return _text(e, place.reads[0], type_)
    values = [_number(e, read) for read in place.reads]
    return Scalar(memory.fit(e, _FORMULAS[place.formula](e, values, place.numbers), type_), type_)


def _text(e: Emitter, read: RawRead, type_: Type) -> Remote:
    if len(read.offsets) == 1 and read.direct:
        address = e.b.add(_base(e, read), read.offsets[0])
        return Remote(address, type_, AddressSpace.KERNEL, direct=True)
    address = e.b.add(_last_struct(e, read), read.offsets[-1])
    return Remote(address, type_, AddressSpace.KERNEL)


def _base(e: Emitter, read: RawRead) -> I64:
    """The argument, or the address of the current task."""
    if read.slot is None:
        return e.b.helper(helpers.GET_CURRENT_TASK)
    return e.b.load(e.b.offset(e.context, 8 * read.slot))


def _last_struct(e: Emitter, read: RawRead) -> I64:
    """Address of the struct that contains the last member, as a number."""
    address = _base(e, read)
    rest = read.offsets[:-1]
    if read.direct and rest:
        address = e.b.load(e.b.offset(e.b.pointer(address), rest[0]))
        rest = rest[1:]
    if read.slot is not None:
        address = e.launder(address)
    for offset in rest:
        address = _load(e, e.b.add(address, offset), 8)
    return address


def _number(e: Emitter, read: RawRead) -> Number:
    """The number at the end of a path; 0 if a pointer on the path is null, as in the kernel's own null checks."""
    if not read.offsets:
        return e.b.fit(_base(e, read), 8 * read.size, read.signed)
    if read.direct and len(read.offsets) == 1:
        place = e.b.offset(e.b.pointer(_base(e, read)), read.offsets[0])
        return e.b.load(place, 8 * read.size, read.signed)
    return _load(e, e.b.add(_last_struct(e, read), read.offsets[-1]), read.size, signed=read.signed)


def _load(e: Emitter, address: Number, size: int, *, signed: bool = False) -> I64:
    """A number in kernel memory; 0 on a fault, which is not reported."""
    cell = e.cell
    e.b.helper(helpers.PROBE_READ_KERNEL, cell, size, address)
    return e.b.load(cell, 8 * size, signed)


# ---------------------------------------------------------------------------------------------- system calls

CALL_RESULT = 8
"""Offset of the system call's result in the context of the raw tracepoint ``sys_exit``."""


def call_register(e: Emitter, offset: int, size: int = 8, *, signed: bool = False) -> I64:
    """The value at *offset* in the ``struct pt_regs`` of the system call, which the verifier knows by type."""
    if e.kept is not None:
        return e.b.load(e.b.offset(e.kept, offset), 8 * size, signed)
    return e.b.load(e.b.offset(e.b.pointer(e.b.load(e.context)), offset), 8 * size, signed)


def call_index(e: Emitter, unit: ProbeUnit) -> I64:
    """Index of the current system call among the targets of *unit*."""
    most = max(unit.calls)
    indexes = dict(zip(unit.calls, range(len(unit.calls)), strict=True))
    table = b"".join(indexes.get(number, 0).to_bytes(2, "little") for number in range(most + 1))
    number = e.b.at_most(call_register(e, ABIS[e.script.kernel.arch].number, 4), most)
    return e.b.load(e.b.offset(e.module.constant(table), e.b.mul(number, 2)), 16)


# ---------------------------------------------------------------------------------------------- formulas


def _value(_e: Emitter, values: Sequence[Number], _numbers: Sequence[int]) -> Number:
    return values[0]


def _ntohs(e: Emitter, values: Sequence[Number], _numbers: Sequence[int]) -> Number:
    return e.b.swap_bytes(values[0], 16)


def _sectors(e: Emitter, values: Sequence[Number], _numbers: Sequence[int]) -> Number:
    return e.b.op("lshr", values[0], _SECTOR_SHIFT)


def _device(e: Emitter, values: Sequence[Number], _numbers: Sequence[int]) -> Number:
    major, minor = values
    return e.b.op("or", e.b.op("shl", major, _MINOR_BITS), minor)


def _traced_sector(e: Emitter, values: Sequence[Number], numbers: Sequence[int]) -> Number:
    flags, sector = values
    start = e.b.select(e.b.icmp("eq", sector, -1), 0, sector)
    return e.b.select(_passed_through(e, flags, numbers), 0, start)


def _traced_sectors(e: Emitter, values: Sequence[Number], numbers: Sequence[int]) -> Number:
    flags, size = values
    return e.b.select(_passed_through(e, flags, numbers), 0, e.b.op("lshr", size, _SECTOR_SHIFT))


def _passed_through(e: Emitter, flags: Number, numbers: Sequence[int]) -> I1:
    """Whether a request's operation is one of *numbers[1:]*; *numbers[0]* is the width of the operation in bits."""
    operation = e.b.op("and", flags, (1 << numbers[0]) - 1)
    matches: Number = 0
    for number in numbers[1:]:
        matches = e.b.op("or", matches, e.b.number(e.b.icmp("eq", operation, number)))
    return e.b.truth(matches)


_FORMULAS: Mapping[str, Callable[[Emitter, Sequence[Number], Sequence[int]], Number]] = {
    "value": _value,
    "ntohs": _ntohs,
    "sectors": _sectors,
    "device": _device,
    "traced_sector": _traced_sector,
    "traced_sectors": _traced_sectors,
}
