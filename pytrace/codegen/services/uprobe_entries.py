"""``ustack`` at the first instruction of a user function (x86-64), where the frame pointer is still its caller's.

There a walk along frame pointers skips the caller. Its address is on top of the stack, and is inserted as the second
frame. Kernels since 6.11 insert it themselves if the function begins with ``push %rbp`` or ``endbr64``
(``is_uprobe_at_func_entry`` of arch/x86/events/core.c).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pytrace.codegen.emit.contexts import register
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.ir_values import Number, Ptr
from pytrace.codegen.services.frame_pointers import CODE_64
from pytrace.core.probes.kinds import UPROBE
from pytrace.core.probes.targets import UserTarget
from pytrace.core.types import Stack, StackMode

_WORD = 8


def begins_function(e: Emitter, type_: Stack) -> bool:
    """Whether such a stack may lack the caller."""
    unit = e.program.unit
    if not type_.user or type_.mode is StackMode.BUILD_ID or type_.limit < 2 or e.script.kernel.arch != "x86_64":
        return False
    if unit.kind.name != UPROBE:
        return False
    targets = [target.of(UserTarget) for target in unit.targets]
    return all(target.symbol and not target.inside for target in targets)


class StackCall(msgspec.Struct, frozen=True):
    """How the helper is called: *whole* emits the call that writes all frames, *check* counts a failure."""

    context: Ptr
    flags: int
    whole: Callable[[], Number]
    check: Callable[[Number], None]


def stack(e: Emitter, type_: Stack, frames: Ptr, call: StackCall) -> Number:
    """Write the frames, including the caller.

    Args:
        e: the emitter.
        type_: the type of the stack, for which :func:`begins_function` holds.
        frames: destination with room for ``type_.limit`` frames.
        call: how the kernel's helper is called.

    Returns:
        The number of frames, or the helper's error.
    """
    b, result = e.b, e.b.register()
    caller = e.temporary(_WORD)
    plain, done = b.block(), b.block()
    b.store(0, caller)
    b.helper(helpers.PROBE_READ_USER, caller, _WORD, register(e, "sp"))
    # One word too far, to leave room for the caller.
    room = (type_.limit - 1) * type_.frame_size
    length = b.helper(helpers.GET_STACK, call.context, b.offset(frames, _WORD), room, call.flags)
    b.store(0, frames)
    b.store(length, result)
    call.check(length)
    b.jump_if(b.icmp("slt", length, _WORD), done, likely=False)
    address = b.load(caller, again=True)
    address = b.select(b.icmp("eq", b.op("and", register(e, "cs"), 0xFFFF), CODE_64), address, 0)
    second = b.load(b.offset(frames, 2 * _WORD), again=True) if type_.limit > 2 else 0
    missing = b.select(b.icmp("eq", address, 0), 0, second)  # there is no address to insert
    b.jump_if(b.icmp("eq", address, missing), plain, likely=False)
    b.store(b.load(b.offset(frames, _WORD), again=True), frames)
    b.store(address, b.offset(frames, _WORD))
    b.store(b.add(b.op("udiv", length, _WORD), 1), result)
    b.jump(done)
    b.start(plain)
    b.store(call.whole(), result)
    b.jump(done)
    b.start(done)
    return b.load(result)
