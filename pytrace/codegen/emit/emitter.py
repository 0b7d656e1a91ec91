"""The state of emitting one BPF function, and access to state that the program's functions share.

Callbacks of loops and copies of user functions get a *frame* from the entry function, words on its stack: the context
pointer, this CPU's block of per-CPU data, and where programs need them the scratch area and the hit's weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pytrace.codegen.emit.comparison import Comparison, Floats
from pytrace.codegen.emit.context import ProbeContext
from pytrace.codegen.emit.events import DeferredEvents, Events
from pytrace.codegen.emit.load_time import LoadTimeValues
from pytrace.codegen.emit.loops import Loops
from pytrace.codegen.emit.memory import ForeignMemory, OwnMemory, Strings
from pytrace.codegen.emit.program import CLAIM, COPIES, Loop, Program, Variable
from pytrace.codegen.emit.tasks import Tasks
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Builder
from pytrace.codegen.ir.module import PERCPU, SHARED
from pytrace.codegen.ir.values import CONTEXT, I1, I64, Memory, Number, Operand, Ptr, Scalar, global_pointer
from pytrace.core.diagnostics import InternalError
from pytrace.core.source import Span
from pytrace.core.types import INT64, VOID, AddressSpace, Type, Void
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import CheckedProgram, FunctionInfo, VariableInfo

_STACK_BUDGET = (160, 96, 48)
"""Bytes of stack objects in the entry function, in callbacks and functions, and in what these call in turn."""

_SPARING_BUDGET = (32, 16, 0)
"""The same for scripts that need more of the stack for LLVM's spills."""


def _changes(checked: CheckedProgram, node: nodes.Node) -> bool:
    """Whether evaluating *node* may assign to a variable or map of the script that is larger than a register."""
    return any(_assigns(checked, inner) for inner in walk(node))


def _assigns(checked: CheckedProgram, node: nodes.Node) -> bool:
    if isinstance(node, nodes.Call):
        return isinstance(checked.calls.get(node), FunctionInfo) or node.name in _CHANGING
    return isinstance(node, nodes.Assign)


_CHANGING = frozenset({"find", "delete"})
"""Builtins that modify memory from which a value may be read."""


Leave = Callable[["Emitter", Operand | None], None]


