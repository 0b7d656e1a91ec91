"""Types in files of snapshots, looked at before anything relies on what they say: sizes, counts, names."""

from __future__ import annotations

from typing import Any

import msgspec

from pytrace.core import types
from pytrace.results.stored_tables import raw, text

MOST_BYTES = 4 << 20
"""Of a stored type; that of the largest struct of the kernel takes a tenth."""

MOST_BUCKETS = 1 << 14
"""Of a histogram; scripts can have 1,921."""
MOST_INTERVALS = 1_000_000
"""Of a time series, as in scripts."""
MOST_ELEMENTS = 1 << 16
"""Of an array: values of maps have at most 32 KiB for each CPU, and are printed at once."""
MOST_DIGITS = 9
"""Of a decimal number, as in scripts."""


def type_to(type_: types.Type | None) -> msgspec.Raw:
    """The stored form of a type: what msgspec makes of it, the texts as bytes."""
    data = None if type_ is None else _each(msgspec.to_builtins(types.settled(type_)), str, raw)
    return msgspec.Raw(msgspec.msgpack.encode(data))


def type_from(stored: msgspec.Raw, *, key: bool = False) -> types.Type | None:
    """The type that was stored, None for that of the keys of a map without keys.

    Raises:
        ValueError: it is none, or larger than a script can have it.
    """
    size = len(memoryview(stored))
    if size > MOST_BYTES:
        raise ValueError(f"a type of {size} bytes")
    data = _each(msgspec.msgpack.decode(stored), bytes, text)
    if data is None and key:
        return None
    try:
        type_ = types.decoded(types.Type, data)
    except msgspec.ValidationError as error:
        raise ValueError(f"a type is damaged: {error}") from error
    for part in types.parts((type_,)):
        if isinstance(part, _MAPPINGS) and (key or part is not type_):
            raise ValueError("a histogram or time series stands where none can be")
        if isinstance(part, types.Record) and len(part.names) != len(part.members):
            raise ValueError("the names of a record are not those of its members")
        _check_sizes(part)
    return type_


_MAPPINGS = (types.Hist, types.LHist, types.TSeries)
"""Types whose values cannot be keys, or members of tuples."""


def _each(data: Any, kind: type[Any], change: Any) -> Any:
    """Data of a type with all texts changed."""
    if isinstance(data, list | tuple):
        return [_each(item, kind, change) for item in data]
    return change(data) if isinstance(data, kind) else data


def _check_sizes(type_: types.Type) -> None:
    if isinstance(type_, types.Hist) and not 0 <= type_.bits < 64:
        raise ValueError(f"a histogram of {type_.bits} bits")
    if isinstance(type_, types.LHist) and type_.step < 1:
        raise ValueError(f"a histogram in steps of {type_.step}")
    if isinstance(type_, types.Hist | types.LHist) and not 0 < type_.buckets <= MOST_BUCKETS:
        raise ValueError(f"a histogram of {type_.buckets} buckets")
    if isinstance(type_, types.TSeries) and not (0 < type_.count <= MOST_INTERVALS and type_.interval > 0):
        raise ValueError(f"a time series of {type_.count} intervals")
    if isinstance(type_, types.Array) and not 0 <= type_.count <= MOST_ELEMENTS:
        raise ValueError(f"an array of {type_.count} elements")
    if isinstance(type_, types.Fixed) and not (0 <= type_.digits <= MOST_DIGITS and type_.divisor > 0):
        raise ValueError(f"decimal numbers of {type_.digits} digits")
