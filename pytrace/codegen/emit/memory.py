"""Values in memory: the program's own, reads of kernel and user memory, and strings.

``bpf_probe_read_user`` never waits, so it fails where a page is not resident: a constant of a program that has just
started, a file that was mapped and not touched yet.  Programs of user probes, and of some kernel functions, run in a
context that may sleep: where the kernel accepts that (``BPF_F_SLEEPABLE``), a read that failed is repeated after
``bpf_copy_from_user`` has brought the page in.  A read that succeeds at once costs one comparison more.

The current task of an iterator is its reader. User memory there is that of the task that the iterator has reached,
which only programs that may sleep can read.
"""

from __future__ import annotations

import errno

from pytrace.codegen.emit.program import COPIES, Part, Program
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.values import (
    I1,
    I64,
    TRUE,
    Made,
    Memory,
    Number,
    Operand,
    Parts,
    Ptr,
    Remote,
    Scalar,
    number_parameter,
    pointer_parameter,
)
from pytrace.core.diagnostics import InternalError
from pytrace.core.probe_kinds import FENTRY, FEXIT, Context, IteratorTarget, TypedFunctionTarget
from pytrace.core.types import (
    AddressSpace,
    Array,
    Bool,
    Buffer,
    Enum,
    Int,
    Members,
    Pointer,
    Record,
    Stack,
    String,
    Struct,
    Type,
)
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import location

_INLINE_BYTES = 256
"""Memory up to this size is copied and cleared by inline moves, more by a helper call."""


def is_signed(type_: Type) -> bool:
    """Whether a scalar type is sign-extended."""
    return isinstance(type_, Int | Enum) and type_.signed


def bits(type_: Type) -> int:
    """Width of a scalar type."""
    return 8 * type_.size


def inline(size: int, align: int) -> bool:
    """Whether *size* bytes are few enough to be copied inline."""
    return size <= _INLINE_BYTES and size // align <= 64


def read_helper(space: AddressSpace, *, string: bool = False) -> helpers.ReadHelper:
    """The helper that reads from an address space."""
    of_bytes, of_strings = _READ.get(space, _READ[AddressSpace.KERNEL])
    return of_strings if string else of_bytes


_READ = {
    AddressSpace.KERNEL: (helpers.PROBE_READ_KERNEL, helpers.PROBE_READ_KERNEL_STR),
    AddressSpace.USER: (helpers.PROBE_READ_USER, helpers.PROBE_READ_USER_STR),
    AddressSpace.EITHER: (helpers.PROBE_READ, helpers.PROBE_READ_STR),
}
_SEPARATE = frozenset({"x86_64", "aarch64"})
"""Machines on which an address determines its space (kernel option ARCH_HAS_NON_OVERLAPPING_ADDRESS_SPACE)."""


def members_of(type_: Type) -> tuple[tuple[Type, ...], tuple[int, ...], tuple[str, ...]]:
    """Types, offsets and names (empty for tuples) of a tuple, record or struct."""
    if isinstance(type_, Record):
        return type_.members, type_.offsets, type_.names
    if isinstance(type_, Members):
        return type_.members, type_.offsets, ()
    raise InternalError(f"{type_} has no members")


def has_gaps(type_: Type) -> bool:
    """Whether a tuple or record has padding."""
    members, offsets, _ = members_of(type_)
    end = 0
    for member, offset in zip(members, offsets, strict=True):
        if offset != end:
            return True
        end = offset + member.size
    return end != type_.size


def source_index(source: Type, target: Type, index: int) -> int:
    """Index of the source member for member *index* of *target*: records convert by name, tuples by position."""
    if isinstance(source, Record) and isinstance(target, Record):
        return source.names.index(target.names[index])
    return index


def natural(align: int, offset: int) -> int:
    """The alignment at *offset* bytes from an address of alignment *align*."""
    while offset % align:
        align //= 2
    return align


def as_string(operand: Operand, capacity: int) -> Operand:
    """Bytes in memory, as a string operand."""
    if isinstance(operand, Memory):
        return Memory(operand.pointer, String(capacity), operand.align)
    if isinstance(operand, Remote):
        return Remote(operand.address, String(capacity), operand.space)
    raise InternalError(f"{operand.type} is not text")


UNREADABLE = b"<unreadable>"
"""The value of a string that could not be read, with ``mark_unreadable``."""

