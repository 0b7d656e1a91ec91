"""What is in scope while a random program is written."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.generated.builders import Expr, Function, Map, Variable, same
from tests.support.generated.choices import Choices
from tests.support.generated.structs import Struct
from tests.support.kinds import BOOL, INT8, INTEGERS, TEXT, UINT8, Group, Kind, Row


class Scope:
    """Variables, maps, functions and structs, and how they are read."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.scopes: list[list[Variable]] = [[]]
        self.maps: list[Map] = []
        self.functions: list[Function] = []
        self.structs: list[Struct] = []
        self.count = 0

    def of(self, kind: Kind, depth: int) -> Expr:
        """An expression of exactly that kind (strings: of any capacity)."""
        raise NotImplementedError

    def condition(self, depth: int) -> Expr:
        """Some truth value."""
        raise NotImplementedError

    def text(self, depth: int) -> Expr:
        """Some string."""
        raise NotImplementedError

    def fresh(self, prefix: str) -> str:
        """A name that nothing else has."""
        self.count += 1
        return f"{prefix}{self.count}"

    def variables(self, wanted: Callable[[Kind], bool]) -> list[Variable]:
        """Variables in scope whose kind is *wanted*."""
        return [variable for scope in self.scopes for variable in scope if wanted(variable.kind)]

    def read(self, variable: Variable) -> Expr:
        """A variable's value."""
        name = variable.name
        return Expr(variable.kind, name, lambda frame: frame.variables[name])

    def kind(self, depth: int = 2, *, key: bool = False) -> Kind:
        """Some kind."""
        form = self.choices.below(12)
        if form >= 10 and depth:
            members = tuple(self.kind(depth - 1, key=key) for _ in range(1 + self.choices.below(3)))
            return Group(members, tuple("pqr"[: len(members)]) if form == 11 and self.choices.chance(70) else ())
        if form == 9 and depth:
            return Row(self.choices.pick((INT8, UINT8)), self.choices.pick((2, 4, 8)))
        if form >= 7:
            return TEXT
        return BOOL if form == 6 else self.choices.pick(INTEGERS)

    def stored(self, kind: Kind, depth: int) -> Expr | None:
        """What a variable, map or member of that kind holds; None when there is none."""
        return self.find(lambda k: same(k, kind), depth)

    def find(self, wanted: Callable[[Kind], bool], depth: int) -> Expr | None:
        held = [self.read(variable) for variable in self.variables(wanted)] + self.members_where(wanted)
        maps = [m for m in self.maps if not m.aggregate and wanted(m.value) and (m.key is None or depth > 0)]
        if not held and not maps:
            return None
        at = self.choices.below(len(held) + len(maps))
        return held[at] if at < len(held) else self.entry(maps[at - len(held)], depth)

    def members_where(self, wanted: Callable[[Kind], bool]) -> list[Expr]:
        found = []
        for variable in self.variables(lambda k: isinstance(k, Group)):
            assert isinstance(variable.kind, Group)
            for at, member in enumerate(variable.kind.members):
                if wanted(member):
                    found.append(self.member(self.read(variable), at))
        return found

    def member(self, group: Expr, at: int) -> Expr:
        """A member of a tuple or record."""
        kind = group.kind
        assert isinstance(kind, Group)
        where = group.within("postfix")
        text = f"{where}.{kind.names[at]}" if kind.names else f"{where}.{at}"
        return Expr(kind.members[at], text, lambda frame: group.run(frame)[at])

    def entry(self, where: Map, depth: int) -> Expr:
        """What a map holds, at some key."""
        name, zero = where.name, where.value.zero
        if where.key is None:
            return Expr(where.value, name, lambda frame: frame.maps.get(name, zero))
        key = self.of(where.key, min(depth - 1, 1))
        return Expr(where.value, f"{name}[{key.text}]", lambda frame: frame.maps[name].get(key.run(frame), zero))
