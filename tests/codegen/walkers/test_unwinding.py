"""Unwinding by tables, and stacks of C and Python together."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import pytest

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.walkers import python_stacks, python_threads, unwinding, user_stacks
from pytrace.codegen.walkers.frame_pointers import CODE_64
from pytrace.codegen.walkers.unwinding import ASKED, RANGES, REQUESTS, ROWS, RULE_FUNCTION, SPACES
from pytrace.core import python_format
from pytrace.core.manifest import CompiledScript, MapType
from pytrace.core.python_format import Word
from pytrace.core.stack_formats import Rule
from pytrace.core.types import UINT32, UINT64, Field, Struct
from tests.codegen.running import compiled, helpers, machine, task_structs
from tests.codegen.walkers.test_python_stacks import KERNEL as WALKING
from tests.codegen.walkers.test_python_stacks import TASK, THREAD
from tests.codegen.walkers.test_user_stacks import KERNEL, compiled_unwinding, symbols
from tests.support.bpf_machine import FAULT, BpfMap, Machine
from tests.support.recorded import Facts

GET_STACK, READ_USER, PT_REGS, OUTPUT = 67, 112, 175, 130
IP, FP, CS, SP = 128, 32, 136, 152
REGISTER_AT = {"r10": 56, "di": 112}
"""Offsets in ``struct pt_regs``."""
PID, SPACE = 4321, 0xFFFF_8880_0000_1000
TABLED, PLAIN, STACK = 0x10000, 0x20000, 0x7000_0000
"""A binary whose functions take 16 bytes of stack each, code without a table, and the stack."""
SCRIPT = "config = { stack_unwinding = auto } kprobe:vfs_read { @[ustack] = count(); }"


class Kernel(Facts):
    """A machine whose programs can unwind by tables."""

    def __init__(self, *missing: str) -> None:
        super().__init__(missing=frozenset(missing))
        self.structs = task_structs(Field("real_parent", UINT64, 56))


@cache
def script() -> CompiledScript:
    """Compiled once for all tests."""
    return compiled(SCRIPT, Kernel())


@dataclass
class Process:
    """Registers of a process, words on its stack, whose address space its tables are of, and its code at ``ip``."""

    ip: int
    bp: int = 0
    words: dict[int, int] = field(default_factory=dict)
    owner: int = SPACE
    segment: int = CODE_64
    requests: list[tuple[int, int]] = field(default_factory=list)
    code: bytes = b""
    rule: int = 2 << 12 | Rule.RSP
    """Of the binary with a table."""
    registers: dict[str, int] = field(default_factory=dict)

    def run(self) -> Machine:
        """A machine that has taken one stack."""
        task = struct.pack("<ii16sQIIQQQ", PID, PID, b"task", SPACE, 0, 0, 0, 0, 0)
        found = Machine(script(), task=task)
        self._tables(found)
        registers = bytearray(168)
        for place, value in ((IP, self.ip), (FP, self.bp), (SP, STACK), (CS, self.segment)):
            struct.pack_into("<Q", registers, place, value)
        for name, value in self.registers.items():
            struct.pack_into("<Q", registers, REGISTER_AT[name], value)
        saved = found.region(bytes(registers))

        def read(target: int, size: int, source: int, *_: int) -> int:
            if self.code and source == self.ip and size != 8:
                # A page of code is mapped.
                whole = source % 4096 + size <= 4096
                found.write(target, self.code[:size].ljust(size, b"\0") if whole else bytes(size))
                return 0 if whole else FAULT
            known = source in self.words
            found.write(target, struct.pack("<Q", self.words.get(source, 0))[:size].ljust(size, b"\0"))
            return 0 if known or size != 8 else FAULT

        def output(_map: int, data: int, _size: int, *_: int) -> int:
            self.requests.append(struct.unpack("<8xQQ", found.read(data, 24)))
            return 0

        found.helpers[PT_REGS], found.helpers[READ_USER], found.helpers[OUTPUT] = lambda *_: saved, read, output
        found.helpers[GET_STACK] = lambda *_: FAULT
        found.run()
        return found

    def _tables(self, found: Machine) -> None:
        for name, kind, size in ((SPACES, MapType.HASH, 16), (RANGES, MapType.ARRAY, 32), (ROWS, MapType.ARRAY, 8)):
            found.maps[found.names[name]] = BpfMap(kind, 4, size)
        spaces, ranges, rows = (found.maps[found.names[name]] for name in (SPACES, RANGES, ROWS))
        if self.owner >= 0:
            spaces.entries[struct.pack("<I", PID), 0] = found.region(struct.pack("<HHIQ", 0, 2, 1, self.owner))
        for at, (start, count) in enumerate(((TABLED, 2), (PLAIN, 0))):
            entry = struct.pack("<3QII", start, start + 0x1000, start, 0, count)
            ranges.entries[struct.pack("<I", at), 0] = found.region(entry)
        for at, row in enumerate((self.rule, 0x800 << 32 | Rule.LAST)):
            rows.entries[struct.pack("<I", at), 0] = found.region(struct.pack("<Q", row))


def stack(found: Machine) -> list[int]:
    (key,) = found.entries("@")
    assert isinstance(key, bytes)
    count = int.from_bytes(key[:4], "little", signed=True)
    words = list(struct.unpack(f"<{len(key) // 8 - 1}Q", key[8:]))
    assert not any(words[max(count, 0) :])
    return words[: max(count, 0)]


def test_a_table_is_used_where_there_is_one_and_the_frame_pointer_elsewhere() -> None:
    words = {
        STACK + 8: PLAIN + 7,  # of a function with a table
        STACK + 64: STACK + 128, STACK + 72: TABLED + 9,  # a frame record of code without
        STACK + 88: TABLED + 0x900,  # of a function with a table; its caller is the last one
    }  # fmt: skip
    process = Process(TABLED + 4, STACK + 64, words)
    assert stack(process.run()) == [TABLED + 4, PLAIN + 7, TABLED + 9, TABLED + 0x900]
    assert process.requests == []


def test_rules_by_registers_are_for_the_innermost_frame() -> None:
    """The return address in rdi; a frame at r10 - 16, whose return address is below that."""
    returned = Process(TABLED + 4, 0, rule=14 << 4 | Rule.RETURN, registers={"di": TABLED + 0x900})
    assert stack(returned.run()) == [TABLED + 4, TABLED + 0x900]
    again = Process(TABLED + 4, 0, rule=14 << 4 | Rule.RETURN, registers={"di": TABLED + 9})
    assert stack(again.run()) == [TABLED + 4, TABLED + 9], "its caller is not found by rdi"
    words = {STACK + 48 - 24: TABLED + 0x900}
    based = Process(
        TABLED + 4, 0, words, rule=0xFFFE << 16 | 7 << 12 | Rule.REGISTER, registers={"r10": STACK + 48}
    )
    assert stack(based.run()) == [TABLED + 4, TABLED + 0x900]


@pytest.mark.parametrize("end", [0, 7, STACK + 64])
def test_where_frame_pointers_end(end: int) -> None:
    """At 0, at a number, and at a frame that points to itself."""
    process = Process(PLAIN + 4, STACK + 64, {STACK + 64: end, STACK + 72: PLAIN + 9})
    assert stack(process.run()) == [PLAIN + 4, PLAIN + 9]


def test_return_addresses_and_new_code() -> None:
    # It lies outside of all code; the process may have mapped more, so its tables are asked for.
    process = Process(PLAIN + 4, STACK + 64, {STACK + 64: STACK + 128, STACK + 72: 0x616E676973007065})
    found = process.run()
    assert stack(found) == [PLAIN + 4]
    assert process.requests == [(PID, SPACE)]
    process = Process(0x30004, STACK + 64, {STACK + 64: 0, STACK + 72: PLAIN + 9})
    assert stack(process.run()) == [0x30004, PLAIN + 9]
    assert process.requests == [(PID, SPACE)]


@pytest.mark.parametrize("owner", [-1, SPACE + 64])
def test_tables_of_a_new_program_are_asked_for(owner: int) -> None:
    """There are none, or only those of the program before execve."""
    process = Process(TABLED + 4, 0, {}, owner=owner)
    assert stack(process.run()) == [TABLED + 4]
    assert process.requests == [(PID, SPACE)]


def test_whose_tables_are_used() -> None:
    process = Process(TABLED + 0x900, owner=0)
    found = process.run()
    assert stack(found) == [TABLED + 0x900]
    (value,) = (found.read(place, 16) for place in found.maps[found.names[SPACES]].entries.values())
    assert struct.unpack("<8xQ", value) == (SPACE,)
    process = Process(TABLED + 4, segment=0x23)
    assert GET_STACK in helpers(process.run())
    assert process.requests == []


@pytest.mark.parametrize("kernel", [Kernel("bpf_loop"), Kernel("current_task_btf")])
def test_kernels_without_what_it_needs(kernel: Kernel) -> None:
    script = compiled(SCRIPT, kernel)
    assert script.manifest.unwind is None
    assert ASKED.encode() not in script.elf
    assert REQUESTS.encode() in compiled(SCRIPT, Kernel()).elf


@pytest.mark.parametrize("body", ["@[ustack(build_id)] = count();", "@[kstack] = count();"])
def test_other_stacks(body: str) -> None:
    script = compiled(f"config = {{ stack_unwinding = auto }} kprobe:vfs_read {{ {body} }}", Kernel())
    assert script.manifest.unwind is None


# -------------------------------------------------------------------------------------------------------- unwind tables

STARTS = (0x1000, 0x3000, 0x9000)
"""Where the ranges of a process begin, each 0x1000 long; the binary's rows begin at its first and every 16th byte."""
ROWS_EACH = 5
FRAME, UNMAPPED = Rule.FRAME.value, Rule.UNMAPPED.value


