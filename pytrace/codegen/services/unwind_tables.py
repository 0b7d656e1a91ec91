"""Unwind tables in BPF: the maps, and the function that finds the rule for an address.

The session fills the maps (``pytrace.runtime.unwind.unwinder``):

- :data:`SPACES`: process id → location of its ranges.
- :data:`RANGES`, :data:`ROWS`: see :mod:`pytrace.core.stacks.unwind_format`.

:data:`TOLD` contains the processes without tables that were already reported. Scripts whose ``ustack`` chooses
by itself ask for tables of a process when they meet it: :data:`ASKED` contains when they did, and :data:`REQUESTS` is
the ring through which the session learns of it.
"""

from __future__ import annotations

from collections.abc import Callable

from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block, Builder
from pytrace.codegen.ir.module import Module
from pytrace.codegen.ir.values import I1, I64, Number, Ptr, global_pointer, number_parameter
from pytrace.core.manifest import MapType, UnwindMaps
from pytrace.core.stacks.unwind_format import RANGE_SIZE, SPACE_SIZE, Rule

SPACES, RANGES, ROWS, TOLD = "unwind_spaces", "unwind_ranges", "unwind_rows", "unwind_told"
ASKED, REQUESTS = "unwind_asked", "unwind_requests"
"""Symbols of the maps."""

PROCESSES = 8192
TOLD_PROCESSES = 4096
"""Maximum number of processes without tables that are remembered, so that each is reported once."""

RANGE_ENTRIES = 1 << 16
ROW_ENTRIES = 1 << 20
"""Initial number of rows; the session enlarges the map if it needs more."""

ASK_AGAIN = 250_000_000
"""Nanoseconds between two requests for the tables of one process."""
REQUEST_SIZE = 24
"""``u32`` event id and length of the tail (both 0), as in the ring of events; ``u64`` process id and address space."""

_MMAPABLE = 1 << 10
"""``BPF_F_MMAPABLE``: the session writes the array through a memory mapping."""

_RANGE_STEPS, _ROW_STEPS = 13, 26
"""Steps of binary search: log2 of the maximum ranges of a process, and of the maximum rows of a binary."""

RULE_FUNCTION, ASK_FUNCTION = "unwind_rule", "unwind_ask"


def maps(*, selected: bool, asks: bool) -> UnwindMaps | None:
    """The maps, for the manifest: for programs that unwind *selected* processes, and such that ask for tables."""
    if not selected and not asks:
        return None
    return UnwindMaps(SPACES, RANGES, ROWS, ROW_ENTRIES, selected, REQUESTS if asks else "")


def declare_asking(module: Module) -> None:
    """Declare what programs ask for tables with, and the function that does it."""
    module.map(ASKED, {"type": MapType.LRU_HASH, "key_size": 4, "value_size": 16, "max_entries": TOLD_PROCESSES})
    module.map(REQUESTS, {"type": MapType.RINGBUF, "max_entries": 4096})
    _ask_function(module)


def _ask_function(module: Module) -> None:
    """``unwind_ask(pid, space)``: request the tables of a process, unless that was done a moment ago."""
    b = module.function(ASK_FUNCTION, ("pid", "space"), None, apart=True)
    pid, space = number_parameter("pid"), number_parameter("space")
    key, value, request = b.alloca(8), b.alloca(16), b.alloca(REQUEST_SIZE)
    done, ask = b.block(), b.block()
    now = b.helper(helpers.KTIME_GET_NS)
    b.store(pid, key, 32)
    known = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(ASKED), key)
    b.jump_if(b.is_null(known), ask)
    b.jump_unless(b.icmp("eq", b.load(known), space), ask)
    b.branch(b.icmp("ult", b.sub(now, b.load(b.offset(known, 8))), ASK_AGAIN), done, ask)
    b.start(ask)
    b.store(space, value)
    b.store(now, b.offset(value, 8))
    b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(ASKED), key, value, 0)
    for offset, word in ((0, 0), (8, pid), (16, space)):
        b.store(word, b.offset(request, offset))
    b.helper(helpers.RINGBUF_OUTPUT, global_pointer(REQUESTS), request, REQUEST_SIZE, 0)
    b.jump(done)
    b.start(done)
    b.ret(0)


