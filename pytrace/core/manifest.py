"""A compiled script: ELF bytes and a manifest of plain data.

A run needs nothing else.  The compile cache and ahead-of-time files contain exactly this; reading it imports neither
LLVM nor the parser.
"""

from __future__ import annotations

import hashlib
import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pytrace.core.config import Config
from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.event_layout import EventSpec, Location
from pytrace.core.probes.kinds import known_kind
from pytrace.core.probes.targets import ProbeTarget
from pytrace.core.types import Type, from_data, to_data

if TYPE_CHECKING:
    from pytrace.core.manifest_sections import AheadOfTime, UnwindMaps

P = TypeVar("P", bound=ProbeTarget)

MAGIC = b"PYTRACE\n"
FORMAT = 7
"""Incremented whenever ELF conventions, manifest or event layouts change."""


class Target(msgspec.Struct, frozen=True):
    """One target that a program attaches to.

    *probe* is the full probe name (the value of the ``probe`` builtin). *cookie* is the result of
    ``bpf_get_attach_cookie``: the index of the target in its program. *place* is of the class that the probe
    kind's row names (``pytrace.core.probes.targets``).
    """

    probe: str
    cookie: int
    place: ProbeTarget

    def of(self, kind: type[P]) -> P:
        """The target, checked to be an instance of *kind*.

        Raises:
            InternalError: it is of another class.
        """
        if not isinstance(self.place, kind):
            raise InternalError(f"{self.probe}: {kind.__name__} expected, not {self.place!r}")
        return self.place


class ProgramSpec(msgspec.Struct, frozen=True):
    """One BPF program of the ELF file and where it attaches.

    *symbol* is the function's name in the ELF file; *kind* the probe kind's name. *index* counts blocks in source
    order. *multi* is set when the program was compiled for a multi link (``kprobe_multi``, ``uprobe_multi``,
    ``kprobe_session``) or for a raw tracepoint in place of its targets (``system_calls``, ``raw_tracepoint``), empty
    for one link for each target.
    """

    symbol: str
    kind: str
    index: int
    targets: tuple[Target, ...]
    location: Location
    multi: str = ""
    part_of: str = ""
    """The program that contains this one's code: for the return part of a kprobe session, and for system calls."""
    service: bool = False
    """A service program (``--follow``): attaches before the others, must not fail, and is not a probe of the script."""
    btf_id: int = 0
    """Id in the kernel's BTF of the type that the program is loaded for, if libbpf need not search for it; else 0."""

    def to_data(self) -> dict[str, object]:
        """JSON form; targets are plain lists of values, since there may be very many."""
        return {
            "symbol": self.symbol,
            "kind": self.kind,
            "index": self.index,
            "targets": [[item.probe, item.cookie, item.place.values()] for item in self.targets],
            "location": msgspec.to_builtins(self.location),
            "multi": self.multi,
            "part_of": self.part_of,
            "service": self.service,
            "btf_id": self.btf_id,
        }


RING = "events"
"""Name of the ring buffer map."""

LOAD_TIME_SECTION = ".rodata.load"
"""Section of an ahead-of-time file with load-time values."""

SLOT_FLAG = 8
"""Bytes of the written flag before the value of a slot."""

DIGEST = 16
"""Bytes of the digest of a large key; the bucket number follows it, if keys have one."""


class MapType(IntEnum):
    """``enum bpf_map_type``, the members that pytrace uses or may encounter."""

    HASH = 1
    ARRAY = 2
    PERF_EVENT_ARRAY = 4
    PERCPU_HASH = 5
    PERCPU_ARRAY = 6
    LRU_HASH = 9
    LRU_PERCPU_HASH = 10
    ARRAY_OF_MAPS = 12
    RINGBUF = 27


MAP_TYPES = {
    "hash": MapType.HASH,
    "lruhash": MapType.LRU_HASH,
    "percpuhash": MapType.PERCPU_HASH,
    "percpulruhash": MapType.LRU_PERCPU_HASH,
}
"""Map types by the kinds that a script declares (:attr:`MapSpec.kind`)."""

