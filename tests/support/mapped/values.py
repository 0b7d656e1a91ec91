"""What a random script has so far, and how it writes values and keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.generated.choices import Choices
from tests.support.kinds import BUFFER, PAIR, TEXT, Group, Kind, Text, some
from tests.support.mapped.aggregations import Aggregation
from tests.support.mapped.output import Map, Record


@dataclass
class Values:
    """What a script has so far, and how it writes values."""

    choices: Choices
    maps: list[Map] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    """Statements for the end of the probe that is being written."""
    waiting: list[Callable[[], list[Record]]] = field(default_factory=list)
    """What the tracer does with the events of the probe that is being written."""
    parameters: list[bytes] = field(default_factory=list)
    words: list[bytes] = field(default_factory=list)
    """Arguments of the traced command, when the probe can read them."""
    alive: bool = True
    names: int = 0
    strlen: int = 1024
    limit: int = 0
    times: int = 1
    """How often the probe runs."""
    silent: bool = False
    """Only updates may stand here whose order does not matter."""

    def fresh(self) -> str:
        """A new variable."""
        self.names += 1
        return f"$v{self.names}"

    def given(self, kind: Kind, value: Any) -> str:
        """Source of *value*, by itself or by way of a variable."""
        source = self._source(kind, value)
        if self.choices.chance(25):
            name = self.fresh()
            self.lines.append(f"{name} = {source};")
            return name
        return source

    def mixed(self, kind: Kind, value: Any) -> str:
        """As :meth:`given`, for a place whose type is known: members of records may come in another order."""
        if kind is PAIR or not isinstance(kind, Group) or not kind.names or self.choices.chance(50):
            return self.given(kind, value)
        parts = [f"{n}={self.given(m, v)}" for n, m, v in zip(kind.names, kind.members, value, strict=True)]
        at = self.choices.below(len(parts))
        return f"({', '.join(parts[at:] + parts[:at])})"

    def _source(self, kind: Kind, value: Any) -> str:
        if kind is PAIR:
            name = self.fresh()
            self.lines.append(f"{name} = (uint64){PAIR.word(value):#x};")
            return f"*(struct pair *)&{name}"
        if isinstance(kind, Text) and value in self.words and len(value) < self.strlen and self.choices.chance(60):
            return f"str(args.argv[{self.words.index(value)}])"
        if isinstance(kind, Text) and value and self.choices.chance(15):
            if self._is_word(value):
                if value not in self.parameters:
                    self.parameters.append(value)
                return f"str(${self.parameters.index(value) + 1})"
        return kind.source(value, self.choices)

    @staticmethod
    def _is_word(value: bytes) -> bool:
        """A parameter that looks like a number is one, or reads like an option."""
        return not value.strip()[:1].isdigit() and value[:1] not in (b"-", b"+")

    def value(self, kind: Kind) -> tuple[Any, str]:
        """A value and its source."""
        found = self.any_of(kind)
        return found, self.given(kind, found)

    def any_of(self, kind: Kind) -> Any:
        """A value."""
        found = kind.pick(self.choices)
        if kind is TEXT and self.words and self.choices.chance(30):
            found = self.choices.pick(self.words)[: self.strlen - 1]
        if kind is BUFFER:
            found = found[: self.strlen]
        return found

    def key(self, where: Map) -> tuple[Any, str]:
        """A key, often one that is there, and how the map is written with it."""
        if where.key is None:
            return (), where.name
        there = list(where.held)
        found = self.choices.pick(there) if there and self.choices.chance(60) else where.key.pick(self.choices)
        return found, f"{where.name}[{self._as_key(where.key, found)}]"

    def _as_key(self, kind: Kind, value: Any) -> str:
        if isinstance(kind, Group) and len(kind.members) > 1 and not kind.names and self.choices.chance(60):
            return ", ".join(self.given(member, item) for member, item in zip(kind.members, value, strict=True))
        return self.mixed(kind, value)

    @staticmethod
    def _tuple(place: str, where: Map) -> str:
        """The key of a place as one value."""
        inner = place[len(where.name) + 1 : -1]
        members = getattr(where.key, "members", ())
        return f"({inner})" if len(members) > 1 and _parts(inner) > 1 else inner

    def pick(self, wanted: Callable[[Map], bool]) -> Map | None:
        """One of the maps that are *wanted*."""
        found = [where for where in self.maps if wanted(where)]
        return self.choices.pick(found) if found else None

    def now(self, record: Record) -> None:
        """Something printed that is known when the probe runs."""
        if self.alive:
            self.waiting.append(lambda: [record])

    def later(self, what: Callable[[], list[Record]]) -> None:
        """Something the tracer does."""
        if self.alive:
            self.waiting.append(what)

    def readable(self) -> tuple[Kind, Any, str]:
        """A value for printf: of a map or by itself."""
        where = self.pick(lambda m: m.value is not BUFFER and m.readable)
        if where is None or self.choices.chance(50):
            kind = some(self.choices) if self.choices.chance(85) else BUFFER
            value, source = self.value(kind)
            return kind, value, source
        key, place = self.key(where)
        kind, shown = where.value, where.held.get(key, where.value.zero)
        if isinstance(kind, Aggregation):
            shown, kind = kind.read(shown), kind.result
            place = f"({kind.name}){place}" if self.choices.chance(50) else place
        return kind, shown, place


def _parts(inner: str) -> int:
    """How many values stand in a key, at its outermost level."""
    depth, found, inside, skip = 0, 1, False, False
    for char in inner:
        if skip:
            skip = False
        elif inside:
            skip, inside = char == "\\", char != '"'
        elif char == '"':
            inside = True
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and not depth:
            found += 1
    return found
