"""Random blocks, loops and functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.generated.builders import READ, Expr, Frame, Function, Map, Variable, binary, cast, literal
from tests.support.generated.statements import LeaveError, Plain, Stmt, TooLongError, sequence
from tests.support.kinds import INT64, INTEGERS, UINT64, Group, Int


class Statements(Plain):
    """Makes statements of all kinds."""

    def block(self, count: int, nesting: int, before: list[Stmt] | None = None) -> Stmt:
        """A block of up to *count* statements with up to *nesting* blocks inside each other."""
        self.scopes.append([])
        statements = [*(before or ()), *self.statements(count, nesting)]
        self.scopes.pop()
        return sequence(statements)

    def statements(self, count: int, nesting: int) -> list[Stmt]:
        """Up to *count* statements in the present scope."""
        found: list[Stmt] = []
        while len(found) < count and self.choices.chance(100 - 100 // count):
            found.append(self.statement(nesting))
        return found

    def statement(self, nesting: int) -> Stmt:
        """Some statement."""
        if nesting > 0 and self.choices.chance(35):
            return self.choices.pick(self._NESTED)(self, nesting - 1)
        return self.choices.pick(self._FLAT)(self)

    # ---------------------------------------------------------------------------------------- nested

    def _branches(self, nesting: int) -> Stmt:
        condition = self.condition(self.depth)
        then = self.block(3, nesting)
        other = self.block(3, nesting) if self.choices.chance(50) else None
        text = f"if ({condition.text}) {then.text}" + (f" else {other.text}" if other else "")

        def run(frame: Frame) -> None:
            if condition.run(frame):
                then.run(frame)
            elif other is not None:
                other.run(frame)

        return Stmt(text, run)

    def _range(self, nesting: int) -> Stmt:
        most = max(1, min(self.rounds, self.most_rounds // self.product))
        start = self.choices.below(4) - 1
        count = literal(start + self.choices.below(most + 1))
        if self.choices.chance(50):
            # An end that the compiler does not know.
            bound = binary("%", cast(UINT64, self.typed(1)), literal(most))
            count = binary("+", cast(INT64, bound), literal(start))
        name = self.fresh("$i")
        first = literal(start)
        body = self._body(Variable(name, INT64, frozen=True), nesting, most)
        if start < 0 and self.choices.chance(50):
            first = Expr(INT64, f"({first.text})", first.run)

        def run(frame: Frame) -> None:
            for number in range(first.run(frame), count.run(frame)):
                frame.variables[name] = number
                if not _round(body, frame):
                    break

        return Stmt(f"for ({name} : {first.text}..{count.within('+')}) {body.text}", run)

    def _body(self, variable: Variable | None, nesting: int, most: int, before: list[Stmt] | None = None) -> Stmt:
        self.loops += 1
        before_product, self.product = self.product, self.product * most
        self.scopes.append([variable] if variable else [])
        body = self.block(4, nesting, before)
        self.scopes.pop()
        self.product = before_product
        self.loops -= 1
        return body

    def _while(self, nesting: int) -> Stmt:
        most = max(1, min(self.rounds, self.most_rounds // self.product))
        name = self.fresh("$w")
        count = literal(self.choices.below(most + 1))
        variable = Variable(name, INT64, frozen=True)
        condition = self.condition(1)
        step = Stmt(f"{name}++;", lambda f: f.variables.__setitem__(name, f.variables[name] + 1))
        self.scopes[-1].append(variable)
        body = self._body(None, nesting, most, [step])

        def run(frame: Frame) -> None:
            frame.variables[name] = 0
            while frame.variables[name] < count.run(frame) and condition.run(frame):
                if not _round(body, frame):
                    break

        head = f"let {name}: int64 = 0;"
        return Stmt(f"{head} while ({name} < {count.text} && {condition.within('&&', tighter=True)}) {body.text}", run)

    def _unroll(self, nesting: int) -> Stmt:
        count = 1 + self.choices.below(4)
        body = self._body(None, min(nesting, 1), count)

        def run(frame: Frame) -> None:
            for _ in range(count):
                if not _round(body, frame):
                    break

        return Stmt(f"unroll ({count}) {body.text}", run)

    def _each(self, nesting: int) -> Stmt:
        """A loop over a map, whose order nobody knows: it collects what does not depend on it."""
        several = ("stats", "hist", "lhist")
        maps = [m for m in self.maps if m.key is not None and m.aggregate not in several and not m.busy]
        if not maps:
            return self._range(nesting)
        where, name, total = self.choices.pick(maps), self.fresh("$kv"), self.fresh("$t")
        key, value = where.key, where.value
        assert key is not None
        where.busy = True
        pair = Variable(name, Group((key, value)), frozen=True)
        self.scopes.append([pair])
        outer = self.scopes
        # Nothing but the pair and what the loop does not change may be read.
        part = self.typed(self.depth)
        condition = self.condition(1)
        self.scopes = outer
        self.scopes.pop()
        where.busy = False
        self.scopes[-1].append(Variable(total, INT64))

        def run(frame: Frame) -> None:
            frame.variables[total] = 0
            for item in list(frame.maps[where.name].items()):
                held = held_value(where, item[1])
                frame.variables[name] = (item[0], held)
                if condition.run(frame):
                    frame.variables[total] = INT64.wrap(frame.variables[total] + part.run(frame))

        text = (
            f"let {total}: int64 = 0; for ({name} : {where.name}) {{ if ({condition.text}) "
            f"{{ {total} = (int64)({total} + (int64)({part.text})); }} }}"
        )
        return Stmt(text, run)

    def _leave(self) -> Stmt:
        forms = ["break", "continue"] if self.loops else []
        if not forms or self.choices.chance(15):
            forms = ["return"]
        what = self.choices.pick(forms)
        condition = self.condition(1)
        value = self.of(self.inside, 1) if what == "return" and self.inside is not None else None
        text = what if value is None else f"return {value.text}"

        def run(frame: Frame) -> None:
            if condition.run(frame):
                raise LeaveError(what, 0 if value is None else value.run(frame))

        return Stmt(f"if ({condition.text}) {{ {text}; }}", run)

    def _nested_block(self, nesting: int) -> Stmt:
        return self.block(4, nesting)

    _FLAT: tuple[Callable[[Statements], Stmt], ...] = (
        Plain._print, Plain.declare, Plain.declare, Plain._assign, Plain._assign, Plain._assign, Plain._lay, Plain._lay,
        Plain._store, Plain._store, Plain._store, Plain._delete, Plain._find, Plain._aggregated, Plain._aggregated,
        _leave,
    )  # fmt: skip
    _NESTED: tuple[Callable[[Statements, int], Stmt], ...] = (
        _branches, _branches, _branches, _range, _range, _while, _unroll, _each, _nested_block,
    )  # fmt: skip

    # ---------------------------------------------------------------------------------------- functions

    def function(self) -> Stmt:
        """A ``fn``; what it does is in the list of functions from then on."""
        name, result = self.fresh("f"), self.choices.pick(INTEGERS)
        count = self.choices.below(5)
        parameters = [Variable(self.fresh("$p"), self.choices.pick(INTEGERS), True) for _ in range(count)]
        outer, self.scopes, self.inside = self.scopes, [parameters, []], result
        maps, self.maps = self.maps, []
        statements = self.statements(4, 2)
        statements.append(self._result(result))
        self.scopes, self.maps, self.inside = outer, maps, None
        body = sequence(statements)
        kinds = tuple(variable.kind for variable in parameters if isinstance(variable.kind, Int))

        def run(frame: Frame, arguments: list[int]) -> int:
            own = Frame(frame.maps, frame.lines, dict(zip((v.name for v in parameters), arguments, strict=True)))
            try:
                body.run(own)
            except LeaveError as leave:
                return leave.value
            raise AssertionError("no result")

        self.functions.append(Function(name, kinds, result, run))
        head = ", ".join(f"{v.name}: {v.kind.name}" for v in parameters)
        return Stmt(f"fn {name}({head}): {result.name} {body.text}", lambda _: None)

    def _result(self, kind: Int) -> Stmt:
        value = self.of(kind, self.depth)

        def run(frame: Frame) -> None:
            raise LeaveError("return", value.run(frame))

        return Stmt(f"return {value.text};", run)

    def macro(self) -> Stmt:
        """A macro of integer expressions."""
        name, result = self.fresh("m"), self.choices.pick(INTEGERS)
        names = [self.fresh("a") for _ in range(self.choices.below(3))]
        kinds = [self.choices.pick(INTEGERS) for _ in names]
        outer = self.scopes
        self.scopes = [[Variable(n, kind, True, True) for n, kind in zip(names, kinds, strict=True)]]
        maps, self.maps = self.maps, []
        value = self.of(result, self.depth)
        self.scopes, self.maps = outer, maps

        def run(frame: Frame, arguments: list[int]) -> int:
            own = Frame(frame.maps, frame.lines, dict(zip(names, arguments, strict=True)))
            found: int = value.run(own)
            return found

        self.functions.append(Function(name, tuple(kinds), result, run, macro=True))
        return Stmt(f"macro {name}({', '.join(names)}) {{ {value.text} }}", lambda _: None)


def held_value(where: Map, held: Any) -> Any:
    """What a loop sees of a map's entry."""
    if not isinstance(where.value, Int) or not where.aggregate:
        return held
    return where.value.wrap(READ[where.aggregate](held))


def _round(body: Stmt, frame: Frame) -> bool:
    """One round of a loop; False when it was the last."""
    frame.maps["steps"] = frame.maps.get("steps", 0) + 1
    if frame.maps["steps"] > 20000:
        raise TooLongError
    try:
        body.run(frame)
    except LeaveError as leave:
        if leave.what == "return":
            raise
        return leave.what == "continue"
    return True
