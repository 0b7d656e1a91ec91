"""Static parts of events: each kind has one, its JSON form is read back as the same, others are refused."""

from __future__ import annotations

import msgspec
import pytest

from pytrace.base import typed_json
from pytrace.core.diagnostics import InternalError
from pytrace.core.event_layout import (
    STATIC_PARTS,
    CurrentTime,
    EmptiedMap,
    EventSpec,
    Exit,
    Formatted,
    HelperFailure,
    Joined,
    Location,
    NoStaticPart,
    PacketFile,
    PrintedMap,
    Quantiles,
    RowMembers,
    RuntimeFailure,
    StaticPart,
)
from pytrace.runtime.output.handlers import HANDLERS
from tests.support.rows import each_row

PLACE = Location("stdin", 1, 9)
PARTS: dict[str, StaticPart] = {
    "printf": Formatted("%s\udcff\n"),
    "heading": Formatted("%d"),
    "errorf": Formatted("wrong", assertion=True),
    "warnf": Formatted("%d"),
    "cat": Formatted("/proc/%d/comm"),
    "system": Formatted("ls"),
    "time": CurrentTime("%H:%M\n"),
    "join": Joined(","),
    "print_value": NoStaticPart(),
    "row": RowMembers(["a", "b.c"], [-2, 1]),
    "print_rows": NoStaticPart(),
    "clear_terminal": NoStaticPart(),
    "print_map": PrintedMap("@m", 3, 2, "-key", True),
    "quantiles": Quantiles("@h", [50.0, 99.9]),
    "clear": EmptiedMap("@m", joined=True),
    "zero": EmptiedMap("@m"),
    "exit": Exit(known=True),
    "skboutput": PacketFile("/tmp/x.pcap"),
    "unwatch": NoStaticPart(),
    "runtime_error": RuntimeFailure("array_bounds"),
    "helper_error": HelperFailure("bpf_map_update_elem", "@m"),
}


def test_every_kind_has_a_static_part_and_a_handler() -> None:
    assert set(STATIC_PARTS) == {*HANDLERS, "exit"} == set(PARTS)


@each_row("kind", PARTS)
def test_json_form_is_read_back_as_the_same(kind: str) -> None:
    spec = EventSpec(0, kind, (), PARTS[kind], PLACE)
    again = typed_json.decode(typed_json.encode(spec), EventSpec)
    assert again == spec
    assert type(again.static) is STATIC_PARTS[kind]


def test_what_has_a_default_may_be_left_out_of_the_json_form() -> None:
    spec = EventSpec(0, "print_map", (), PrintedMap("@m"), PLACE)
    data = {**msgspec.to_builtins(spec), "static": {"type": "PrintedMap", "map": "@m"}}
    assert msgspec.convert(data, EventSpec).static == PrintedMap("@m", top=0, div=1, order="", clear=False)


def test_a_static_part_is_read_by_its_class() -> None:
    spec = EventSpec(0, "clear", (), EmptiedMap("@m"), PLACE)
    assert spec.static_part(EmptiedMap).map == "@m"
    with pytest.raises(InternalError, match=r"expected Formatted for clear, found EmptiedMap\(map='@m'"):
        spec.static_part(Formatted)
