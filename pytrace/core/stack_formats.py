"""What programs and the runtime exchange about stacks: images of processes, unwind tables."""

from __future__ import annotations

from enum import IntEnum

# --------------------------------------------------------------------------------------------------------- image format

# Images of processes: their numbers, and the reports of new ones (`codegen.walkers.memory_images`).


FIRST_IMAGE = 1 << 22
"""The number of the first image; process ids are less (``PID_MAX_LIMIT`` of include/linux/threads.h)."""


class ImageChange(IntEnum):
    """What a new image began with."""

    EXEC = 1
    UNMAP = 2
    MOVE = 3
    MAP = 4
    """Something was mapped over code."""
    OTHER = 5
    """A call of a 32-bit program: what it has unmapped is not known."""


class ImageReport:
    """Offsets in a report: what has happened, the image (0: it has none, as there is no room), the process,
    when the call began (``CLOCK_MONOTONIC``), and what it unmapped, moved or mapped.
    """

    CHANGE = 0
    IMAGE = 8
    PROCESS = 12
    BEGUN = 16
    START = 24
    LENGTH = 32
    RESULT = 40
    NEW_LENGTH = 48


REPORT_SIZE = 56


# -------------------------------------------------------------------------------------------------------- unwind format

# Rows of unwind tables: `runtime.stacks.unwind_tables` writes them, `codegen.walkers.user_stacks` reads them.
#
# A row is a `u64`: the first virtual address in the file that it applies to (high 32 bits) and a rule (low 32 bits) for
# finding the caller's frame:
#
# ====== ==== =====================================================================================================
# bits   name meaning
# ====== ==== =====================================================================================================
# 0-3    kind see `Rule`
# 4-11   bp   location of the caller's rbp: 0 unchanged, `WHERE_RBP_POINTS`, else that many words below the CFA
#             (`Rule.RETURN`: the register with the return address)
# 12-31  cfa  signed distance in words (`Rule.PLT`: the number that the table compares with;
#             `Rule.REGISTER`: in the low 4 bits the register, above them the distance)
# ====== ==== =====================================================================================================
#
# Registers have the numbers of their words in `struct pt_regs`: `REGISTERS`.
#
# The CFA (canonical frame address) is the stack pointer before the call; the return address is in the word below it.
# Source: DWARF 5, section 6.4.
#
# A process's *ranges* are its executable mappings in order of address, each of `RANGE_SIZE` bytes: `u64` start,
# end, the load bias (address minus virtual address in the file), `u32` index of the first row, `u32` number of rows.
#
# A process's *space* is `SPACE_SIZE` bytes: `u16` index of the first range, `u16` number of ranges, `u32` number of
# these ranges among all that were ever written (so that the first 8 bytes are never the same again), and the address of
# the `struct mm_struct` that they belong to; 0 until a program has seen it.


WORD = 8
WHERE_RBP_POINTS = 255
"""The caller's rbp is in memory where rbp points (functions that align their stack)."""
CFA_LIMIT = 1 << 19
"""Distances of a rule are less than this, in words."""
REGISTERS = ("r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di")
"""The first words of ``struct pt_regs``: all registers of an innermost frame are known, of others rsp and rbp."""
RANGE_SIZE = 32
SPACE_SIZE = 16


class Rule(IntEnum):
    """How the CFA is computed."""

    FRAME = 0
    """No table covers the place (Go, code that was compiled at run time, assembler): a frame pointer may help."""
    RSP = 1
    RBP = 2
    AT_RBP = 3
    """In memory at rbp + distance (functions that align their stack)."""
    AT_RSP = 4
    PLT = 5
    """rsp + 8, plus 8 from a given offset in the 16-byte entry on."""
    SIGNAL = 6
    """The kernel's signal frame lies at rsp: all registers are in it."""
    LAST = 7
    """There is no caller."""
    RETURN = 8
    """At rsp + distance, and the return address is in a register (``vfork``). Of innermost frames only."""
    REGISTER = 9
    """At another register + distance (beginnings of functions that align their stack). Of innermost frames only."""
    NONE = 10
    """Unknown: unwinding ends."""
    UNMAPPED = 11
    """The address is in none of the ranges of the process. Not in rows."""
