"""Functions on maps."""

from __future__ import annotations

from pytrace.codegen import aggregates, maps, memory
from pytrace.codegen.builtins import Emission
from pytrace.codegen.emitter import Emitter
from pytrace.codegen.expressions import store_variable
from pytrace.codegen.operands import Memory, Operand, Scalar
from pytrace.diagnostics import InternalError
from pytrace.frontend import ast
from pytrace.frontend.checked import MapInfo
from pytrace.types import BOOL, INT64


def _map(e: Emitter, node: ast.Call) -> tuple[MapInfo, tuple[ast.Expr, ...]]:
    facts = e.checked.static[node]
    return e.checked.maps[str(facts["map"])], tuple(facts.get("keys", ()))


def _delete(e: Emitter, node: ast.Call) -> Operand:
    info, keys = _map(e, node)
    return Scalar(e.b.number(maps.delete(e, node, info, keys)), BOOL)


def _has_key(e: Emitter, node: ast.Call) -> Operand:
    info, keys = _map(e, node)
    return Scalar(e.b.number(maps.has_key(e, node, info, keys)), BOOL)


def _find(e: Emitter, node: ast.Call) -> Operand:
    info, keys = _map(e, node)
    target = node.args[2]
    if not isinstance(target, ast.Variable) or info.key is None:
        raise InternalError("find takes a keyed map and a variable")
    key = maps.key_pointer(e, info, keys)
    place = maps.lookup(e, info, key)
    found = e.b.there(place)

    def store() -> None:
        if info.value.aggregate:
            kind = e.checked.variables[target].type
            store_variable(e, target, aggregates.read(e, info, key, kind))
        elif info.value.scalar:
            store_variable(e, target, memory.load(e, place, info.value))
        else:
            store_variable(e, target, Memory(place, info.value))

    e.variable(e.checked.variables[target])
    maps.when_found(e, place, store, lambda: None)
    return Scalar(found, BOOL)


def _len(e: Emitter, node: ast.Call) -> Operand:
    if "map" in e.checked.static.get(node, {}):
        return Scalar(maps.length(e, _map(e, node)[0]), INT64)
    if not isinstance(node.args[0], ast.Expr):
        raise InternalError("len takes a map or a stack")
    # A stack starts with its number of frames, or a negative error number.
    whole = e.place(e.value(node.args[0]))
    count = e.b.load(whole.pointer, 32, signed=True)
    return Scalar(e.b.select(e.b.icmp("slt", count, "0"), "0", count), INT64)


EMIT: dict[str, Emission] = {"delete": _delete, "find": _find, "has_key": _has_key, "len": _len}
