"""Code objects of Python frames, identified and copied in BPF (layout: ``pytrace.core.stacks.python_format``).

The functions here work on the *state* of a walk (:mod:`pytrace.codegen.services.python.stacks`), in scratch memory.
"""

from __future__ import annotations

from pytrace.codegen.ir import helpers
from pytrace.codegen.ir.builder import Block, Builder
from pytrace.codegen.ir.module import Module
from pytrace.codegen.ir.values import I64, Number, Ptr, global_pointer, pointer_parameter
from pytrace.core.manifest import MapType, PythonMaps
from pytrace.core.source import Span
from pytrace.core.stacks.python_format import (
    FILE,
    KEY,
    LONGEST,
    NAME,
    NONE,
    ROW,
    SLOT,
    SLOTS,
    TABLE,
    UNIT,
    Word,
)  # fmt: skip

PROCESSES, CODES, NAMES, CURSOR = "python_processes", "python_codes", "python_names", "python_cursor"
"""Symbols of the maps: rows of processes, records by key of a code object, the array of records, its end."""
MAPS = PythonMaps(PROCESSES, CODES, NAMES, CURSOR)
PROCESS_ENTRIES = 8192

_CODE_ENTRIES = 1 << 16
_MMAPABLE = 1 << 10
"""``BPF_F_MMAPABLE``: the session reads the array through a memory mapping."""
_NEW = 1
"""``BPF_NOEXIST``: an update of an existing key fails."""

HEAD_SIZE, BUFFER_SIZE = 240, 112
"""Most bytes of a code object that are read, and of a frame."""
STATE_FRAME = ROW
STATE_COUNT = ROW + 8
STATE_RUN = ROW + 16
STATE_LOOP = ROW + 24
STATE_KEY = ROW + 32
STATE_HEAD = STATE_KEY + KEY
STATE_BUFFER = STATE_HEAD + HEAD_SIZE
STATE_SIZE = STATE_BUFFER + BUFFER_SIZE

_KEY_GENERATION, KEY_CODE, _KEY_NAME, _KEY_FILE, _KEY_TABLE, _KEY_LINE, _KEY_DIGEST = range(0, KEY, 8)
_HASHED = 64
"""Bytes of file name (the last ones) and line table (the first ones) that are digested."""
_MULTIPLIER = 0x9E3779B97F4A7C15
_LENGTH, _HASH, _STATE = 16, 24, 32
"""Offsets in ``PyASCIIObject`` of ordinary builds: characters, cached hash, bit field of kind and form."""
_TABLE_SIZE, _TABLE_BYTES = 16, 32
"""Offsets in ``PyBytesObject`` of ordinary builds: ``ob_size``, ``ob_sval``."""
COMPACT, ASCII = 1 << 3, 1 << 4
"""Bits of a string's form, after its kind."""

CODE_FUNCTION, _RECORD_FUNCTION, _DIGEST_FUNCTION = "python_code", "python_record", "python_digest"


def declare(module: Module, span: Span) -> None:
    """Declare the maps and functions; these are at *span* in line information."""
    maps = {
        PROCESSES: {"type": MapType.HASH, "key_size": 4, "value_size": ROW, "max_entries": PROCESS_ENTRIES},
        CODES: {"type": MapType.HASH, "key_size": KEY, "value_size": 8, "max_entries": _CODE_ENTRIES},
        CURSOR: {"type": MapType.ARRAY, "key_size": 4, "value_size": 8, "max_entries": 1},
        NAMES: {
            "type": MapType.ARRAY, "key_size": 4, "value_size": SLOT, "max_entries": SLOTS, "map_flags": _MMAPABLE,
        },
    }  # fmt: skip
    for symbol, attributes in maps.items():
        module.map(symbol, attributes)
    _digest_function(module, span)
    _record_function(module, span)
    _code_function(module, span)


def row_word(b: Builder, state: Ptr, word: Word) -> I64:
    """A word of the process's row."""
    return b.load(b.offset(state, 8 * word))


def member(b: Builder, state: Ptr, object_: Number, offset: int) -> I64:
    """Address of an object's member that is after the header; *offset* is that of ordinary builds."""
    return b.add(object_, b.add(row_word(b, state, Word.HEADER_EXTRA), offset))


def form(b: Builder, state: Ptr, word: Number) -> I64:
    """The form of a string by the word that has its state: from the lowest bit on its kind, then other bits."""
    return b.op("lshr", word, row_word(b, state, Word.KIND_SHIFT))


