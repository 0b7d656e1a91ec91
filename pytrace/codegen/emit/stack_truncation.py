"""Truncated stacks: how it is known that a stack has more frames than are kept, and where that is counted.

A stack whose limit the script does not name has one more in its number of frames then
(:class:`~pytrace.core.types.Stack`). pytrace's own walkers look for one more frame. ``bpf_get_stack`` copies at most as
many frames as ``kernel.perf_event_max_stack`` says: a stack that has that many is taken as truncated. Where the kernel
walks more than are kept, it is asked for one more, which only full stacks need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.ir.module import SHARED
from pytrace.codegen.ir.values import I64, Number, Ptr, global_pointer
from pytrace.core.types import Stack, StackMode
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import walk
from pytrace.frontend.syntax.typed_program import location

COUNTER = "truncated"
_MODES = frozenset(mode.value for mode in StackMode)

Node = nodes.Call | nodes.Identifier


def marked(node: Node) -> bool:
    """Whether truncated stacks of a call are marked: the script does not say how many frames it wants."""
    if not isinstance(node, nodes.Call) or not node.args:
        return True
    first = node.args[0]
    return len(node.args) == 1 and isinstance(first, nodes.Identifier) and first.name in _MODES


def tell(e: Emitter, node: Node, type_: Stack, count: Number) -> None:
    """Count the stack if it is truncated."""
    if marked(node):
        with e.b.when(e.b.icmp("sgt", count, type_.limit), likely=False):
            add(e, node)


def add(e: Emitter, node: Node) -> None:
    """Count a truncated stack, by its place in the script, and by the map that it is a key or value of."""
    maps = e.script.stack_maps
    if maps is None:
        maps, checked = {}, e.checked
        e.script.stack_maps = maps
        for body in [unit.body for unit in checked.units] + [function.body for function in checked.functions]:
            maps.update(_stacks_of_maps(body))
    name = maps.get(node)
    what = f"{node.name} of {name}" if name else node.name
    e.counter(COUNTER, e.script.layout.site(what, location(node.span)))


def _stacks_of_maps(body: nodes.Node) -> Iterator[tuple[nodes.Node, str]]:
    for node in walk(body):
        if isinstance(node, nodes.MapIndex):
            name, parts = node.map.name, node.keys
        elif isinstance(node, nodes.Assign) and isinstance(node.target, nodes.MapRef | nodes.MapIndex):
            target = node.target
            name, parts = target.name if isinstance(target, nodes.MapRef) else target.map.name, (node.value,)
        else:
            continue
        for part in parts:
            yield from ((each, name) for each in walk(part) if isinstance(each, nodes.Call | nodes.Identifier))


def of_kernel(
    e: Emitter, node: Node, type_: Stack, count: Number, skipped: int, get_stack: Callable[[Ptr, int], I64],
    inserted: Number = 0,
) -> Number:  # fmt: skip
    """The number of frames that ``bpf_get_stack`` wrote, or one more than the limit, which is counted.

    Args:
        e: the emitter.
        node: the call.
        type_: its type.
        count: the number of frames, or a negative error.
        skipped: frames that the helper was told to skip, which count in the kernel's limit.
        get_stack: emits a call of the helper, to a place with room for a number of frames; it returns a length.
        inserted: the number of frames in *count* that the helper did not find.
    """
    if not marked(node):
        return count
    b, result = e.b, e.b.register()
    b.store(count, result)
    place = e.script.layout.place_stack_depth(type_.limit)
    full = b.load(global_pointer(SHARED, place))
    with b.when(b.icmp("sge", b.add(count, skipped), full), likely=False):
        room = e.area(e.reserve((type_.limit + 1) * type_.frame_size))
        size = type_.frame_size
        length = get_stack(room, type_.limit + 1)
        most = b.mul(b.load(global_pointer(SHARED, place + 8)), size)
        more = b.either(
            b.icmp("sgt", b.add(length, b.mul(inserted, size)), type_.limit * size),
            b.icmp("sge", b.add(length, skipped * size), most),
        )
        with b.when(more):
            b.store(type_.limit + 1, result)
            add(e, node)
    return b.load(result)
