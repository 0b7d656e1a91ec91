"""x86-64 instructions that the kernel's uprobes misdecode, so that a probe on one corrupts the program.

arch/x86/kernel/uprobes.c decides by the opcode byte whether it emulates an instruction (``branch_setup_xol_ops``) and
what it fixes up after a single step (``arch_uprobe_analyze_insn``). That byte means something else after a VEX, EVEX or
XOP prefix: ``vpbroadcastb`` has the opcode of ``jp``, ``vpor`` that of ``jmp``. Tried on Linux 6.1 and 6.18.
"""

from __future__ import annotations

_VECTOR = {0xC5: 2, 0xC4: 3, 0x62: 4}
"""VEX and EVEX prefixes, and the offset of the opcode after them."""
_XOP = 0x8F
_NOP = 0x90
_LEGACY = frozenset({0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3})
_MISREAD = frozenset(
    {
        *range(0x70, 0x80),  # emulated as a conditional jump: vpshufd, vpcmpeqb, vmovd to a register, vzeroupper …
        0x90,  # emulated as a nop: kmov, vpgatherdd
        0x9A,  # call: the return address on the stack is corrected (older kernels; newer ones refuse it)
        0x9D,  # popf: single stepping stays on, and the program dies of SIGTRAP
        0xC2, 0xC3, 0xCA, 0xCB, 0xEA,  # returns and a jump: the program stays in the copy of the instruction
        0xE8, 0xE9, 0xEB,  # emulated as a call or jump: vpsubsb, vpsubsw, vpor
        0xFF,  # by the ModRM byte a call or jump
    }
)  # fmt: skip
_FIRST = frozenset({*_VECTOR, _XOP, *_LEGACY, *range(0x40, 0x50)})
"""First bytes of all instructions that may be misdecoded."""


def misread(code: bytes) -> bool:
    """Whether a uprobe at the first instruction of *code* would corrupt the program."""
    if not code or code[0] not in _FIRST:
        return False
    offset = 0
    while offset < len(code) and code[offset] in _LEGACY:
        offset += 1
    rest = code[offset:]
    if len(rest) < 2:
        return False
    if rest[0] in _VECTOR:
        opcode = _VECTOR[rest[0]]
        return opcode < len(rest) and rest[opcode] in _MISREAD
    if rest[0] == _XOP:
        # The kernel does not know XOP and reads a pop; with a lower number in these bits it is one.
        return rest[1] & 0x1F >= 8
    # xchg of r8 and rax (REX.B) is taken for the nop that it is without the prefix.
    return 0x40 <= rest[0] <= 0x4F and bool(rest[0] & 1) and rest[1] == _NOP