def declare(module: Module) -> None:
    """Declare the maps and the function that finds a rule."""
    module.map(SPACES, {"type": MapType.HASH, "key_size": 4, "value_size": SPACE_SIZE, "max_entries": PROCESSES})
    module.map(TOLD, {"type": MapType.LRU_HASH, "key_size": 4, "value_size": 4, "max_entries": TOLD_PROCESSES})
    for symbol, size, entries in ((RANGES, RANGE_SIZE, RANGE_ENTRIES), (ROWS, 8, ROW_ENTRIES)):
        module.map(
            symbol,
            {"type": MapType.ARRAY, "key_size": 4, "value_size": size, "max_entries": entries, "map_flags": _MMAPABLE},
        )
    _rule_function(module)


def _rule_function(module: Module) -> None:
    """``unwind_rule(address, space)``: the low half of the row that covers a user address.

    Where there is none it is :attr:`Rule.FRAME` or :attr:`Rule.UNMAPPED`.
    """
    b = module.function(RULE_FUNCTION, ("address", "space"), None, apart=True)
    address, space = number_parameter("address"), number_parameter("space")
    key = b.alloca(8)
    unmapped, none = b.block(), b.block()
    first, count = _halves(b, space)
    index = _search(b, key, RANGES, _RANGE_STEPS, first, count, lambda entry: b.icmp("ule", b.load(entry), address))
    entry = _entry(b, key, RANGES, index, unmapped)
    b.jump_unless(b.icmp("ult", address, b.load(b.offset(entry, 8))), unmapped)
    place = b.sub(address, b.load(b.offset(entry, 16)))
    first, count = _halves(b, b.load(b.offset(entry, 24)))
    index = _search(
        b, key, ROWS, _ROW_STEPS, first, count, lambda entry: b.icmp("ule", b.op("lshr", b.load(entry), 32), place)
    )
    row = b.load(_entry(b, key, ROWS, index, none))
    b.ret(b.op("and", row, 0xFFFFFFFF))
    b.start(none)
    b.ret(Rule.FRAME.value)
    b.start(unmapped)
    b.ret(Rule.UNMAPPED.value)


def _halves(b: Builder, value: Number) -> tuple[I64, I64]:
    return b.op("and", value, 0xFFFFFFFF), b.op("lshr", value, 32)


def _lookup(b: Builder, key: Ptr, symbol: str, index: I64) -> Ptr:
    b.store(index, key, 32)
    return b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(symbol), key)


def _entry(b: Builder, key: Ptr, symbol: str, index: I64, none: Block) -> Ptr:
    """Entry *index* of an array; continues at *none* if there is none (index -1)."""
    entry = _lookup(b, key, symbol, index)
    b.jump_if(b.is_null(entry), none, likely=False)
    return entry


def _search(
    b: Builder, key: Ptr, symbol: str, steps: int, first: Number, count: Number, before: Callable[[Ptr], I1]
) -> I64:
    """Index of the last of *count* entries from *first* on for which *before* holds; -1 if there is none.

    Steps go from the largest power of two down, so the number of iterations does not depend on the data. The verifier
    knows only the step, so it follows each iteration once instead of every path through all of them.
    """
    result, step = b.register(), b.register()
    end = b.add(first, count)
    b.store(first, result)
    b.store(1 << steps - 1, step)
    head, again, done = b.block(), b.block(), b.block()
    b.jump(head)
    b.start(head)
    b.jump_unless(b.truth(b.load(step)), done)
    ahead = b.add(b.load(result), b.load(step))
    b.jump_unless(b.icmp("ule", ahead, end), again)
    entry = _lookup(b, key, symbol, b.sub(ahead, 1))
    b.jump_if(b.is_null(entry), again)
    b.jump_unless(before(entry), again)
    b.store(ahead, result)
    b.jump(again)
    b.start(again)
    b.store(b.op("lshr", b.load(step), 1), step)
    b.jump(head)
    b.start(done)
    last = b.load(result)
    return b.select(b.icmp("eq", last, first), -1, b.sub(last, 1))