_OF_TASK = "bpf_copy_from_user_task_str"
_PAD = 1
"""``BPF_F_PAD_ZEROS``: zero the rest of the buffer, and all of it after a failure."""
_NOWHERE = 1
"""An address that cannot be read and is not null."""

_PAGE = 4096
"""The smallest page size; with larger pages some are touched more than once."""

_BY_ADDRESS = {
    helpers.PROBE_READ: (helpers.PROBE_READ_KERNEL, helpers.PROBE_READ_USER),
    helpers.PROBE_READ_STR: (helpers.PROBE_READ_KERNEL_STR, helpers.PROBE_READ_USER_STR),
}
"""Helpers for which the address decides, and those of kernel and user memory."""
_STRINGS = (helpers.PROBE_READ_USER_STR, helpers.PROBE_READ_KERNEL_STR, helpers.PROBE_READ_STR)


def _permitted(program: Program) -> bool:
    """Whether the program may be sleepable.

    ``maybe_wait_bpf_programs`` (kernel/bpf/syscall.c) does not wait for sleepable programs, and the runtime relies on
    that wait when it exchanges the buffers of a map, and when it removes keys whose digests are gone. Imported
    functions are unknown. An ahead-of-time file has to run on kernels without the feature.
    """
    script = program.script
    if script.checked.objects or script.ahead is not None:
        return False
    if script.layout.awaited and any(
        isinstance(node, nodes.MapRef) and node.name in script.layout.awaited
        for body in (program.unit.body, *(function.body for function in program.functions))
        for node in walk(body)
    ):
        return False
    return _accepted(program)


def _accepted(program: Program) -> bool:
    """Whether the kernel accepts such a program that may sleep."""
    unit, kernel = program.unit, program.script.kernel
    if unit.kind.user:
        return kernel.feature("sleepable_uprobe")
    if iterates_tasks(program):
        return kernel.feature("task_memory")
    if unit.kind.name not in (FENTRY, FEXIT) or not kernel.feature("sleepable_fentry"):
        return False
    places = [target.of(TypedFunctionTarget) for target in unit.targets]
    return all(place.module == "vmlinux" and kernel.sleepable_function(place.function) for place in places)


def iterates_tasks(program: Program) -> bool:
    """Whether a program is one of an iterator over tasks, or over what tasks have."""
    return program.unit.kind.context is Context.ITERATOR and _task_offset(program) is not None


def _task_offset(program: Program) -> int | None:
    """Where the context of an iterator has its task."""
    iterator = program.unit.targets[0].of(IteratorTarget).iterator
    struct = program.script.kernel.iterators().get(iterator)
    member = None if struct is None else struct.find("task")
    return None if member is None else member.offset


def _known_size(most: int | None) -> int:
    if most is None:
        raise InternalError("a read of variable size needs its maximum")
    return most


