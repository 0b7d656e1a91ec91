"""Types that only builtins produce: stacks, values that print as names, aggregations.

Layout rules are those of :mod:`pytrace.core.types.basic_types`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum as PyEnum
from typing import ClassVar

from pytrace.core.types.basic_types import Data, Members, ScalarType, Type

# ---------------------------------------------------------------------------------------------- stacks, names


class StackMode(PyEnum):
    """How a stack prints."""

    BPFTRACE = "bpftrace"
    PERF = "perf"
    RAW = "raw"
    BUILD_ID = "build_id"
    FOLDED = "folded"
    """One line, root first, for flame graphs."""
    ANNOTATED = "annotated"
    """As folded, with marks at functions of the kernel and inlined ones."""
    INVERTED = "inverted"
    """One line, innermost first."""

    @property
    def one_line(self) -> bool:
        """Whether frames are printed on one line, separated by semicolons."""
        return self in (StackMode.FOLDED, StackMode.ANNOTATED, StackMode.INVERTED)


TRUNCATED = 1 << 64
"""In place of an address in a decoded stack: frames after the ones before were left out. It is no 64-bit address."""

TRUNCATED_NAME = "[truncated]"
"""The function of such a frame, in all output."""


class Stack(Data, frozen=True, tag="stack"):
    """A kernel or user stack of at most *limit* frames.

    Layout: ``i32`` count of frames (or a negative errno), ``u32`` process (0 for kernel stacks; its id, or the
    number of an image, see ``core.stacks.image_format``), then *limit*
    frames: ``u64`` addresses, innermost first, or for build_id mode ``struct bpf_stack_build_id`` (32 bytes). A count
    of *limit* + 1 is that of a truncated stack, which may have zeros in place of the outermost frames.

    If it is *chunked*, the frames are in the chunks of :mod:`pytrace.core.stacks.chunk_format`, and the 16 bytes after
    count and process are the digest of the first one.
    """

    user: bool
    limit: int = 127
    mode: StackMode = StackMode.BPFTRACE
    chunked: bool = False
    header: ClassVar[int] = 8

    @property
    def frame_size(self) -> int:
        """Bytes of one frame."""
        return 32 if self.mode is StackMode.BUILD_ID else 8

    @property
    def size(self) -> int:
        return self.header + (16 if self.chunked else self.frame_size * self.limit)

    def __str__(self) -> str:
        return "ustack" if self.user else "kstack"


class KSym(Data, frozen=True, tag="ksym_t"):
    """A kernel address (``u64``) that prints as a symbol."""


class USym(Data, frozen=True, tag="usym_t"):
    """``u64`` user address, ``u32`` process as in a stack, ``u32`` zero; prints as a symbol of that process."""

    _size: ClassVar[int] = 16


AF_INET, AF_INET6 = 2, 10
"""Address families (``include/linux/socket.h``); the module ``socket`` is not imported for them."""


class Inet(Data, frozen=True, tag="inet"):
    """``u32`` address family (2 or 10) and 16 bytes of address in network order (unused bytes are zero)."""

    _size: ClassVar[int] = 20
    _align: ClassVar[int] = 4


class Mac(Data, frozen=True, tag="macaddr_t"):
    """Six bytes of hardware address."""

    _size: ClassVar[int] = 6
    _align: ClassVar[int] = 1


class Timestamp(Data, frozen=True, tag="timestamp"):
    """``u64`` nanoseconds, ``u32`` index of the format in the string table, ``u32`` clock (0 boot, 1 tai, 2 sw_tai)."""

    _size: ClassVar[int] = 16


class Username(Data, frozen=True, tag="username"):
    """``u64`` user id that prints as the user's name."""


class InterfaceName(Data, frozen=True, tag="ifname_t"):
    """``u64`` index of a network interface that prints as its name."""


class NetworkNamespace(Data, frozen=True, tag="netns_t"):
    """``u64`` inode of a network namespace that prints as its name."""


class CgroupPath(Data, frozen=True, tag="cgroup_path_t"):
    """``u64`` cgroup id, ``u32`` index of the filter in the string table, ``u32`` zero; prints as the path."""

    _size: ClassVar[int] = 16


class Fixed(ScalarType, frozen=True, tag="fixed_t"):
    """A 64-bit integer that prints as a decimal number: divided by *divisor*, with *digits* decimals.

    With a *path* it is not the value sent but, at the time of decoding, word number *word* (from 1) of that file.
    """

    divisor: int
    digits: int
    signed: bool = True
    path: str = ""
    word: int = 0

    @property
    def one(self) -> int:
        """The number 1 in units of the last decimal."""
        one: int = 10**self.digits
        return one

    def scaled(self, value: int) -> int:
        """*value* / divisor in units of the last decimal, rounded half away from zero."""
        rounded = (2 * abs(value) * self.one + self.divisor) // (2 * self.divisor)
        return rounded if value >= 0 else -rounded

    def number(self, value: int) -> float:
        """The printed number as a float."""
        return self.scaled(value) / self.one


