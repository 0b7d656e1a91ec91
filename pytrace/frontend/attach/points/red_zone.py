"""The x86-64 red zone: the 128 bytes below the stack pointer that a leaf function may use without moving it.

Linux 6.18 replaces a nop of 5 bytes under a uprobe by a call after the first hit (``arch_uprobe_optimize``,
commit ba2bfc97b462), which overwrites the 32 bytes below the stack pointer. Later kernels do so with nops of 10 bytes
and move the stack pointer first.
"""

from __future__ import annotations

from pytrace.frontend.attach.points.instruction_starts import BadCodeError, Decoder

NOP5 = 5
"""Length of a nop that becomes a call."""
_PAGE = 4096
_ENDBR64 = bytes.fromhex("f30f1efa")
_CALL, _GROUP_5 = 0xE8, 0xFF
_RSP, _RBP = 4, 5


def becomes_call(code: bytes, offset: int) -> bool:
    """Whether *code*, at a file offset, starts with a nop that the kernel replaces by a call."""
    try:
        instruction = Decoder(code, 0)
    except (BadCodeError, IndexError):
        return False
    if instruction.end != NOP5 or offset % _PAGE > _PAGE - NOP5:
        return False  # the kernel does not write across pages
    nop = instruction.opcode == 0x90
    long_nop = instruction.opcode == 0x0F1F and code[instruction.operand] >> 3 & 7 == 0
    return nop or long_nop


def at_entry(before: bytes) -> bool:
    """Whether the red zone is still unused after *before*, the function's code up to the probe."""
    return before in (b"", _ENDBR64)


def used(code: bytes) -> bool:
    """Whether a function may use its red zone: it is a leaf function with operands below its stack pointer.

    Compilers use the red zone in leaf functions only, since a call would overwrite it. True for undecodable code.
    """
    offset, below = 0, False
    try:
        while offset < len(code):
            instruction = Decoder(code, offset)
            if _calls(code, instruction):
                return False
            below = below or _below_stack(code, instruction)
            offset = instruction.end
    except (BadCodeError, IndexError):
        return True
    return below


def _calls(code: bytes, instruction: Decoder) -> bool:
    if instruction.opcode == _GROUP_5:
        return code[instruction.operand] >> 3 & 7 in (2, 3)
    return instruction.opcode == _CALL


def _below_stack(code: bytes, instruction: Decoder) -> bool:
    """Whether the operand is memory at a negative offset from rsp or rbp (r12 and r13 are taken for them)."""
    offset = instruction.operand
    if offset < 0:
        return False
    mode, register = code[offset] >> 6, code[offset] & 7
    if mode not in (1, 2):
        return False
    displacement = offset + 1
    if register == _RSP:
        register = code[displacement] & 7
        displacement += 1
    highest = displacement if mode == 1 else displacement + 3
    return register in (_RSP, _RBP) and code[highest] >= 0x80
