"""Values and events as the kernel lays them out, from the decoded form of pytrace.render.value_kind."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from pytrace.base.interruption import EndRequests
from pytrace.core import types
from pytrace.core.event_layout import CUT, STATIC_PARTS, EventLayout, EventSpec, Location
from pytrace.core.manifest import Manifest, MapSpec
from pytrace.core.options import Config
from pytrace.core.value_tables import RowTable
from pytrace.render.text import Values, integer_code
from pytrace.runtime.machine.clocks import Clock
from pytrace.runtime.output.renderer import Renderer, RenderOptions, RunState
from pytrace.runtime.output.streams import Flush, Output

PLACE = Location("stdin", 1, 9, 26, 'begin { errorf("e %d", 5); }')


# ---------------------------------------------------------------------------------------------- values


def encode(kind: types.Type, value: Any) -> bytes:
    """The memory of *value*, padded to the size of *kind*."""
    data = ROWS[type(kind)](kind, value)
    assert len(data) <= kind.size, (kind, value, len(data), kind.size)
    return data.ljust(kind.size, b"\0")


def _int(kind: Any, value: int) -> bytes:
    if kind.width == 16:
        return value.to_bytes(16, "little", signed=kind.signed)
    return struct.pack("=" + integer_code(kind.width, kind.signed), value)


def _members(kinds: Sequence[types.Type], offsets: Sequence[int], values: Sequence[Any]) -> bytes:
    data = b""
    for kind, offset, value in zip(kinds, offsets, values, strict=True):
        data = data.ljust(offset, b"\0") + encode(kind, value)
    return data


def _struct(kind: types.Struct, values: Sequence[Any]) -> bytes:
    data = bytearray(kind.size)
    for member, value in zip(types.named_fields(kind), values, strict=True):
        if member.bit_size:
            whole = int.from_bytes(data[member.offset :], "little")
            whole |= (value & ((1 << member.bit_size) - 1)) << member.bit_offset
            data[member.offset :] = whole.to_bytes(len(data) - member.offset, "little")
        else:
            data[member.offset : member.offset + member.type.size] = encode(member.type, value)
    return bytes(data)


def _stack(kind: types.Stack, value: tuple[int, tuple[Any, ...], int]) -> bytes:
    process, frames, error = value
    head = struct.pack("=iI", error or len(frames), process)
    if kind.mode is types.StackMode.BUILD_ID:
        return head + b"".join(struct.pack("=i20sQ", *frame) for frame in frames)
    return head + struct.pack(f"={len(frames)}Q", *frames)


def _pair(kind: Any, value: tuple[int, int]) -> bytes:
    return struct.pack("=qQ" if kind.signed else "=QQ", *value)


def _extreme(kind: Any, value: tuple[int, int]) -> bytes:
    return struct.pack("=QQ", kind.rank(value[0]) if value[1] else 0, value[1])


ROWS: dict[type[types.Type], Callable[[Any, Any], bytes]] = {
    types.Void: lambda _kind, _value: b"",
    types.Bool: lambda _kind, value: bytes((value,)),
    types.Int: _int,
    types.Float: lambda kind, value: struct.pack("=f" if kind.size == 4 else "=d", value),
    types.Enum: _int,
    types.Pointer: lambda _kind, value: struct.pack("=Q", value),
    types.String: lambda _kind, value: value,
    types.Buffer: lambda _kind, value: struct.pack("=I", len(value)) + value,
    types.Array: lambda kind, value: b"".join(encode(kind.element, item) for item in value),
    types.Tuple: lambda kind, value: _members(kind.members, kind.offsets, value),
    types.Record: lambda kind, value: _members(kind.members, kind.offsets, value),
    types.Struct: _struct,
    types.Stack: _stack,
    types.KSym: lambda _kind, value: struct.pack("=Q", value),
    types.USym: lambda _kind, value: struct.pack("=QI", value[1], value[0]),
    types.Inet: lambda _kind, value: struct.pack("=I", value[0]) + value[1],
    types.Mac: lambda _kind, value: value,
    types.Timestamp: lambda _kind, value: struct.pack("=QII", *value),
    types.Username: lambda _kind, value: struct.pack("=Q", value),
    types.InterfaceName: lambda _kind, value: struct.pack("=Q", value),
    types.NetworkNamespace: lambda _kind, value: struct.pack("=Q", value),
    types.CgroupPath: lambda _kind, value: struct.pack("=QI", *value),
    types.Fixed: lambda kind, value: struct.pack("=q" if kind.signed else "=Q", value),
    types.Joined: lambda kind, value: _members(kind.members, kind.offsets, value),
    types.Count: lambda _kind, value: struct.pack("=Q", value),
    types.Sum: lambda kind, value: struct.pack("=q" if kind.signed else "=Q", value),
    types.Avg: _pair,
    types.Stats: _pair,
    types.Min: _extreme,
    types.Max: _extreme,
    types.Hist: lambda _kind, value: struct.pack(f"={len(value)}Q", *value),
    types.LHist: lambda _kind, value: struct.pack(f"={len(value)}Q", *value),
    types.TSeries: lambda kind, value: b"".join(
        struct.pack("=QqQ" if kind.signed else "=QQQ", *item) for item in value
    ),
}


# ---------------------------------------------------------------------------------------------- events


class Cut(msgspec.Struct, frozen=True):
    """A string that did not fit: its text as far as it went."""

    text: bytes


def encode_event(identity: int, kinds: Sequence[types.Type], values: Sequence[Any]) -> bytes:
    """One event: header, fixed part, tail."""
    layout = EventLayout(tuple(kinds))
    slots, tail = [], b""
    for kind, value, far in zip(kinds, values, layout.tails, strict=True):
        if not far:
            slots.append(encode(kind, value.text.ljust(kind.size, b"x") if isinstance(value, Cut) else value))
            continue
        text = value.text if isinstance(value, Cut) else value
        slots.append(struct.pack("=I", len(text) | (CUT if isinstance(value, Cut) else 0)))
        tail += text
    data = struct.pack("=II", identity, len(tail))
    for offset, slot in zip(layout.offsets, slots, strict=True):
        data = data.ljust(offset, b"\0") + slot
    return data.ljust(layout.fixed_size, b"\0") + tail


def record(event: bytes) -> bytes:
    """An event as the ring holds it: behind its record header, rounded up to 8 bytes."""
    return struct.pack("=II", len(event), 0) + event.ljust((len(event) + 7) & ~7, b"\0")


# ---------------------------------------------------------------------------------------------- a run


class Frame(msgspec.Struct, frozen=True):
    """As pytrace.runtime.stacks gives it."""

    name: str
    offset: int = 0
    module: str = ""
    file: str = ""
    line: int = 0
    inlined: bool = False


class Symbols:
    """Knows the addresses that a test tells it; *calls* are those where another line is that of the call."""

    def __init__(
        self, known: dict[int, list[Frame]] | None = None, calls: dict[int, list[Frame]] | None = None
    ) -> None:
        self.known = known or {}
        self.trampolines: set[int] = set()
        self.calls = calls or {}

    def kernel(self, address: int, *, caller: bool = False) -> list[Frame]:
        found = self.known.get(address, [Frame("")])
        return self.calls.get(address, found) if caller else found

    def user(self, pid: int, address: int, *, caller: bool = False) -> list[Frame]:
        return self.kernel(address, caller=caller)

    def trampoline(self, _pid: int, address: int) -> bool:
        return address in self.trampolines


class FakeReader:
    """Maps in memory: keyed ones as pairs, unkeyed ones as (written, data)."""

    def __init__(self) -> None:
        self.keyed: dict[str, list[tuple[bytes, bytes]]] = {}
        self.slots: dict[str, tuple[bool, bytes]] = {}
        self.block = 4096

    def chunk(self, _digest: bytes) -> bytes | None:
        return None

    def blocks(self, spec: MapSpec, *, clear: bool = False) -> Iterator[tuple[bytes, bytes, int]]:
        pairs = list(self.keyed.get(spec.name, []))
        if clear:
            self.keyed.pop(spec.name, None)
        for start in range(0, len(pairs), self.block):
            some = pairs[start : start + self.block]
            yield b"".join(key for key, _ in some), b"".join(value for _, value in some), len(some)

    def slot(self, spec: MapSpec) -> tuple[bool, bytes]:
        return self.slots.get(spec.name, (False, bytes((spec.value.size + 7) & ~7)))

    def slot_and_clear(self, spec: MapSpec) -> tuple[bool, bytes]:
        found = self.slot(spec)
        self.clear(spec)
        return found

    def clear(self, spec: MapSpec) -> None:
        self.keyed.pop(spec.name, None)
        self.slots.pop(spec.name, None)

    def zero(self, spec: MapSpec) -> None:
        self.keyed[spec.name] = [(key, bytes(len(value))) for key, value in self.keyed.get(spec.name, [])]
        if spec.name in self.slots:
            self.slots[spec.name] = (True, bytes(len(self.slots[spec.name][1])))

    def lookup(self, spec: MapSpec, key: bytes) -> bytes | None:
        return dict(self.keyed.get(spec.name, [])).get(key)

    def store(self, spec: MapSpec, key: bytes, value: bytes) -> None:
        self.keyed[spec.name] = [*(dict(self.keyed.get(spec.name, [])) | {key: value}).items()]

    def delete(self, spec: MapSpec, key: bytes) -> bool:
        pairs = dict(self.keyed.get(spec.name, []))
        there = pairs.pop(key, None) is not None
        self.keyed[spec.name] = [*pairs.items()]
        return there

    def store_slot(self, spec: MapSpec, value: bytes) -> bool:
        there, _ = self.slot(spec)
        self.slots[spec.name] = (True, value)
        return there


class Run(msgspec.Struct, dict=True):
    """A renderer over fake maps and symbols; collects what is printed."""

    specs: list[EventSpec] = msgspec.field(default_factory=list)
    maps: list[MapSpec] = msgspec.field(default_factory=list)
    strings: tuple[str, ...] = ()
    config: Config = msgspec.field(default_factory=Config)
    symbols: Symbols = msgspec.field(default_factory=Symbols)
    json: bool = False
    csv: bool = False
    options: RenderOptions = msgspec.field(default_factory=RenderOptions)
    keep_row: Callable[[RowTable, Values], None] | None = None
    unwatch: Callable[[int], None] = lambda _address: None
    requests: EndRequests = msgspec.field(default_factory=EndRequests)
    reader: FakeReader = msgspec.field(default_factory=FakeReader)
    messages: bytes = b""
    layout: tuple[str, ...] = ()
    """The words of ``stack_layout()``."""
    _made: Renderer | None = None

    def event(self, handler: str, kinds: Iterable[types.Type] = (), /, **static: Any) -> int:
        """Add a place that sends events; gives its id."""
        self.specs.append(EventSpec(len(self.specs), handler, tuple(kinds), STATIC_PARTS[handler](**static), PLACE))
        return len(self.specs) - 1

    def move(self, identity: int, column: int) -> None:
        """Let an event come from another column of the script."""
        place = replace(PLACE, column=column, end_column=column + 7)
        self.specs[identity] = replace(self.specs[identity], location=place)

    def scalar(self, name: str, kind: types.Type, *copies: Any) -> MapSpec:
        """Add an unkeyed map that was written."""
        spec = MapSpec(name, "", "global", None, kind, 1)
        self.maps.append(spec)
        data = b"".join(encode(kind, item).ljust((kind.size + 7) & ~7, b"\0") for item in copies)
        self.reader.slots[name] = (True, data)
        return spec

    def keyed(self, name: str, key: types.Type, kind: types.Type, entries: dict[Any, Any]) -> MapSpec:
        """Add a keyed map; a value that is a list has a copy for each CPU."""
        spec = MapSpec(name, name[1:], "hash", key, kind, 4096)
        self.maps.append(spec)
        pairs = []
        for name_, value in entries.items():
            copies = value if isinstance(value, list) else [value]
            size = (kind.size + 7) & ~7 if len(copies) > 1 else kind.size
            pairs.append((encode(key, name_), b"".join(encode(kind, item).ljust(size, b"\0") for item in copies)))
        self.reader.keyed[name] = pairs
        return spec

    def bucketed(self, name: str, key: types.Type, kind: types.Type, entries: dict[Any, dict[int, Any]]) -> MapSpec:
        """Add a keyed hist or lhist (counts by bucket) or tseries (one interval by place)."""
        spec = MapSpec(name, name[1:], "percpuhash", key, kind, 4096)
        self.maps.append(spec)
        pairs = []
        for name_, buckets in entries.items():
            head = encode(key, name_)
            head = head.ljust((len(head) + 7) & ~7, b"\0")
            for number, value in buckets.items():
                data = struct.pack("=QqQ", *value) if isinstance(value, tuple) else struct.pack("=QQ", value, 0)
                pairs.append((head + struct.pack("=Q", number), data))
        self.reader.keyed[name] = pairs
        return spec

    @property
    def renderer(self) -> Renderer:
        if self._made is None:
            manifest = Manifest(
                (), tuple(self.maps), tuple(self.specs), self.strings, self.config, stack_layout=self.layout
            )
            self.output = _Kept(self)
            self._made = Renderer(
                manifest, self.output, self.symbols, self.reader, Clock(), self.options,
                RunState(requests=self.requests), keep_row=self.keep_row, unwatch=self.unwatch,
            )  # fmt: skip
            self.output.capture()
        return self._made

    def send(self, identity: int, *values: Any) -> None:
        """Handle one event."""
        self.send_many(identity, [values])

    def send_many(self, identity: int, rows: Sequence[Sequence[Any]]) -> None:
        """Handle events of one place, in runs of equal length as the ring reader forms them."""
        handlers = self.renderer.handlers
        events = [encode_event(identity, self.specs[identity].args, row) for row in rows]
        at = 0
        while at < len(events):
            end = at
            while end < len(events) and len(events[end]) == len(events[at]):
                end += 1
            data = b"".join(record(event) for event in events[at:end])
            handlers[identity](data, 8, len(events[at]), len(data) // (end - at), end - at)
            at = end

    def printed(self) -> bytes:
        """What was printed since the last call."""
        kept = self.output.release() if self._made else b""
        self.renderer
        cuts = self.output.cuts
        self.output.capture()
        # It is one run that goes on: headings of tables are not due again.
        self.output.cuts = cuts
        return kept

    def printed_text(self) -> str:
        """As :meth:`printed`, for UTF-8."""
        return self.printed().decode()


class _Kept(Output):
    def __init__(self, run: Run) -> None:
        super().__init__(flush=Flush.FULL, json=run.json, csv=run.csv)
        self._run = run

    def beside(self, parts: list[bytes]) -> None:
        self._run.messages += b"".join(parts)

    def message(self, text: str) -> None:
        self.flush()
        self._run.messages += text.encode("utf-8", "surrogateescape")


def unescaped_utf8(text: bytes) -> bytes:
    """Inverse of ``pytrace.core.text.escaped_utf8`` and ``printable_utf8``."""
    return re.sub(rb"\\x([0-9a-f]{2})", lambda match: bytes.fromhex(match.group(1).decode()), text)
