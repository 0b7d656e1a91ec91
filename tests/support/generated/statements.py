"""Random statements without blocks, each with its text and its effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.support.generated.builders import ARITHMETIC, Expr, Frame, Map, Variable, binary, literal
from tests.support.generated.choices import Choices
from tests.support.generated.expressions import Expressions
from tests.support.generated.structs import Pointee
from tests.support.kinds import BOOL, INT64, INTEGERS, UINT64, Bool, Group, Int, Kind, Text, as_json

AGGREGATES = ("count", "sum", "min", "max", "avg", "stats", "hist", "lhist")


class LeaveError(Exception):
    """``break``, ``continue`` or ``return``: *what* says which."""

    def __init__(self, what: str, value: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.value = value


class TooLongError(Exception):
    """A program that takes too many steps to be worth a run."""


@dataclass(frozen=True)
class Stmt:
    """A statement."""

    text: str
    run: Callable[[Frame], None]


def sequence(statements: list[Stmt]) -> Stmt:
    """Several statements as a block."""

    def run(frame: Frame) -> None:
        for statement in statements:
            statement.run(frame)

    return Stmt("{ " + " ".join(statement.text for statement in statements) + " }", run)


class Plain(Expressions):
    """Makes statements that have no blocks."""

    depth = 2
    """Of expressions."""
    rounds = 12
    """Most rounds of a loop."""
    most_rounds = 600
    """Product of the rounds of nested loops."""

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self.loops = 0
        self.product = 1
        self.holders: list[Map] = []
        """Maps over which structs lie."""
        self.inside: Int | None = None
        """The result of the function that is being written."""

    def declare(self) -> Stmt:
        """A new variable."""
        kind = self.kind()
        name, form = self.fresh("$v"), self.choices.below(3)
        value = self.of(kind, self.depth)
        if isinstance(kind, Text) and isinstance(value.kind, Text):
            kind = value.kind
        fixed = form == 1 and isinstance(kind, Int | Bool)
        self.scopes[-1].append(Variable(name, kind, fixed))
        text = f"let {name}: {kind.name} = {value.text};" if fixed else f"{name} = {value.text};"
        if form == 2:
            text = f"let {text}"
        return Stmt(text, _setter(name, value))

    def _assign(self) -> Stmt:
        targets = [v for v in self.variables(lambda _: True) if not v.frozen]
        if not targets:
            return self.declare()
        variable = self.choices.pick(targets)
        kind, name = variable.kind, variable.name
        if isinstance(kind, Int) and (variable.fixed or kind.width == 8) and self.choices.chance(40):
            return self._compound(variable, kind)
        value = self.of(kind, self.depth)
        return Stmt(f"{name} = {value.text};", _setter(name, value))

    def _compound(self, variable: Variable, kind: Int) -> Stmt:
        name, operator = variable.name, self.choices.pick(tuple(ARITHMETIC))
        if self.choices.chance(25) and (variable.fixed or kind.signed):
            return self._step(name, kind)
        found = binary(operator, self.read(variable), self._operand(operator))
        if not variable.fixed and found.kind != kind:
            found = binary(operator, self.read(variable), self.of(kind, self.depth))
            if found.kind != kind:
                return self.declare()
        right = found.text.split(f" {operator} ", 1)[1]
        return Stmt(f"{name} {operator}= {right};", lambda f: f.variables.__setitem__(name, kind.wrap(found.run(f))))

    def _operand(self, operator: str) -> Expr:
        found = self.integer(self.depth)
        return literal(7) if operator in ("/", "%") and found.constant else found

    def _step(self, name: str, kind: Int) -> Stmt:
        operator = self.choices.pick(("++", "--"))
        change = 1 if operator == "++" else -1
        text = f"{name}{operator};" if self.choices.chance(50) else f"{operator}{name};"
        return Stmt(text, lambda f: f.variables.__setitem__(name, kind.wrap(f.variables[name] + change)))

    def _lay(self) -> Stmt:
        """A pointer to a struct that lies over words of the script, or a copy of what such a pointer points to."""
        pointers = self.variables(lambda k: isinstance(k, Pointee))
        if pointers and self.choices.chance(40):
            pointer, name = self.choices.pick(pointers), self.fresh("$s")
            assert isinstance(pointer.kind, Pointee)
            data = self._bytes(pointer.name, pointer.kind)
            if self.choices.chance(40):
                struct = pointer.kind.struct
                return Stmt(f"print(*{pointer.name});", lambda f: f.lines.append(as_json(struct, data(f))))
            self.scopes[-1].append(Variable(name, pointer.kind.struct, frozen=True))
            return Stmt(f"{name} = *{pointer.name};", lambda frame: frame.variables.__setitem__(name, data(frame)))
        if not self.structs:
            return self.declare()
        struct, name = self.choices.pick(self.structs), self.fresh("$q")
        kind = Group((UINT64,) * max(1, -(-struct.size // 8)))
        holder, value = self.fresh("$h"), self.of(kind, self.depth)
        if self.inside is None and not self.loops and self.choices.chance(50):
            holder = self.fresh("@h")
        self.scopes[-1].append(Variable(name, Pointee(struct, holder), frozen=True))
        if not holder.startswith("@"):
            self.scopes[-1].append(Variable(holder, kind))
        else:
            self.holders.append(Map(holder, None, kind))

        def run(frame: Frame) -> None:
            (frame.maps if holder.startswith("@") else frame.variables)[holder] = value.run(frame)

        return Stmt(f"{holder} = {value.text}; {name} = ({struct.name} *)&{holder};", run)

    # ---------------------------------------------------------------------------------------- maps

    def _store(self) -> Stmt:
        maps = [m for m in self.maps if not m.aggregate and not m.busy]
        if not maps:
            return self.declare()
        where = self.choices.pick(maps)
        value = self._change(where) if isinstance(where.value, Int) and where.value.width == 8 else None
        if value is not None:
            return value
        new, name = self.of(where.value, self.depth), where.name
        if where.key is None:
            return Stmt(f"{name} = {new.text};", lambda frame: frame.maps.__setitem__(name, new.run(frame)))
        key = self.of(where.key, 1)

        def run(frame: Frame) -> None:
            value = new.run(frame)
            frame.maps[name][key.run(frame)] = value

        return Stmt(f"{name}[{key.text}] = {new.text};", run)

    def _change(self, where: Map) -> Stmt | None:
        """``@m[k] op= e`` or ``@m[k]++`` of 64-bit values."""
        if not self.choices.chance(50):
            return None
        kind, name = where.value, where.name
        assert isinstance(kind, Int)
        key = None if where.key is None else self.of(where.key, 1)
        place = name if key is None else f"{name}[{key.text}]"
        operator = self.choices.pick(tuple(ARITHMETIC))
        if self.choices.chance(30) and kind.signed:
            return Stmt(f"{place}++;", lambda f: _update(f, name, key, lambda old: kind.wrap((old or 0) + 1)))
        operand = self.of(kind, self.depth)
        if operator in ("/", "%") and operand.constant:
            operand = literal(9)
        if binary(operator, Expr(kind, place, lambda _: 0), operand).kind != kind:
            return None
        right = operand.within(ARITHMETIC[operator], tighter=True)

        def run(frame: Frame) -> None:
            by = replace(operand, run=_known(operand, frame))
            _update(
                frame, name, key, lambda old: binary(operator, Expr(kind, place, lambda _: old or 0), by).run(frame)
            )

        return Stmt(f"{place} {operator}= {right};", run)

    def _delete(self) -> Stmt:
        maps = [m for m in self.maps if m.key is not None and not m.busy]
        if not maps:
            return self.declare()
        where = self.choices.pick(maps)
        assert where.key is not None
        key, name = self.of(where.key, 1), where.name
        return Stmt(f"_ = delete({name}, {key.text});", lambda f: f.maps[name].pop(key.run(f), None) and None)

    def _find(self) -> Stmt:
        maps = [m for m in self.maps if m.key is not None and not m.aggregate]
        if not maps:
            return self.declare()
        where = self.choices.pick(maps)
        assert where.key is not None
        key, name, variable, got = self.of(where.key, 1), where.name, self.fresh("$f"), self.fresh("$g")
        first = self.of(where.value, 1)
        self.scopes[-1] += [Variable(variable, where.value), Variable(got, BOOL)]

        def run(frame: Frame) -> None:
            frame.variables[variable] = first.run(frame)
            wanted = key.run(frame)
            frame.variables[got] = wanted in frame.maps[name]
            if frame.variables[got]:
                frame.variables[variable] = frame.maps[name][wanted]

        return Stmt(f"{variable} = {first.text}; {got} = find({name}, {key.text}, {variable});", run)

    def _aggregated(self) -> Stmt:
        maps = [m for m in self.maps if m.aggregate and not m.busy]
        if not maps:
            return self.declare()
        where = self.choices.pick(maps)
        kind, name = where.value, where.name
        assert isinstance(kind, Int)
        key = None if where.key is None else self.of(where.key, 1)
        value = literal(0) if where.aggregate == "count" else self.of(kind, self.depth)
        argument = {"count": "", "hist": f"{value.text}, 2", "lhist": f"{value.text}, 0, 100, 7"}
        place = name if key is None else f"{name}[{key.text}]"

        def run(frame: Frame) -> None:
            found = value.run(frame)
            _update(frame, name, key, lambda old: (*(old or ()), found))

        return Stmt(f"{place} = {where.aggregate}({argument.get(where.aggregate, value.text)});", run)

    # ---------------------------------------------------------------------------------------- output

    def _print(self) -> Stmt:
        if self.choices.chance(40):
            kind = self.kind()
            value = self.of(kind, self.depth)
            if value.text.startswith("@"):
                # A map by itself is printed later, as it is then.
                return self.printf([value])
            return Stmt(f"print({value.text});", lambda f: f.lines.append(as_json(kind, value.run(f))))
        return self.printf([self.of(self.kind(), self.depth) for _ in range(1 + self.choices.below(4))])

    def printf(self, values: list[Expr]) -> Stmt:
        """All *values* by one printf."""
        parts = [self._conversion(value) for value in values]
        text = f'printf("{"|".join(part[0] for part in parts)}\\n"{"".join(", " + value.text for value in values)});'

        def run(frame: Frame) -> None:
            frame.lines.append("|".join(show(value.run(frame)) for value, (_, show) in zip(values, parts, strict=True)))

        return Stmt(text, run)

    def _conversion(self, value: Expr) -> tuple[str, Callable[[Any], str]]:
        kind = value.kind
        if isinstance(kind, Int):
            forms: tuple[tuple[str, Callable[[Any], str]], ...] = (
                ("%ld", lambda v: str(INT64.wrap(v))), ("%lu", lambda v: str(UINT64.wrap(v))),
                ("%lx", lambda v: f"{UINT64.wrap(v):x}"), ("%d", lambda v: str(INTEGERS[2].wrap(v))),
                ("%u", lambda v: str(INTEGERS[3].wrap(v))), ("%s", str),
            )  # fmt: skip
            return self.choices.pick(forms)
        return "%s", lambda v: kind.text(v).decode("latin-1")


def _setter(name: str, value: Expr) -> Callable[[Frame], None]:
    return lambda frame: frame.variables.__setitem__(name, value.run(frame))


def _known(operand: Expr, frame: Frame) -> Callable[[Frame], Any]:
    """A way to evaluate *operand* that gives its present value."""
    value = operand.run(frame)
    return lambda _: value


def _value(kind: Kind, value: Any) -> Expr:
    return Expr(kind, "", lambda _: value)


def _update(frame: Frame, name: str, key: Expr | None, new: Callable[[Any], Any]) -> None:
    """Replace what a map holds (None: nothing) at a key, which is evaluated once."""
    if key is None:
        frame.maps[name] = new(frame.maps.get(name))
    else:
        at = key.run(frame)
        frame.maps[name][at] = new(frame.maps[name].get(at))
