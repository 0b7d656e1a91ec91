"""pytrace.runtime.load.line_table: positions of instructions, also of the functions that a program calls."""

from __future__ import annotations

import struct

from pytrace.core.manifest import CompiledScript
from pytrace.runtime.abi import libbpf
from pytrace.runtime.load.line_table import LineTable
from tests.codegen.running import compiled

SCRIPT = """fn twice($x: uint64): uint64 {
    return $x * 2;
}
begin {
    @a = twice(rand());
    for $i : 0..10 {
        @b += twice(rand());
    }
}
"""
CALL, ADDRESS, SIZE = 0x85, 0x18, 8


def text(elf: bytes, name: str) -> bytes:
    table = LineTable(elf)
    return table._bytes(name)


def symbol(script: CompiledScript) -> str:
    """The program of ``begin``."""
    return next(spec.symbol for spec in script.manifest.programs if spec.kind == "begin")


def joined(elf: bytes, symbol: str) -> bytes:
    """What libbpf makes of a program: its functions follow it, in the order of first calls."""
    table = LineTable(elf)
    code = bytearray()
    begins: dict[object, int] = {}

    def add(function: object) -> None:
        begin = begins[function] = len(code) // SIZE
        section, start, size = function.section, function.start, function.size  # type: ignore[attr-defined]
        code.extend(table._bytes(section)[SIZE * start : SIZE * (start + size)])
        for number in range(size):
            operation, registers, offset, _ = struct.unpack_from("<BBhi", code, SIZE * (begin + number))
            if operation != ADDRESS and (operation, registers >> 4) != (CALL, 1):
                continue
            callee = table._callee(function, number)  # type: ignore[arg-type]
            if callee is None:
                assert operation == ADDRESS, "the address of data"
                continue
            if callee not in begins:
                add(callee)
            if operation == ADDRESS:
                registers |= 4 << 4  # libbpf says that it is the address of a function
            distance = begins[callee] - begin - number - 1
            struct.pack_into("<BBhi", code, SIZE * (begin + number), operation, registers, offset, distance)

    add(table._function(symbol))
    return bytes(code)


def test_lines_of_a_program_and_of_its_functions() -> None:
    script = compiled(SCRIPT)
    elf, program = script.elf, symbol(script)
    code = joined(elf, program)
    positions = LineTable(elf).positions(program, code)
    assert list(positions) == sorted(positions)
    assert max(positions) < len(code) // SIZE
    lines = {place.line: place.text for place in positions.values() if place.line}
    assert {2, 5, 7} <= set(lines)
    for line, shown in lines.items():
        assert shown == SCRIPT.split("\n")[line - 1]
    assert min(number for number, place in positions.items() if place.line == 2) > min(
        number for number, place in positions.items() if place.line == 5
    )


def test_columns() -> None:
    script = compiled("begin { @a = rand();   @b = rand(); }")
    elf, program = script.elf, symbol(script)
    places = LineTable(elf).positions(program, text(elf, f"pytrace/{program}"))
    assert {place.column for place in places.values()} >= {9, 24}


def test_a_file_without_positions() -> None:
    script = compiled("begin { @ = 1; }")
    elf = script.elf.replace(b".BTF.ext\0", b".BTF.non\0")
    assert LineTable(elf).positions(symbol(script), text(elf, f"pytrace/{symbol(script)}")) == {}


def test_instructions_of_libbpf() -> None:
    with libbpf.Messages():
        handle = libbpf.open_memory(compiled("begin { @ = 1; }").elf)
        try:
            lib = libbpf.library()
            program = lib.bpf_object__next_program(handle, None)
            data = libbpf.instructions(program)
            assert len(data) == 8 * lib.bpf_program__insn_cnt(program) > 0
        finally:
            lib.bpf_object__close(handle)
