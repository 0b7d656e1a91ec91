"""Calls of Python functions: which functions a probe chooses, and what a program does before its body."""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable

from msgspec.structs import replace

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Part, PythonCall, Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.values import I1, I64, Number, Ptr, global_pointer
from pytrace.codegen.walkers import python_threads
from pytrace.codegen.walkers.python_threads import Thread
from pytrace.core.manifest import MapType, PythonChoice, PythonMaps
from pytrace.core.probe_kinds import PythonTarget
from pytrace.core.python_format import CALL_ROW, CHOSEN, FILE, NAME, NONE, REFUSED, CallWord, Word
from pytrace.frontend.syntax.typed_program import location

_TEXT, _TEXT_SIZE = CALL_ROW, FILE + 8
_COUNT, _KIND, _INDEX, _PLACE, _STAR, _MARK, _FOUND = range(_TEXT + _TEXT_SIZE, _TEXT + _TEXT_SIZE + 56, 8)
"""Offsets in the work area, after the row: a text, its number of characters and the bytes of each; the character and
the place in the pattern that are compared, the place of the last star and what it took last; the result."""
WORK_SIZE = _FOUND + 8

_ANY, _END = 0x110000, 0x110001
"""Elements of a pattern that are no characters: any number of them; the end."""
_NO_STAR = (1 << 64) - 1
_STEPS = 1 << 18
"""Most comparisons of a text with a pattern: as many as they need at worst."""
_MOST_PARAMETERS = 255
_LENGTH, _FORM = 16, 32
"""Offsets in ``PyASCIIObject`` of ordinary builds."""
_VARIADIC, _VARIADIC_KEYWORDS = 2, 3
"""Bits of ``co_flags``: ``CO_VARARGS``, ``CO_VARKEYWORDS``."""


class CalledCode(Thread, frozen=True):
    """A thread whose state has a code object. *work* is the scratch offset of the work area."""

    work: int

    def inside(self, e: Emitter) -> CalledCode:
        """The same in the callback of a loop."""
        return replace(self, e=e)

    def place(self, offset: int) -> Ptr:
        """A place in the work area."""
        return self.e.area(self.work + offset)

    def number(self, offset: int) -> I64:
        """A number in the work area, which a callback may have changed."""
        return self.e.b.load(self.place(offset), again=True)

    def call_word(self, word: CallWord) -> I64:
        """A word of the process's second row."""
        return self.e.b.load(self.place(8 * word))

    def in_code(self, word: CallWord, bits: int = 64) -> I64:
        """A member of the code object."""
        b = self.e.b
        at = b.at_most(self.call_word(word), python_threads.HEAD_SIZE - 8)
        return b.load(b.offset(self.area(python_threads.STATE_HEAD), at), bits)


def matches(call: CalledCode, place: PythonTarget) -> Number:
    """:data:`CHOSEN` if the code object is one of the target's functions, else :data:`REFUSED`."""
    b = call.e.b
    result, on = b.register(), b.block()
    b.store(REFUSED, result)
    texts = ((Word.CODE_NAME, NAME, (place.function,)), (Word.CODE_FILE, FILE, place.files))
    for word, limit, patterns in texts:
        if "*" in patterns:
            continue
        fits = b.block()
        _load(call, python_threads.in_head(b, call.area(0), word), limit)
        for pattern in patterns:
            b.jump_if(_glob(call, pattern), fits)
        b.jump(on)
        b.start(fits)
    b.store(CHOSEN, result)
    b.jump(on)
    b.start(on)
    return b.load(result)


def _load(call: CalledCode, address: I64, limit: int) -> None:
    """Read a string to the work area. Of one that is too long, there are no characters."""
    b = call.e.b
    kind, length, size, data = python_threads.string(b, call.area(0), address, limit)
    whole = b.icmp("eq", b.mul(length, kind), size)
    failed = b.helper(helpers.PROBE_READ_USER, call.place(_TEXT), size, data)
    b.store(length, call.place(_COUNT))
    good = b.both(whole, b.icmp("eq", failed, 0))
    b.store(b.select(good, kind, 0), call.place(_KIND))