def tables() -> Machine:
    found = machine("kprobe:vfs_read { @[dw_ustack] = count(); }", KERNEL)
    ranges = found.maps[found.names[RANGES]] = BpfMap(MapType.ARRAY, 4, 32)
    rows = found.maps[found.names[ROWS]] = BpfMap(MapType.ARRAY, 4, 8)
    # The process's ranges are entries 2 to 4 of all.
    for at, start in enumerate(STARTS):
        entry = struct.pack("<4Q", start, start + 0x1000, start - 0x100, (ROWS_EACH << 32) | (10 * at))
        ranges.entries[(2 + at).to_bytes(4, "little"), 0] = found.region(entry)
        for row in range(ROWS_EACH):
            place = 0x100 + 16 * row
            key = (10 * at + row).to_bytes(4, "little")
            rows.entries[key, 0] = found.region(struct.pack("<Q", place << 32 | 100 * at + row + 1))
    # Code without a table.
    entry = struct.pack("<4Q", 0xB000, 0xC000, 0, 0)
    ranges.entries[(2 + len(STARTS)).to_bytes(4, "little"), 0] = found.region(entry)
    return found


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        (0x0FFF, UNMAPPED), (0x1000, 1), (0x100F, 1), (0x1010, 2), (0x1040, 5), (0x1FFF, 5), (0x2000, UNMAPPED),
        (0x3000, 101), (0x3021, 103), (0x9000, 201), (0x9FFF, 205), (0xA000, UNMAPPED), (0, UNMAPPED),
        (2**64 - 1, UNMAPPED), (0xB000, FRAME), (0xBFFF, FRAME),
    ],
)  # fmt: skip
def test_rules(address: int, rule: int) -> None:
    found = tables()
    assert found._function(found.names[RULE_FUNCTION], (address, (len(STARTS) + 1) << 16 | 2)) == rule


