"""Functions on maps."""

from __future__ import annotations

from pytrace.base.dispatch import handles_names
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.values import Memory, Operand, Scalar
from pytrace.codegen.lower.expressions import Builtins
from pytrace.codegen.lower.maps import Maps
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import BOOL, INT64, Stack
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import MapAccess, MapInfo


class MapBuiltins(Builtins):
    """Functions on maps."""

    def __init__(self, e: Emitter) -> None:
        super().__init__(e)
        self.maps = Maps(e)
        self.aggregates, self.storage, self.weights = self.maps.aggregates, self.maps.storage, self.maps.weights

    def _map(self, node: nodes.Call) -> tuple[MapInfo, tuple[nodes.Expr, ...]]:
        access = self.checked.fact(node, MapAccess)
        return self.checked.maps[access.map], access.keys

    @handles_names("delete")
    def _delete(self, node: nodes.Call) -> Operand:
        info, keys = self._map(node)
        return Scalar(self.b.number(self.maps.delete(node, info, keys)), BOOL)

    @handles_names("has_key")
    def _has_key(self, node: nodes.Call) -> Operand:
        info, keys = self._map(node)
        return Scalar(self.b.number(self.maps.has_key(node, info, keys)), BOOL)

    @handles_names("find")
    def _find(self, node: nodes.Call) -> Operand:
        info, keys = self._map(node)
        target = node.args[2]
        if not isinstance(target, nodes.Variable) or info.key is None:
            raise InternalError("find takes a keyed map and a variable")
        key = self.storage.key_pointer(info, keys)
        self.weights.take(info.name, key.pointer)
        place = self.storage.lookup(info, key)
        present = self.b.there(place)

        def store() -> None:
            if info.value.aggregate:
                type_ = self.checked.variables[target].type
                self.expressions.store_variable(target, self.aggregates.read(info, key, type_))
            elif info.value.scalar:
                self.expressions.store_variable(target, self.e.memory.load(place, info.value))
            else:
                self.expressions.store_variable(target, Memory(place, info.value))

        self.e.variable(self.checked.variables[target])
        self.storage.when_found(place, store, lambda: None)
        return Scalar(present, BOOL)

    @handles_names("len")
    def _len(self, node: nodes.Call) -> Operand:
        if self.checked.find_fact(node, MapAccess) is not None:
            return Scalar(self.storage.length(self._map(node)[0]), INT64)
        if not isinstance(node.args[0], nodes.Expr):
            raise InternalError("len takes a map or a stack")
        # A stack starts with its number of frames (that of a truncated one is one too high), or a negative error
        # number.
        stack = self.e.place(self.e.value(node.args[0]))
        count = self.b.load(stack.pointer, 32, signed=True)
        if isinstance(stack.type, Stack):
            count = self.b.select(self.b.icmp("sgt", count, stack.type.limit), stack.type.limit, count)
        return Scalar(self.b.select(self.b.icmp("slt", count, 0), 0, count), INT64)