def _glob(call: CalledCode, pattern: str) -> I1:
    """Whether the text in the work area matches a pattern in which ``*`` stands for any characters.

    Each step compares one character. Where they differ, the last star takes one more.
    """
    e, b = call.e, call.e.b
    elements = [_ANY if character == "*" else ord(character) for character in pattern]
    shorter = [one for one, before in zip(elements, [0, *elements], strict=False) if one != _ANY or before != _ANY]
    table = e.module.constant(struct.pack(f"={len(shorter) + 1}I", *shorter, _END))
    for number, value in ((_INDEX, 0), (_PLACE, 0), (_STAR, _NO_STAR), (_MARK, 0)):
        b.store(value, call.place(number))
    last = len(shorter)
    e.loops.run(e.span, _STEPS, lambda inner, _index: _compare(call.inside(inner), table, last))
    place = call.number(_PLACE)
    ended = b.icmp("eq", place, last)
    if shorter[-1:] == [_ANY]:
        ended = b.either(ended, b.icmp("eq", place, last - 1))
    return b.both(b.icmp("uge", call.number(_INDEX), call.number(_COUNT)), ended)


def _compare(call: CalledCode, table: Ptr, last: int) -> None:
    b = call.e.b
    index, place = call.number(_INDEX), call.number(_PLACE)
    with b.when(b.icmp("uge", index, call.number(_COUNT))):
        b.ret(1)
    element = b.load(b.offset(table, b.op("shl", b.at_most(place, last), 2)), 32)
    with b.when(b.icmp("eq", element, _ANY)):
        b.store(place, call.place(_STAR))
        b.store(index, call.place(_MARK))
        b.store(b.add(place, 1), call.place(_PLACE))
        b.ret(0)
    with b.when(b.icmp("eq", element, _character(call, index, call.number(_KIND)))):
        b.store(b.add(index, 1), call.place(_INDEX))
        b.store(b.add(place, 1), call.place(_PLACE))
        b.ret(0)
    star = call.number(_STAR)
    with b.when(b.icmp("eq", star, _NO_STAR)):
        b.ret(1)
    next_ = b.add(call.number(_MARK), 1)
    b.store(next_, call.place(_MARK))
    b.store(next_, call.place(_INDEX))
    b.store(b.add(star, 1), call.place(_PLACE))


def _character(call: CalledCode, index: Number, kind: Number) -> I64:
    """A character of the text, by its number and the bytes of each (0: none is known)."""
    b = call.e.b
    offset = b.at_most(b.mul(index, kind), _TEXT_SIZE - 8)
    word = b.load(b.offset(call.place(_TEXT), offset), 32, align=1)
    bits = b.op("shl", b.op("and", kind, 7), 3)
    return b.select(b.icmp("eq", kind, 0), _END + 1, b.op("and", word, b.sub(b.op("shl", 1, bits), 1)))


def parameter(call: CalledCode, name: str) -> Number:
    """:data:`CHOSEN` plus the number of the parameter of a name; :data:`REFUSED` if the function has none."""
    e, b = call.e, call.e.b
    count = b.add(call.in_code(CallWord.CODE_ARGUMENTS, 32), call.in_code(CallWord.CODE_KEYWORDS, 32))
    flags = call.in_code(CallWord.CODE_FLAGS, 32)
    for bit in (_VARIADIC, _VARIADIC_KEYWORDS):
        count = b.add(count, b.op("and", b.op("lshr", flags, bit), 1))
    items = b.add(call.in_code(CallWord.CODE_LOCAL_NAMES), call.call_word(CallWord.TUPLE_ITEMS))
    b.store(items, call.place(_PLACE))
    b.store(REFUSED, call.place(_FOUND))
    text = name.encode()
    e.loops.run(
        e.span, b.at_most(count, _MOST_PARAMETERS),
        lambda inner, index: _compare_parameter(call.inside(inner), index, text),
    )  # fmt: skip
    return call.number(_FOUND)


def _compare_parameter(call: CalledCode, index: Number, text: bytes) -> None:
    b, area = call.e.b, call.place(_TEXT)
    item = call.user(b.add(call.number(_PLACE), b.op("shl", index, 3)))
    with b.when(b.icmp("ne", call.user(call.after_header(item, _LENGTH)), len(text))):
        b.ret(0)
    form = python_threads.form(b, call.area(0), call.user(call.after_header(item, _FORM)))
    with b.when(b.icmp("eq", b.op("and", form, python_threads.ASCII), 0)):
        b.ret(0)
    padded = text + bytes(-len(text) % 8)
    b.clear(area, len(padded))
    b.helper(helpers.PROBE_READ_USER, area, len(text), b.add(item, call.word(Word.ASCII_SIZE)))
    for offset in range(0, len(padded), 8):
        (word,) = struct.unpack_from("=q", padded, offset)
        with b.when(b.icmp("ne", b.load(b.offset(area, offset), again=True), word)):
            b.ret(0)
    b.store(b.add(index, CHOSEN), call.place(_FOUND))
    b.ret(1)


