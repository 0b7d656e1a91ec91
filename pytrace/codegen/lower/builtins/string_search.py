"""Substring search: strstr() and strcontains()."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.values import I64, Memory, Number, Ptr
from pytrace.frontend.syntax import nodes

NEEDLE_FOLLOWED = 64
"""Maximum needle size for an inline loop, each iteration of which the verifier follows several times."""

NEEDLE_INLINE = 32
"""Needles up to this size are compared without an inner loop."""


def search(e: Emitter, node: nodes.Call, hay: Memory, needle: Memory, constant: bytes | None) -> Number:
    """Position of the needle in the haystack, or -1; *constant* is the needle if it is constant.

    Both strings are copied to scratch memory, for the loop's callback; the outer loop goes over positions, the inner
    comparison stops at the first difference.
    """
    room, needle_size = hay.type.size, needle.type.size
    hay_at, needle_at = e.reserve(room + needle_size + 8), e.reserve(needle_size + 8)
    e.memory.zero(e.area(hay_at), ((room + needle_size + 8) + 7) & ~7)
    e.memory.copy(e.area(hay_at), hay.pointer, room, hay.align)
    e.memory.zero(e.area(needle_at), (needle_size + 8 + 7) & ~7)
    e.memory.copy(e.area(needle_at), needle.pointer, needle_size, needle.align)
    result = e.reserve(8)
    e.b.store(-1, e.area(result))
    if constant is not None:
        # A haystack that fills its buffer has no NUL.
        count = max(0, room + 1 - len(constant))
    else:
        count = room

    def body(inner: Emitter, index: I64) -> None:
        position = inner.b.at_most(index, room - 1)
        start = inner.b.offset(inner.area(hay_at), position)

        def hit() -> None:
            _hit(inner, inner.area(result), position)

        if needle_size <= NEEDLE_FOLLOWED:
            _match(inner, start, inner.area(needle_at), constant, needle_size, hit)
        else:
            _match_long(inner, node, (hay_at, needle_at), position, (room, needle_size), hit)
        _end_of_text(inner, start)

    e.loops.run(node.span, count, body)
    if constant != b"":
        return e.b.load(e.area(result))
    return 0


def _hit(e: Emitter, place: Ptr, position: Number) -> None:
    e.b.store(position, place)
    e.loops.leave()


def _end_of_text(e: Emitter, start: Ptr) -> None:
    """End the search at the NUL of the haystack."""
    with e.b.when(e.b.icmp("eq", e.b.load(start, 8), 0)):
        e.loops.leave()


def _match(
    e: Emitter, start: Ptr, needle: Ptr, constant: bytes | None, needle_size: int, hit: Callable[[], None]
) -> None:
    """Emit *hit* for the case that the needle is at *start*."""
    differ = e.b.block()
    if constant is not None and len(constant) <= NEEDLE_INLINE:
        for offset, byte in enumerate(constant):
            character = e.b.load(e.b.offset(start, offset), 8)
            e.b.jump_unless(e.b.icmp("eq", character, byte), differ)
        hit()
    else:
        matched = e.b.block()

        def step(index: I64, _leave: Callable[[], None]) -> None:
            want = e.b.load(e.b.offset(needle, index), 8)
            e.b.jump_if(e.b.icmp("eq", want, 0), matched)
            e.b.jump_unless(e.b.icmp("eq", want, e.b.load(e.b.offset(start, index), 8)), differ)

        e.loops.counted(needle_size, step)
        e.b.jump(matched)
        e.b.start(matched)
        hit()
    e.b.jump(differ)
    e.b.start(differ)


def _match_long(
    e: Emitter,
    node: nodes.Call,
    texts: tuple[int, int],
    position: Number,
    sizes: tuple[int, int],
    hit: Callable[[], None],
) -> None:
    """Like :func:`_match`, with a loop of its own over the needle."""
    room, needle_size = sizes
    begin, differs = e.reserve(8), e.reserve(8)
    e.b.store(position, e.area(begin))
    e.b.store(0, e.area(differs))

    def body(inner: Emitter, index: I64) -> None:
        step = inner.b.at_most(index, needle_size - 1)
        place = inner.b.at_most(inner.b.load(inner.area(begin)), room - 1)
        want = inner.b.load(inner.b.offset(inner.area(texts[1]), step), 8)
        with inner.b.when(inner.b.icmp("eq", want, 0)):
            inner.loops.leave()
        character = inner.b.load(inner.b.offset(inner.b.offset(inner.area(texts[0]), place), step), 8)
        with inner.b.unless(inner.b.icmp("eq", want, character)):
            inner.b.store(1, inner.area(differs))
            inner.loops.leave()

    e.loops.run(node.span, needle_size, body)
    with e.b.when(e.b.icmp("eq", e.b.load(e.area(differs)), 0)):
        hit()
