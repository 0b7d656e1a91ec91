"""Compile-time builtins: all are constants before code is generated, except for records and lists of values."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import astuple

from pytrace.base.dispatch import handles_names
from pytrace.codegen.ir.values import I1, Number, Operand, Parts, Scalar
from pytrace.codegen.lower.expressions import Builtins
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import BOOL, Record, String
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import OneOf

LINEAR = 8
"""At most this many numbers are compared one by one; a longer list is searched by bisection."""


class MetaBuiltins(Builtins):
    """Records and lists of values that are known when a script is compiled."""

    @handles_names("config")
    def _config(self, node: nodes.Call | nodes.Identifier) -> Operand:
        type_ = self.e.type(node)
        if not isinstance(type_, Record):
            raise InternalError("one key of config() is a constant")
        values = astuple(self.checked.config)
        encoded = (value.encode(errors="surrogateescape") if isinstance(value, str) else value for value in values)
        members = zip(encoded, type_.members, strict=True)
        return Parts(type_, tuple(self.expressions.constant(value, of) for value, of in members))

    @handles_names("one_of")
    def _one_of(self, node: nodes.Call | nodes.Identifier) -> Operand:
        assert isinstance(node, nodes.Call)
        value = node.args[0]
        assert isinstance(value, nodes.Expr)
        entries = self.checked.fact(node, OneOf).entries
        operand = self.e.value(value)
        if not operand.type.scalar:
            texts = [item for item in entries if isinstance(item, bytes)]
            return Scalar(self.b.number(self._one_of_texts(operand, texts)), BOOL)
        numbers = [item for item in entries if isinstance(item, int)]
        return Scalar(self.b.number(self._one_of_numbers(self.e.memory.number(operand), numbers)), BOOL)

    def _one_of_texts(self, operand: Operand, entries: list[bytes]) -> I1:
        """Whether a string equals one of *entries*, compared one by one up to the first match."""
        place = self.e.place(operand)
        result, done = self.b.register(), self.b.block()
        self.b.store(1, result)
        for entry in entries:
            text = self.expressions.constant(entry, String(len(entry) + 1))
            self.b.jump_if(self.e.comparison.equal(place, text), done)
        self.b.store(0, result)
        self.b.jump(done)
        self.b.start(done)
        return self.b.truth(self.b.load(result))

    def _one_of_numbers(self, value: Number, entries: list[int]) -> I1:
        """Whether *value* is one of the sorted *entries*."""
        if len(entries) <= LINEAR:
            return self._any_equal(value, entries)
        result, done = self.b.register(), self.b.block()
        waiting = [(self.b.current, entries)]
        while waiting:
            block, part = waiting.pop()
            if block is not self.b.current:
                self.b.start(block)
            if len(part) <= LINEAR:
                self.b.store(self.b.number(self._any_equal(value, part)), result)
                self.b.jump(done)
                continue
            middle = len(part) // 2
            below, rest = self.b.block(), self.b.block()
            predicate: Literal["slt", "ult"] = "slt" if entries[0] < 0 else "ult"
            self.b.branch(self.b.icmp(predicate, value, part[middle]), below, rest)
            waiting += [(below, part[:middle]), (rest, part[middle:])]
        self.b.start(done)
        return self.b.truth(self.b.load(result))

    def _any_equal(self, value: Number, entries: list[int]) -> I1:
        result = self.b.icmp("eq", value, entries[0])
        for entry in entries[1:]:
            result = self.b.either(result, self.b.icmp("eq", value, entry))
        return result