_CALLS, _CHOICES = "python_calls", "python_choices"
"""Symbols of the maps: second rows of processes, and what was decided for each record."""
_CHOICE_ENTRIES = 1 << 16
_SITE = "python"
_OBJECT = -8
"""Clears tags in the low bits of references (since 3.14)."""
_TYPE, _CELL_VALUE = 8, 16
"""Offsets in ``PyObject`` and ``PyCellObject`` of ordinary builds."""
_REGISTERS = {3: "bx", 5: "bp", 6: "si", 7: "di", 12: "r12", 13: "r13", 14: "r14", 15: "r15"}
"""Registers that may have the frame, by their number in instructions."""
_EXTENDED = 2
"""Units before an instruction that may extend its argument: more would be constants beyond the 16 millionth."""


def maps(script: Script) -> PythonMaps:
    """The maps of a script that follows interpreters."""
    plain = python_threads.MAPS
    if not script.python_choices:
        return plain
    targets = tuple(
        PythonChoice(number, subject.files, subject.function)
        for subject, number in script.python_choices.items()
        if isinstance(subject, PythonTarget)
    )
    return replace(plain, calls=_CALLS, choices=_CHOICES, targets=targets)


class _Call(CalledCode, frozen=True):
    """*objects* is the scratch offset of the objects."""

    objects: int

    def find(self, done: Block) -> None:
        """Jump to *done* if the body is not to run."""
        b, unit = self.e.b, self.e.program.unit
        place = unit.targets[0].of(PythonTarget)
        known, unknown = b.block(), b.block()
        self.load_row(unknown)
        b.copy(self.e.area(self.work), self.row(_CALLS, unknown), CALL_ROW)
        b.jump(known)
        b.start(unknown)
        self.e.counter("python_unknown", self.e.program.index)
        b.jump(done)
        b.start(known)
        thread, frame = (0, self._ending_frame()) if unit.kind.returns else self.innermost(done)
        b.store(frame, self.e.area(self.objects + 8 * (len(unit.context.arguments) + 1)))
        code, instruction = self._code(frame, done)
        index = self.unit_index(code, instruction)
        if unit.kind.returns:
            b.jump_if(b.icmp("slt", index, self._begun()), done)
        else:
            first = b.add(self.in_code(CallWord.CODE_FIRST, 32), self.call_word(CallWord.ENTRY_SLACK))
            b.jump_unless(b.icmp("slt", index, first), done)
            self._skip_repeated(thread, done)
        record = b.call(python_threads.CODE_FUNCTION, [self.area(0)])
        with b.when(b.icmp("eq", record, 0), likely=False):
            self.e.counter("python_names", self.site)
            b.jump(done)
        chosen = self._choice(record, place, lambda: matches(self, place))
        b.jump_if(b.icmp("eq", chosen, REFUSED), done)
        for number, argument in enumerate(unit.context.arguments):
            b.store(self._argument(frame, record, argument.name), self.e.area(self.objects + 8 * number))
        if unit.context.result is not None:
            result = self._result(frame, instruction, index)
            b.store(result, self.e.area(self.objects + 8 * len(unit.context.arguments)))

    # ------------------------------------------------------------------ where it is

    def _ending_frame(self) -> Number:
        """The frame in the register that has it."""
        b, number, frame = self.e.b, self.call_word(CallWord.FRAME_REGISTER), self.e.b.register()
        b.store(0, frame)
        for index, name in _REGISTERS.items():
            # Opaque, because LLVM would choose the place in the context, which the verifier does not follow.
            value = b.opaque(self.e.probe.register(name))
            b.store(b.select(b.icmp("eq", number, index), value, b.load(frame)), frame)
        return b.load(frame)

    def _code(self, frame: Number, done: Block) -> tuple[I64, I64]:
        """The frame's code object, which is read into the state, and the address of its instruction."""
        b, buffer, head = self.e.b, self.area(python_threads.STATE_BUFFER), self.area(python_threads.STATE_HEAD)
        size = b.at_most(self.word(Word.FRAME_SIZE), python_threads.BUFFER_SIZE)
        self.fail_unless(b.icmp("eq", b.helper(helpers.PROBE_READ_USER, buffer, size, frame), 0), done)
        code, instruction = b.op("and", self.member(Word.FRAME_CODE), _OBJECT), self.member(Word.FRAME_INSTRUCTION)
        length = b.at_most(self.word(Word.CODE_SIZE), python_threads.HEAD_SIZE)
        self.fail_unless(b.icmp("eq", b.helper(helpers.PROBE_READ_USER, head, length, code), 0), done)
        self.fail_unless(self.is_code(), done)
        b.store(code, self.area(python_threads.STATE_KEY + python_threads.KEY_CODE))
        return code, instruction

    def _begun(self) -> I64:
        """The number of the first instruction that a function has reached once its body runs.

        Before its first RESUME a frame is at what prepares it: the frame of a generator that is made, and of a call
        that fails for its depth. Where frames name the next instruction, RESUME itself may be the first one.
        """
        b = self.e.b
        first = self.in_code(CallWord.CODE_FIRST, 32)
        alone = b.number(b.icmp("eq", first, 0))
        return b.add(first, b.mul(alone, self.call_word(CallWord.FIRST_SLACK)))

    def _skip_repeated(self, thread: Number, done: Block) -> None:
        """RESUME runs again if it finds that the code has to be prepared for a tool (``sys.monitoring``)."""
        b = self.e.b
        with b.when(b.icmp("ne", self.call_word(CallWord.CODE_INSTRUMENTATION), NONE)):
            version = self.in_code(CallWord.CODE_INSTRUMENTATION)
            current = self.user(b.add(thread, self.call_word(CallWord.THREAD_BREAKER)))
            # _PY_EVAL_EVENTS_BITS: the low byte has requests to the evaluation loop.
            differ = b.icmp("ne", b.op("lshr", b.op("xor", version, current), 8), 0)
            b.jump_if(differ, done, likely=False)

    # ------------------------------------------------------------------ decisions

    def _choice(self, record: I64, subject: Hashable, decide: Callable[[], Number]) -> I64:
        """What *decide* returns for a code object, which is remembered."""
        b, choices = self.e.b, self.e.script.python_choices
        number = choices.setdefault(subject, len(choices))
        key, value, result = b.alloca(8), b.alloca(8), b.register()
        b.store(b.op("or", b.op("and", record, 0xFFFFFFFF), number << 32), key)
        found = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(_CHOICES), key)
        known, unknown, on = b.block(), b.block(), b.block()
        b.branch(b.is_null(found), unknown, known, likely=False)
        b.start(known)
        b.store(b.load(found), result)
        b.jump(on)
        b.start(unknown)
        b.store(decide(), value)
        b.store(b.load(value), result)
        # When the map is full, it is decided each time.
        b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(_CHOICES), key, value, 0)
        b.jump(on)
        b.start(on)
        return b.load(result)

    # ------------------------------------------------------------------ objects

    def _argument(self, frame: Number, record: I64, name: str) -> I64:
        """The argument of a name; 0 if the function has none."""
        b, result = self.e.b, self.e.b.register()
        index = self._choice(record, name, lambda: parameter(self, name))
        b.store(0, result)
        with b.when(b.icmp("uge", index, CHOSEN)):
            value = self._variable(frame, b.sub(index, CHOSEN))
            b.store(value, result)
            # A variable of inner functions is in a cell.
            cell = b.icmp("eq", self.user(self.after_header(value, _TYPE)), self.call_word(CallWord.CELL_TYPE))
            with b.when(b.both(cell, b.truth(value)), likely=False):
                b.store(self.user(self.after_header(value, _CELL_VALUE)), result)
        return b.load(result)

    def _variable(self, frame: Number, index: Number) -> I64:
        b = self.e.b
        variables = b.add(frame, self.word(Word.FRAME_SIZE))
        return b.op("and", self.user(b.add(variables, b.op("shl", index, 3))), _OBJECT)

    def _result(self, frame: Number, instruction: I64, index: Number) -> I64:
        """The value that the function returned; 0 if an exception left it.

        RETURN_VALUE leaves it where the only value of the frame was, after its variables.
        """
        b, result = self.e.b, self.e.b.register()
        unit = self._original(self.user(instruction), index)
        b.store(0, result)
        with b.when(self._is(unit, 0, 2)):
            b.store(self._variable(frame, self.in_code(CallWord.CODE_LOCALS, 32)), result)
        with b.when(self._is(unit, 1, 3)):
            b.store(self._constant(instruction, unit, index), result)
        return b.load(result)

    def _original(self, unit: I64, index: Number) -> I64:
        """An instruction, or the one that INSTRUMENTED_LINE replaces for a tool that traces lines."""
        b, result = self.e.b, self.e.b.register()
        b.store(unit, result)
        with b.when(self._is(unit, 5), likely=False):
            data = self.in_code(CallWord.CODE_MONITORING)
            lines = self.user(b.add(data, self.call_word(CallWord.MONITORING_LINES)))
            entry = b.register()
            b.store(b.add(lines, b.op("shl", index, 1)), entry)
            with b.when(b.icmp("ne", self.call_word(CallWord.LINES_DATA), NONE)):
                size = b.op("and", self.user(lines), 0xFF)
                b.store(b.add(b.add(lines, self.call_word(CallWord.LINES_DATA)), b.mul(index, size)), entry)
            opcode = b.op("and", self.user(b.load(entry)), 0xFF)
            b.store(b.op("or", b.op("and", unit, 0xFF00), opcode), result)
        return b.load(result)

    def _is(self, unit: Number, *instructions: int) -> I1:
        """Whether an instruction is one of those at *instructions* in ``CallWord.OPCODES``."""
        b = self.e.b
        opcode, known = b.op("and", unit, 0xFF), self.call_word(CallWord.OPCODES)
        equal = [b.icmp("eq", opcode, b.op("and", b.op("lshr", known, 8 * place), 0xFF)) for place in instructions]
        first = equal[0]
        for other in equal[1:]:
            first = b.either(first, other)
        return first

    def _constant(self, instruction: I64, unit: Number, index: Number) -> I64:
        """The constant that an instruction names, by its argument and those of the instructions that extend it."""
        b, number, result = self.e.b, self.e.b.register(), self.e.b.register()
        b.store(b.op("and", b.op("lshr", unit, 8), 0xFF), number)
        on = b.block()
        for place in range(1, _EXTENDED + 1):
            b.jump_if(b.icmp("slt", index, place), on)
            before = self.user(b.sub(instruction, 2 * place))
            b.jump_unless(self._is(before, 4), on)
            more = b.op("shl", b.op("and", b.op("lshr", before, 8), 0xFF), 8 * place)
            b.store(b.op("or", b.load(number), more), number)
        b.jump(on)
        b.start(on)
        items = b.add(self.in_code(CallWord.CODE_CONSTANTS), self.call_word(CallWord.TUPLE_ITEMS))
        b.store(self.user(b.add(items, b.op("shl", b.load(number), 3))), result)
        return b.load(result)


