"""Frames of a stack that chooses, in a process with a binary that has a table, and code without."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cache

import pytest

from pytrace.codegen.walkers.frame_pointers import CODE_64
from pytrace.codegen.walkers.unwinding import ASKED, RANGES, REQUESTS, ROWS, SPACES
from pytrace.core.manifest import CompiledScript, MapType
from pytrace.core.stack_formats import Rule
from pytrace.core.types import UINT64, Field
from tests.codegen.running import compiled, helpers, task_structs
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
            spaces.entries[struct.pack("<I", PID), 0] = found.region(struct.pack("<IIQ", 0, 2, self.owner))
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


def test_a_number_is_no_return_address() -> None:
    """It lies outside of all code; the process may have mapped more, so its tables are asked for."""
    process = Process(PLAIN + 4, STACK + 64, {STACK + 64: STACK + 128, STACK + 72: 0x616E676973007065})
    found = process.run()
    assert stack(found) == [PLAIN + 4]
    assert process.requests == [(PID, SPACE)]


def test_new_code_at_the_probe() -> None:
    process = Process(0x30004, STACK + 64, {STACK + 64: 0, STACK + 72: PLAIN + 9})
    assert stack(process.run()) == [0x30004, PLAIN + 9]
    assert process.requests == [(PID, SPACE)]


@pytest.mark.parametrize("owner", [-1, SPACE + 64])
def test_tables_of_a_new_program_are_asked_for(owner: int) -> None:
    """There are none, or only those of the program before execve."""
    process = Process(TABLED + 4, 0, {}, owner=owner)
    assert stack(process.run()) == [TABLED + 4]
    assert process.requests == [(PID, SPACE)]


def test_tables_without_an_owner_are_those_of_the_first_program() -> None:
    process = Process(TABLED + 0x900, owner=0)
    found = process.run()
    assert stack(found) == [TABLED + 0x900]
    (value,) = (found.read(place, 16) for place in found.maps[found.names[SPACES]].entries.values())
    assert struct.unpack("<8xQ", value) == (SPACE,)


def test_32_bit_programs_are_left_to_the_kernel() -> None:
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