PER_CPU_TYPES = frozenset({MapType.PERCPU_HASH, MapType.PERCPU_ARRAY, MapType.LRU_PERCPU_HASH})


class GlobalSlot(msgspec.Struct, frozen=True):
    """Location of an unkeyed map in a data section.

    *section* is the ELF section (its BPF array map is mapped into memory by the runtime). The slot starts with a
    ``u64`` that is 1 once the map has been written, followed by the value. A per-CPU slot has *copies* copies,
    *stride* bytes apart. A slot that is printed and cleared in one step is double-buffered, *generation* bytes apart:
    the lowest bit of the ``u64`` at *selector* in the section *selector_section* says which one programs use.
    """

    section: str
    offset: int
    copies: int = 1
    stride: int = 0
    generation: int = 0
    selector_section: str = ""
    selector: int = 0


class MapSpec(msgspec.Struct, frozen=True):
    """One ``@map`` of the script.

    *symbol* names the BPF map in the ELF file (empty for a *slot*). *key* is None for an unkeyed map. *kind* is
    one of :data:`MAP_TYPES` or ``global``. For keyed hist, lhist and tseries the
    BPF key is *key* padded to 8 bytes followed by a ``u64`` bucket number, and the BPF value one ``u64`` count per CPU
    (tseries: one 24-byte interval). A keyed map that is printed and cleared in one step has *inner*, the type number,
    key size and value size of the BPF maps that hold it in turn; the one in use lies in the array of maps *symbol*.
    """

    name: str
    symbol: str
    kind: str
    key: Type | None
    value: Type
    max_entries: int
    slot: GlobalSlot | None = None
    location: Location | None = None
    inner: tuple[int, int, int] | None = None
    help: str = ""
    """The comment above the first use of the map, or above its declaration."""
    keys: str = ""
    """For a map with large keys the symbol of a second map: the BPF key of *symbol* then has a digest of :data:`DIGEST`
    bytes in place of the key, and the second map has the key of each digest."""


class RandomWords(msgspec.Struct, frozen=True):
    """Location of the random words for digests of keys: *size* bytes of a data section, filled in at load time."""

    section: str
    offset: int
    size: int


class Site(msgspec.Struct, frozen=True):
    """A location in the script where a BPF helper may fail."""

    helper: str
    location: Location


class Counters(msgspec.Struct, frozen=True):
    """Location of the failure counters of all programs: an array in a data section, see ``runtime.load.counters``."""

    section: str
    offset: int
    copies: int
    stride: int
    names: tuple[tuple[str, int], ...]
    """(kind, subject) of each ``u64`` in a copy: ``("lost", program index)``, ``("map_full", map index)``,
    ``("helper", site index)`` …"""
    sites: tuple[Site, ...] = ()


class SessionData(msgspec.Struct, frozen=True):
    """Offsets of a running session's values (``u64`` each) in the data section *section*.

    The session writes, before begin probes run, *start* (boot-clock nanoseconds), *cpid* (the ``-c`` child or 0), *tai*
    and *wall* (what to add to the boot clock for atomic and for wall time) and *root* (the process of ``-p`` or ``-c``,
    for ``--follow``), and from *filters* on the values of process filters
    (``core.options.process_filters.ProcessFilters.pack``). It reads *exit*: 1 more than the status of an ``exit()`` for
    whose event there was no room.
    """

    section: str
    start: int
    cpid: int
    tai: int
    wall: int
    root: int
    exit: int
    filters: int