class OwnMemory(Part):
    """Reads, writes, copies and converts values in the program's memory."""

    # ---------------------------------------------------------------------------------------------- plain memory

    def zero(self, pointer: Ptr, size: int, align: int = 8) -> None:
        """Zero memory of the program."""
        if inline(size, align):
            self.b.clear(pointer, size, align)
        elif size:
            self.b.helper(helpers.PROBE_READ_KERNEL, pointer, size, self.b.address(self.module.zeros(size)))

    def copy(self, target: Ptr, source: Ptr, size: int, align: int = 8) -> None:
        """Copy within memory of the program."""
        if inline(size, align):
            self.b.copy(target, source, size, align)
        elif size:
            self.b.helper(helpers.PROBE_READ_KERNEL, target, size, self.b.address(source))

    def load(self, pointer: Ptr, type_: Type, align: int = 8) -> Scalar:
        """Load a scalar from the program's memory."""
        return Scalar(self.b.load(pointer, bits(type_), is_signed(type_), min(align, type_.size)), type_)

    def store(self, pointer: Ptr, value: Number, type_: Type, align: int = 8) -> None:
        """Store an ``i64`` as a scalar of *type_*."""
        self.b.store(value, pointer, bits(type_), min(align, type_.size))

    # ---------------------------------------------------------------------------------------------- operands

    def number(self, operand: Operand) -> Number:
        """The value of a scalar operand in a register, loaded or read if necessary."""
        match operand:
            case Scalar(direct=True):
                return self.e.launder(operand.value)
            case Scalar():
                return operand.value
            case Memory():
                return self.load(operand.pointer, operand.type, operand.align).value
            case Remote(direct=True):
                return self.load(self.b.pointer(operand.address), operand.type).value
            case Remote():
                return self.e.foreign.read_scalar(operand.address, operand.type, operand.space).value
            case Made():
                return self.number(self.place(operand))
        raise InternalError(f"no register for {operand}")

    def truth(self, operand: Operand) -> I1:
        """``i1``: a scalar is not zero."""
        return self.b.truth(self.number(operand))

    def place(self, operand: Operand) -> Memory:
        """The operand in the program's memory."""
        if isinstance(operand, Memory):
            return operand
        pointer = self.e.temporary(operand.type.size)
        self.write(operand, pointer, operand.type)
        return Memory(pointer, operand.type)

    def detached(self, operand: Operand, type_: Type) -> Memory:
        """The operand as a value of *type_* that can be copied even to memory that it was computed from."""
        return operand if isinstance(operand, Memory) and operand.type == type_ else self.copied(operand, type_)

    def copied(self, operand: Operand, type_: Type | None = None) -> Memory:
        """A copy of the operand (as a value of *type_*) in temporary memory, valid until the end of the statement."""
        type_ = type_ or operand.type
        pointer = self.e.temporary(type_.size)
        self.write(operand, pointer, type_)
        return Memory(pointer, type_)

    def write(self, operand: Operand, pointer: Ptr, type_: Type, align: int = 8) -> None:
        """Write *operand* as a value of *type_*, with implicit conversion and zeroed padding."""
        if type_.scalar and not isinstance(operand.type, Array):
            self.store(pointer, self.number(operand), type_, align)
        elif isinstance(operand, Parts):
            self._write_members(operand, pointer, type_, align)
        elif isinstance(type_, String | Buffer | Stack) and type_ != operand.type:
            self._write_sized(operand, pointer, type_, align)
        elif isinstance(type_, Members) and type_ != operand.type:
            self._write_members(self.place(operand), pointer, type_, align)
        else:
            self._write_same(operand, pointer, type_, align)

    def _write_same(self, operand: Operand, pointer: Ptr, type_: Type, align: int) -> None:
        match operand:
            case Memory():
                self.copy(pointer, operand.pointer, type_.size, min(align, operand.align))
            case Remote():
                if isinstance(operand.type, String):
                    self.e.strings.read_string(pointer, operand.type.capacity, operand.address, operand.space, align)
                else:
                    self.e.foreign.read(pointer, type_.size, operand.address, operand.space)
            case Made():
                operand.write(pointer, align)
            case Scalar():
                self.store(pointer, operand.value, operand.type, align)
            case _:
                raise InternalError(f"cannot write {operand} as {type_}")

    def _write_sized(self, operand: Operand, pointer: Ptr, type_: String | Buffer | Stack, align: int) -> None:
        """Write a text or a stack where there is room for more or less of it."""
        source = operand.type
        if source.size <= type_.size:
            self._write_same(operand, pointer, source, align)
            rest = type_.size - source.size
            self.zero(self.b.offset(pointer, source.size), rest, 8 if source.size % 8 == 0 and align == 8 else 1)
            return
        whole = self.place(operand)
        self.copy(pointer, whole.pointer, type_.size, min(align, whole.align))

    def _write_members(self, source: Operand, pointer: Ptr, type_: Type, align: int) -> None:
        members, offsets, _ = members_of(type_)
        if has_gaps(type_):
            self.zero(pointer, type_.size, align)
        for index, (member, offset) in enumerate(zip(members, offsets, strict=True)):
            part = self.member_of(source, source_index(source.type, type_, index))
            self.write(part, self.b.offset(pointer, offset), member, natural(align, offset))

    def member_of(self, operand: Operand, index: int) -> Operand:
        """One member of a tuple or record."""
        if isinstance(operand, Parts):
            return operand.members[index]
        value = self.place(operand)
        members, offsets, _ = members_of(value.type)
        return Memory(
            self.b.offset(value.pointer, offsets[index]), members[index], natural(value.align, offsets[index])
        )

    def convert(self, operand: Operand, type_: Type) -> Operand:
        """The operand as a value of *type_*."""
        if type_.scalar:
            if isinstance(operand.type, Array):
                value = self.place(operand)
                return self.load(value.pointer, type_, value.align)
            if isinstance(operand, Scalar) and operand.direct and isinstance(type_, Pointer):
                if type_.trusted or type_.space is AddressSpace.BPF:
                    return Scalar(operand.value, type_, direct=True)
            return Scalar(self.fit(self.number(operand), type_), type_)
        if operand.type == type_:
            return operand
        if isinstance(type_, Struct) and isinstance(operand, Memory | Remote):
            return operand
        pointer = self.e.temporary(type_.size)
        self.write(operand, pointer, type_)
        return Memory(pointer, type_)

    def fit(self, value: Number, type_: Type) -> Number:
        """An ``i64`` truncated and extended to a scalar type."""
        if isinstance(type_, Bool):
            return self.b.number(self.b.truth(value))
        return self.b.fit(value, bits(type_), is_signed(type_))


