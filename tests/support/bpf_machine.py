"""A BPF machine in Python: runs a compiled script's programs, so that tests of the code generator see what code does.

Memory is made of regions (sections, stacks, map values), each at an address of its own, and every access is checked
against them. Helpers do as little as the generated code can tell: one CPU, fixed clocks, a task with known numbers.
"""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from pytrace.core.event_layout import CUT
from pytrace.core.manifest import DIGEST, PER_CPU_TYPES, CompiledScript, MapSpec, MapType
from pytrace.core.types import Array, Bool, Buffer, Enum, Int, Pointer, Record, String, Tuple, Type

M64, M32 = (1 << 64) - 1, (1 << 32) - 1
REGION = 32
"""Bits of the offset in an address; the number of the region is above them."""
STEPS = 2_000_000
"""Instructions that a test may run."""
PID, TID, UID, GID = 4321, 4322, 1000, 100
NOW = 1_000_000_007
FAULT, EXIST, ABSENT, FULL = -14, -17, -2, -7


class FaultError(Exception):
    """An access outside of all memory."""


def signed(value: int, bits: int = 64) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


@dataclass
class BpfMap:
    """A map: the addresses of its values by key (and CPU)."""

    type: int
    key_size: int
    value_size: int
    most: int = 4096
    entries: dict[tuple[bytes, int], int] = field(default_factory=dict)