def test_tables_of_a_process() -> None:
    found = tables()
    assert found._function(found.names[RULE_FUNCTION], (0x1000, 2)) == UNMAPPED
    manifest = tables().script.manifest
    assert manifest.unwind == unwinding.unwind_maps(selected=True, asks=False)
    assert machine("kprobe:vfs_read { @[ustack] = count(); }").script.manifest.unwind is None


# --------------------------------------------------------------------------------------------------------- mixed stacks

MIXED = replace(
    WALKING,
    features=WALKING.features | {"current_task_btf"},
    structs={
        ("struct", "task_struct"): Struct(
            "struct", "task_struct", 128, (*TASK.fields, Field("flags", UINT32, 28)), origin="vmlinux"
        ),
        ("struct", "thread_struct"): THREAD,
    },
)
CONFIG = "config = { python_frames = true } "


@pytest.mark.parametrize(
    ("probe", "stack", "mixed"),
    [
        ("kprobe:vfs_read", "ustack", True),
        ("kprobe:vfs_read", "ustack(perf, 5)", True),
        ("kprobe:vfs_read", "ustack(raw)", False),
        ("kprobe:vfs_read", "ustack(build_id)", False),
        ("kprobe:vfs_read", "kstack", False),
        ("begin", "ustack", False),
    ],
)
def test_which_stacks_have_python_frames(probe: str, stack: str, mixed: bool) -> None:
    script = compiled_unwinding(f"{CONFIG}{probe} {{ @[{stack}] = count(); @l = len({stack}); }}", MIXED)
    assert script.manifest.python == (python_threads.MAPS if mixed else None)
    names = symbols(script)
    for name in (python_threads.PROCESSES, SPACES, REQUESTS):
        assert names.count(name) == mixed


@pytest.mark.parametrize("way", ["frame_pointers", "tables"])
def test_not_where_the_script_says_how_to_unwind(way: str) -> None:
    text = f"config = {{ python_frames = true; stack_unwinding = {way} }} kprobe:vfs_read {{ @[ustack] = count(); }}"
    assert compiled_unwinding(text, MIXED).manifest.python is None