class ForeignMemory(Part):
    """Reads kernel and user memory, and handles reads that fail."""

    def resolve_space(self, space: AddressSpace) -> AddressSpace:
        """Resolve the address space of a pointer that was made by the program itself."""
        return self.e.space if space is AddressSpace.NONE else space

    def pointed_space(self, space: AddressSpace) -> AddressSpace:
        """The address space to be read through a value of the script: a pointer into *space*, or an integer (NONE).

        Outside user probes both spaces are possible for an integer (arguments of kernel functions and system
        calls, ``skbaddr``), and for a pointer that a kernel structure has: a kernel that GCC has built does not
        say in its type information which are ``__user`` (``struct iovec.iov_base``). There the address decides
        where it can; elsewhere user memory is read when the read of kernel memory fails.
        """
        if space is AddressSpace.NONE:
            space = self.e.space
        if space is AddressSpace.BPF:
            # Memory of the program without known provenance is read like other kernel memory.
            return AddressSpace.KERNEL
        return AddressSpace.EITHER if space is AddressSpace.KERNEL else space

    # ---------------------------------------------------------------------------------------------- foreign memory

    def read(self, pointer: Ptr, size: Number | int, address: Number, space: AddressSpace) -> I64:
        """Read kernel or user memory. Returns the helper's error code. On a fault the kernel zeroes the destination."""
        return self.call_helper(read_helper(self.resolve_space(space)), pointer, size, address)

    def read_scalar(self, address: Number, type_: Type, space: AddressSpace) -> Scalar:
        """Read a scalar from kernel or user memory; 0 on a fault."""
        cell = self.e.cell
        self.read(cell, type_.size, address, space)
        return self.e.memory.load(cell, type_)

    def call_helper(
        self, helper: helpers.ReadHelper, pointer: Ptr, size: Number, address: Number, most: int | None = None
    ) -> I64:
        """Call a read helper. Returns its result.

        *most* is the maximum of *size*, where that is not a constant. Failures are reported if all helper errors are
        enabled (``-k``), and counted where the text is part of a map's key or decides something. With
        ``mark_unreadable`` all are counted, and a string is :data:`UNREADABLE` then.
        """
        most = size if isinstance(size, int) else most
        user = helper in (helpers.PROBE_READ_USER, helpers.PROBE_READ_USER_STR)
        if user and iterates_tasks(self.program):
            result = self._of_task(helper, pointer, size, address, most)
        elif helper in _BY_ADDRESS and iterates_tasks(self.program):
            result = self._of_kernel_or_task(helper, pointer, size, address, most)
        elif helper in _BY_ADDRESS:
            result = self._of_either(helper, pointer, size, address, most)
        else:
            result = self.b.helper(helper, pointer, size, address)
            if user and self.may_sleep():
                result = self._again(helper, pointer, size, address, most, result)
        late = self.program.late
        if user and late is not None and self.e.node in late.reads and self.e.depth == 0:
            with self.b.when(self.b.icmp("slt", result, 0), likely=False):
                with self.b.when(self.b.truth(address)):
                    self.e.deferred.postpone()
        if self.e.failed_reads is not None and helper in (helpers.PROBE_READ_USER_STR, helpers.PROBE_READ_STR):
            with self.b.when(self.b.icmp("slt", result, 0), likely=False):
                # An address of the kernel's memory is negative where the address decides.
                waits = self.b.truth(address) if user else self.b.icmp("sgt", address, 0)
                self.b.store(self.b.number(waits), self.e.failed_reads)
            return result
        self.e.events.check_read(helper.symbol, result)
        if self.e.node in self.script.deciding and not self.checked.config.mark_unreadable:
            with self.b.when(self.b.icmp("slt", result, 0), likely=False):
                with self.b.when(self.b.truth(address)):
                    self.e.counter("unreadable", self.script.layout.site(helper.symbol, location(self.e.node.span)))
        if self.checked.config.mark_unreadable:
            result = self._marked(helper, pointer, size, address, result)
        return result

    def may_sleep(self) -> bool:
        """Whether reads may sleep here."""
        if self.e.task_work:
            return True
        program = self.program
        if self.e.atomic:
            return False
        if program.may_sleep is None:
            program.may_sleep = _permitted(program)
        return program.may_sleep

    def visited_task(self) -> Ptr:
        """The task that an iterator has reached (:func:`iterates_tasks`); may be null."""
        offset = _task_offset(self.program)
        if offset is None:
            raise InternalError("no iterator over tasks")
        return self.b.load_pointer(self.b.offset(self.e.context, offset))

    def _of_task(
        self, helper: helpers.ReadHelper, pointer: Ptr, size: Number, address: Number, most: int | None
    ) -> I64:
        """The result of a read of the memory of the iterator's task."""
        offset = _task_offset(self.program)
        if offset is None or not self.may_sleep():
            return self.b.helper(helper, pointer, size, _NOWHERE)
        self.program.sleeps = True
        result = self.b.register()
        self.b.store(-errno.EFAULT, result)
        task = self.visited_task()
        with self.b.unless(self.b.is_null(task), likely=True):
            if helper is helpers.PROBE_READ_USER:
                self.b.store(self.b.helper(helpers.COPY_FROM_USER_TASK, pointer, size, address, task, 0), result)
            else:
                self.module.kernel_function(_OF_TASK, ("void *", "int", "void *", "task_struct", "int"), "int")
                length = self.b.kernel_read(_OF_TASK, pointer, size, address, task, _PAD)
                # The verifier knows the range of a helper's result, and not that of a kfunc.
                with self.b.when(self.b.icmp("ule", length, _known_size(most)), likely=True):
                    self.b.store(length, result)
        return self.b.load(result)

    def _of_kernel_or_task(
        self, helper: helpers.ReadHelper, pointer: Ptr, size: Number, address: Number, most: int | None
    ) -> I64:
        """The result of a read at an address of either space: the helper itself would read the reader's user memory."""
        of_kernel, of_user = _BY_ADDRESS[helper]
        result = self.b.register()
        in_kernel = self.b.icmp("slt", address, 0)
        with self.b.when(in_kernel):
            self.b.store(self.b.helper(of_kernel, pointer, size, address), result)
        with self.b.unless(in_kernel):
            self.b.store(self._of_task(of_user, pointer, size, address, most), result)
        return self.b.load(result)

    def _of_either(
        self, helper: helpers.ReadHelper, pointer: Ptr, size: Number, address: Number, most: int | None
    ) -> I64:
        """The result of a read at an address of either space.

        Where kernel and user addresses overlap (s390x), the kernel has no helper that takes both.
        """
        of_kernel, of_user = _BY_ADDRESS[helper]
        separate = self.script.kernel.arch in _SEPARATE
        first = self.b.helper(helper if separate else of_kernel, pointer, size, address)
        if separate and not self.may_sleep():
            return first
        result = self.b.register()
        self.b.store(first, result)
        with self.b.when(self.b.icmp("slt", first, 0), likely=False):
            second = self.b.helper(of_user, pointer, size, address)
            if self.may_sleep():
                second = self._again(of_user, pointer, size, address, most, second)
            self.b.store(second, result)
        return self.b.load(result)

    def _again(
        self, helper: helpers.ReadHelper, pointer: Ptr, size: Number, address: Number, most: int | None, first: I64
    ) -> I64:
        """The result of a read; one that failed is repeated after its pages have been brought in."""
        self.program.sleeps = self.program.sleeps or not self.e.task_work
        result = self.b.register()
        self.b.store(first, result)
        with self.b.when(self.b.icmp("slt", first, 0), likely=False):
            with self.b.when(self._copy_left() if self.program.preemptible and not self.e.task_work else TRUE):
                # When user probes are detached, the kernel waits for programs that sleep: the tracer says so.
                if not self.e.task_work:
                    self.e.counter("waiting", self.program.index)
                if helper is helpers.PROBE_READ_USER:
                    self.b.store(self.b.helper(helpers.COPY_FROM_USER, pointer, size, address), result)
                else:
                    pages = (_known_size(most) + _PAGE - 1) // _PAGE
                    self.b.store(self.b.call(self._string_function(), [pointer], (size, address, pages)), result)
                if not self.e.task_work:
                    self.e.counter("waiting", self.program.index, -1)
        return self.b.load(result)

    def _copy_left(self) -> I1:
        """Whether another program on this CPU can still claim scratch memory while this one sleeps, as an ``i1``.

        So the last copy is never held for as long as a page takes to arrive, and sleeping causes no missed hits.
        """
        if self.program.scratch.size == 0:
            self.program.scratch.size = 8
        used = self.b.load(self.e.copies_in_use)
        return self.b.icmp("ne", used, (1 << COPIES) - 1)

    def _string_function(self) -> str:
        """The function that repeats the read of a string: first with its first page, then with all that it may reach.

        Pages after the first are touched only when the string goes on there, and no page after one that is not mapped.
        """
        script = self.script
        if script.string_function:
            return script.string_function
        script.string_function = "read_string_again"
        b = script.module.function(script.string_function, ("*target", "size", "address", "pages"), None)
        target, size, address = pointer_parameter("target"), number_parameter("size"), number_parameter("address")
        byte, index = b.alloca(8), b.register()
        failed, on, head, body, more, last = (b.block() for _ in range(6))
        b.jump_if(b.icmp("slt", b.helper(helpers.COPY_FROM_USER, byte, 1, address), 0), failed)
        again = b.helper(helpers.PROBE_READ_USER_STR, target, size, address)
        b.branch(b.icmp("slt", again, 0), on, last)
        b.start(last)
        b.ret(again)
        b.start(on)
        b.store(0, index)
        b.jump(head)
        b.start(head)
        page = b.load(index)
        b.branch(b.icmp("ult", page, number_parameter("pages")), body, more)
        b.start(body)
        place = b.add(b.add(b.op("or", address, _PAGE - 1), 1), b.mul(page, _PAGE))
        b.jump_unless(b.icmp("ult", b.sub(place, address), size), more)
        b.jump_if(b.icmp("slt", b.helper(helpers.COPY_FROM_USER, byte, 1, place), 0), more)
        b.store(b.add(page, 1), index)
        b.jump(head)
        b.start(more)
        b.ret(b.helper(helpers.PROBE_READ_USER_STR, target, size, address))
        b.start(failed)
        b.ret(-errno.EFAULT)
        return script.string_function

    def _marked(self, helper: helpers.ReadHelper, pointer: Ptr, size: Number, address: Number, first: I64) -> I64:
        """The result of a read; one that failed is counted, and a string becomes :data:`UNREADABLE`.

        At a null pointer there is nothing to read: that is an empty string.
        """
        result = self.b.register()
        self.b.store(first, result)
        with self.b.when(self.b.icmp("slt", first, 0), likely=False):
            with self.b.when(self.b.truth(address)):
                self.e.counter("unreadable", self.script.layout.site(helper.symbol, location(self.e.node.span)))
                if helper in _STRINGS:
                    text = self.b.address(self.module.constant(UNREADABLE + b"\0"))
                    self.b.store(self.b.helper(helpers.PROBE_READ_KERNEL_STR, pointer, size, text), result)
        return self.b.load(result)


