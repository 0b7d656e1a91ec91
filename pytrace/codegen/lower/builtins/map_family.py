"""Functions on maps."""

from __future__ import annotations

from pytrace.codegen.emit import weights
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.values import Memory, Operand, Scalar
from pytrace.codegen.lower import aggregate_reading, map_access, maps
from pytrace.codegen.lower.builtins.families import Emission
from pytrace.codegen.lower.expressions import store_variable
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import BOOL, INT64, Stack
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import MapAccess, MapInfo


def _map(e: Emitter, node: nodes.Call) -> tuple[MapInfo, tuple[nodes.Expr, ...]]:
    access = e.checked.fact(node, MapAccess)
    return e.checked.maps[access.map], access.keys


def _delete(e: Emitter, node: nodes.Call) -> Operand:
    info, keys = _map(e, node)
    return Scalar(e.b.number(maps.delete(e, node, info, keys)), BOOL)


def _has_key(e: Emitter, node: nodes.Call) -> Operand:
    info, keys = _map(e, node)
    return Scalar(e.b.number(maps.has_key(e, node, info, keys)), BOOL)


def _find(e: Emitter, node: nodes.Call) -> Operand:
    info, keys = _map(e, node)
    target = node.args[2]
    if not isinstance(target, nodes.Variable) or info.key is None:
        raise InternalError("find takes a keyed map and a variable")
    key = map_access.key_pointer(e, info, keys)
    weights.take(e, info.name, key.pointer)
    place = map_access.lookup(e, info, key)
    present = e.b.there(place)

    def store() -> None:
        if info.value.aggregate:
            type_ = e.checked.variables[target].type
            store_variable(e, target, aggregate_reading.read(e, info, key, type_))
        elif info.value.scalar:
            store_variable(e, target, e.memory.load(place, info.value))
        else:
            store_variable(e, target, Memory(place, info.value))

    e.variable(e.checked.variables[target])
    map_access.when_found(e, place, store, lambda: None)
    return Scalar(present, BOOL)


def _len(e: Emitter, node: nodes.Call) -> Operand:
    if e.checked.find_fact(node, MapAccess) is not None:
        return Scalar(map_access.length(e, _map(e, node)[0]), INT64)
    if not isinstance(node.args[0], nodes.Expr):
        raise InternalError("len takes a map or a stack")
    # A stack starts with its number of frames (that of a truncated one is one too high), or a negative error number.
    stack = e.place(e.value(node.args[0]))
    count = e.b.load(stack.pointer, 32, signed=True)
    if isinstance(stack.type, Stack):
        count = e.b.select(e.b.icmp("sgt", count, stack.type.limit), stack.type.limit, count)
    return Scalar(e.b.select(e.b.icmp("slt", count, 0), 0, count), INT64)


EMIT: dict[str, Emission] = {"delete": _delete, "find": _find, "has_key": _has_key, "len": _len}
