"""What a compiled script carries: manifest, layouts of events, facts about its kernel."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pytrace.base import typed_json
from pytrace.core import kernel_info
from pytrace.core.diagnostics import InternalError, TraceError
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
from pytrace.core.kernel_info import (
    FEATURES,
    NO_HEADERS,
    Facts,
    FunctionPrototype,
    KernelHeaders,
    decoded_facts,
    facts_digest,
)
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
from pytrace.core.options import Config
from pytrace.core.probe_kinds import FileTarget, KernelFunctionTarget, NoTarget, TimerTarget, UserTarget
from pytrace.core.types import INT32, INT64, UINT64, Count, Pointer, Stack, String, Tuple, Type, USym
from pytrace.runtime.output.handlers import HANDLERS
from tests.support.facts import TASK
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- manifest
# The manifest: round trips, and errors for damaged files.


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


# ---------------------------------------------------------------------------------------------- event layout
# Static parts of events: each kind has one, its JSON form is read back as the same, others are refused.


EVENT_LAYOUT_PLACE = Location("stdin", 1, 9)
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
    spec = EventSpec(0, kind, (), PARTS[kind], EVENT_LAYOUT_PLACE)
    again = typed_json.decode(typed_json.encode(spec), EventSpec)
    assert again == spec
    assert type(again.static) is STATIC_PARTS[kind]


def test_what_has_a_default_may_be_left_out_of_the_json_form() -> None:
    spec = EventSpec(0, "print_map", (), PrintedMap("@m"), EVENT_LAYOUT_PLACE)
    data = {**msgspec.to_builtins(spec), "static": {"type": "PrintedMap", "map": "@m"}}
    assert msgspec.convert(data, EventSpec).static == PrintedMap("@m", top=0, div=1, order="", clear=False)


def test_a_static_part_is_read_by_its_class() -> None:
    spec = EventSpec(0, "clear", (), EmptiedMap("@m"), EVENT_LAYOUT_PLACE)
    assert spec.static_part(EmptiedMap).map == "@m"
    with pytest.raises(InternalError, match=r"expected Formatted for clear, found EmptiedMap\(map='@m'"):
        spec.static_part(Formatted)


# ---------------------------------------------------------------------------------------------- kernel facts
# The form of facts about a machine: what equal ones have in common, and what is none.


SAID: dict[str, Any] = {
    "machine": "x86_64", "release": "6.1.0-56-amd64", "build": ("kernel",), "cpus": 4, "features": ("btf",),
    "btf": b"x", "modules": {"nf": b"y", "ext4": b"z"},
    "answers": ((("kernel_symbol", "jiffies"), ("1",)), (("modules",), ("nf",))),
}  # fmt: skip


def test_equal_facts_have_one_digest() -> None:
    facts = Facts(**SAID)
    assert decoded_facts(facts.encoded()) == facts
    again = Facts(**SAID | {"modules": {"ext4": b"z", "nf": b"y"}})
    assert facts_digest(again.encoded()) == facts_digest(facts.encoded())
    assert len(facts_digest(b"")) == 64
    for name, value in (("btf", b"y"), ("cpus", 8), ("answers", ()), ("modules", {"nf": b"y"}), ("release", "6.2")):
        assert facts_digest(Facts(**SAID | {name: value}).encoded()) != facts_digest(facts.encoded()), name


@each_row(
    ("name", "value"),
    [
        ("release", "../../etc"), ("release", ""), ("release", "6.1\n"), ("machine", "x86-64/"), ("cpus", 0),
        ("cpus", 1 << 20), ("cpus", "4"), ("btf", "text"), ("modules", {"../vmlinux": b""}), ("features", ["x"] * 1000),
        ("answers", [[[], []]]), ("answers", [[["a", "b", "c", "d", "e"], []]]), ("answers", [[["a"], [5]]]),
    ],
)  # fmt: skip
def test_what_is_none(name: str, value: object) -> None:
    """A release becomes a part of paths."""
    said = msgspec.msgpack.encode(SAID | {name: value})
    with pytest.raises(TraceError, match="the facts about a kernel are damaged"):
        decoded_facts(said)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x91" * 5000, b"\xdb\xff\xff\xff\xff", Facts(**SAID).encoded()[:-1]])
def test_damage(data: bytes) -> None:
    with pytest.raises(TraceError, match="the facts about a kernel are damaged"):
        decoded_facts(data)


def test_what_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TraceError, match="a name that is no text"):
        Facts(**SAID | {"answers": ((("cgroup_id", "\udcff"), ()),)}).encoded()
    monkeypatch.setattr(kernel_info, "LARGEST_FACTS", 50)
    with pytest.raises(TraceError, match="more than are sent"):
        Facts(**SAID).encoded()


# ---------------------------------------------------------------------------------------------- kernel info
# Facts about the machine as data.


def test_prototypes_in_one_line() -> None:
    found = FunctionPrototype("f", "vmlinux", (("task", Pointer(TASK)), ("n", UINT64)), INT32)
    assert found.text == "int32 (struct task_struct * task, uint64 n)"
    assert FunctionPrototype("f", "vmlinux", (), INT32).text == "int32 ()"


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/k/include/linux/fs.h", True),
        ("/k/include", False),
        ("/k/include2/x.h", False),
        ("/b/gen/x.h", True),
        ("/x.h", False),
    ],
)
def test_headers_of_the_kernel(path: str, inside: bool) -> None:
    assert KernelHeaders(folders=("/k/include", "/b/gen")).holds(path) is inside
    assert not NO_HEADERS.holds(path)


def test_features_are_listed_once() -> None:
    assert len(set(FEATURES)) == len(FEATURES)
