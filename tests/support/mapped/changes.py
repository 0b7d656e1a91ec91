"""Random statements that change maps."""

from __future__ import annotations

from typing import Any

from tests.support.generated.choices import Choices
from tests.support.kinds import BOOL, BUFFER, INT64, INTEGERS, PAIR, UINT64, Group, Int, Kind, some
from tests.support.mapped import output
from tests.support.mapped.aggregations import Aggregation
from tests.support.mapped.output import Map, Record
from tests.support.mapped.values import Values

CALLS = ("count", "sum", "avg", "min", "max", "stats", "hist", "hist", "lhist")
BOUNDS = (
    (0, 10, 1), (0, 100, 7), (10, 110, 25), (0, 10240, 1024), (0, 4 << 20, 1 << 20), (5, 1005, 1), (1000, 3000, 1000),
    (1024, 5000, 512),
)  # fmt: skip
"""Of lhist."""
NAMES = ("@", "@a", "@b", "@big_one", "@c", "@z9")


class Changes(Values):
    """Makes statements that change maps."""

    def add_map(self) -> None:
        choices = self.choices
        name = choices.pick([name for name in NAMES if name not in {where.name for where in self.maps}])
        key = some(choices) if choices.chance(75) else None
        value: Kind = some(choices) if choices.chance(85) else choices.pick((BUFFER, PAIR))
        if choices.chance(50):
            value = _aggregation(choices)
        if choices.chance(5):
            key = PAIR
        if self.limit and isinstance(value, Aggregation) and value.graph:
            value = Aggregation("count", INT64)
        where = Map(name, key, value, plain=choices.chance(30), limit=self.limit)
        self.maps.append(where)
        # Its types do not depend on what is stored. They may be known late; but members of records come in the order of
        # the first use, and what is copied from an aggregation of constants is signed until it is known not to be.
        place = name if key is None else f"{name}[{key.source(key.zero, Choices())}]"
        line = f"if (nsecs == 0) {{ {place} = {self._nothing(where)}; }}"
        unsigned = isinstance(value, Aggregation) and not value.result.signed
        late = choices.chance(30) and not unsigned and not _has_names(key) and not _has_names(value)
        (self.last if late else self.lines).append(line)

    def _nothing(self, where: Map) -> str:
        value = where.value
        if isinstance(value, Aggregation):
            return value.write(f"({value.argument.name})0")
        if isinstance(value, Int):
            return f"({value.name})0"
        if value is BUFFER:
            return 'buf("x", 1)'
        return value.source(value.zero, Choices())

    def store(self) -> None:
        where = self.pick(lambda m: not self.silent or isinstance(m.value, Aggregation))
        if where is None:
            return
        if isinstance(where.value, Aggregation):
            self.aggregate(where)
            return
        value = self.any_of(where.value)
        key, place = self.key(where)
        self.lines.append(f"{place} = {self.mixed(where.value, value)};")
        if self.alive:
            where.put(key, value)

    def aggregate(self, where: Map) -> None:
        value = where.value
        assert isinstance(value, Aggregation)
        number, source = self.value(value.argument)
        key, place = self.key(where)
        self.lines.append(f"{place} = {value.write(source)};")
        if self.alive:
            where.put(key, (*where.held.get(key, ()), *[number] * self.times))

    def fill(self) -> None:
        """A loop that updates a map with integer keys, or one without key."""
        where = self.pick(lambda m: isinstance(m.value, Aggregation) and (m.key is None or isinstance(m.key, Int)))
        if where is None:
            return
        value, integer = where.value, where.key
        assert isinstance(value, Aggregation)
        assert integer is None or isinstance(integer, Int)
        count, factor, offset = self.choices.below(40), self.choices.pick((1, 3, 1024, 1000)), self.choices.below(3)
        modulus = self.choices.pick((1, 2, 5))
        name = f"$i{len(self.lines)}"
        place = where.name if integer is None else f"{where.name}[({integer.name})({name} % {modulus})]"
        argument = f"({value.argument.name})({name} * {factor} + {offset})"
        self.lines.append(f"for ({name} : 0..{count}) {{ {place} = {value.write(argument)}; }}")
        if self.alive:
            for number in range(count):
                key = () if where.key is None else number % modulus
                wrapped = value.argument.wrap(number * factor + offset)
                where.put(key, (*where.held.get(key, ()), *[wrapped] * self.times))

    def fill_plainly(self) -> None:
        """A loop that stores many entries."""
        where = self.pick(lambda m: not isinstance(m.value, Aggregation) and _first(m.key) in (INT64, UINT64))
        if where is None:
            return
        count, step = self.choices.pick((3, 10, 60, 300)), self.choices.pick((1, 7))
        value = self.any_of(where.value)
        source = self.mixed(where.value, value)
        name = f"$i{len(self.lines)}"
        rest: tuple[Any, ...] = ()
        kind, group = where.key, where.key
        if isinstance(group, Group):
            rest = tuple(member.pick(self.choices) for member in group.members[1:])
            parts = [self.given(member, item) for member, item in zip(group.members[1:], rest, strict=True)]
            kind = group.members[0]
            assert isinstance(kind, Int)
            key = f"({kind.name})({name} * {step})"
            if group.names:
                parts = [f"{n}={part}" for n, part in zip(group.names, [key, *parts], strict=True)]
                key = f"({', '.join(parts)})"
            else:
                key = f"({', '.join([key, *parts])}{'' if parts else ','})"
        else:
            assert isinstance(kind, Int)
            key = f"({kind.name})({name} * {step})"
        changing = isinstance(where.value, Int) and where.value in (INT64, UINT64)
        if isinstance(where.value, Int) and changing:
            source = f"({where.value.name})({name} % 5)"
        self.lines.append(f"for ({name} : 0..{count}) {{ {where.name}[{key}] = {source}; }}")
        if self.alive:
            for number in range(count):
                at: Any = number * step
                if isinstance(where.key, Group):
                    at = (at, *rest)
                where.put(at, number % 5 if changing else value)

    def step(self) -> None:
        """``++`` and the like."""
        where = self.pick(lambda m: m.value in (INT64, UINT64) and not m.plain)
        if where is None:
            return
        kind = where.value
        assert isinstance(kind, Int)
        key, place = self.key(where)
        old = where.held.get(key, 0)
        if self.silent:
            by, source = self.value(kind)
            self.lines.append(f"{place} += {source};")
            if self.alive:
                where.put(key, kind.wrap(old + by * self.times))
            return
        # What -- and -= give is signed.
        of_signed = ("--", "-=", "*=") if kind is INT64 else ()
        operator = self.choices.pick(("++", "+=", "|=", "^=", "&=", *of_signed))
        if operator in ("++", "--"):
            new = kind.wrap(old + (1 if operator == "++" else -1))
            form = self.choices.below(3)
            if form == 0:
                self.lines.append(f"{place}{operator};")
            elif form == 1:
                self.lines.append(f'printf("<%ld>\\n", {place}{operator});')
                self.now(output.text("printf", b"<%d>\n" % INT64.wrap(old)))
            else:
                self.lines.append(f'printf("<%ld>\\n", {operator}{place});')
                self.now(output.text("printf", b"<%d>\n" % INT64.wrap(new)))
        else:
            by, source = self.value(kind)
            self.lines.append(f"{place} {operator} {source};")
            results = {"+=": old + by, "-=": old - by, "|=": old | by, "^=": old ^ by, "&=": old & by, "*=": old * by}
            new = kind.wrap(results[operator])
        if self.alive:
            where.put(key, new)

    def delete(self) -> None:
        where = self.pick(lambda m: True)
        if where is None:
            return
        key, place = self.key(where)
        there = key in where.held
        inner = where.name if where.key is None else f"{where.name}, {self._tuple(place, where)}"
        if self.choices.chance(50):
            self.lines.append(f"_ = delete({inner});")
        else:
            self.lines.append(f"print(delete({inner}));")
            self.now(output.value(BOOL, there))
        if self.alive:
            where.held.pop(key, None)

    def keep(self) -> None:
        """An entry that is copied to a variable, changed, and printed as it was; or copied to another entry."""
        where = self.pick(lambda m: m.value is not BUFFER and not isinstance(m.value, Aggregation))
        if where is None:
            return
        key, place = self.key(where)
        held = where.held.get(key, where.value.zero)
        if self.choices.chance(40):
            other = self.pick(lambda m: m.value == where.value)
            assert other is not None
            to, target = self.key(other)
            self.lines.append(f"{target} = {place};")
            if self.alive:
                other.put(to, held)
            return
        name = self.fresh()
        self.lines.append(f"{name} = {place};")
        value = self.any_of(where.value)
        self.lines.append(f"{place} = {self.mixed(where.value, value)};")
        if self.alive:
            where.put(key, value)
            value = where.held.get(key, where.value.zero)
        if self.choices.chance(50):
            self.lines.append(f"print({name});")
            self.now(output.value(where.value, held))
        else:
            self.lines.append(f'printf("%s|%s|\\n", {name}, {place});')
            self.now(output.text("printf", b"%s|%s|\n" % (where.value.text(held), where.value.text(value))))

    def copy_loop(self) -> None:
        """A loop over a map that puts its entries into another one, or prints them."""
        where = self.pick(lambda m: m.key is not None and m.readable)
        if where is None:
            return
        assert where.key is not None
        name = self.fresh()
        kind = where.value
        result: Kind = kind
        entries = list(where.held.items())
        if isinstance(kind, Aggregation):
            result = kind.result
            entries = [(key, kind.read(value)) for key, value in entries]
        if self.choices.chance(50):
            self.names += 1
            other = Map(f"@copy{self.names}", where.key, result, plain=True, limit=self.limit)
            self.lines.append(f"for ({name} : {where.name}) {{ {other.name}[{name}.0] = {name}.1; }}")
            self.maps.append(other)
            if self.alive:
                for at, held in entries:
                    other.put(at, held)
            return
        self.names += 1
        group, form = self.names, self.choices.below(2)
        if form:
            self.lines.append(f'for ({name} : {where.name}) {{ printf("<%s|%s>\\n", {name}.0, {name}.1); }}')
            found = [output.text("printf", b"<%s|%s>\n" % (where.key.text(k), result.text(v))) for k, v in entries]
        else:
            self.lines.append(f"for ({name} : {where.name}) {{ print({name}); }}")
            found = [Record(b"(%s, %s)\n" % (where.key.text(k), result.text(v)),
                            f'{{"type": "value", "data": [{where.key.json(k)},{result.json(v)}]}}') for k, v in entries]
        for record in found:
            self.now(Record(record.text, record.json, group=group))

    def empty(self) -> None:
        """``clear`` and ``zero``."""
        where = self.pick(lambda m: m.value is not BUFFER and not forgets(m))
        if where is None:
            return
        what = self.choices.pick(("clear", "zero"))
        self.lines.append(f"{what}({where.name});")

        def act() -> list[Record]:
            if what == "clear":
                where.held.clear()
            else:
                where.held.update(dict.fromkeys(where.held, where.value.zero))
            return []

        self.later(act)


def _first(key: Kind | None) -> Kind | None:
    return key.members[0] if isinstance(key, Group) else key


def forgets(where: Map) -> bool:
    """A cleared sum without key is only printed at the end when it is not zero."""
    return where.key is None and isinstance(where.value, Aggregation) and where.value.call == "sum"


def _has_names(kind: Kind | None) -> bool:
    return bool(getattr(kind, "names", ())) or any(map(_has_names, getattr(kind, "members", ())))


def _aggregation(choices: Choices) -> Aggregation:
    call = choices.pick(CALLS)
    argument = choices.pick((INT64, UINT64, *INTEGERS[2:]))
    bits = choices.below(6) if call == "hist" else 0
    return Aggregation(call, argument, bits, choices.pick(BOUNDS))