def in_head(b: Builder, state: Ptr, word: Word, bits: int = 64) -> I64:
    """A member of the code object that was read."""
    at = b.at_most(row_word(b, state, word), HEAD_SIZE - 8)
    return b.load(b.offset(b.offset(state, STATE_HEAD), at), bits)


# ---------------------------------------------------------------------------------------------- identity


def _code_function(module: Module, span: Span) -> None:
    """``python_code(state)``: the record of the code object that was read, in units plus one; 0 if none can be made.

    A record is complete before its key is in the map. Two CPUs may make one each: the first key counts.
    """
    b, state = module.function(CODE_FUNCTION, ("*state",), span), pointer_parameter("state")
    key, value = b.offset(state, STATE_KEY), b.alloca(8)
    none = b.block()
    b.store(row_word(b, state, Word.GENERATION), b.offset(key, _KEY_GENERATION))
    for word, place in ((Word.CODE_NAME, _KEY_NAME), (Word.CODE_FILE, _KEY_FILE), (Word.CODE_TABLE, _KEY_TABLE)):
        b.store(in_head(b, state, word), b.offset(key, place))
    version = b.register()
    b.store(0, version)
    with b.when(b.icmp("ne", row_word(b, state, Word.CODE_VERSION), NONE)):
        b.store(in_head(b, state, Word.CODE_VERSION, 32), version)
    line = in_head(b, state, Word.CODE_LINE, 32)
    b.store(b.op("or", line, b.op("shl", b.load(version), 32)), b.offset(key, _KEY_LINE))
    b.store(0, b.offset(key, _KEY_DIGEST))
    with b.when(b.icmp("eq", b.load(version), 0)):
        b.store(b.call(_DIGEST_FUNCTION, [state]), b.offset(key, _KEY_DIGEST))
    _return_known(b, key)
    record = b.call(_RECORD_FUNCTION, [state])
    b.jump_if(b.icmp("eq", record, 0), none, likely=False)
    b.store(record, value)
    failed = b.helper(helpers.MAP_UPDATE_ELEM, global_pointer(CODES), key, value, _NEW)
    with b.when(b.truth(failed), likely=False):
        _return_known(b, key)
    b.ret(record)
    b.start(none)
    b.ret(0)


def _return_known(b: Builder, key: Ptr) -> None:
    found = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(CODES), key)
    with b.unless(b.is_null(found)):
        b.ret(b.load(found))


def _digest_function(module: Module, span: Span) -> None:
    """``python_digest(state)``: of the contents of name, file name and line table.

    Without it a program that compiles and drops code again and again would show the names of code that was at the same
    addresses before.
    """
    b, state = module.function(_DIGEST_FUNCTION, ("*state",), span), pointer_parameter("state")
    buffer, result = b.offset(state, STATE_BUFFER), b.register()
    b.store(0, result)

    def mix(value: Number) -> None:
        mixed = b.mul(b.op("xor", b.load(result), value), _MULTIPLIER)
        b.store(b.op("xor", mixed, b.op("lshr", mixed, 29)), result)

    def contents(size: Number, data: Number) -> None:
        b.clear(buffer, _HASHED)
        b.helper(helpers.PROBE_READ_USER, buffer, size, data)
        for offset in range(0, _HASHED, 8):
            mix(b.load(b.offset(buffer, offset), again=True))

    name = in_head(b, state, Word.CODE_SHORT_NAME)
    _read(b, buffer, 8, member(b, state, name, _HASH))
    mix(b.load(buffer, again=True))
    size, data = string(b, state, in_head(b, state, Word.CODE_FILE), FILE)[2:]
    mix(size)
    tail = b.at_most(size, _HASHED)
    contents(tail, b.sub(b.add(data, size), tail))
    table = in_head(b, state, Word.CODE_TABLE)
    _read(b, buffer, 8, member(b, state, table, _TABLE_SIZE))
    size = b.load(buffer, again=True)
    mix(size)
    contents(b.at_most(size, _HASHED), member(b, state, table, _TABLE_BYTES))
    b.ret(b.load(result))


def _read(b: Builder, target: Ptr, size: Number, address: Number) -> I64:
    """Read user memory; what cannot be read is zero. Returns the helper's result."""
    return b.helper(helpers.PROBE_READ_USER, target, size, address)


# ---------------------------------------------------------------------------------------------- records


