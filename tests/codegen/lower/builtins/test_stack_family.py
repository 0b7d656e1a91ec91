"""Builtins that walk stacks: what is asked of the kernel, and failures."""

from __future__ import annotations

import struct

import pytest

from pytrace.codegen.walkers.frame_pointers import CODE_64
from tests.codegen.running import machine, printed, ran
from tests.codegen.services.test_frame_pointers import Kernel, stack
from tests.support.bpf_machine import FAULT, Machine


@pytest.mark.parametrize(
    ("call", "frames", "flags"),
    [
        ("kstack", 127, 0),
        ("kstack(3)", 3, 0),
        ("ustack", 127, 1 << 8),
        ("ustack(5)", 5, 1 << 8),
        ("ustack(build_id, 2)", 2, 1 << 8 | 1 << 11),
    ],
)
def test_requests(call: str, frames: int, flags: int) -> None:
    (given,) = [given for number, given in ran(f"kprobe:vfs_read {{ @[{call}] = 1; }}").calls if number == 67]
    entry = 32 if "build_id" in call else 8
    assert (given[2] & 0xFFFFFFFF, given[3]) == (frames * entry, flags)


@pytest.mark.parametrize(("answer", "frames"), [(24, 3), (8, 1), (0, 0), (-14, 0)])
def test_frames_are_counted(answer: int, frames: int) -> None:
    """The kernel answers in bytes, or with an error, which is a stack without frames."""
    assert printed("@s = kstack; print(len(@s));", helpers={67: lambda *_: answer})[-1] == frames


@pytest.mark.parametrize(
    ("frames", "most", "skipped", "count"),
    [
        *((126, 127, 0, 126), (127, 127, 0, 128), (127, 200, 0, 127), (128, 200, 0, 128), (200, 200, 0, 128)),
        *((49, 50, 0, 49), (50, 50, 0, 128), (124, 127, 2, 124), (125, 127, 2, 128), (126, 128, 2, 128)),
        *((126, 129, 2, 126), (127, 200, 2, 127), (128, 200, 2, 128)),
    ],
)
def test_a_full_stack_is_asked_for_one_more_frame(frames: int, most: int, skipped: int, count: int) -> None:
    """Of a kernel that walks at most *most* frames, of which it skips some."""
    found = machine(f"{'rawtracepoint:sched_switch' if skipped else 'kprobe:vfs_read'} {{ @s[kstack] = count(); }}")
    (depth,) = found.script.manifest.stack_depths
    found.write(found.section(depth.section) + depth.offset, struct.pack("<QQ", min(most, depth.limit), most))

    def get_stack(_context: int, target: int, size: int, *_: int) -> int:
        got = min(frames, most - skipped, (size & 0xFFFFFFFF) // 8)
        found.write(target, struct.pack(f"<{got}Q", *range(1, got + 1)))
        return 8 * got

    found.helpers[GET_STACK] = get_stack
    found.run()
    (key,) = found.entries("@s")
    assert isinstance(key, bytes)
    assert int.from_bytes(key[:4], "little") == count


def test_each_frame_is_kept() -> None:
    found = machine("begin { print(kstack(3)); }")
    found.helpers[67] = lambda _ctx, place, *_: found.write(place, struct.pack("<2Q", 5, 6)) or 16
    found.run()
    ((value,),) = (arguments for _, arguments in found.values())
    assert struct.pack("<2Q", 5, 6) in value


@pytest.mark.parametrize(
    ("probe", "skipped"),
    [("kprobe:vfs_read", 0), ("fentry:vfs_read", 2), ("fexit:vfs_read", 2), ("rawtracepoint:sched_switch", 2)],
)
def test_frames_of_the_tracer_are_left_out(probe: str, skipped: int) -> None:
    (given,) = [given for number, given in ran(f"{probe} {{ @[kstack(5)] = 1; }}").calls if number == 67]
    assert (given[2] & 0xFFFFFFFF, given[3]) == (40, skipped)


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