class Manifest(msgspec.Struct, frozen=True):
    """Everything about a compiled script except its code; JSON-serialisable through :meth:`to_data`."""

    programs: tuple[ProgramSpec, ...]
    maps: tuple[MapSpec, ...]
    events: tuple[EventSpec, ...]
    strings: tuple[str, ...]
    """String table that values refer to by index (formats of timestamps, filters of cgroup paths)."""
    config: Config
    ring: str = RING
    """Name of the ring buffer map."""
    counters: Counters | None = None
    warnings: tuple[str, ...] = ()
    """Rendered warnings of the compilation, repeated on a cached start."""
    facts: tuple[tuple[str, ...], ...] = ()
    """Facts about the machine that the result depends on; checked before a cached script is used."""
    session: SessionData | None = None
    """Set when a program reads values of the running session."""
    unwind: UnwindMaps | None = None
    """Set when user stacks are unwound by tables."""
    follow_map: str = ""
    """Symbol of the map of followed processes (``--follow``)."""
    objects: tuple[bytes, ...] = ()
    """Imported object files."""
    ahead: AheadOfTime | None = None
    """Set in ahead-of-time files."""
    output_format: str = ""
    """The format of ``output_format()``; a run without ``-f`` is written in it."""
    random_words: RandomWords | None = None
    """Set when a map has digests of keys (:attr:`MapSpec.keys`)."""

    def to_data(self) -> dict[str, object]:
        """JSON form."""
        return {
            "programs": [item.to_data() for item in self.programs],
            "maps": [
                {
                    "name": item.name,
                    "symbol": item.symbol,
                    "kind": item.kind,
                    "key": None if item.key is None else to_data(item.key),
                    "value": to_data(item.value),
                    "max_entries": item.max_entries,
                    "slot": None if item.slot is None else msgspec.to_builtins(item.slot),
                    "location": None if item.location is None else item.location.to_data(),
                    "inner": item.inner,
                    "help": item.help,
                    "keys": item.keys,
                }
                for item in self.maps
            ],
            "events": [item.to_data() for item in self.events],
            "strings": list(self.strings),
            "config": self.config.to_data(),
            "ring": self.ring,
            "counters": None if self.counters is None else msgspec.to_builtins(self.counters),
            "warnings": list(self.warnings),
            "facts": [list(item) for item in self.facts],
            "session": None if self.session is None else msgspec.to_builtins(self.session),
            "unwind": None if self.unwind is None else msgspec.to_builtins(self.unwind),
            "follow_map": self.follow_map,
            "objects": _encoded(self.objects),
            "ahead": None if self.ahead is None else msgspec.to_builtins(self.ahead),
            "output_format": self.output_format,
            "random_words": None if self.random_words is None else msgspec.to_builtins(self.random_words),
        }

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Manifest:
        """Inverse of :meth:`to_data`."""
        return cls(
            programs=tuple(_program_from_data(item) for item in data["programs"]),
            maps=tuple(_map_from_data(item) for item in data["maps"]),
            events=tuple(EventSpec.from_data(item) for item in data["events"]),
            strings=tuple(data["strings"]),
            config=Config.from_data(data["config"]),
            ring=data["ring"],
            counters=_counters_from_data(data["counters"]),
            warnings=tuple(data["warnings"]),
            facts=tuple(tuple(item) for item in data["facts"]),
            session=None if data["session"] is None else SessionData(**data["session"]),
            unwind=None if data["unwind"] is None else _unwind_from_data(data["unwind"]),
            follow_map=data["follow_map"],
            objects=_decoded(data["objects"]),
            ahead=None if data["ahead"] is None else _ahead_from_data(data["ahead"]),
            output_format=data["output_format"],
            random_words=None if data["random_words"] is None else RandomWords(**data["random_words"]),
        )


def _encoded(objects: tuple[bytes, ...]) -> list[str]:
    if not objects:
        return []
    import base64  # few scripts import object files

    return [base64.b64encode(item).decode() for item in objects]


def _decoded(texts: list[str]) -> tuple[bytes, ...]:
    if not texts:
        return ()
    import base64

    return tuple(base64.b64decode(item, validate=True) for item in texts)


