"""TODO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.codegen.emit import memory
from pytrace.codegen.emit.memory import read_helper
from pytrace.codegen.emit.program import Part
from pytrace.codegen.ir.values import I64, Made, Number, Ptr
from pytrace.core.types import AddressSpace, String
from pytrace.frontend.syntax import nodes

if TYPE_CHECKING:
    pass


class Strings(Part):
    """Reads and pads strings."""

    # ---------------------------------------------------------------------------------------------- strings

    def longest_string(self) -> int:
        """Maximum size of a string in bytes (``max_strlen``)."""
        return self.checked.config.max_strlen

    def read_string(self, pointer: Ptr, capacity: int, address: Number, space: AddressSpace, align: int = 8) -> None:
        """Read a string and pad it; a string that does not fit fills all *capacity* bytes with text and has no NUL.

        It counts as truncated only at the maximum capacity: with a smaller one it is a full character array.
        """
        self.e.memory.zero(pointer, capacity, align)
        self._read_text(pointer, capacity, address, space)

    def read_string_only(self, pointer: Ptr, capacity: int, address: Number, space: AddressSpace, cleared: int) -> None:
        """As :func:`read_string`, but only the next *cleared* bytes after the string are zeroed.

        They are also zeroed after a string of *capacity* bytes. Both *pointer* and *capacity* must be multiples
        of 8, and the machine little-endian.
        """
        length = self._read_text(pointer, capacity, address, space)
        some, none, done = self.b.block(), self.b.block(), self.b.block()
        hidden = self.b.opaque(length)
        self.b.branch(self.b.icmp("sgt", hidden, 0), some, none, likely=True)
        self.b.start(some)
        # By words, as these are loaded next: a load that spans several stores cannot be forwarded from them.
        last = self.b.sub(hidden, 1)
        word = self.b.offset(pointer, self.b.op("and", last, -8))
        bits_used = self.b.op("shl", self.b.op("and", last, 7), 3)
        text = self.b.sub(self.b.op("shl", 1, bits_used), 1)
        # The last byte of a full string is not NUL.
        text = self.b.select(self.b.icmp("eq", hidden, capacity), -1, text)
        self.b.store(self.b.op("and", self.b.load(word), text), word)
        self._clear_words(self.b.offset(word, 8), cleared)
        self.b.jump(done)
        self.b.start(none)
        self._clear_words(pointer, cleared)
        self.b.jump(done)
        self.b.start(done)

    def _clear_words(self, pointer: Ptr, size: int) -> None:
        for offset in range(0, size, 8):
            self.b.store(0, self.b.offset(pointer, offset))

    def _read_text(self, pointer: Ptr, capacity: int, address: Number, space: AddressSpace) -> I64:
        """Read a string, and its last byte if it has no NUL. Returns the helper's result."""
        resolved = self.e.foreign.resolve_space(space)
        length = self.e.foreign.call_helper(read_helper(resolved, string=True), pointer, capacity, address)
        with self.b.when(self.b.icmp("eq", length, capacity), likely=False):
            # The helper writes a NUL to the last byte; the source byte shows whether the string ends there.
            last = capacity - 1
            end = self.b.offset(pointer, last)
            self.b.helper(read_helper(resolved), end, 1, self.b.add(address, last))
            if capacity >= self.longest_string():
                self.e.count_cut(self.b.truth(self.b.load(end, 8)))
        return length

    def string_tail(self, pointer: Ptr, limit: int, address: Number, space: AddressSpace) -> I64:
        """Read a string of at most *limit* bytes without its NUL. Returns its length."""
        result = self.e.foreign.call_helper(
            read_helper(self.e.foreign.resolve_space(space), string=True), pointer, limit + 1, address
        )
        return self.text_length(result)

    def text_length(self, result: Number) -> I64:
        """The result of a string read as a length without NUL, in a form that the verifier can follow.

        The path with the widest range comes first, so that the verifier prunes the other one.
        """
        hidden = self.b.opaque(result)
        good, bad, done = self.b.block(), self.b.block(), self.b.block()
        self.b.branch(self.b.icmp("sgt", hidden, 0), good, bad, likely=True)
        self.b.start(good)
        length = self.b.sub(hidden, 1)
        self.b.jump(done)
        self.b.start(bad)
        self.b.jump(done)
        self.b.start(done)
        return self.b.phi([(length, good), (0, bad)])

    def counted(self, node: nodes.Node, type_: String, address: Number, length: Number, space: AddressSpace) -> Made:
        """At most *length* characters; a requested limit does not count as truncation. Failed reads are those of
        *node*.

        Truncation is counted if *length* exceeds the capacity of a string.
        """
        length = self.b.at_most(length, type_.capacity)
        helper = memory.read_helper(self.e.foreign.resolve_space(space), string=True)

        def write(pointer: Ptr, align: int) -> None:
            full, part, done = self.b.block(), self.b.block(), self.b.block()
            self.b.branch(self.b.icmp("eq", length, type_.capacity), full, part, likely=False)
            self.b.start(full)
            with self.e.at_node(node):
                self.read_string(pointer, type_.capacity, address, space, align)
            self.b.jump(done)
            self.b.start(part)
            self.e.memory.zero(pointer, type_.capacity, align)
            room = self.b.at_most(self.b.add(length, 1), type_.capacity)
            with self.e.at_node(node):
                self.e.foreign.call_helper(helper, pointer, room, address, type_.capacity)
            self.b.jump(done)
            self.b.start(done)

        def tail(pointer: Ptr, limit: int) -> I64:
            most = min(limit, type_.capacity) + 1
            room = self.b.at_most(self.b.add(length, 1), most)
            with self.e.at_node(node):
                return self.text_length(self.e.foreign.call_helper(helper, pointer, room, address, most))

        return Made(type_, write, tail, reads=True)