def test_mixed_stacks_beside_others() -> None:
    kernel = replace(MIXED, features=MIXED.features - {"bpf_loop"})
    assert compiled_unwinding(CONFIG + "kprobe:vfs_read { @[ustack] = count(); }", kernel).manifest.python is None
    text = "kprobe:vfs_read { @[ustack, pystack] = count(); @l = len(ustack(3)); } "
    text += "kprobe:vfs_write { @p[ustack] = count(); }"
    names = symbols(compiled_unwinding(CONFIG + text, MIXED))
    assert names.count(python_threads.CODE_FUNCTION) == names.count(SPACES) == 1


OPEN, HANDLER, LOOP, VECTORCALL, MAIN = range(0x1000, 0x6000, 0x1000)
NATIVE = (OPEN, HANDLER, LOOP, VECTORCALL, HANDLER, LOOP, MAIN)
"""Of each one the part of the stack has 256 bytes."""
LEAF, CALLER, MODULE = range(python_format.FRAME, python_format.FRAME + 3)
RUNS = (0x380, LEAF, CALLER, 0x680, MODULE)
"""The variables are in the frames of the loop."""


def _joined(
    monkeypatch: pytest.MonkeyPatch,
    native: Sequence[int],
    *,
    limit: int | None = 127,
    tail_calls: bool = True,
    words: Sequence[int] = RUNS,
) -> list[int]:
    """The mixed stack of native frames and of Python's, whose runs are *words*."""

    words_of_limit = "" if limit is None else f", {limit}"
    limit = limit or 127

    def write(e: Emitter, at: int, values: Sequence[int]) -> None:
        for index, word in enumerate(values):
            e.b.store(word - (word >= python_format.FRAME) * (1 << 64), e.area(at + 8 * index))

    def runs(part: python_stacks.PythonStacks, _node: object, out: int, _limit: int, state: int) -> None:
        e = part.e
        write(e, out, words)
        write(e, state, [int(tail_calls and word is Word.TAIL_CALLS) for word in Word])
        write(e, state + python_threads.STATE_COUNT, [len(words)])

    def chosen(e: Emitter, *_: object, parts: user_stacks.Parts) -> None:
        # What an earlier stack has left is beyond.
        write(e, parts.pointers, [0x100 * (index + 1) for index in range(min(len(native), limit + 1) + 1)])
        write(e, parts.stack, [len(native), *native])
        write(e, parts.count, [len(native)])

    monkeypatch.setattr(python_stacks.PythonStacks, "runs", runs)
    monkeypatch.setattr(user_stacks.UserUnwinding, "chosen", lambda part, *rest: chosen(part.e, parts=rest[-1]))
    script = compiled_unwinding(f"{CONFIG}kprobe:vfs_read {{ @[ustack(perf{words_of_limit})] = count(); }}", MIXED)
    found = Machine(script, task=bytes(128))
    found.run()
    (key,) = found.entries("@")
    assert isinstance(key, bytes)
    return list(struct.unpack_from(f"<{min(int.from_bytes(key[:4], 'little'), limit)}Q", key, 8))


def test_functions_of_handlers_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _joined(monkeypatch, NATIVE) == [OPEN, LEAF, CALLER, VECTORCALL, MODULE, MAIN]
    ordinary = _joined(monkeypatch, NATIVE, tail_calls=False)
    assert ordinary == [OPEN, HANDLER, LEAF, CALLER, VECTORCALL, HANDLER, MODULE, MAIN]


@pytest.mark.parametrize("limit", range(1, 7))
def test_handlers_at_the_limit(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    whole = [OPEN, LEAF, CALLER, VECTORCALL, MODULE, MAIN]
    assert _joined(monkeypatch, NATIVE[: limit + 1], limit=limit) == whole[: min(limit, 5)]


def test_a_truncated_native_stack_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though functions of handlers were left out; nothing is marked that the script limits."""
    native = (*NATIVE, *range(0x10000, 0x10000 + 121))
    assert len(native) == 128
    marked = _joined(monkeypatch, native, limit=None)
    assert (marked[:6], marked[-2:]) == ([OPEN, LEAF, CALLER, VECTORCALL, MODULE, MAIN], [native[126], 0])
    assert _joined(monkeypatch, native[:127], limit=None)[-1] == native[126]


def test_limits_of_mixed_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _joined(monkeypatch, NATIVE[:4], limit=3, words=()) == [OPEN, HANDLER, LOOP]
    assert _joined(monkeypatch, NATIVE[:2], limit=3, words=()) == [OPEN, HANDLER]
    assert _joined(monkeypatch, NATIVE[:2]) == [OPEN, HANDLER, LEAF, CALLER, MODULE]
