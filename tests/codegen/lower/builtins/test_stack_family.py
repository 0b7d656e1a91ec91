"""Builtins that walk stacks: what is asked of the kernel, and failures."""

from __future__ import annotations

import struct

import pytest

from tests.codegen.running import machine, printed, ran


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