@dataclass
class Machine:
    """One compiled script; *helpers* replaces or adds helper functions by number."""

    script: CompiledScript
    helpers: dict[int, Callable[..., int]] = field(default_factory=dict)
    cpu: int = 0
    comm: bytes = b"task"
    regions: list[bytearray] = field(default_factory=lambda: [bytearray()])
    events: list[bytes] = field(default_factory=list)
    calls: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    """Number and arguments of every helper call, in order."""
    ring_full: bool = False
    task: bytes = bytes(4096)
    """The current task, as the kernel's struct has it."""

    def __post_init__(self) -> None:
        self.maps: dict[int, BpfMap] = {}
        self.names: dict[str, int] = {}
        self._reserved: dict[int, int] = {}
        self._code: dict[int, int] = {}
        self._context = 0
        self._steps = 0
        self.current = self.region(self.task)
        self._load()

    @property
    def steps(self) -> int:
        """Number of instructions that the last run took."""
        return self._steps

    @property
    def address_of_context(self) -> int:
        """Address of the context of the last run."""
        return self._context

    # ------------------------------------------------------------------ memory

    def region(self, data: bytes | int) -> int:
        """A new region that holds *data* (or so many zeros); its address."""
        self.regions.append(bytearray(data))
        return (len(self.regions) - 1) << REGION

    def _at(self, address: int, size: int) -> tuple[bytearray, int]:
        number, offset = address >> REGION, address & M32
        if not 0 < number < len(self.regions) or offset + size > len(self.regions[number]):
            raise FaultError(f"{size} bytes at {address:#x}")
        return self.regions[number], offset

    def read(self, address: int, size: int) -> bytes:
        """Bytes of memory."""
        data, offset = self._at(address, size)
        return bytes(data[offset : offset + size])

    def write(self, address: int, value: bytes) -> None:
        """Change memory."""
        data, offset = self._at(address, len(value))
        data[offset : offset + len(value)] = value

    def load(self, address: int, size: int) -> int:
        """An unsigned integer in memory."""
        return int.from_bytes(self.read(address, size), "little")

    def section(self, name: str) -> int:
        """Address of a section."""
        return self.names[name]

    # ------------------------------------------------------------------ the ELF file

    def _load(self) -> None:
        elf = ELFFile(io.BytesIO(self.script.elf))
        sections = list(elf.iter_sections())
        places: dict[int, int] = {}
        for number, item in enumerate(sections):
            if item["sh_flags"] & SH_FLAGS.SHF_ALLOC and item["sh_size"]:
                nobits = item["sh_type"] == "SHT_NOBITS"
                places[number] = self.names[item.name] = self.region(item["sh_size"] if nobits else item.data())
        table = elf.get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        symbols = list(table.iter_symbols())
        specs = [spec for spec in self.script.manifest.maps if spec.symbol]
        sizes = {spec.symbol: spec for spec in specs} | {spec.keys: spec for spec in specs if spec.keys}
        for symbol in symbols:
            where = symbol["st_shndx"]
            if not isinstance(where, int) or where not in places or not symbol.name:
                continue
            self.names[symbol.name] = places[where] + symbol["st_value"]
            if sections[where].name == ".maps":
                self.maps[self.names[symbol.name]] = self._map(symbol.name, sizes)
        words = self.script.manifest.random_words
        if words is not None:
            self.write(self.names[words.section] + words.offset, random.Random(1).randbytes(words.size))
        for depth in self.script.manifest.stack_depths:
            self.write(self.names[depth.section] + depth.offset, struct.pack("<QQ", min(127, depth.limit), 127))
        session = self.script.manifest.session
        if session is not None:
            self.write(self.names[session.section] + session.deadline, b"\xff" * 8)
        for item in sections:
            target = sections[item["sh_info"]] if isinstance(item, RelocationSection) else None
            if isinstance(item, RelocationSection) and target and target["sh_flags"] & SH_FLAGS.SHF_EXECINSTR:
                for entry in item.iter_relocations():
                    symbol = symbols[entry["r_info_sym"]]
                    self._relocate(places[item["sh_info"]] + entry["r_offset"], symbol, places)

    @staticmethod
    def _map(name: str, sizes: dict[str, Any]) -> BpfMap:
        from pytrace.codegen.lower import map_access
        from pytrace.core.source import Source, Span
        from pytrace.frontend.syntax.typed_program import MapInfo

        spec = sizes.get(name)
        if spec is None:
            return BpfMap(MapType.HASH, 4, 8)
        info = MapInfo(spec.name, spec.key, spec.value, spec.kind, spec.max_entries, Span(Source("", ""), 0, 0))
        if name == spec.keys:
            whole = map_access.padded_key(info) if map_access.bucketed(info.value) else spec.key.size
            return BpfMap(MapType.HASH, DIGEST, whole, spec.max_entries)
        return BpfMap(*map_access.sizes(info, bool(spec.keys)), spec.max_entries)

    def _relocate(self, place: int, symbol: Any, places: dict[int, int]) -> None:
        code, imm = self.load(place, 1), signed(self.load(place + 4, 4), 32)
        base = places[symbol["st_shndx"]] + symbol["st_value"]
        whole = symbol["st_info"]["type"] == "STT_SECTION"
        if code == 0x18:
            target = base + imm
            self.write(place + 4, struct.pack("<I", target & M32))
            self.write(place + 12, struct.pack("<I", target >> 32))
        elif code == 0x85:
            self._code[place] = base + (8 * (imm + 1) if whole else 0)

    # ------------------------------------------------------------------ running

    def run(self, symbol: str = "", context: bytes = bytes(512)) -> int:
        """Run a program (the first one); gives its result as an unsigned number."""
        self._steps, self._context = 0, self.region(context)
        start = self.names[symbol or self.script.manifest.programs[0].symbol]
        return self._function(start, (self._context,))

    def _function(self, pc: int, arguments: tuple[int, ...]) -> int:
        r = [0] * 11
        r[1 : 1 + len(arguments)] = arguments
        r[10] = self.region(512) + 512
        while True:
            self._steps += 1
            assert self._steps < STEPS, "the program does not end"
            code, registers, offset, imm = struct.unpack("<BBhi", self.read(pc, 8))
            dst, src = registers & 15, registers >> 4
            if code == 0x95:
                return r[0]
            if code == 0x18:
                r[dst] = self.load(pc + 4, 4) | self.load(pc + 12, 4) << 32
                pc += 16
                continue
            if code == 0x85:
                r[0] = self._call(pc, src, imm, r[1:6]) & M64
            elif code & 7 in (4, 7):
                r[dst] = _alu(code, offset, r[dst], r[src] if code & 8 else imm, imm)
            elif code & 7 in (5, 6):
                if _jumps(code, r[dst], r[src] if code & 8 else imm):
                    pc += 8 * (imm if code == 0x06 else offset)
            else:
                self._memory(code, r, dst, src, offset, imm)
            pc += 8

    def _memory(self, code: int, r: list[int], dst: int, src: int, offset: int, imm: int) -> None:
        size = {0x00: 4, 0x08: 2, 0x10: 1, 0x18: 8}[code & 0x18]
        kind, mode = code & 7, code & 0xE0
        if kind == 1:
            value = self.load((r[src] + offset) & M64, size)
            r[dst] = (signed(value, 8 * size) if mode == 0x80 else value) & M64
            return
        place = (r[dst] + offset) & M64
        if mode == 0xC0:
            self._atomic(place, size, r, src, imm)
            return
        value = imm if kind == 2 else r[src]
        self.write(place, (value & ((1 << 8 * size) - 1)).to_bytes(size, "little"))

    def _atomic(self, place: int, size: int, r: list[int], src: int, imm: int) -> None:
        old, value = self.load(place, size), r[src]
        if imm == 0xF1:
            new = value if old == r[0] & ((1 << 8 * size) - 1) else old
            r[0] = old
        else:
            new = {0x00: old + value, 0x40: old | value, 0x50: old & value, 0xA0: old ^ value, 0xE0: value}[imm & 0xF0]
            if imm & 1:
                r[src] = old
        self.write(place, (new & ((1 << 8 * size) - 1)).to_bytes(size, "little"))

    def _call(self, pc: int, src: int, imm: int, arguments: list[int]) -> int:
        if src == 1:
            return self._function(self._code.get(pc, pc + 8 * (imm + 1)), tuple(arguments))
        given = tuple(arguments)
        self.calls.append((imm, given))
        return self.helpers[imm](*given) if imm in self.helpers else _HELPERS[imm](self, *given)

    # ------------------------------------------------------------------ results

    def values(self) -> Iterator[tuple[str, list[Any]]]:
        """Kind and arguments of each event that was sent."""
        for data in self.events:
            spec = self.script.manifest.events[int.from_bytes(data[:4], "little")]
            layout, tail, found = spec.layout, spec.layout.fixed_size, []
            for type_, offset, tailed in zip(layout.args, layout.offsets, layout.tails, strict=True):
                if tailed:
                    length = int.from_bytes(data[offset : offset + 4], "little") & ~CUT
                    found.append(data[tail : tail + length])
                    tail += length
                else:
                    found.append(value_of(type_, data[offset:]))
            yield spec.kind, found

    def printed(self) -> list[Any]:
        """The first argument of each event; the kind of one without arguments."""
        return [arguments[0] if arguments else kind for kind, arguments in self.values()]

    def entries(self, name: str) -> dict[Any, Any]:
        """Keys and values of a keyed map (of the first CPU)."""
        spec = next(item for item in self.script.manifest.maps if item.name == name)
        found = self.maps[self.names[spec.symbol]]
        assert spec.key is not None
        return {
            value_of(spec.key, self.whole_key(spec, key)): value_of(spec.value, self.read(place, found.value_size))
            for (key, cpu), place in found.entries.items()
            if cpu == 0
        }

    def whole_key(self, spec: MapSpec, key: bytes) -> bytes:
        """The key of a map, which may have a digest of it."""
        if not spec.keys:
            return key
        keys = self.maps[self.names[spec.keys]]
        return self.read(keys.entries[key[:DIGEST], 0], keys.value_size) + key[DIGEST:]

    def slot(self, name: str) -> Any:
        """Value of an unkeyed map (of the first CPU)."""
        spec = next(item for item in self.script.manifest.maps if item.name == name)
        assert spec.slot is not None
        place = self.section(spec.slot.section) + spec.slot.offset + 8
        return value_of(spec.value, self.read(place, spec.value.size))

    def counts(self) -> dict[str, int]:
        """What was counted, by kind."""
        counters = self.script.manifest.counters
        assert counters is not None
        start = self.section(counters.section) + counters.offset
        found: dict[str, int] = {}
        for at, (kind, _) in enumerate(counters.names):
            found[kind] = found.get(kind, 0) + self.load(start + 8 * at, 8)
        return found