class PythonCalls(Part):
    """What a program does before the body of a probe of a Python function."""

    def begin(self) -> None:
        """End the program unless it is at a function of the attach point; find what its body reads."""
        script, unit = self.script, self.program.unit
        if not script.walks_python:
            script.walks_python = True
            python_threads.declare(self.module, unit.span)
        if not script.python_choices:
            attributes = {"type": MapType.HASH, "key_size": 4, "value_size": CALL_ROW}
            self.module.map(_CALLS, {**attributes, "max_entries": python_threads.PROCESS_ENTRIES})
            self.module.map(
                _CHOICES, {"type": MapType.HASH, "key_size": 8, "value_size": 8, "max_entries": _CHOICE_ENTRIES}
            )
        scratch = self.program.scratch
        state, work = scratch.allocate(python_threads.STATE_SIZE), scratch.allocate(WORK_SIZE)
        objects = scratch.allocate(8 * (len(unit.context.arguments) + 2))
        site = script.layout.site(_SITE, location(unit.span))
        self.program.python = PythonCall(state, work, objects, site)
        done, on = self.b.block(), self.b.block()
        _Call(self.e, state, site, work, objects).find(done)
        self.b.jump(on)
        self.b.start(done)
        self.e.end()
        self.b.start(on)
        self.b.new_prologue()

    def frame(self) -> I64:
        """The address of the frame, which a call of the function has from its first to its last instruction."""
        assert self.program.python is not None
        place = self.program.python.objects + 8 * (len(self.program.unit.context.arguments) + 1)
        return self.b.load(self.e.area(place))

    def name(self) -> tuple[Ptr, I64]:
        """The state of the call, and the address of the function's qualified name."""
        assert self.program.python is not None
        state = self.e.area(self.program.python.state)
        return state, python_threads.in_head(self.b, state, Word.CODE_NAME)
