"""Random expressions of any kind."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.generated.builders import COMPARE, Expr, Frame, cast, chosen, compared, literal, quoted
from tests.support.generated.integers import WORDS, Integers
from tests.support.kinds import BOOL, INTEGERS, TEXT, Bool, Group, Int, Kind, Row, Text


class Expressions(Integers):
    """Makes expressions over the variables, maps and functions in scope."""

    def of(self, kind: Kind, depth: int) -> Expr:
        """An expression of exactly that kind (strings: of any capacity)."""
        match kind:
            case Int():
                found = self.integer(depth)
                return found if found.kind == kind and found.literal is None else cast(kind, found)
            case Bool():
                return self.condition(depth)
            case Text():
                return self.text(depth)
            case Group():
                return self.group(kind, depth)
            case Row():
                return self.row(kind, depth)
        raise TypeError(kind)

    # ---------------------------------------------------------------------------------------- truth

    def condition(self, depth: int) -> Expr:
        """Some truth value."""
        if depth <= 0:
            held = [self.read(v) for v in self.variables(lambda k: isinstance(k, Bool))]
            found = self.choices.pick([None, *held])
            return compared("<", self.typed(0), literal(self.number())) if found is None else found
        return self.choices.pick(self._CONDITIONS)(self, depth - 1)

    def _compared(self, depth: int) -> Expr:
        operator = self.choices.pick(tuple(COMPARE))
        return compared(operator, self.typed(depth), self.integer(depth))

    def _equal(self, depth: int) -> Expr:
        kind = self.kind()
        if isinstance(kind, Row):
            kind = TEXT
        left, right = self.of(kind, depth), self.of(kind, depth)
        return compared(self.choices.pick(("==", "!=")), left, right)

    def _logic(self, depth: int) -> Expr:
        operator = self.choices.pick(("&&", "||"))
        left, right = self.condition(depth), self.condition(depth)

        def run(frame: Frame) -> bool:
            first = left.run(frame)
            return bool(first and right.run(frame)) if operator == "&&" else bool(first or right.run(frame))

        text = f"{left.within(operator)} {operator} {right.within(operator, tighter=True)}"
        return Expr(BOOL, text, run, operator)

    def _not(self, depth: int) -> Expr:
        operand = self.condition(depth) if self.choices.chance(50) else self.typed(depth)
        return Expr(BOOL, f"!{operand.within('unary')}", lambda frame: not operand.run(frame), "unary")

    def _has_key(self, depth: int) -> Expr:
        keyed = [m for m in self.maps if m.key is not None]
        if not keyed:
            return self._compared(depth)
        where = self.choices.pick(keyed)
        assert where.key is not None
        key, name = self.of(where.key, min(depth, 1)), where.name
        return Expr(BOOL, f"has_key({name}, {key.text})", lambda frame: key.run(frame) in frame.maps[name])

    def _contains(self, depth: int) -> Expr:
        text, word = self.text(depth), self.text(min(depth, 1))
        return Expr(BOOL, f"strcontains({text.text}, {word.text})", lambda f: word.run(f) in text.run(f))

    _CONDITIONS: tuple[Callable[[Expressions, int], Expr], ...] = (
        _compared, _compared, _compared, _equal, _equal, _logic, _logic, _not, _has_key, _contains,
        lambda self, depth: cast(BOOL, self.typed(depth)),
        lambda self, depth: self.stored(BOOL, depth) or self._compared(depth),
    )  # fmt: skip

    # ---------------------------------------------------------------------------------------- text, groups, arrays

    def text(self, depth: int) -> Expr:
        """Some string."""
        form = self.choices.below(8)
        if form >= 2:
            found = self.stored(TEXT, depth)
            if found is not None:
                return self._through_pointer(found) if form == 7 else found
        if form == 1 and depth > 0:
            then, other = self.text(depth - 1), self.text(depth - 1)
            return chosen(self.condition(depth - 1), then, other, TEXT, self.choices.below(2))
        return quoted(self.choices.pick(WORDS))

    def _through_pointer(self, found: Expr) -> Expr:
        if not found.text.isidentifier() and not found.text[1:].isidentifier():
            return found
        return Expr(TEXT, f"str(&{found.text})", found.run)

    def group(self, kind: Group, depth: int) -> Expr:
        """A tuple or record."""
        if self.choices.chance(50):
            found = self.stored(kind, depth)
            if found is not None:
                return found
        if depth > 0 and self.choices.chance(10):
            then, other = self.group(kind, depth - 1), self.group(kind, depth - 1)
            return chosen(self.condition(depth - 1), then, other, kind, self.choices.below(2))
        members = [self.of(member, depth - 1) for member in kind.members]
        if kind.names:
            parts = [f"{name}={member.text}" for name, member in zip(kind.names, members, strict=True)]
            text = f"({', '.join(parts)})"
        else:
            text = f"({', '.join(member.text for member in members)}{',' if len(members) == 1 else ''})"
        return Expr(kind, text, lambda frame: tuple(member.run(frame) for member in members))

    def row(self, kind: Row, depth: int) -> Expr:
        """An array of bytes, made of an integer."""
        found = self.stored(kind, depth) if self.choices.chance(50) else None
        if found is not None:
            return found
        carrier_ = next(k for k in INTEGERS if k.width == kind.count and not k.signed)
        number = self.of(carrier_, depth)

        def run(frame: Frame) -> tuple[int, ...]:
            return tuple(kind.element.wrap(byte) for byte in number.run(frame).to_bytes(kind.count, "little"))

        return Expr(kind, f"({kind.name}){number.within('unary')}", run, "unary")