def value_of(type_: Type, data: bytes) -> Any:
    """A value in memory: integers, strings without NUL, tuples of members, words of aggregates; others as bytes."""
    if type_.aggregate:
        words = struct.unpack(f"<{type_.size // 8}Q", data[: type_.size])
        return words[0] if len(words) == 1 else words
    if isinstance(type_, Bool):
        return bool(data[0])
    if isinstance(type_, Int | Enum | Pointer):
        return int.from_bytes(data[: type_.size], "little", signed=isinstance(type_, Int | Enum) and type_.signed)
    if isinstance(type_, String):
        return data[: type_.size].partition(b"\0")[0]
    if isinstance(type_, Tuple | Record):
        members = zip(type_.members, type_.offsets, strict=True)
        return tuple(value_of(member, data[offset:]) for member, offset in members)
    if isinstance(type_, Array):
        return tuple(value_of(type_.element, data[at * type_.element.size :]) for at in range(type_.count))
    if isinstance(type_, Buffer):
        return data[4 : 4 + int.from_bytes(data[:4], "little")]
    return data[: type_.size]


def _alu(code: int, offset: int, left: int, right: int, imm: int) -> int:
    wide, operation = code & 7 == 7, code & 0xF0
    bits = 64 if wide else 32
    mask = (1 << bits) - 1
    if operation == 0xD0:
        data = (left & ((1 << imm) - 1)).to_bytes(imm // 8, "little")
        return int.from_bytes(data, "big" if wide or code & 8 else "little")
    if operation == 0xB0 and offset:
        return signed(right, offset) & mask
    a, b = left & mask, right & mask
    if operation in (0x30, 0x90):
        if offset:
            a, b = signed(a, bits), signed(b, bits)
        quotient = (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else 0
        return (quotient if operation == 0x30 else a - b * quotient) & mask
    return {
        0x00: lambda: a + b, 0x10: lambda: a - b, 0x20: lambda: a * b, 0x40: lambda: a | b, 0x50: lambda: a & b,
        0x60: lambda: a << (b & (bits - 1)), 0x70: lambda: a >> (b & (bits - 1)), 0x80: lambda: -a, 0xA0: lambda: a ^ b,
        0xB0: lambda: b, 0xC0: lambda: signed(a, bits) >> (b & (bits - 1)),
    }[operation]() & mask  # fmt: skip


def _jumps(code: int, left: int, right: int) -> bool:
    bits = 64 if code & 7 == 5 else 32
    if code & 0xF0 == 0:
        return True
    a, b = left & ((1 << bits) - 1), right & ((1 << bits) - 1)
    x, y = signed(a, bits), signed(b, bits)
    return {
        0x10: a == b, 0x20: a > b, 0x30: a >= b, 0x40: bool(a & b), 0x50: a != b, 0x60: x > y, 0x70: x >= y,
        0xA0: a < b, 0xB0: a <= b, 0xC0: x < y, 0xD0: x <= y,
    }[code & 0xF0]  # fmt: skip


# ---------------------------------------------------------------------------------------------- helpers


def lookup(m: Machine, map_: int, key: int, *_: int, cpu: int | None = None) -> int:
    found = m.maps[map_]
    number = (m.cpu if cpu is None else cpu) if found.type in PER_CPU_TYPES else 0
    return found.entries.get((m.read(key, found.key_size), number), 0)


def _update(m: Machine, map_: int, key: int, value: int, flags: int, *_: int) -> int:
    found = m.maps[map_]
    at = m.read(key, found.key_size), m.cpu if found.type in PER_CPU_TYPES else 0
    if at in found.entries and flags == 1:
        return EXIST
    if at not in found.entries and len(found.entries) >= found.most:
        return FULL
    found.entries[at] = m.region(m.read(value, found.value_size))
    return 0


def _delete(m: Machine, map_: int, key: int, *_: int) -> int:
    found = m.maps[map_]
    at = m.read(key, found.key_size), m.cpu if found.type in PER_CPU_TYPES else 0
    return ABSENT if found.entries.pop(at, None) is None else 0


def _read(m: Machine, target: int, size: int, source: int, *_: int) -> int:
    try:
        m.write(target, m.read(source, size & M32))
    except FaultError:
        m.write(target, bytes(size & M32))
        return FAULT
    return 0


def _read_string(m: Machine, target: int, size: int, source: int, *_: int) -> int:
    text = b""
    try:
        while len(text) < (size & M32) - 1 and (byte := m.read(source + len(text), 1)) != b"\0":
            text += byte
    except FaultError:
        return FAULT
    m.write(target, text + b"\0")
    return len(text) + 1


def _comm(m: Machine, target: int, size: int, *_: int) -> int:
    m.write(target, m.comm[: size - 1].ljust(size, b"\0"))
    return 0


def _reserve(m: Machine, _ring: int, size: int, *_: int) -> int:
    place = 0 if m.ring_full else m.region(size)
    m._reserved[place] = size
    return place


def _submit(m: Machine, place: int, *_: int) -> int:
    m.events.append(m.read(place, m._reserved.pop(place)))
    return 0


def _output(m: Machine, _ring: int, place: int, size: int, *_: int) -> int:
    if m.ring_full:
        return -11
    m.events.append(m.read(place, size))
    return 0


def _loop(m: Machine, count: int, callback: int, frame: int, *_: int) -> int:
    if count & M32 > 1 << 23:
        return -7
    for at in range(count & M32):
        if m._function(callback, (at, frame)):
            return at + 1
    return count & M32


def _for_each(m: Machine, map_: int, callback: int, frame: int, *_: int) -> int:
    done = 0
    for (key, cpu), place in list(m.maps[map_].entries.items()):
        if cpu == m.cpu or m.maps[map_].type not in PER_CPU_TYPES:
            done += 1
            if m._function(callback, (map_, m.region(key), place, frame)):
                break
    return done


def _write_user(m: Machine, target: int, source: int, size: int, *_: int) -> int:
    try:
        m.write(target, m.read(source, size & M32))
    except FaultError:
        return FAULT
    return 0


CGROUPS = (1, 100, 200)
"""Ids of the cgroups that the current task is in, from the root of the hierarchy on."""


def _ancestor(_m: Machine, level: int, *_: int) -> int:
    return CGROUPS[level] if level < len(CGROUPS) else 0


def _in_namespace(m: Machine, _device: int, _inode: int, target: int, *_: int) -> int:
    m.write(target, struct.pack("<II", 22, 21))
    return 0


_HELPERS: dict[int, Callable[..., int]] = {
    1: lookup, 2: _update, 3: _delete, 4: _read, 5: lambda m, *_: NOW, 6: lambda m, *_: 0, 7: lambda m, *_: 7,
    8: lambda m, *_: m.cpu, 14: lambda m, *_: PID << 32 | TID, 15: lambda m, *_: GID << 32 | UID, 16: _comm,
    35: lambda m, *_: m.current, 36: _write_user, 42: lambda m, *_: 3, 45: _read_string, 46: lambda m, *_: 77,
    58: lambda m, *_: 0, 67: lambda m, *_: 0, 80: lambda m, *_: 99, 109: lambda m, *_: 0, 112: _read, 113: _read,
    114: _read_string, 115: _read_string, 117: lambda m, *_: 0, 118: lambda m, *_: 55, 120: _in_namespace,
    123: _ancestor, 125: lambda m, *_: NOW + 10**9, 126: lambda m, *_: 0, 127: lambda m, *_: 0, 130: _output,
    131: _reserve, 132: _submit, 147: lambda m, *_: 0, 148: _read, 158: lambda m, *_: m.current, 164: _for_each,
    173: lambda m, *_: 0x1234, 174: lambda m, *_: 0, 175: lambda m, *_: m.current, 181: _loop,
    195: lambda m, a, b, c, *_: lookup(m, a, b, cpu=c),
    208: lambda m, *_: NOW + 2 * 10**9,
}  # fmt: skip
"""Helpers by number; clocks are a second apart."""