class Strings(Part):
    """Reads and pads strings."""

    def longest_string(self) -> int:
        """Maximum size of a string in bytes (``max_strlen``)."""
        return self.checked.config.max_strlen

    def read_string(self, pointer: Ptr, capacity: int, address: Number, space: AddressSpace, align: int = 8) -> None:
        """Read a string and pad it; a string that does not fit fills all *capacity* bytes with text and has no NUL.

        It counts as truncated only at the maximum capacity: with a smaller one it is a full character array.
        """
        self.e.memory.zero(pointer, capacity, align)
        self._read_text(pointer, capacity, address, space)

    def read_string_only(self, pointer: Ptr, capacity: int, address: Number, space: AddressSpace, cleared: int) -> None:
        """As :func:`read_string`, but only the next *cleared* bytes after the string are zeroed.

        They are also zeroed after a string of *capacity* bytes. Both *pointer* and *capacity* must be multiples
        of 8, and the machine little-endian.
        """
        length = self._read_text(pointer, capacity, address, space)
        some, none, done = self.b.block(), self.b.block(), self.b.block()
        hidden = self.b.opaque(length)
        self.b.branch(self.b.icmp("sgt", hidden, 0), some, none, likely=True)
        self.b.start(some)
        # By words, as these are loaded next: a load that spans several stores cannot be forwarded from them.
        last = self.b.sub(hidden, 1)
        word = self.b.offset(pointer, self.b.op("and", last, -8))
        bits_used = self.b.op("shl", self.b.op("and", last, 7), 3)
        text = self.b.sub(self.b.op("shl", 1, bits_used), 1)
        # The last byte of a full string is not NUL.
        text = self.b.select(self.b.icmp("eq", hidden, capacity), -1, text)
        self.b.store(self.b.op("and", self.b.load(word), text), word)
        self._clear_words(self.b.offset(word, 8), cleared)
        self.b.jump(done)
        self.b.start(none)
        self._clear_words(pointer, cleared)
        self.b.jump(done)
        self.b.start(done)

    def _clear_words(self, pointer: Ptr, size: int) -> None:
        for offset in range(0, size, 8):
            self.b.store(0, self.b.offset(pointer, offset))

    def _read_text(self, pointer: Ptr, capacity: int, address: Number, space: AddressSpace) -> I64:
        """Read a string, and its last byte if it has no NUL. Returns the helper's result."""
        resolved = self.e.foreign.resolve_space(space)
        length = self.e.foreign.call_helper(read_helper(resolved, string=True), pointer, capacity, address)
        with self.b.when(self.b.icmp("eq", length, capacity), likely=False):
            # The helper writes a NUL to the last byte; the source byte shows whether the string ends there.
            last = capacity - 1
            end = self.b.offset(pointer, last)
            self.b.helper(read_helper(resolved), end, 1, self.b.add(address, last))
            if capacity >= self.longest_string():
                self.e.count_cut(self.b.truth(self.b.load(end, 8)))
        return length

    def string_tail(self, pointer: Ptr, limit: int, address: Number, space: AddressSpace) -> I64:
        """Read a string of at most *limit* bytes without its NUL. Returns its length."""
        result = self.e.foreign.call_helper(
            read_helper(self.e.foreign.resolve_space(space), string=True), pointer, limit + 1, address
        )
        return self.text_length(result)

    def text_length(self, result: Number) -> I64:
        """The result of a string read as a length without NUL, in a form that the verifier can follow.

        The path with the widest range comes first, so that the verifier prunes the other one.
        """
        hidden = self.b.opaque(result)
        good, bad, done = self.b.block(), self.b.block(), self.b.block()
        self.b.branch(self.b.icmp("sgt", hidden, 0), good, bad, likely=True)
        self.b.start(good)
        length = self.b.sub(hidden, 1)
        self.b.jump(done)
        self.b.start(bad)
        self.b.jump(done)
        self.b.start(done)
        return self.b.phi([(length, good), (0, bad)])

    def counted(self, node: nodes.Node, type_: String, address: Number, length: Number, space: AddressSpace) -> Made:
        """At most *length* characters; a requested limit does not count as truncation. Failed reads are those of
        *node*.

        Truncation is counted if *length* exceeds the capacity of a string.
        """
        length = self.b.at_most(length, type_.capacity)
        helper = read_helper(self.e.foreign.resolve_space(space), string=True)

        def write(pointer: Ptr, align: int) -> None:
            full, part, done = self.b.block(), self.b.block(), self.b.block()
            self.b.branch(self.b.icmp("eq", length, type_.capacity), full, part, likely=False)
            self.b.start(full)
            with self.e.at_node(node):
                self.read_string(pointer, type_.capacity, address, space, align)
            self.b.jump(done)
            self.b.start(part)
            self.e.memory.zero(pointer, type_.capacity, align)
            room = self.b.at_most(self.b.add(length, 1), type_.capacity)
            with self.e.at_node(node):
                self.e.foreign.call_helper(helper, pointer, room, address, type_.capacity)
            self.b.jump(done)
            self.b.start(done)

        def tail(pointer: Ptr, limit: int) -> I64:
            most = min(limit, type_.capacity) + 1
            room = self.b.at_most(self.b.add(length, 1), most)
            with self.e.at_node(node):
                return self.text_length(self.e.foreign.call_helper(helper, pointer, room, address, most))

        return Made(type_, write, tail, reads=True)
