"""Types in files of snapshots, looked at before anything relies on what they say: sizes, counts, names."""

from __future__ import annotations

from msgspec.structs import fields

from pytrace.core import types
from pytrace.results.message_pack import Unpacked

MOST_BUCKETS = 1 << 14
"""Of a histogram; scripts can have 1,921."""
MOST_INTERVALS = 1_000_000
"""Of a time series, as in scripts."""
MOST_DIGITS = 9
"""Of a decimal number, as in scripts."""

_PLAIN = (int, bool, str)


def type_from(data: Unpacked) -> types.Type:
    """The type that was stored as *data*.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: it is none, or larger than a script can have it.
    """
    if not isinstance(data, list):
        raise ValueError("a type is missing")
    type_ = types.from_data(data)
    for part in types.parts((type_,)):
        if not isinstance(part, types.Type):
            raise ValueError("a member of a type is none")
        _check_fields(part)
        _check_sizes(part)
    return type_


def _check_fields(type_: types.Type) -> None:
    for field in fields(type_):
        value = getattr(type_, field.name)
        if field.type in _PLAIN and type(value) is not field.type:
            raise ValueError(f"{field.name} of a type {type_.tag} is {value!r:.40}")
    if isinstance(type_, types.Enum):
        if any(tuple(map(type, member)) != (str, int) for member in type_.members):
            raise ValueError("a member of an enumeration is no name with a number")
    if isinstance(type_, types.Record) and list(map(type, type_.names)) != [str] * len(type_.members):
        raise ValueError("the names of a record are not those of its members")


def _check_sizes(type_: types.Type) -> None:
    if isinstance(type_, types.Hist) and not 0 <= type_.bits < 64:
        raise ValueError(f"a histogram of {type_.bits} bits")
    if isinstance(type_, types.LHist) and type_.step < 1:
        raise ValueError(f"a histogram in steps of {type_.step}")
    if isinstance(type_, types.Hist | types.LHist) and not 0 < type_.buckets <= MOST_BUCKETS:
        raise ValueError(f"a histogram of {type_.buckets} buckets")
    if isinstance(type_, types.TSeries) and not (0 < type_.count <= MOST_INTERVALS and type_.interval > 0):
        raise ValueError(f"a time series of {type_.count} intervals")
    if isinstance(type_, types.Fixed) and not (0 <= type_.digits <= MOST_DIGITS and type_.divisor > 0):
        raise ValueError(f"decimal numbers of {type_.digits} digits")
