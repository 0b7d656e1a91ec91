"""The caller in user stacks at the first instruction of a function; real stacks are in tests/kernel."""

from __future__ import annotations

import struct

import pytest

from pytrace.codegen.services.frame_pointers import CODE_64
from tests.codegen.running import machine
from tests.codegen.services.test_frame_pointers import Kernel, stack
from tests.support.bpf_machine import FAULT, Machine

GET_STACK, READ_USER = 67, 112
CS, SP = 136, 152
"""Offsets in ``struct pt_regs``."""
TOP, RETURN = 1 << 32, 500
"""Where the stack pointer is, and what lies there."""


def run(probe: str, limit: int, walked: list[int], *, segment: int = CODE_64, readable: bool = True) -> Machine:
    """A machine whose kernel finds the frames *walked*."""
    context = bytearray(168)
    struct.pack_into("<Q", context, CS, segment)
    struct.pack_into("<Q", context, SP, TOP)
    found = machine(f"{probe} {{ @[ustack({limit})] = count(); }}", Kernel())

    def read(target: int, size: int, source: int, *_: int) -> int:
        if source != TOP or not readable:
            found.write(target, bytes(size & 0xFFFFFFFF))
            return FAULT
        found.write(target, struct.pack("<Q", RETURN))
        return 0

    def get_stack(_context: int, target: int, size: int, *_: int) -> int:
        size &= 0xFFFFFFFF
        data = struct.pack(f"<{len(walked)}Q", *walked)[:size]
        found.write(target, data.ljust(size, b"\0"))
        return len(data)

    found.helpers[READ_USER], found.helpers[GET_STACK] = read, get_stack
    found.run(context=bytes(context))
    return found


ENTRY = "uprobe:/bin/true:main"


@pytest.mark.parametrize("limit", [2, 3, 4, 9, 127])
@pytest.mark.parametrize("walked", [[7], [7, 8], [7, 8, 9, 10]])
def test_the_caller_is_added(walked: list[int], limit: int) -> None:
    assert stack(run(ENTRY, limit, walked)) == [7, RETURN, *walked[1:]][:limit]


@pytest.mark.parametrize("limit", [2, 3, 9])
def test_a_kernel_that_has_found_it(limit: int) -> None:
    assert stack(run(ENTRY, limit, [7, RETURN, 8, 9])) == [7, RETURN, 8, 9][:limit]


@pytest.mark.parametrize("options", [{"segment": 0x23}, {"readable": False}])
def test_what_cannot_be_known_is_not_added(options: dict[str, int]) -> None:
    """A program of 32 bits, a stack that cannot be read."""
    assert stack(run(ENTRY, 5, [7, 8, 9], **options)) == [7, 8, 9]


@pytest.mark.parametrize("probe", ["uprobe:/bin/true:main+4", "uretprobe:/bin/true:main"])
def test_inside_of_a_function_the_frames_are_those_of_the_kernel(probe: str) -> None:
    assert stack(run(probe, 5, [7, 8, 9])) == [7, 8, 9]


def test_one_frame_is_the_function() -> None:
    assert stack(run(ENTRY, 1, [7, 8, 9])) == [7]
