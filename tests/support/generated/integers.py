"""Random integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.support.generated.builders import (
    ARITHMETIC,
    COMPARE,
    READ,
    Expr,
    Frame,
    Variable,
    binary,
    cast,
    chosen,
    compared,
    literal,
    quoted,
)
from tests.support.generated.scopes import Scope
from tests.support.generated.structs import Member, Pointee, Struct
from tests.support.kinds import INT64, INTEGERS, UINT8, UINT64, Int, Kind, Row, Text, joined

WORDS = ("", "a", "ab", "abc", "b", "hello", "hello world", "zz top", "A", "0", "x" * 20, "y" * 39, "tab\\t")
EDGES = (
    0, 1, 2, 3, 5, 7, 8, 63, 64, 100, 127, 128, 255, 256, 1000, 32767, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**63 - 1,
)  # fmt: skip


class Integers(Scope):
    """Makes integers."""

    def integer(self, depth: int) -> Expr:
        """Some integer."""
        if depth <= 0:
            return self._leaf()
        return self.choices.pick(self._INTEGERS)(self, depth - 1)

    def typed(self, depth: int) -> Expr:
        """Some integer that is not a bare literal."""
        found = self.integer(depth)
        return found if found.literal is None else self._typed_literal(found)

    def number(self) -> int:
        """A literal's value."""
        found = self.choices.pick(EDGES) if self.choices.chance(50) else self.choices.below(12)
        return -found if self.choices.chance(20) else found

    def _leaf(self, depth: int = 0) -> Expr:
        form = self.choices.below(4)
        found = None if form == 0 else self.find(lambda k: isinstance(k, Int), depth)
        return literal(self.number()) if found is None else found

    def _typed_literal(self, found: Expr) -> Expr:
        return cast(self.choices.pick(INTEGERS), found)

    def _arithmetic(self, depth: int) -> Expr:
        operator = self.choices.pick(tuple(ARITHMETIC))
        left, right = self.typed(depth), self.integer(depth)
        if right.constant and operator in ("/", "%") and not right.run(Frame({}, [])):
            right = literal(3)
        if right.literal is not None and operator not in ("<<", ">>", "/", "%") and self.choices.chance(30):
            left, right = right, left
        if left.constant and right.constant and operator in ("<<", ">>"):
            right = literal(self.choices.below(64))
        return binary(operator, left, right)

    def _negated(self, depth: int) -> Expr:
        operand = self.typed(depth)
        text = f"-{operand.within('postfix')}"
        return Expr(INT64, text, lambda f: INT64.wrap(-operand.run(f)), "unary", constant=operand.constant)

    def _inverted(self, depth: int) -> Expr:
        operand = self.typed(depth)
        text = f"~{operand.within('unary')}"
        return Expr(UINT64, text, lambda f: UINT64.wrap(~operand.run(f)), "unary", constant=operand.constant)

    def _cast(self, depth: int) -> Expr:
        operand = self.condition(depth) if self.choices.chance(20) else self.integer(depth)
        return cast(self.choices.pick(INTEGERS), operand)

    def _chosen(self, depth: int) -> Expr:
        first, then, other = self._condition_and_kinds(depth)
        assert isinstance(then.kind, Int)
        assert isinstance(other.kind, Int)
        kind = joined(then.kind, other.kind)
        found = chosen(first, then, other, kind, self.choices.below(2))
        return replace(found, run=lambda frame: kind.wrap(_run(found)(frame)))

    def _condition_and_kinds(self, depth: int) -> tuple[Expr, Expr, Expr]:
        """A condition and two integers: of one kind where the compiler might know the condition."""
        then = self.typed(depth)
        held = self.variables(lambda k: isinstance(k, Int))
        if held and self.choices.chance(50):
            operator, variable = self.choices.pick(tuple(COMPARE)), self.choices.pick(held)
            return compared(operator, self.read(variable), literal(self.number())), then, self.typed(depth)
        return self.condition(depth), self.of(then.kind, depth), self.of(then.kind, depth)

    def _elvis(self, depth: int) -> Expr:
        kind = self.choices.pick(INTEGERS)
        first, other = self.of(kind, depth), self.of(kind, depth)
        text = f"{first.within('||')} ?: {other.within('?')}"
        return Expr(kind, text, lambda frame: first.run(frame) or other.run(frame), "?")

    def _block(self, depth: int) -> Expr:
        name, value = self.fresh("$b"), self.typed(depth)
        assert isinstance(value.kind, Int)
        self.scopes.append([Variable(name, value.kind)])
        result = self.typed(depth)
        self.scopes.pop()

        def run(frame: Frame) -> Any:
            frame.variables[name] = value.run(frame)
            return result.run(frame)

        return Expr(result.kind, f"({{ let {name} = {value.text}; {result.text} }})", run)

    def _call(self, depth: int) -> Expr:
        if not self.functions:
            return self._arithmetic(depth)
        function = self.choices.pick(self.functions)
        functions, self.functions = self.functions, [] if function.macro else self.functions
        # What a macro is given is evaluated as often as the macro uses it.
        arguments = [self.of(kind, depth) for kind in function.parameters]
        self.functions = functions
        text = f"{function.name}({', '.join(argument.text for argument in arguments)})"
        return Expr(function.result, text, lambda f: function.run(f, [argument.run(f) for argument in arguments]))

    def _of_text(self, depth: int) -> Expr:
        text, form = self.text(depth), self.choices.below(4)
        if form == 0:
            return Expr(UINT64, f"strlen({text.text})", lambda frame: len(text.run(frame)))
        if form == 1:
            word = quoted(self.choices.pick(WORDS))
            return Expr(INT64, f"strstr({text.text}, {word.text})", lambda f: text.run(f).find(word.run(f)))
        if form == 2:
            other, most = self.text(depth), 1 + self.choices.below(12)
            text_ = f"(strncmp({text.text}, {other.text}, {most}) == 0 ? (uint8)1 : (uint8)2)"
            return Expr(UINT8, text_, lambda f: 1 if text.run(f)[:most] == other.run(f)[:most] else 2)
        held = self.variables(lambda k: isinstance(k, Text))
        if not held:
            return self._arithmetic(depth)
        variable = self.choices.pick(held)
        assert isinstance(variable.kind, Text)
        at = self.choices.below(variable.kind.room)
        name = variable.name
        return Expr(UINT8, f"{name}[{at}]", lambda f: (f.variables[name] + bytes(at + 1))[at])

    def _swapped(self, depth: int) -> Expr:
        kind = self.choices.pick([kind for kind in INTEGERS if not kind.signed])
        operand = self.of(kind, depth)

        def run(frame: Frame) -> int:
            return int.from_bytes(operand.run(frame).to_bytes(kind.width, "little"), "big")

        return Expr(kind, f"bswap({operand.text})", run)

    def _indexed(self, depth: int) -> Expr:
        rows = self.variables(lambda k: isinstance(k, Row))
        if not rows:
            return self._arithmetic(depth)
        variable = self.choices.pick(rows)
        kind, name = variable.kind, variable.name
        assert isinstance(kind, Row)
        if self.choices.chance(50):
            at = self.choices.below(kind.count)
            return Expr(kind.element, f"{name}[{at}]", lambda frame: frame.variables[name][at])
        index = binary("&", self.typed(depth), literal(kind.count - 1))
        return Expr(kind.element, f"{name}[{index.text}]", lambda frame: frame.variables[name][index.run(frame)])

    def _pointed(self, _depth: int) -> Expr:
        held = self.variables(lambda k: isinstance(k, Int))
        maps = [m.name for m in self.maps if m.key is None and not m.aggregate and isinstance(m.value, Int)]
        kinds = {m.name: m.value for m in self.maps}
        names = [(v.name, v.kind, False) for v in held if not v.frozen] + [(name, kinds[name], True) for name in maps]
        if not names:
            return self._leaf()
        name, kind, shared = self.choices.pick(names)
        if shared:
            return Expr(kind, f"*(&{name})", lambda frame: frame.maps.get(name, 0), "unary")
        return Expr(kind, f"*(&{name})", lambda frame: frame.variables[name], "unary")

    def _field(self, depth: int) -> Expr:
        """An integer member of a struct: through a pointer, or of a copy."""
        held = self.variables(lambda k: isinstance(k, Pointee | Struct))
        if not held:
            return self._arithmetic(depth)
        variable = self.choices.pick(held)
        name, kind = variable.name, variable.kind
        struct = kind.struct if isinstance(kind, Pointee) else kind
        assert isinstance(struct, Struct)
        text, members, value = name, struct.fields(), self._bytes(name, kind)
        while True:
            member = self.choices.pick(members)
            arrow = text == name and isinstance(kind, Pointee) and self.choices.chance(50)
            text = f"{text}{'->' if arrow else '.'}{member.name}"
            value = _part(member, value)
            if not isinstance(member.kind, Struct):
                break
            members = member.kind.fields()
        if isinstance(member.kind, Row):
            at = self.choices.below(member.kind.count)
            return Expr(member.kind.element, f"{text}[{at}]", lambda frame: value(frame)[at])
        return Expr(member.kind, text, value)

    def _bytes(self, name: str, kind: Kind) -> Callable[[Frame], Any]:
        if not isinstance(kind, Pointee):
            return lambda frame: frame.variables[name]
        holder, shared = kind.holder, kind.holder.startswith("@")
        return lambda frame: kind.data((frame.maps if shared else frame.variables)[holder])

    def _length(self, depth: int) -> Expr:
        keyed = [m for m in self.maps if m.key is not None and m.aggregate not in ("hist", "lhist")]
        if not keyed:
            return self._arithmetic(depth)
        name = self.choices.pick(keyed).name
        return Expr(INT64, f"len({name})", lambda frame: len(frame.maps[name]))

    def _aggregate(self, depth: int) -> Expr:
        readable = [m for m in self.maps if m.aggregate in ("count", "sum", "min", "max", "avg")]
        if not readable:
            return self._arithmetic(depth)
        where = self.choices.pick(readable)
        assert isinstance(where.value, Int)
        found = self.entry(where, depth)
        kind = where.value
        read = READ[where.aggregate]
        return Expr(kind, f"({kind.name}){found.text}", lambda f: kind.wrap(read(found.run(f) or ())), "unary")

    _INTEGERS: tuple[Callable[[Integers, int], Expr], ...] = (
        _leaf, _leaf, lambda self, _: self._typed_literal(literal(self.number())),
        _arithmetic, _arithmetic, _arithmetic, _arithmetic, _negated, _inverted, _cast, _chosen, _elvis, _block,
        _call, _call, _of_text, _swapped, _indexed, _pointed, _length, _aggregate, _field, _field,
    )  # fmt: skip


def _part(member: Member, data: Callable[[Frame], bytes]) -> Callable[[Frame], Any]:
    return lambda frame: member.read(data(frame))


def _run(found: Expr) -> Callable[[Frame], Any]:
    return found.run
