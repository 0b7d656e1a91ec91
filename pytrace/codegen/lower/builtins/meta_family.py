"""Compile-time builtins: all are constants before code is generated, except for records and lists of values."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import astuple

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.values import I1, Number, Operand, Parts, Scalar
from pytrace.codegen.lower import expressions
from pytrace.codegen.lower.builtins.families import Emission
from pytrace.core.diagnostics import InternalError
from pytrace.core.types import BOOL, Record, String
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import OneOf


def _config(e: Emitter, node: nodes.Call | nodes.Identifier) -> Operand:
    type_ = e.type(node)
    if not isinstance(type_, Record):
        raise InternalError("one key of config() is a constant")
    values = astuple(e.checked.config)
    encoded = (value.encode(errors="surrogateescape") if isinstance(value, str) else value for value in values)
    members = zip(encoded, type_.members, strict=True)
    return Parts(type_, tuple(expressions.constant(e, value, of) for value, of in members))


def _one_of(e: Emitter, node: nodes.Call | nodes.Identifier) -> Operand:
    assert isinstance(node, nodes.Call)
    value = node.args[0]
    assert isinstance(value, nodes.Expr)
    entries = e.checked.fact(node, OneOf).entries
    operand = e.value(value)
    if not operand.type.scalar:
        texts = [item for item in entries if isinstance(item, bytes)]
        return Scalar(e.b.number(_one_of_texts(e, operand, texts)), BOOL)
    numbers = [item for item in entries if isinstance(item, int)]
    return Scalar(e.b.number(_one_of_numbers(e, e.memory.number(operand), numbers)), BOOL)


def _one_of_texts(e: Emitter, operand: Operand, entries: list[bytes]) -> I1:
    """Whether a string equals one of *entries*, compared one by one up to the first match."""
    place = e.place(operand)
    result, done = e.b.register(), e.b.block()
    e.b.store(1, result)
    for entry in entries:
        text = expressions.constant(e, entry, String(len(entry) + 1))
        e.b.jump_if(e.comparison.equal(place, text), done)
    e.b.store(0, result)
    e.b.jump(done)
    e.b.start(done)
    return e.b.truth(e.b.load(result))


LINEAR = 8
"""At most this many numbers are compared one by one; a longer list is searched by bisection."""


def _one_of_numbers(e: Emitter, value: Number, entries: list[int]) -> I1:
    """Whether *value* is one of the sorted *entries*."""
    if len(entries) <= LINEAR:
        return _any_equal(e, value, entries)
    result, done = e.b.register(), e.b.block()
    waiting = [(e.b.current, entries)]
    while waiting:
        block, part = waiting.pop()
        if block is not e.b.current:
            e.b.start(block)
        if len(part) <= LINEAR:
            e.b.store(e.b.number(_any_equal(e, value, part)), result)
            e.b.jump(done)
            continue
        middle = len(part) // 2
        below, rest = e.b.block(), e.b.block()
        predicate: Literal["slt", "ult"] = "slt" if entries[0] < 0 else "ult"
        e.b.branch(e.b.icmp(predicate, value, part[middle]), below, rest)
        waiting += [(below, part[:middle]), (rest, part[middle:])]
    e.b.start(done)
    return e.b.truth(e.b.load(result))


def _any_equal(e: Emitter, value: Number, entries: list[int]) -> I1:
    result = e.b.icmp("eq", value, entries[0])
    for entry in entries[1:]:
        result = e.b.either(result, e.b.icmp("eq", value, entry))
    return result


EMIT: dict[str, Emission] = {"config": _config, "one_of": _one_of}
