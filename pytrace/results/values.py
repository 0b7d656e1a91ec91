"""Portable values: what a snapshot holds of keys and values, without anything that only one machine could resolve.

=========================== ==========================================================
type                        portable form
=========================== ==========================================================
bool                        ``bool``
int, enum, pointer          ``int``
float                       ``float``; of NaN one object for each sign
string                      ``str``; bytes that are no UTF-8 as lone surrogates (``surrogateescape``)
buffer                      ``bytes``
array, tuple, record        ``tuple`` of members
struct, union               ``tuple`` of named members, anonymous ones flattened
stack                       :class:`StackTrace`
ksym, usym, username,       ``str``: what they print as
inet, mac, timestamp,
interface, network
namespace, cgroup path
count, sum                  ``int``
avg, stats                  ``(total, count)``
min, max                    ``int`` (a key without a value is left out)
hist, lhist                 ``dict`` of bucket number to count, buckets that are not empty
tseries                     ``dict`` of interval number (aligned to wall time, 0 starts in 1970) to ``(value, meta)``
=========================== ==========================================================

The types themselves (``pytrace.core.types``) stay beside the values and say how these print.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from pytrace.core.types import TRUNCATED_NAME


class Frame(NamedTuple):
    """One function of a stack.

    Two frames are the same place when all fields are equal, in whatever process or run they were seen.
    """

    function: str
    """Empty when unknown."""
    offset: int = 0
    """Bytes from the start of the function (of an inlined one: of the function that it was inlined into).

    Where the function is unknown, those from the start of the module as it was linked, 0 when that is unknown, too. In
    snapshots of agents whose controller names functions: the address by which that is done. It is one less than
    *address* where a call returns to, as the next function may begin there.
    """
    module: str = ""
    """Path of the binary, kernel module, or ``[kernel]``; empty when unknown."""
    build_id: str = ""
    """GNU build id of the module, in hex; empty when it has none."""
    file: str = ""
    """Source file; empty when unknown."""
    line: int = 0
    inlined: bool = False
    """The function was inlined into that of the next frame."""
    address: int = 0
    """Address in the module as it was linked (of the kernel as if it had not been moved).

    0 for functions that lie elsewhere each time (generated code, BPF programs). Of a place without a known module, and
    in stacks of mode ``raw``, the address itself; in stacks of mode ``build_id`` the position in the file.
    """

    @property
    def name(self) -> str:
        """The function, as output calls it."""
        return self.function


TRUNCATED_FRAME = Frame(TRUNCATED_NAME)
"""The frame after the last one of a truncated stack, in every mode."""


class StackTrace(NamedTuple):
    """A kernel or user stack."""

    frames: tuple[Frame, ...]
    """Innermost first."""
    user: bool = True
    error: str = ""
    """Why there is no stack; empty when there is one, and where a task has none (kernel threads have no user stack)."""


Portable: TypeAlias = "bool | int | float | str | bytes | StackTrace | tuple[Portable, ...] | None"
"""A key, or a value that is no aggregation; None is the key of a map without keys."""

Pair: TypeAlias = tuple[int, int]
"""An average or statistics: total and count."""

Counts: TypeAlias = dict[int, int]
"""A histogram: bucket numbers and counts."""

Series: TypeAlias = dict[int, tuple[int, int]]
"""A time series: interval numbers, and value and meta as :class:`pytrace.core.types.TSeries` describes them."""

Value: TypeAlias = "Portable | Counts | Series | tuple[Value, ...]"
"""A value of a map."""