class Joined(Members, frozen=True, tag="joined_t"):
    """Values that print as one text, laid out as a tuple of them.

    *separator* separates them; if *formatted*, it is the printf format that they are arguments of.
    """

    separator: str
    members: tuple[Type, ...]
    formatted: bool = False


# ---------------------------------------------------------------------------------------------- aggregations


class Aggregate(Data, frozen=True):
    """Base of the types of aggregations."""

    @property
    def aggregate(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"{self.tag}_t"


class Count(Aggregate, frozen=True, tag="count"):
    """``u64`` per CPU; merged by adding."""

    signed: ClassVar[bool] = False


def truncated(total: int, count: int) -> int:
    """*total* / *count* truncated towards zero as in C; 0 if *count* is 0."""
    if not count:
        return 0
    return total // count if total >= 0 else -(-total // count)


def wrapped(signed: bool) -> Callable[[int], int]:
    """A function that wraps an integer to 64 bits."""
    if signed:
        return lambda value: ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
    return lambda value: value & ((1 << 64) - 1)


class Signed(Aggregate, frozen=True):
    """Aggregations whose numbers may be signed."""

    signed: bool = True
    either: bool = False
    """Only during inference: the number is a non-negative constant, which takes the signedness of other operands."""

    def __str__(self) -> str:
        return f"{'' if self.signed else 'u'}{self.tag}_t"


class Sum(Signed, frozen=True, tag="sum"):
    """64-bit sum per CPU; merged by adding."""


class _Pair(Signed, frozen=True):
    _size: ClassVar[int] = 16


class Avg(_Pair, frozen=True, tag="avg"):
    """64-bit total, ``u64`` count; merged by adding both, prints total / count."""


class Stats(_Pair, frozen=True, tag="stats"):
    """64-bit total, ``u64`` count; merged by adding both, prints count, average and total."""


class _Extreme(_Pair, frozen=True):
    """``u64`` rank of the best value, ``u64`` set flag; a CPU whose flag is 0 does not count.

    The rank is the value XOR :attr:`mask`, so that a greater rank is a better value and zeroed memory has the lowest
    rank: an update is a single atomic "take the greater".
    """

    least: ClassVar[bool] = False

    @property
    def mask(self) -> int:
        """The 64-bit mask: value XOR mask is the rank, rank XOR mask the value."""
        return (((1 << 64) - 1) * self.least) ^ ((1 << 63) * self.signed)

    def rank(self, value: int) -> int:
        """The rank of a value."""
        return (value ^ self.mask) & ((1 << 64) - 1)

    def value(self, rank: int) -> int:
        """The value of a rank."""
        value = rank ^ self.mask
        return value - (1 << 64) if self.signed and value >> 63 else value


class Min(_Extreme, frozen=True, tag="min"):
    """The least value."""

    least: ClassVar[bool] = True


class Max(_Extreme, frozen=True, tag="max"):
    """The greatest value."""


class Hist(Aggregate, frozen=True, tag="hist"):
    """Log2 histogram with 2**bits buckets for each power of two: ``u64`` counts, bucket numbers as in bpftrace."""

    bits: int = 0

    @property
    def buckets(self) -> int:
        """Number of buckets (the last one holds 2**63)."""
        return ((63 - self.bits + 1) << self.bits) + (1 << self.bits) + 1

    @property
    def size(self) -> int:
        return 8 * self.buckets


class LHist(Aggregate, frozen=True, tag="lhist"):
    """Linear histogram: ``u64`` counts of values below, in each step, and above."""

    low: int = 0
    high: int = 0
    step: int = 1

    @property
    def buckets(self) -> int:
        """Number of buckets, including the two open ones (below *low*, above *high*)."""
        return (self.high - self.low) // self.step + 2

    @property
    def size(self) -> int:
        return 8 * self.buckets


class TSeries(Aggregate, frozen=True, tag="tseries"):
    """Ring of *count* intervals of *interval* nanoseconds.

    Each: ``u64`` epoch (interval number plus 1; 0 for never used), 64-bit value, ``u64`` meta (samples for avg, time
    of the sample in ns for the last value kept when *reduce* is empty).
    """

    interval: int = 1
    count: int = 1
    reduce: str = ""
    signed: bool = True

    @property
    def size(self) -> int:
        return 24 * self.count
