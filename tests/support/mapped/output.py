"""What a run prints: a list of records, each with its text and its JSON, and the comparison with what came out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from tests.support.kinds import Group, Int, Kind, Row, json_text
from tests.support.mapped.aggregations import Aggregation
from tests.support.numbers import divided


@dataclass(frozen=True)
class Record:
    """Something printed; *told* ones go to standard error in text mode.

    Records of one *group* (other than 0) come in any order.
    """

    text: bytes
    json: str
    told: bool = False
    group: int = 0


@dataclass
class Map:
    """A map of the script: *held* has its entries, at ``()`` when it has no key."""

    name: str
    key: Kind | None
    value: Kind
    held: dict[Any, Any] = field(default_factory=dict)
    plain: bool = False
    """Only ever assigned, so that its integers keep their type."""
    limit: int = 0
    """Most entries; 0: more than there will be."""

    @property
    def readable(self) -> bool:
        """Whether scripts can have its values."""
        return not isinstance(self.value, Aggregation) or self.value.readable

    def put(self, key: Any, value: Any) -> None:
        """Store an entry, if there is room for it."""
        if key in self.held or not self.limit or self.key is None or len(self.held) < self.limit:
            self.held[key] = value

    def printed(self, top: int = 0, div: int = 0, order: str = "", *, at_end: bool = False) -> list[Record]:
        """What printing it shows now."""
        value = self.value
        if self.key is None:
            if not self.held and (at_end or (isinstance(value, Aggregation) and value.graph)):
                return []
            shown = self.held.get((), value.zero)
            name = self.name.encode()
            return [Record(_entry(name, value, shown, div), self._json(_json(value, shown, div)))]
        if not self.held:
            return []
        entries = sorted(self.held.items(), key=self._order(order), reverse=order.startswith("-"))
        entries = entries[-top:] if top and not self._is_stats() else entries
        text = b"".join(_entry(self._place(key), value, shown, div) for key, shown in entries)
        return [Record(text, self._json("{" + ", ".join(self._members(entries, div)) + "}"))]

    def _is_stats(self) -> bool:
        return isinstance(self.value, Aggregation) and self.value.call == "stats"

    def _order(self, order: str) -> Any:
        key, value = self.key, self.value
        assert key is not None
        by_value = value.numeric if not order else order.endswith("value")
        return lambda item: (value.order(item[1]) if by_value else 0, key.order(item[0]))

    def _place(self, key: Any) -> bytes:
        assert self.key is not None
        text = self.key.text(key)
        if getattr(self.key, "members", None) and not self.key.names:  # type: ignore[attr-defined]
            text = text[1:-1]
        return b"%s[%s]" % (self.name.encode(), text)

    def _members(self, entries: list[tuple[Any, Any]], div: int) -> list[str]:
        assert self.key is not None
        seen: dict[bytes, int] = {}
        found = []
        for key, shown in entries:
            text = self.key.key(key)
            if getattr(self.key, "members", None) and not self.key.names:  # type: ignore[attr-defined]
                text = text[1:-1]
            seen[text] = seen.get(text, 0) + 1
            if seen[text] > 1:
                text += b" #%d" % seen[text]
            found.append(f"{json_text(text)}: {_json(self.value, shown, div)}")
        return found

    def _json(self, data: str) -> str:
        kind = self.value.record if isinstance(self.value, Aggregation) else "map"
        return f'{{"type": "{kind}", "data": {{"{self.name}": {data}}}}}'


def _entry(place: bytes, kind: Kind, value: Any, div: int) -> bytes:
    if isinstance(kind, Aggregation):
        text = kind.divided_text(value, div or 1)
        return b"%s:\n%s\n" % (place, text) if kind.graph else b"%s: %s\n" % (place, text)
    return b"%s: %s\n" % (place, kind.text(_divided(kind, value, div)))


def _json(kind: Kind, value: Any, div: int) -> str:
    if isinstance(kind, Aggregation):
        return kind.divided_json(value, div or 1)
    return kind.json(_divided(kind, value, div))


def _divided(kind: Kind, value: Any, div: int) -> Any:
    match kind:
        case Int() if div:
            return divided(value, div)
        case Group(members, _):
            return tuple(_divided(member, item, div) for member, item in zip(members, value, strict=True))
        case Row(element, _):
            return tuple(_divided(element, item, div) for item in value)
    return value


def value(kind: Kind, shown: Any) -> Record:
    """``print`` of a value."""
    return Record(kind.text(shown) + b"\n", f'{{"type": "value", "data": {kind.json(shown)}}}')


def text(kind: str, shown: bytes, end: bytes = b"") -> Record:
    """What ``printf`` and the like print; *end* is only there as text."""
    return Record(shown + end, f'{{"type": "{kind}", "data": {json_text(shown)}}}')


def difference(expected: list[Record], final: list[Record], out: bytes, err: bytes, *, json: bool) -> str:
    """What is wrong with an output; empty when nothing is."""
    if not json:
        told = [record.text for record in expected if record.told]
        found = [line for line in err.split(b"\n") if re.search(rb": (ERROR|WARNING): told ", line)]
        if [re.sub(rb"^.*?: (?=ERROR|WARNING)", b"", line) for line in found] != told:
            return f"standard error has {found}, expected {told}"
        parts = [record for record in expected if not record.told]
        return _compared([*parts, Record(b"\n\n", ""), *final], out, lambda record: record.text)
    return _compared([*expected, *final], out, lambda record: f"{record.json}\n".encode("utf-8", "surrogatepass"))


def _compared(records: list[Record], out: bytes, form: Any) -> str:
    at, index = 0, 0
    while index < len(records):
        group = [records[index]]
        index += 1
        while group[0].group and index < len(records) and records[index].group == group[0].group:
            group.append(records[index])
            index += 1
        left = sorted((form(record) for record in group), key=len, reverse=True)
        while left:
            found = next((item for item in left if out.startswith(item, at)), None)
            if found is None:
                return _shown(left[0], out[at:])
            left.remove(found)
            at += len(found)
    return "" if at == len(out) else f"more comes out: {out[at : at + 300]!r}"


def _shown(wanted: bytes, got: bytes) -> str:
    same = 0
    while same < min(len(wanted), len(got)) and wanted[same] == got[same]:
        same += 1
    start = max(0, same - 150)
    return f"expected {wanted[start : same + 150]!r}, but out comes {got[start : same + 250]!r}"
