"""Lowering of expressions: by node class, calls of builtins and of user functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import ClassVar

from pytrace.base.dispatch import handlers, handles, methods
from pytrace.codegen.emit import comparison, events, memory
from pytrace.codegen.emit.bodies import Arm, Chain
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import Part
from pytrace.codegen.ir.builder import Block
from pytrace.codegen.ir.values import I1, Made, Memory, Nothing, Number, Operand, Parts, Ptr, Remote, Scalar
from pytrace.codegen.lower.maps import Maps
from pytrace.codegen.lower.operators import Members, Operators
from pytrace.codegen.walkers.program_filters import CallParts
from pytrace.codegen.walkers.python_calls import PythonCalls
from pytrace.core.builtins import JOINED, Builtin, Mode
from pytrace.core.diagnostics import InternalError
from pytrace.core.probe_kinds import PYTHON_KINDS
from pytrace.core.types import UINT8, UINT64, VOID, Array, Bool, Float, Int, Pointer, String, Struct, Type, USym, Void
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import (
    FunctionInfo,
    ImportedFunction,
    TypeDescription,
)

FAMILIES = frozenset(
    (
        *("context", "control", "map", "meta", "network", "output"),
        *("process", "python", "stack", "string", "symbol", "time"),
    )
)


class Builtins(Part):
    """Lowers the builtins of one family: a method for each.

    An asynchronous builtin that none handles only sends its event.
    """

    @property
    def expressions(self) -> Expressions:
        """What evaluates expressions; of many builtins none needs it, and it has all rules."""
        return Expressions(self.e)

    def argument(self, node: nodes.Call, index: int = 0) -> Number:
        """A scalar argument."""
        item = node.args[index]
        if not isinstance(item, nodes.Expr):
            raise InternalError(f"{node.name} takes values")
        operand = self.e.value(item)
        if not operand.type.scalar:
            value = self.e.place(operand)
            return self.b.load(value.pointer)
        return self.e.memory.number(operand)

    def word(self, value: Number, type_: Type) -> Operand:
        """A 64-bit value."""

        def write(pointer: Ptr, _align: int) -> None:
            self.b.store(value, pointer)

        return Made(type_, write)


def family_of(row: Builtin) -> type[Builtins]:
    """The class that lowers a builtin. Its module is imported when a script uses one of the family: that starts
    faster.
    """
    if row.family == "aggregate":
        return Builtins
    if row.family not in FAMILIES:
        raise LookupError(f"builtin {row.name} is of the unknown family {row.family!r}")
    module = import_module(f"pytrace.codegen.lower.{JOINED.get(row.family, row.family)}_family")
    family: type[Builtins] = getattr(module, f"{row.family.title()}Builtins")
    return family


class Expressions(Part):
    """Lowers expressions, and calls of builtins and of user functions."""

    def __init__(self, e: Emitter) -> None:
        super().__init__(e)
        self.maps = Maps(e)
        self.members = Members(e)
        self.operators = Operators(e)
        self._emit: Mapping[type[nodes.Expr], Callable[[nodes.Expr], Operand]] = {
            **handlers(self), **handlers(self.maps), **handlers(self.members), **handlers(self.operators)
        }  # fmt: skip

    def evaluate(self, node: nodes.Expr) -> Operand:
        """The value of *node*."""
        checked = self.checked
        if node in checked.constants:
            return self.constant(checked.constants[node], checked.types[node])
        if node in checked.loaded:
            return self.e.load_time.operand(checked.loaded[node], checked.types[node])
        emit = self._emit.get(type(node))
        if emit is None:
            raise InternalError(f"no code for {type(node).__name__}")
        saved, around = self.b.location, self.e.node
        self.e.set_location(node.span)
        self.e.node = node
        operand = emit(node)
        self.b.location, self.e.node = saved, around
        return operand

    def constant(self, value: int | bool | bytes, type_: Type) -> Operand:
        """A constant."""
        if isinstance(value, bytes):
            return Memory(self.module.constant(value[: type_.size].ljust(type_.size, b"\0")), type_)
        number = int(value)
        if number >= 1 << 63:
            number -= 1 << 64
        return Scalar(number, type_)

    @handles(nodes.IntLiteral, nodes.BoolLiteral, nodes.StringLiteral)
    def _literal(self, node: nodes.IntLiteral | nodes.BoolLiteral | nodes.StringLiteral) -> Operand:
        return self.constant(node.value, self.e.type(node))

    @handles(nodes.FloatLiteral)
    def _fraction(self, node: nodes.FloatLiteral) -> Operand:
        return Scalar(comparison.bits_of(node.value), self.e.type(node))

    @handles(nodes.Variable)
    def _variable(self, node: nodes.Variable) -> Operand:
        info = self.checked.variables[node]
        place = self.e.variable(info)
        if place.register is not None:
            return Scalar(self.b.load(place.register), info.type)
        pointer = self.e.variable_pointer(info)
        if info.type.scalar:
            type_ = info.type
            return Scalar(
                self.b.load(pointer, memory.bits(type_), memory.is_signed(type_), again=self.script.sparing), type_
            )
        return Memory(pointer, info.type)

    @handles(nodes.Unary)
    def _unary(self, node: nodes.Unary) -> Operand:
        return self._UNARY[node.operator](self, node)

    def _not(self, node: nodes.Unary) -> Operand:
        zero = self.b.icmp("eq", self.e.number(node.operand), 0)
        return Scalar(self.b.number(zero), self.e.type(node))

    def _negate(self, node: nodes.Unary) -> Operand:
        type_ = self.e.type(node)
        if isinstance(type_, Float):
            return Scalar(self.e.floats.negated(self.e.value(node.operand)), type_)
        return Scalar(self.b.sub(0, self.e.number(node.operand)), self.e.type(node))

    def _invert(self, node: nodes.Unary) -> Operand:
        return Scalar(self.b.op("xor", self.e.number(node.operand), -1), self.e.type(node))

    def _follow(self, node: nodes.Unary) -> Operand:
        return self.members.follow(self.e.value(node.operand), self.e.type(node.operand), self.e.type(node))

    def _address_of(self, node: nodes.Unary) -> Operand:
        type_, operand = self.e.type(node), node.operand
        if isinstance(operand, nodes.Variable):
            pointer = self.e.variable_pointer(self.checked.variables[operand])
            return Scalar(self.b.address(pointer), type_, direct=True)
        if isinstance(operand, nodes.MapRef | nodes.MapIndex):
            # It may be null, and the verifier forbids arithmetic on such a pointer: convert it to a number.
            return Scalar(self.e.launder(self.b.address(self.maps.address(operand))), type_)
        value = self.e.value(operand)
        if isinstance(value, Remote):
            return Scalar(value.address, type_)
        return Scalar(self.b.address(self.e.place(value).pointer), type_)

    def _step(self, node: nodes.Unary) -> Operand:
        type_ = self.e.type(node)
        amount = type_.target.size or 1 if isinstance(type_, Pointer) else 1
        by = amount if node.operator == "++" else -amount
        if isinstance(node.operand, nodes.MapRef | nodes.MapIndex):
            return self.maps.step(node.operand, by, type_, node.postfix)
        old = self.e.number(node.operand)
        new = self.e.memory.fit(self.b.add(old, by), type_)
        self.store_variable(node.operand, Scalar(new, type_))
        return Scalar(old if node.postfix else new, type_)

    def store_variable(self, node: nodes.Expr, operand: Operand) -> None:
        """Assign to a variable."""
        if not isinstance(node, nodes.Variable):
            raise InternalError(f"cannot assign to {type(node).__name__}")
        info = self.checked.variables[node]
        place = self.e.variable(info)
        if place.register is not None:
            value = self.e.memory.convert(operand, info.type)
            self.b.store(self.e.memory.number(value), place.register)
            return
        self.e.memory.write(operand, self.e.variable_pointer(info), info.type)

    @handles(nodes.Ternary)
    def _ternary(self, node: nodes.Ternary) -> Operand:
        constant = self.checked.constants.get(node.condition)
        if constant is not None:
            chosen = node.other if not constant else (node.then or node.condition)
            return self.e.memory.convert(self.e.value(chosen), self.e.type(node))
        if self.e.type(node).scalar and self._continues(node, node.other):
            return self._chain(node)
        first = self.e.value(node.condition)
        held = Scalar(self.e.memory.number(first), first.type) if node.then is None else None
        condition = self.b.truth(held.value) if held is not None else self.e.memory.truth(first)
        then = (lambda: held) if held is not None else (lambda: self.e.value(node.then) if node.then else None)
        return self.choose(condition, then, lambda: self.e.value(node.other), self.e.type(node))

    def _continues(self, node: nodes.Ternary, other: nodes.Expr) -> bool:
        """Whether *other*, of ``a ? b : other``, is another conditional of the same type."""
        return (
            isinstance(other, nodes.Ternary)
            and node.then is not None
            and other.then is not None
            and not {other, other.condition} & self.checked.constants.keys()
            and self.e.type(other) == self.e.type(node)
        )

    def _chain(self, node: nodes.Ternary) -> Operand:
        """``a ? b : c ? d : …`` with one join block for all branches: LLVM is slow with hundreds of nested ones."""
        type_, done = self.e.type(node), self.b.block()
        ways: list[tuple[Number, Block]] = []

        def meet(value: nodes.Expr) -> None:
            ways.append((self.e.memory.number(self.e.memory.convert(self.e.value(value), type_)), self.b.current))
            self.b.jump(done)

        link: nodes.Expr = node
        while isinstance(link, nodes.Ternary) and link.then is not None:
            with self.b.when(self.e.memory.truth(self.e.value(link.condition))):
                meet(link.then)
            if not self._continues(link, link.other):
                break
            link = link.other
        meet(link.other if isinstance(link, nodes.Ternary) else link)
        self.b.start(done)
        return Scalar(self.b.phi(ways), type_)

    def choose(
        self,
        condition: I1,
        then: Callable[[], Operand | None],
        other: Callable[[], Operand | None],
        type_: Type,
    ) -> Operand:
        """The value of one of two branches, converted to *type_*; a branch that returns None does not reach its end."""
        first, second, done = self.b.block(), self.b.block(), self.b.block()
        target = None if type_.scalar or isinstance(type_, Void) else self.e.temporary(type_.size)
        self.b.branch(condition, first, second)
        ways: list[tuple[Number, Block]] = []
        for block, branch in ((first, then), (second, other)):
            self.b.start(block)
            operand = branch()
            if not self.b.closed:
                if target is not None and operand is not None:
                    self.e.memory.write(operand, target, type_)
                elif type_.scalar and operand is not None:
                    value = self.e.memory.number(self.e.memory.convert(operand, type_))
                    ways.append((value, self.b.current))
                self.b.jump(done)
        self.b.start(done)
        if target is not None:
            return Memory(target, type_)
        if not type_.scalar:
            return Nothing(VOID)
        return Scalar(self.b.phi(ways) if ways else 0, type_)

    @handles(nodes.If)
    def _if(self, node: nodes.If) -> Operand:
        type_ = self.checked.types.get(node, VOID)
        chain = self.program.plan.chains.get(node)
        if chain is not None:
            self._long_chain(node, chain)
            return Nothing(VOID)

        def run(block: nodes.Block | nodes.If | None) -> Operand | None:
            if isinstance(block, nodes.If):
                return self.e.value(block)
            return self.e.run_block(block, type_) if block is not None else None

        constant = self.checked.constants.get(node.condition)
        if constant is not None:
            return run(node.then if constant else node.other) or Nothing(VOID)
        with self.e.temporaries():
            condition = self.e.memory.truth(self.e.value(node.condition))
        return self.choose(condition, lambda: run(node.then), lambda: run(node.other), type_)

    def _long_chain(self, node: nodes.If, chain: Chain) -> None:
        """``if … else if …`` with groups of branches in functions, each of which returns whether a branch was taken."""
        none = self.e.reserve(8)
        done = self.b.block()
        for group in chain.groups:
            self.b.store(0, self.e.area(none))

            def body(inner: Emitter, arms: tuple[Arm, ...] = group) -> None:
                Expressions(inner)._arms(arms, none)

            self.e.loops.in_function(node.span, body)
            self.b.jump_unless(self.b.truth(self.b.load(self.e.area(none))), done)
        if chain.other is not None:
            self.e.run_block(chain.other)
        self.b.jump(done)
        self.b.start(done)

    def _arms(self, arms: tuple[Arm, ...], none: int) -> None:
        """Run the first branch of *arms* whose condition holds; if none does, set a flag at the scratch offset
        *none*.
        """
        done = self.b.block()
        for arm in arms:
            with self.e.temporaries():
                condition = self.e.memory.truth(self.e.value(arm.condition))
            with self.b.when(condition):
                self.e.run_block(arm.then)
                self.b.jump(done)
        self.b.store(1, self.e.area(none))
        self.b.jump(done)
        self.b.start(done)

    @handles(nodes.BlockExpr)
    def _block(self, node: nodes.BlockExpr) -> Operand:
        return self.e.run_block(node.block, self.checked.types.get(node, VOID)) or Nothing(VOID)

    @handles(nodes.Cast)
    def _cast(self, node: nodes.Cast) -> Operand:
        return self.cast(self.e.value(node.operand), self.e.type(node))

    def cast(self, operand: Operand, type_: Type) -> Operand:
        """An explicit conversion."""
        source = operand.type
        if isinstance(type_, Pointer) and isinstance(source, Array | String):
            return Scalar(self._array_address(operand), type_)
        if isinstance(type_, Pointer) and isinstance(source, Int) and source.signed:
            # As in bpftrace: the upper bytes of an address are zero, also of a negative number.
            operand = self.e.memory.convert(operand, Int(source.width, signed=False))
        if isinstance(source, Float) and isinstance(type_, Int):
            return Scalar(self.e.floats.to_integer(operand, type_), type_)
        if isinstance(source, Float) and isinstance(type_, Float):
            return Scalar(self.e.floats.double(operand), type_) if source != type_ else operand
        if isinstance(type_, Bool) and isinstance(source, String):
            # A string is true if it is not empty.
            return self.e.memory.convert(self.e.memory.load(self.e.place(operand).pointer, UINT8), type_)
        if isinstance(type_, Int) and isinstance(source, USym):
            # The address; the process id stands after it.
            return self.e.memory.convert(self.e.memory.load(self.e.place(operand).pointer, UINT64), type_)
        if isinstance(type_, Array) and source.scalar and isinstance(type_.element, Int | Bool):
            pointer = self.e.temporary(8)
            self.b.store(self.e.memory.number(operand), pointer)
            return Memory(pointer, type_)
        if isinstance(type_, Array) and isinstance(source, String):
            text = self.e.memory.convert(operand, String(type_.size))
            return Memory(self.e.place(text).pointer, type_)
        if isinstance(type_, Array | Struct) and isinstance(operand, Memory):
            return Memory(operand.pointer, type_, operand.align)
        if isinstance(type_, Array | Struct) and isinstance(operand, Remote):
            return Remote(operand.address, type_, operand.space, operand.direct)
        if isinstance(type_, String) and isinstance(source, Array):
            return self.e.memory.convert(memory.as_string(operand, source.size), type_)
        return self.e.memory.convert(operand, type_)

    def _array_address(self, operand: Operand) -> Number:
        """The address of an array, as an integer."""
        if isinstance(operand, Remote):
            return self.e.launder(operand.address) if operand.direct else operand.address
        return self.e.launder(self.b.address(self.e.place(operand).pointer))

    @handles(nodes.TupleLiteral, nodes.RecordLiteral)
    def _tuple(self, node: nodes.TupleLiteral | nodes.RecordLiteral) -> Operand:
        return self.members_in_order(self.e.type(node), node.members)

    def members_in_order(self, type_: Type, values: tuple[nodes.Expr, ...]) -> Operand:
        """A value of type *type_* with the members *values*, evaluated in order."""
        if len(values) <= events.IN_REGISTERS:
            return Parts(type_, tuple(self.e.in_order(values)))
        # There are too many members for registers and stack.
        types, offsets, _ = memory.members_of(type_)
        pointer = self.e.scratch(type_.size)
        self.e.memory.zero(pointer, type_.size)
        for member, of, offset in zip(values, types, offsets, strict=True):
            with self.e.temporaries():
                self.e.memory.write(self.e.value(member), self.b.offset(pointer, offset), of, memory.natural(8, offset))
        return Memory(pointer, type_)

    @handles(nodes.TupleAccess)
    def _tuple_access(self, node: nodes.TupleAccess) -> Operand:
        return self.e.memory.member_of(self.e.value(node.base), node.index)

    @handles(nodes.Comptime)
    def _comptime(self, node: nodes.Comptime) -> Operand:
        return self.e.value(node.operand)

    @handles(nodes.TypeInfo)
    def _type_info(self, node: nodes.TypeInfo) -> Operand:
        return self.e.value(self.checked.fact(node, TypeDescription).record)

    @handles(nodes.Identifier, nodes.Call)
    def call(self, node: nodes.Identifier | nodes.Call) -> Operand:
        """Lower a call, or a builtin's bare name."""
        target = self.checked.calls[node]
        if isinstance(target, FunctionInfo):
            if not isinstance(node, nodes.Call):
                raise InternalError(f"{target.name} without arguments")
            return self._call_function(node, target)
        if isinstance(target, ImportedFunction):
            if not isinstance(node, nodes.Call):
                raise InternalError(f"{target.name} without arguments")
            return self._call_imported(node, target)
        return self.builtin(node, target)

    def builtin(self, node: nodes.Identifier | nodes.Call, row: Builtin) -> Operand:
        """Lower a builtin by the table of its family; an asynchronous one without an entry sends its event."""
        family = family_of(row)(self.e)
        emit: Callable[[Builtins, nodes.Identifier | nodes.Call], Operand] | None = methods(type(family)).get(row.name)
        if emit is not None:
            return emit(family, node)
        if row.mode is not Mode.ASYNC:
            raise InternalError(f"no code for builtin {row.name}")
        self.e.events.send_node(node)
        return Nothing(VOID)

    # ---------------------------------------------------------------------------------------------- user functions

    def _call_function(self, node: nodes.Call, target: FunctionInfo) -> Operand:
        """Call a user function. Arguments are passed in scratch memory: any number, any type, no recursion."""
        operands = self.e.in_order([item for item in node.args if isinstance(item, nodes.Expr)])
        placed = [item if item.type.scalar else self.e.memory.place(item) for item in operands]
        for info, operand in zip(target.parameters, placed, strict=True):
            self.e.memory.write(operand, self.e.variable_pointer(info), info.type)
        name = self.program.functions[target]
        result = self.b.call(name, [self.e.frame])
        if isinstance(target.result, Void):
            return Nothing(VOID)
        if target.result.scalar:
            return Scalar(result, target.result)
        pointer = self.e.temporary(target.result.size)
        self.e.memory.copy(pointer, self.e.area(self.program.results[target]), target.result.size)
        return Memory(pointer, target.result)

    def _call_imported(self, node: nodes.Call, target: ImportedFunction) -> Operand:
        """Call an imported C function: arguments are in registers; strings and structs are passed by address."""
        operands = [self.e.value(item) for item in node.args if isinstance(item, nodes.Expr)]
        values = [
            self._register(operand, type_) for operand, (_, type_) in zip(operands, target.parameters, strict=True)
        ]
        self.module.imported_function(target.name, tuple(type_ for _, type_ in target.parameters), target.result)
        result = self.b.call(target.name, numbers=values)
        if isinstance(target.result, Void):
            return Nothing(VOID)
        # C leaves the upper bits of a narrow result undefined.
        return Scalar(self.e.memory.fit(result, target.result), target.result)

    def _register(self, operand: Operand, type_: Type) -> Number:
        if isinstance(operand, Scalar) and operand.direct:
            return operand.value
        if isinstance(operand, Remote) and not operand.type.scalar:
            return operand.address
        if operand.type.scalar:
            return self.e.memory.number(
                self.e.memory.convert(operand, type_) if not isinstance(type_, Pointer) else operand
            )
        return self.b.address(self.e.place(operand).pointer)

    @handles(nodes.CallPart)
    def _call_part(self, node: nodes.CallPart) -> Operand:
        if node.part == "frame" and self.program.unit.kind.name in PYTHON_KINDS:
            return Scalar(PythonCalls(self.e).frame(), UINT64)
        return Scalar(CallParts(self.e).value(node), UINT64)

    _UNARY: ClassVar[Mapping[str, Callable[..., Operand]]] = {
        "!": _not,
        "-": _negate,
        "~": _invert,
        "*": _follow,
        "&": _address_of,
        "++": _step,
        "--": _step,
    }
