"""Lowering of loops: ``for`` over ranges and maps, ``while``."""

from __future__ import annotations

from pytrace.codegen.analysis import loop_bounds
from pytrace.codegen.emit import loops, memory
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.ir_values import I64, Ptr, global_pointer, pointer_parameter
from pytrace.codegen.ir.operands import Memory, Operand, Scalar
from pytrace.codegen.lower import aggregate_reading, map_access
from pytrace.codegen.lower.map_access import Key
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import INT64, Tuple
from pytrace.frontend.ast import nodes
from pytrace.frontend.ast.typed_program import VariableInfo


def for_each(e: Emitter, node: nodes.For) -> None:
    """``for``: over a range or a map."""
    if isinstance(node.source, nodes.Range):
        _for_range(e, node, node.source)
    else:
        _for_map(e, node)


def _for_range(e: Emitter, node: nodes.For, span: nodes.Range) -> None:
    start, stop = e.number(span.start), e.number(span.stop)
    info = e.checked.variables[node.variable]
    first = e.reserve(8)
    e.b.store(start, e.area(first))
    # The verifier (seen in 6.18) removes the callback of a loop that it knows to run zero times, but not the reference
    # to it: for an empty range, branch around the loop.
    with e.b.when(e.b.icmp("slt", start, stop)):

        def body(inner: Emitter, index: I64) -> None:
            value = inner.b.add(inner.b.load(inner.area(first)), index)
            _set(inner, info, Scalar(memory.fit(inner, value, info.type), INT64))
            _body(inner, node.body)

        loops.run(e, node.span, e.b.sub(stop, start), body, loop=node)


def _set(e: Emitter, info: VariableInfo, operand: Operand) -> None:
    place = e.variable(info)
    if place.register is not None:
        e.b.store(memory.number(e, operand), place.register)
    else:
        memory.write(e, operand, e.variable_pointer(info), info.type)


def _body(e: Emitter, block: nodes.Block) -> None:
    e.run_block(block)


def while_true(e: Emitter, node: nodes.While) -> None:
    """``while``: a loop with the maximum count, left once the condition is false."""

    def body(inner: Emitter, _index: I64) -> None:
        with inner.temporaries():
            condition = memory.truth(inner, inner.value(node.condition))
        with inner.b.unless(condition):
            loops.leave(inner)
        _body(inner, node.body)

    loops.run(e, node.span, loop_bounds.MOST, body, loop=node)


# ---------------------------------------------------------------------------------------------- maps


def _for_map(e: Emitter, node: nodes.For) -> None:
    if not isinstance(node.source, nodes.Expr):
        raise InternalError("not a map")
    info, _ = map_access.info_of(e, node.source)
    variable = e.checked.variables[node.variable]
    pair = variable.type
    if not isinstance(pair, Tuple) or info.key is None:
        raise InternalError("iteration over a map yields pairs")
    key_type = info.key

    def body(inner: Emitter) -> None:
        inner.variable(variable)
        pointer = inner.variable_pointer(variable)
        key_place, value_place = inner.b.offset(pointer, pair.offsets[0]), inner.b.offset(pointer, pair.offsets[1])
        memory.zero(inner, pointer, pair.size)
        memory.write(inner, Memory(pointer_parameter("key"), key_type), key_place, pair.members[0])
        with inner.temporaries():
            value: Operand = Memory(pointer_parameter("value"), info.value)
            if info.value.aggregate:
                value = aggregate_reading.read(inner, info, Key(pointer_parameter("key")), pair.members[1])
            memory.write(inner, value, value_place, pair.members[1], memory.natural(8, pair.offsets[1]))
        _body(inner, node.body)

    # The number of keys is not known in advance: iteration over the last map is always completed.
    with loops.budget(e, node, 1) as (turns, spend):
        with e.b.when(e.b.icmp("ne", turns, 0)):
            loops.with_callback(
                e,
                node.span,
                ("*map", "*key", "*value", "*frame"),
                lambda inner: loops.turn(inner, node, lambda: body(inner)),
                lambda name, frame: spend(_each(e, node, map_access.map_symbol(e, info), name, frame)),
            )


def _each(e: Emitter, node: nodes.For, map_: Ptr, callback: str, frame: Ptr) -> I64:
    """Iterate over a map. Returns the number of keys plus the cost of empty buckets, in iterations."""
    keys = e.b.helper(helpers.FOR_EACH_MAP_ELEM, map_, global_pointer(callback), frame, 0)
    return e.b.add(keys, loop_bounds.of_map(e.checked, node))
