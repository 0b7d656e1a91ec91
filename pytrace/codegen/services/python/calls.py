"""Probes of Python functions: what a program does before its body (x86-64, CPython 3.11 and later).

Programs run at each RESUME instruction, or for each frame that ends, of a process. They go on if the function is the
one of the attach point. That is decided once for each code object, by its names, and remembered by the number of its
record (:mod:`.python_records`); so is which variable an argument is. Then the objects are looked up that the body
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import PythonCall, Script
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.values import I1, I64, Number, Ptr, global_pointer
from pytrace.codegen.services.python import names as python_names
from pytrace.codegen.services.python import records
from pytrace.codegen.services.python.names import CHOSEN, REFUSED, CalledCode
from pytrace.core.manifest import MapType, PythonMaps
from pytrace.core.probes.targets import PythonTarget
from pytrace.core.stacks.python_format import CALL_ROW, NONE, CallWord, Word
from pytrace.frontend.syntax.typed_program import location

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


def maps(script: Script) -> PythonMaps | None:
    """The maps of a script that follows interpreters."""
    if not script.walks_python:
        return None
    plain = records.MAPS
    calls = _CALLS if script.python_choices else ""
    return PythonMaps(plain.processes, plain.codes, plain.names, plain.cursor, calls)


def begin(e: Emitter) -> None:
    """End the program unless it is at a function of the attach point; find what its body reads."""
    script, unit = e.script, e.program.unit
    if not script.walks_python:
        script.walks_python = True
        records.declare(e.module, unit.span)
    if not script.python_choices:
        attributes = {"type": MapType.HASH, "key_size": 4, "value_size": CALL_ROW}
        e.module.map(_CALLS, {**attributes, "max_entries": records.PROCESS_ENTRIES})
        e.module.map(
            _CHOICES, {"type": MapType.HASH, "key_size": 8, "value_size": 8, "max_entries": _CHOICE_ENTRIES}
        )
    scratch = e.program.scratch
    state, work = scratch.allocate(records.STATE_SIZE), scratch.allocate(python_names.WORK_SIZE)
    objects = scratch.allocate(8 * (len(unit.context.arguments) + 1))
    site = script.layout.site(_SITE, location(unit.span))
    e.program.python = PythonCall(state, work, objects, site)
    done, on = e.b.block(), e.b.block()
    _Call(e, state, site, work, objects).find(done)
    e.b.jump(on)
    e.b.start(done)
    e.end()
    e.b.start(on)
    e.b.new_prologue()


class _Call(CalledCode, frozen=True):
    """*objects* is the scratch offset of the objects."""

    objects: int

    def find(self, done: Block) -> None:
        """Jump to *done* if the body is not to run."""
        b, unit = self.e.b, self.e.program.unit
        place = unit.targets[0].of(PythonTarget)
        self.load_row(done)
        b.copy(self.e.area(self.work), self.row(_CALLS, done), CALL_ROW)
        thread, frame = (0, self._ending_frame()) if unit.kind.returns else self.innermost(done)
        code, instruction = self._code(frame, done)
        index = self.unit_index(code, instruction)
        if unit.kind.returns:
            b.jump_if(b.icmp("slt", index, self._begun()), done)
        else:
            first = b.add(self.in_code(CallWord.CODE_FIRST, 32), self.call_word(CallWord.ENTRY_SLACK))
            b.jump_unless(b.icmp("slt", index, first), done)
            self._skip_repeated(thread, done)
        record = b.call(records.CODE_FUNCTION, [self.area(0)])
        with b.when(b.icmp("eq", record, 0), likely=False):
            self.e.counter("python_names", self.site)
            b.jump(done)
        chosen = self._choice(record, place, lambda: python_names.matches(self, place))
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
        b, buffer, head = self.e.b, self.area(records.STATE_BUFFER), self.area(records.STATE_HEAD)
        size = b.at_most(self.word(Word.FRAME_SIZE), records.BUFFER_SIZE)
        self.fail_unless(b.icmp("eq", b.helper(helpers.PROBE_READ_USER, buffer, size, frame), 0), done)
        code, instruction = b.op("and", self.member(Word.FRAME_CODE), _OBJECT), self.member(Word.FRAME_INSTRUCTION)
        length = b.at_most(self.word(Word.CODE_SIZE), records.HEAD_SIZE)
        self.fail_unless(b.icmp("eq", b.helper(helpers.PROBE_READ_USER, head, length, code), 0), done)
        self.fail_unless(self.is_code(), done)
        b.store(code, self.area(records.STATE_KEY + records.KEY_CODE))
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
        index = self._choice(record, name, lambda: python_names.parameter(self, name))
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
        equal = [
            b.icmp("eq", opcode, b.op("and", b.op("lshr", known, 8 * place), 0xFF)) for place in instructions
        ]
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


def name(e: Emitter) -> tuple[Ptr, I64]:
    """The state of the call, and the address of the function's qualified name."""
    assert e.program.python is not None
    state = e.area(e.program.python.state)
    return state, records.in_head(e.b, state, Word.CODE_NAME)