def _program_from_data(item: dict[str, Any]) -> ProgramSpec:
    place = known_kind(item["kind"]).target
    return ProgramSpec(
        item["symbol"],
        item["kind"],
        item["index"],
        tuple(Target(probe, cookie, place(*values)) for probe, cookie, values in item["targets"]),
        Location(**item["location"]),
        item["multi"],
        item["part_of"],
        item["service"],
        item["btf_id"],
    )


def _map_from_data(item: dict[str, Any]) -> MapSpec:
    return MapSpec(
        item["name"],
        item["symbol"],
        item["kind"],
        None if item["key"] is None else from_data(item["key"]),
        from_data(item["value"]),
        item["max_entries"],
        None if item["slot"] is None else GlobalSlot(**item["slot"]),
        None if item["location"] is None else Location(*item["location"]),
        None if item["inner"] is None else tuple(item["inner"]),
        item["help"],
        item["keys"],
    )


def _unwind_from_data(data: dict[str, Any]) -> UnwindMaps:
    from pytrace.core.manifest_sections import UnwindMaps  # few scripts have them

    return UnwindMaps(**data)


def _ahead_from_data(data: dict[str, Any]) -> AheadOfTime:
    from pytrace.core.manifest_sections import AheadOfTime

    return AheadOfTime.from_data(data)


def _counters_from_data(data: dict[str, Any] | None) -> Counters | None:
    if data is None:
        return None
    names = tuple((str(kind), int(subject)) for kind, subject in data["names"])
    sites = tuple(Site(item["helper"], Location(**item["location"])) for item in data["sites"])
    return Counters(data["section"], data["offset"], data["copies"], data["stride"], names, sites)


INTERPRETER = b"#!/usr/bin/env pytrace\n"
"""First line of an executable file."""


def is_compiled(data: bytes) -> bool:
    """Whether a file is a compiled script, of this version or another one."""
    return data.removeprefix(INTERPRETER).startswith(MAGIC)


_HEADER = struct.Struct("<8sII32s")
"""Magic, format number, length of the manifest, SHA-256 of the manifest and the ELF file, which follow."""

_AGAIN = "compile it again with --aot"


def file_form(manifest: bytes, elf: bytes) -> bytes:
    """The file form of a manifest and an ELF file."""
    digest = hashlib.sha256(manifest + elf).digest()
    return _HEADER.pack(MAGIC, FORMAT, len(manifest), digest) + manifest + elf


class CompiledScript(msgspec.Struct, frozen=True):
    """ELF bytes and manifest."""

    elf: bytes
    manifest: Manifest

    def to_bytes(self, *, executable: bool = False) -> bytes:
        """The file form: a header, the manifest (JSON), ELF; *executable* with ``#!`` line."""
        import json  # slow to import, and not needed for reading

        first = INTERPRETER if executable else b""
        return first + file_form(json.dumps(self.manifest.to_data(), separators=(",", ":")).encode(), self.elf)

    @classmethod
    def from_bytes(cls, data: bytes) -> CompiledScript:
        """Read the file form.

        Args:
            data: the result of :meth:`to_bytes`, with or without ``#!`` line.

        Raises:
            TraceError: *data* is not a compiled script, is damaged, or was written by another version.
        """
        import json

        data = data.removeprefix(INTERPRETER)
        if not data.startswith(MAGIC):
            raise TraceError("not a compiled pytrace script")
        if len(data) < _HEADER.size:
            raise TraceError("the compiled script is truncated", hints=(_AGAIN,))
        _, version, length, digest = _HEADER.unpack_from(data)
        if version != FORMAT:
            raise TraceError(
                f"compiled by another version of pytrace (format {version}, this one reads {FORMAT})", hints=(_AGAIN,)
            )
        head, elf = data[_HEADER.size :][:length], data[_HEADER.size + length :]
        if digest != hashlib.sha256(head + elf).digest() or len(head) != length:
            raise TraceError("the compiled script is damaged: its digest does not fit its content", hints=(_AGAIN,))
        try:
            return cls(elf, Manifest.from_data(json.loads(head)))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise TraceError("another version of pytrace wrote the compiled script", hints=(_AGAIN,)) from error
