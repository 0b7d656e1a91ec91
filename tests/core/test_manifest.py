"""The manifest: round trips, and errors for damaged files."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from pytrace.core.config import Config
from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.event_layout import EventSpec, Location, NoStaticPart
from pytrace.core.manifest import (
    FORMAT,
    MAGIC,
    AheadOfTime,
    CompiledScript,
    Counters,
    GlobalSlot,
    Manifest,
    MapSpec,
    OpenValue,
    Parameters,
    ProgramSpec,
    SessionData,
    Site,
    Target,
    UnwindMaps,
    file_form,
)
from pytrace.core.probes.targets import FileTarget, KernelFunctionTarget, NoTarget, TimerTarget, UserTarget
from pytrace.core.types import INT64, Count, Stack, String, Tuple, Type, USym

PLACE = Location("x.bt", 3, 7)
FUNCTIONS = tuple(Target(f"kprobe:f{at}", at, KernelFunctionTarget(f"f{at}")) for at in range(3))
TIMER = Target("interval:s:1", 0, TimerTarget(period_ns=10**9))
SCRIPT = CompiledScript(
    b"ELF",
    Manifest(
        programs=(
            ProgramSpec("begin_0", "begin", 0, (Target("begin", 0, NoTarget()),), PLACE),
            ProgramSpec("kprobe_1", "kprobe", 1, FUNCTIONS, PLACE, "kprobe_multi"),
            ProgramSpec("timer", "interval", 1, (TIMER,), PLACE, "", "x", service=True),
        ),
        maps=(
            MapSpec("@a", "map_a", "hash", String(16), Count(), 4096, inner=(1, 2, 3), location=PLACE),
            MapSpec("@b", "", "global", None, INT64, 1, GlobalSlot(".data.slots", 8, 4, 64), help="a\nb \udcff"),
        ),
        events=(),
        strings=("%H",),
        config=Config(max_strlen=64),
        counters=Counters(".data.counters", 0, 4, 64, (("lost", 0),), (Site("probe_read", PLACE),)),
        warnings=("WARNING: x",),
        facts=(("kernel", "a", "b"),),
        session=SessionData(".bss.maps", 0, 8, 16, 24, 32, 40, 44, 48, 56, 64),
        unwind=UnwindMaps("spaces", "ranges", "rows", 4096, True, "requests"),
        follow_map="followed",
        output_format="folded",
        objects=(b"\x7fELF\0\xff", b""),
        ahead=AheadOfTime(
            4,
            values=(OpenValue("parameter", ("1", "number", "0", "0"), 8, 8),),
            relies=(("size", "struct", "task_struct", "64"),),
            binaries=(("exact", "/bin/a", "why"),),
            parameters=Parameters(("1",), (("x", None), ("y", "2")), ("x", "y"), "  --x\n", 2),
            follow=True,
            features=("kprobe",),
            script_hash="abc",
        ),
    ),
)


def test_what_is_written_is_read_again() -> None:
    assert CompiledScript.from_bytes(SCRIPT.to_bytes()) == SCRIPT
    assert CompiledScript.from_bytes(SCRIPT.to_bytes(executable=True)) == SCRIPT


def test_sections_may_be_missing() -> None:
    manifest = replace(SCRIPT.manifest, session=None, unwind=None, follow_map="", objects=(), ahead=None)
    plain = CompiledScript(b"", manifest)
    assert CompiledScript.from_bytes(plain.to_bytes()) == plain


def test_types_of_what_is_printed() -> None:
    """Those of keys and values, and their parts."""
    assert [spec.types for spec in SCRIPT.manifest.maps] == [(String(16), Count()), (INT64,)]
    assert list(SCRIPT.manifest.printed_types()) == [String(16), Count(), INT64]
    pair = Tuple((String(16), Stack(True, 3)))
    keyed = replace(SCRIPT.manifest.maps[0], key=pair)
    manifest = replace(SCRIPT.manifest, maps=(keyed,))
    assert list(manifest.printed_types()) == [pair, String(16), Stack(True, 3), Count()]


@pytest.mark.parametrize(
    ("type_", "shows"), [(USym(), True), (Stack(True, 3), True), (Stack(False, 3), False), (String(16), False)]
)
def test_user_addresses_are_found_in_keys_and_events(type_: Type, shows: bool) -> None:
    keyed = replace(SCRIPT.manifest.maps[0], key=Tuple((INT64, type_)))
    assert replace(SCRIPT.manifest, maps=(keyed,)).shows_user_addresses() is shows
    event = EventSpec(0, "printf", (INT64, type_), NoStaticPart(), PLACE)
    assert replace(SCRIPT.manifest, maps=(), events=(event,)).shows_user_addresses() is shows


def test_places_are_of_the_class_of_their_kind() -> None:
    target = Target("uprobe:/bin/a:main", 0, UserTarget("/bin/a", 64, symbol="main"))
    assert target.of(UserTarget) is target.of(FileTarget) is target.place
    with pytest.raises(InternalError, match="uprobe:/bin/a:main: TimerTarget expected, not UserTarget"):
        target.of(TimerTarget)


def damaged(change: Callable[[dict[str, Any]], None]) -> bytes:
    data = json.loads(SCRIPT.manifest.encoded())
    change(data)
    head = json.dumps(data).encode()
    return file_form(head, b"ELF")


def test_an_unchanged_copy_is_not_damaged() -> None:
    assert CompiledScript.from_bytes(damaged(lambda data: None)) == SCRIPT


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["programs"][0].update(kind="nothing"),
        lambda data: data["programs"][0].update(targets=[["begin", 0, ["too", "many"]]]),
        lambda data: data["programs"][0].update(targets=[["begin"]]),
        lambda data: data.pop("maps"),
        lambda data: data["unwind"].pop("room"),
        lambda data: data["session"].pop("tai"),
        lambda data: data["ahead"]["parameters"].update(help=5),
        lambda data: data.update(objects=["?"]),
    ],
)
def test_other_manifests_are_told(change: Callable[[dict[str, Any]], None]) -> None:
    with pytest.raises(TraceError, match="another version of pytrace wrote"):
        CompiledScript.from_bytes(damaged(change))


def test_damage_anywhere_is_told() -> None:
    whole = SCRIPT.to_bytes()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        for data in (bytes(changed), whole[:at]):
            with pytest.raises(TraceError, match=r"damaged|truncated|another version|not a compiled"):
                CompiledScript.from_bytes(data)
    for data in (whole + b"x", whole + bytes(512), whole[:-10] + bytes(10)):
        with pytest.raises(TraceError, match="damaged"):
            CompiledScript.from_bytes(data)


def test_other_formats_are_told() -> None:
    data = bytearray(SCRIPT.to_bytes())
    struct.pack_into("<I", data, len(MAGIC), FORMAT - 1)
    with pytest.raises(TraceError, match=f"format {FORMAT - 1}, this one reads {FORMAT}"):
        CompiledScript.from_bytes(bytes(data))
    with pytest.raises(TraceError, match="not a compiled"):
        CompiledScript.from_bytes(b"x")
