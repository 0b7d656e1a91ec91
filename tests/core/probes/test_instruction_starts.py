from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from pytrace.core.probes.instructions import BadCodeError, Decoder, instruction_length, instruction_starts
from tests.support.rows import each_row


@each_row(
    ("code", "size"),
    [
        ("90", 1),  # nop
        ("55", 1),  # push
        ("4889e5", 3),  # mov rbp, rsp
        ("488b4508", 4),  # mov rax, [rbp+8]
        ("8b048d00000000", 7),  # mov eax, [rcx*4+0]
        ("488d0511223344", 7),  # lea rax, [rip+…]
        ("48b81122334455667788", 10),  # movabs
        ("66b81122", 4),  # mov ax, imm16
        ("b811223344", 5),  # mov eax, imm32
        ("f6450801", 4),  # test byte [rbp+8], 1
        ("f7d8", 2),  # neg eax
        ("e811223344", 5),  # call
        ("0f8411223344", 6),  # je
        ("0f1f440000", 5),  # nop
        ("f30f1efa", 4),  # endbr64
        ("c8112233", 4),  # enter
        ("c21100", 3),  # ret imm16
        ("660f3a0fc108", 6),  # palignr
        ("660f3800c1", 5),  # pshufb
        ("c5f877", 3),  # vzeroupper
        ("c4e37d0fc108", 6),  # vpalignr
        ("62f1fe486f06", 6),  # vmovdqu64 zmm
        ("64488b042528000000", 9),  # mov rax, fs:0x28
        ("a11122334455667788", 9),  # mov eax, moffs
    ],
)
def test_lengths(code: str, size: int) -> None:
    assert instruction_length(bytes.fromhex(code) + b"\x90" * 16, 0, "x86_64") == size


@pytest.mark.parametrize(
    ("code", "opcode", "operand"),
    [
        ("4889e5", 0x89, 2),
        ("90", 0x90, -1),
        ("0f1f440000", 0x0F1F, 2),
        ("0f8411223344", 0x0F84, -1),
        ("660f3800c1", -1, 4),
        ("c5f877", -1, -1),
        ("62f1fe486f06", -1, 5),
    ],
)
def test_parts(code: str, opcode: int, operand: int) -> None:
    found = Decoder(bytes.fromhex(code), 0)
    assert (found.opcode, found.operand, found.end) == (opcode, operand, len(code) // 2)


def test_starts() -> None:
    assert list(instruction_starts(bytes.fromhex("554889e5c3"), "x86_64")) == [0, 1, 4]
    assert list(instruction_starts(b"\0" * 12, "aarch64")) == [0, 4, 8]


@pytest.mark.parametrize(
    ("code", "machine"), [("06", "x86_64"), ("48", "x86_64"), ("66" * 16 + "90", "x86_64"), ("90", "vax")]
)
def test_no_instruction(code: str, machine: str) -> None:
    with pytest.raises(BadCodeError):
        instruction_length(bytes.fromhex(code), 0, machine)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
def test_like_the_disassembler() -> None:
    path = Path("/bin/true").resolve()
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", "-j", ".text", str(path)], capture_output=True, text=True, check=True
    ).stdout
    if "elf64-x86-64" not in text:
        pytest.skip("another machine")
    found = [(int(item[1], 16), item[2]) for item in re.finditer(r"^\s+([0-9a-f]+):\s+(.*)$", text, re.MULTILINE)]
    sections = subprocess.run(["objdump", "-h", str(path)], capture_output=True, text=True, check=True).stdout
    row = re.search(r"\.text\s+(\w+)\s+(\w+)\s+\w+\s+(\w+)", sections)
    assert row is not None
    size, base, offset = (int(item, 16) for item in row.groups())
    code = path.read_bytes()[offset : offset + size]
    for (at, shown), (following, _) in pairwise(found):
        if "(bad)" not in shown:
            assert instruction_length(code, at - base, "x86_64") == following - at, shown