class Emitter:
    """Emits one function of a program."""

    def __init__(
        self,
        program: Program,
        b: Builder,
        span: Span,
        depth: int,
        frame: Ptr | None,
        *,
        leave: Leave | None = None,
        result_type: Type = INT64,
        early_result: int = 0,
        outer: Emitter | None = None,
    ) -> None:
        """Start a function.

        Args:
            program: the program that it belongs to.
            b: builder of the function.
            span: script location of its start.
            depth: number of functions that call each other around it.
            frame: its parameter for context and per-CPU data; None for the entry function.
            leave: emits ``return`` with a value; None where the script cannot return.
            result_type: type of the returned value.
            early_result: the program's result after :meth:`end_early`.
            outer: the emitter of the function around the loop of which this is the body.
        """
        self.program = program
        self.script = program.script
        self.checked = program.script.checked
        self.module = program.script.module
        self.b = b
        self.depth = depth
        self.open_loops: list[Loop] = []
        self.result_type: Type = result_type if outer is None else outer.result_type
        self._leave = leave
        self._early_result = early_result
        self.inner_returned = False
        self.part = False
        """Whether this function is a part of a long block, not the body of a loop."""
        self.variables: dict[VariableInfo, Variable] = {}
        self.reads: dict[nodes.Expr, Ptr] = {}
        """Registers with the values of map elements that are read again."""
        self._outer = outer
        self._returned: tuple[int, int] | None = None if outer is None else outer.returned
        self._source = span.source
        self._frame = frame
        self._entry = frame is None
        self._base: Ptr | None = None
        self._scratch: Ptr | None = None
        self._claimed: tuple[Ptr, I64] | None = None
        self.exit = self.b.block()
        self._result = self.b.register() if self._entry else None
        self._cpu: I64 | None = None
        self._context: Ptr | None = None
        self._cell: Ptr | None = None
        self._weight: Ptr | None = None
        self._temporaries: list[list[Callable[[], None]]] = [[]]
        self._spare: dict[int, list[Ptr]] = {}
        self.span = span
        self.node: nodes.Node = program.unit.body
        """The expression being evaluated, for reports of failed reads."""
        self.current_maps: dict[str, Ptr] = {}
        """The buffers in use of double-buffered maps."""
        self.kept: Ptr | None = None
        """What was kept of the context, where that of the hit is gone: registers of the call, or the record."""
        self.completing = False
        """Whether this completes an event of another program, beside which it runs."""
        self.task_work = False
        """Whether this is the callback of a task work, which may sleep."""
        self.failed_reads: Ptr | None = None
        """A register that is set to 1 where a string cannot be read, in place of a report."""
        self.atomic: bool = outer is not None and outer.atomic
        """Whether this function must not sleep."""
        self.contended = False
        """Whether another program on this CPU may interrupt the current update of an aggregate."""
        self.memory = OwnMemory(self)
        self.foreign = ForeignMemory(self)
        self.strings = Strings(self)
        self.comparison = Comparison(self)
        self.floats = Floats(self)
        self.loops = Loops(self)
        self.events = Events(self)
        self.deferred = DeferredEvents(self)
        self.probe = ProbeContext(self)
        self.tasks = Tasks(self)
        self.load_time = LoadTimeValues(self)
        self.set_location(span)

    @property
    def result(self) -> Ptr:
        """The stack slot of the entry function's result."""
        if self._result is None:
            raise InternalError("no result outside of an entry function")
        return self._result

    # ------------------------------------------------------------------ leaving from inside a loop

    def leave(self, value: Operand | None) -> None:
        """Return from the script's function, or end the program."""
        if self._leave is None:
            raise InternalError("return outside of a function")
        self._leave(self, value)

    @property
    def returned(self) -> tuple[int, int]:
        """Scratch offsets of the flag that a loop body has returned, and of the result."""
        if self._returned is None:
            scratch = self.program.scratch
            self._returned = (scratch.allocate(8), scratch.allocate(max(8, self.result_type.size)))
        return self._returned

    def leave_loop_body(self, value: Operand | None) -> None:
        """In the body of a loop, store the result of the function around it, and end the loop."""
        self.inner_returned = True
        flag, result = self.returned
        place, type_ = self.area(result), self.result_type
        if value is not None and not isinstance(type_, Void):
            self.memory.write(value, place, type_)
        else:
            self.memory.zero(place, 8)
        self.b.store(1, self.area(flag))
        self.b.ret(1)

    def leave_again(self) -> None:
        """After a loop whose body returned: return from the function, or end the enclosing loop."""
        if self._outer is not None:
            self.inner_returned = True
            self.b.ret(1)
            return
        place, type_ = self.area(self.returned[1]), self.result_type
        value: Operand | None = None
        if type_.scalar:
            value = self.memory.load(place, type_)
        elif not isinstance(type_, Void):
            value = Memory(place, type_)
        self.leave(value)

    # ------------------------------------------------------------------ script locations

    def set_location(self, span: Span) -> None:
        """Set the script location of the following instructions to *span*."""
        self.span = span
        self.b.location = self.module.debug.location(self.b.scope, span, self._source)

    @contextmanager
    def at_node(self, node: nodes.Node) -> Iterator[None]:
        """The script location of the ``with`` block is *node*, whose value is emitted where it is needed."""
        around, location = self.node, self.b.location
        self.node = node
        self.set_location(node.span)
        yield
        self.node, self.b.location = around, location

    # ------------------------------------------------------------------ state that the program's functions share

    @property
    def cpu(self) -> I64:
        """Number of this CPU (programs do not migrate)."""
        if self._cpu is None:
            with self.b.at_prologue():
                self._cpu = self.b.helper(helpers.GET_SMP_PROCESSOR_ID)
        return self._cpu

    @property
    def base(self) -> Ptr:
        """This CPU's block of per-CPU data."""
        if self._base is None:
            with self.b.at_prologue():
                if self._entry:
                    self._base = self._block_of(self.cpu)
                else:
                    self._base = self.b.load_pointer(self.b.offset(self._require_frame(), 8))
        return self._base

    def _block_of(self, cpu: I64) -> Ptr:
        self.script.layout.addressed = True
        # The mask tells the verifier that the index is in bounds.
        masked = self.b.op("and", cpu, self.script.layout.copies - 1)
        if self.script.layout.digested and self.script.layout.copies == 2:
            # LLVM turns one bit times a number into a branch, and the verifier would follow what comes next twice.
            masked = self.b.opaque(masked)
        return self.b.offset(global_pointer(PERCPU), self.b.mul(masked, self.module.late("stride")))

    @property
    def _base_here(self) -> Ptr:
        """:attr:`base`, but computed here if it is not known, for code that seldom runs."""
        if self._base is not None or not self._entry:
            return self.base
        return self._block_of(self.b.helper(helpers.GET_SMP_PROCESSOR_ID))

    def _require_frame(self) -> Ptr:
        if self._frame is None:
            raise InternalError("no frame")
        return self._frame

    @property
    def frame(self) -> Ptr:
        """Pointer to context and per-CPU base, the argument of callbacks and functions."""
        if self._frame is None:
            base = self.base
            scratch = self._scratch_start if self.program.preemptible else None
            weight = self.weight if self.program.weighted else None
            frame = self.b.alloca(32 if weight is not None else 16 if scratch is None else 24)
            with self.b.at_prologue():
                self.b.store_pointer(self.raw_context, frame)
                self.b.store_pointer(base, self.b.offset(frame, 8))
                if scratch is not None:
                    self.b.store_pointer(scratch, self.b.offset(frame, 16))
                if weight is not None:
                    self.b.store_pointer(weight, self.b.offset(frame, 24))
            self._frame = frame
        return self._frame

    @property
    def weight(self) -> Ptr:
        """Eight bytes with the weight of this hit (``codegen.lower.map_access``), which the entry function has."""
        if self._weight is None:
            if self._entry:
                self._weight = self.b.alloca(8)
            else:
                with self.b.at_prologue():
                    self._weight = self.b.load_pointer(self.b.offset(self._require_frame(), 24))
        return self._weight

    @property
    def raw_context(self) -> Ptr:
        """The context pointer, for helpers."""
        if self.kept is not None:
            return self.kept
        if self._entry:
            return CONTEXT
        if self._context is None:
            with self.b.at_prologue():
                self._context = self.b.load_pointer(self._require_frame())
        return self._context

    @property
    def context(self) -> Ptr:
        """The context pointer, for loads."""
        return self.b.unfolded(self.raw_context)

    def area(self, offset: int) -> Ptr:
        """A pointer into the program's scratch area."""
        return self.b.offset(self._scratch_start, offset)

    @property
    def _scratch_start(self) -> Ptr:
        area = self.program.area
        if not self.program.preemptible:
            return self.b.offset(self.base, self.module.late(f"area.{area}"))
        if self._scratch is None:
            if self._entry:
                self._scratch = self._claim(area)
            else:
                with self.b.at_prologue():
                    self._scratch = self.b.load_pointer(self.b.offset(self._require_frame(), 16))
        return self._scratch

    def _claim(self, area: str) -> Ptr:
        """Claim one of the area's copies; when none is free, the program ends and a missed hit is counted.

        The word at the start of the area is a bitmap of the copies in use on this CPU.
        """
        b, base = self.b, self.base
        with b.at_prologue():
            word = b.offset(base, self.module.late(f"area.{area}"))
            used = b.load(word)
            low = [b.number(b.icmp("eq", b.op("and", used, mask), mask)) for mask in (1, 3, 7)]
            index = b.op("and", b.add(b.add(low[0], low[1]), low[2]), COPIES - 1)
            bit = b.op("shl", 1, index)
            in_use = b.op("and", b.fetch("or", word, bit), bit)
            with b.unlikely(b.icmp("eq", in_use, 0), "copy", when=False):
                self.counter("missed", self.program.index)
            self._claimed = (word, bit)
            start = b.offset(word, CLAIM)
            return b.offset(start, b.mul(index, self.module.late(f"size.{area}")))

    @property
    def copies_in_use(self) -> Ptr:
        """The bitmap of the area's copies that are in use on this CPU."""
        return self.b.offset(self._base_here, self.module.late(f"area.{self.program.area}"))

    def end_early(self, condition: I1, *, counted: str = "") -> None:
        """End the program unless *condition* holds; values that only later code needs are computed after this.

        *counted* is the counter of the program to increment then.
        """
        with self.b.unless(condition, likely=True):
            if counted:
                self.counter(counted, self.program.index)
            self.end()
        self.b.new_prologue()

    def end(self) -> None:
        """End the program here."""
        if self._claimed is None:
            self.b.ret(self._early_result)
        else:
            self.leave(None)

    def finish(self) -> None:
        """Emit the exit of the entry function, which releases scratch memory."""
        self.b.start(self.exit)
        if self._claimed is not None:
            word, bit = self._claimed
            self.b.fetch("and", word, self.b.op("xor", bit, -1))
        self.b.ret(self.b.load(self.result))

    def counter(self, kind: str, subject: int, by: Number = 1) -> I64:
        """Add *by* to a failure counter. Returns the previous count on this CPU.

        Programs that share a counter may interrupt each other, so the addition is atomic, unless *by* is computed in
        every run: such a counter belongs to one program.
        """
        base = self._base_here if by == 1 else self.base
        counters = self.b.offset(base, self.module.late("counters"))
        place = self.b.offset(counters, self.script.layout.counter(kind, subject))
        if by == 1 or self.program.preemptible or self.completing:
            return self.b.fetch("add", place, by)
        before = self.b.load(place)
        self.b.store(self.b.add(before, by), place)
        return before

    def count_cut(self, cut: I1) -> None:
        """Count a truncated string if the ``i1`` *cut* is set.

        There is no branch, as the verifier would follow both paths for each string of an event.
        """
        self.counter("cut", self.program.index, self.b.number(cut))

    # ------------------------------------------------------------------ memory

    @contextmanager
    def temporaries(self) -> Iterator[None]:
        """Free memory from :meth:`temporary` calls in the ``with`` block at its end."""
        self._temporaries.append([])
        yield
        for release in self._temporaries.pop():
            release()

    def temporary(self, size: int) -> Ptr:
        """Memory for a value, valid until the end of the statement."""
        size = max(8, (size + 7) & ~7)
        spare = self._spare.setdefault(size, [])
        if spare or self._fits_stack(size):
            place = spare.pop() if spare else self.b.alloca(size)
            self._temporaries[-1].append(lambda: spare.append(place))
            return place
        scratch = self.program.scratch
        offset = scratch.allocate(size)
        self._temporaries[-1].append(lambda: scratch.release(offset, size))
        return self.area(offset)

    def reserve(self, size: int) -> int:
        """Scratch offset of memory valid until the end of the statement; callbacks access it through :meth:`area`."""
        scratch = self.program.scratch
        offset = scratch.allocate(size)
        self._temporaries[-1].append(lambda: scratch.release(offset, size))
        return offset

    def scratch(self, size: int) -> Ptr:
        """Like :meth:`temporary`, but never on the stack."""
        return self.area(self.reserve(size))

    def _fits_stack(self, size: int) -> bool:
        budget = (_SPARING_BUDGET if self.script.sparing else _STACK_BUDGET)[min(self.depth, len(_STACK_BUDGET) - 1)]
        return size <= self.script.stack_limit and self.b.function.stack + size <= budget

    @property
    def cell(self) -> Ptr:
        """Eight bytes of stack, for a scalar that a helper writes and the next instruction loads."""
        if self._cell is None:
            self._cell = self.b.alloca(8)
        return self._cell

    def session(self, offset: int) -> Ptr:
        """Address of a value of the running session; *offset* is one of ``emit.program.SESSION``."""
        self.script.uses_session = True
        return self.b.offset(global_pointer(SHARED), offset)

    def launder(self, value: Number) -> I64:
        """The same number, opaque to the verifier: a pointer becomes an integer on which it allows arithmetic."""
        return self.b.through(value, self.scratch(8))

    # ------------------------------------------------------------------ variables

    def variable(self, info: VariableInfo) -> Variable:
        """The storage of a variable; decided on first use."""
        shared = info in self.program.shared
        variables = self.program.variables if shared else self.variables
        storage = variables.get(info)
        if storage is None:
            storage = variables[info] = self._place(info, shared)
        return storage

    def _place(self, info: VariableInfo, shared: bool) -> Variable:
        type_ = info.type
        if type_.scalar and not shared:
            register = self.b.register()
            with self.b.at_prologue():
                self.b.store(0, register)
            return Variable(type_, register=register)
        if not shared and self._fits_stack(type_.size):
            stack = self.b.alloca(type_.size)
            return Variable(type_, stack=stack)
        return Variable(type_, offset=self.program.scratch.allocate(type_.size))

    def variable_pointer(self, info: VariableInfo) -> Ptr:
        """Address of a variable that lives in memory (or of its register slot)."""
        place = self.variable(info)
        if place.offset is not None:
            return self.area(place.offset)
        pointer = place.stack or place.register
        if pointer is None:
            raise InternalError(f"variable ${info.name} has no address")
        return pointer

    # ------------------------------------------------------------------ expressions

    def value(self, node: nodes.Expr) -> Operand:
        """Evaluate an expression (:class:`pytrace.codegen.lower.statements.ScriptEmitter` does)."""
        raise InternalError(f"no code for {type(node).__name__} outside of the script's functions")

    def run_block(self, node: nodes.Block, type_: Type = VOID) -> Operand | None:
        """Emit a block (:class:`pytrace.codegen.lower.statements.ScriptEmitter` does). Returns its value if
        *type_* is not void.
        """
        raise InternalError(f"no {type(node).__name__} of type {type_} outside of the script's functions")

    def number(self, node: nodes.Expr) -> Number:
        """Evaluate a scalar expression to an ``i64``."""
        return self.memory.number(self.value(node))

    def in_order(self, expressions: Sequence[nodes.Expr]) -> list[Operand]:
        """The values of several expressions in source order, each unaffected by evaluating the next ones.

        Large values are written to their destination member by member: ``$t = ($t.1, $t.0)`` would read what it has
        just written, and in ``($s, { $s = "b"; 1 })`` the first member would be read too late.
        """
        operands = []
        for index, node in enumerate(expressions):
            operand = self.value(node)
            if operand.type.scalar:
                operand = Scalar(self.memory.number(operand), operand.type)
            elif any(_changes(self.checked, later) for later in expressions[index + 1 :]):
                operand = self.memory.copied(operand)
            operands.append(operand)
        return operands

    def type(self, node: nodes.Expr) -> Type:
        """Type of an expression."""
        return self.checked.types[node]

    def place(self, operand: Operand) -> Memory:
        """The operand in the program's memory."""
        return self.memory.place(operand)

    @property
    def space(self) -> AddressSpace:
        """The address space of pointers without one, in this probe."""
        return self.program.unit.kind.space