def string(b: Builder, state: Ptr, address: I64, limit: int) -> tuple[I64, I64, I64, I64]:
    """Kind and characters of a string, its bytes, at most *limit*, and where they are.

    Only *compact* strings have them there; identifiers and names of files are.
    """
    buffer = b.offset(state, STATE_BUFFER)
    _read(b, buffer, _STATE + 8 - _LENGTH, member(b, state, address, _LENGTH))
    length = b.load(buffer, again=True)
    bits = form(b, state, b.load(b.offset(buffer, _STATE - _LENGTH), 32, again=True))
    kind, compact, ascii_ = b.op("and", bits, 7), b.op("and", bits, COMPACT), b.op("and", bits, ASCII)
    wide = b.select(b.truth(compact), b.mul(b.at_most(length, limit), kind), 0)
    sizes = row_word(b, state, Word.ASCII_SIZE), row_word(b, state, Word.COMPACT_SIZE)
    return kind, length, b.at_most(wide, limit), b.add(address, b.select(b.truth(ascii_), *sizes))


def _padded(b: Builder, size: Number, limit: int) -> I64:
    return b.at_most(b.op("and", b.add(size, 7), -8), limit)


def _record_function(module: Module, span: Span) -> None:
    """``python_record(state)``: copy what names the code object that was read to the array of names."""
    b, state = module.function(_RECORD_FUNCTION, ("*state",), span), pointer_parameter("state")
    buffer = b.offset(state, STATE_BUFFER)
    none = b.block()
    name_kind, name_length, name_size, name = string(b, state, in_head(b, state, Word.CODE_NAME), NAME)
    file_kind, file_length, file_size, file = string(b, state, in_head(b, state, Word.CODE_FILE), FILE)
    table = in_head(b, state, Word.CODE_TABLE)
    _read(b, buffer, 8, member(b, state, table, _TABLE_SIZE))
    table_whole = b.load(buffer, again=True)
    table_size = b.at_most(table_whole, TABLE)
    name_room, file_room = _padded(b, name_size, NAME), _padded(b, file_size, FILE)
    size = b.op("and", b.add(b.add(b.add(64 + 15, name_room), file_room), _padded(b, table_size, TABLE)), -UNIT)
    offset = _allocate(b, size, none)
    place = _place(b, offset, none)
    lines = member(b, state, table, _TABLE_BYTES)
    failed = b.helper(helpers.PROBE_READ_USER, b.offset(place, 64), name_size, name)
    after_name = b.offset(b.offset(place, 64), name_room)
    failed = b.op("or", failed, b.helper(helpers.PROBE_READ_USER, after_name, file_size, file))
    after_file = b.offset(after_name, file_room)
    failed = b.op("or", failed, b.helper(helpers.PROBE_READ_USER, after_file, table_size, lines))
    b.jump_if(b.truth(b.op("or", failed, b.number(b.icmp("eq", name_size, 0)))), none, likely=False)
    words: tuple[Number, ...] = (
        row_word(b, state, Word.MINOR), in_head(b, state, Word.CODE_LINE, 32), name_kind, name_length, file_kind,
        file_length, table_whole, size,
    )  # fmt: skip
    for index, value in enumerate(words):
        b.store(value, b.offset(place, 4 * index), 32)
    b.ret(b.add(b.op("lshr", offset, 4), 1))
    b.start(none)
    b.ret(0)


def _allocate(b: Builder, size: Number, none: Block) -> I64:
    """The offset of *size* bytes in the array of names, where the longest record fits an element."""
    key, result = b.alloca(8), b.register()
    fits = b.block()
    b.store(0, key)
    cursor = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(CURSOR), key)
    b.jump_if(b.is_null(cursor), none, likely=False)
    b.jump_if(b.icmp("uge", b.load(cursor, again=True), SLOT * SLOTS), none, likely=False)
    for skipped in (0, LONGEST):  # what does not fit before the end of an element skips the rest of it
        b.store(b.add(b.fetch("add", cursor, b.add(size, skipped)), skipped), result)
        b.jump_if(b.icmp("ule", b.op("and", b.load(result), SLOT - 1), SLOT - LONGEST), fits)
    b.jump(none)
    b.start(fits)
    return b.load(result)


def _place(b: Builder, offset: I64, none: Block) -> Ptr:
    key = b.alloca(8)
    b.store(b.op("lshr", offset, 20), key, 32)
    element = b.helper(helpers.MAP_LOOKUP_ELEM, global_pointer(NAMES), key)
    b.jump_if(b.is_null(element), none, likely=False)
    return b.offset(element, b.at_most(b.op("and", offset, SLOT - 1), SLOT - LONGEST))
