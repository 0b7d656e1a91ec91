"""Whole random programs, and what they must print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.generated.builders import Frame, Map
from tests.support.generated.choices import Choices
from tests.support.generated.control import Statements, held_value
from tests.support.generated.statements import AGGREGATES, LeaveError, Stmt, sequence
from tests.support.generated.structs import Pointee, Struct, Structs
from tests.support.kinds import INT64, UINT64, Group, Kind, Row, Text, as_json


@dataclass(frozen=True)
class Program:
    """A program, the lines that it prints in order, and its maps at the end (None: not checked)."""

    text: str
    lines: list[Any]
    maps: dict[str, Any]
    made: list[int]


def generate(seed: int | None, given: Sequence[int] = ()) -> Program:
    """The program of *seed*, or of the decisions *given*."""
    choices = Choices(seed, given)
    made = Statements(choices)
    structs = Structs(choices)
    while len(made.structs) < 3 and choices.chance(50):
        made.structs.append(structs.make())
    heads: list[Stmt] = []
    while len(heads) < 4 and choices.chance(55):
        heads.append(made.macro() if choices.chance(50) else made.function())
    while len(made.maps) < 7 and choices.chance(80):
        made.maps.append(_map(made))
    frame = Frame({m.name: {} for m in made.maps if m.key is not None}, [])
    probes = [_probe(made) for _ in range(1 + choices.below(2))]
    for probe in probes:
        frame.variables = {}
        try:
            probe.run(frame)
        except LeaveError:
            pass
    parts = [f"{struct.definition};" for struct in made.structs]
    parts += [head.text for head in heads]
    parts += [f"begin {probe.text}" for probe in probes]
    body = "\n".join(parts)
    return Program(body + "\nbegin { exit(); }\n", frame.lines, _final(made, frame), choices.made)


def _probe(made: Statements) -> Stmt:
    """A probe that prints its variables at the end, so that all of them are alive all the time."""
    made.scopes = [[]]
    statements = made.statements(14, 3)
    values = [made.read(v) for v in made.scopes[0] if not isinstance(v.kind, Pointee | Struct)]
    if values:
        statements.append(made.printf(values[:100]))
    # Maps have types by what is stored in them.
    first = [_first(m) for m in made.maps]
    return sequence([*first, *statements])


def _map(made: Statements) -> Map:
    choices = made.choices
    key = made.kind(key=True) if choices.chance(75) else None
    if choices.chance(30):
        aggregate = choices.pick(AGGREGATES)
        value = INT64 if aggregate == "count" else choices.pick((INT64, UINT64))
        return Map(made.fresh("@a"), key, value, aggregate)
    return Map(made.fresh("@m"), key, made.kind())


def _first(where: Map) -> Stmt:
    """Gives a map its types, in a branch that is never taken."""
    target = where.name if where.key is None else f"{where.name}[{_zero(where.key)}]"
    if where.aggregate:
        argument = {"count": "", "hist": f"({where.value.name})0, 2", "lhist": f"({where.value.name})0, 0, 100, 7"}
        value = f"{where.aggregate}({argument.get(where.aggregate, f'({where.value.name})0')})"
    else:
        value = _zero(where.value)
    return Stmt(f"if (nsecs == 0) {{ {target} = {value}; }}", lambda _: None)


def _zero(kind: Kind) -> str:
    match kind:
        case Text():
            return '""'
        case Group(members, ()):
            return f"({', '.join(map(_zero, members))}{',' if len(members) == 1 else ''})"
        case Group(members, names):
            return f"({', '.join(f'{name}={_zero(member)}' for name, member in zip(names, members, strict=True))})"
        case Row(_, count):
            return f"({kind.name})(uint{8 * count})0"
    return f"({kind.name})0"


def _final(made: Statements, frame: Frame) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for where in (*made.maps, *made.holders):
        held = frame.maps.get(where.name)
        if held is None or (where.key is not None and not held):
            continue
        if where.aggregate in ("stats", "hist", "lhist"):
            found[where.name] = None
        elif where.key is None:
            found[where.name] = _shown(where, held)
        else:
            found[where.name] = {_key(where.key, key): _shown(where, value) for key, value in held.items()}
    return found


def _shown(where: Map, held: Any) -> Any:
    return as_json(where.value, held_value(where, held))


def _key(kind: Kind, value: Any) -> str:
    """A key as JSON has it: several parts have no parentheses around them."""
    text = kind.key(value).decode("latin-1")
    return text[1:-1] if isinstance(kind, Group) and not kind.names else text
