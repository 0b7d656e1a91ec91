"""Types in files of snapshots, looked at before anything relies on what they say: sizes, counts, names."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import fields

from pytrace.core import types
from pytrace.results.stored_tables import raw, text

MOST_BYTES = 4 << 20
"""Of a stored type; that of the largest struct of the kernel takes a tenth."""

MOST_BUCKETS = 1 << 14
"""Of a histogram; scripts can have 1,921."""
MOST_INTERVALS = 1_000_000
"""Of a time series, as in scripts."""
MOST_DIGITS = 9
"""Of a decimal number, as in scripts."""

_PLAIN = (int, bool, str)


def type_to(type_: types.Type | None) -> msgspec.Raw:
    """The stored form of a type: its data (:func:`pytrace.core.types.to_data`), the texts as bytes."""
    data = None if type_ is None else _each(types.to_data(type_), str, raw)
    return msgspec.Raw(msgspec.msgpack.encode(data))


def type_from(stored: msgspec.Raw, *, key: bool = False) -> types.Type | None:
    """The type that was stored, None for that of the keys of a map without keys.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: it is none, or larger than a script can have it.
    """
    size = len(memoryview(stored))
    if size > MOST_BYTES:
        raise ValueError(f"a type of {size} bytes")
    data = _each(msgspec.msgpack.decode(stored), bytes, text)
    if data is None and key:
        return None
    if not isinstance(data, list):
        raise ValueError("a type is missing")
    type_ = types.from_data(data)
    for part in types.parts((type_,)):
        if not isinstance(part, types.Type):
            raise ValueError("a member of a type is none")
        if isinstance(part, _MAPPINGS) and (key or part is not type_):
            raise ValueError("a histogram or time series stands where none can be")
        _check_fields(part)
        _check_sizes(part)
    return type_


_MAPPINGS = (types.Hist, types.LHist, types.TSeries)
"""Types whose values cannot be keys, or members of tuples."""


def _each(data: Any, kind: type[Any], change: Any) -> Any:
    """Data of a type with all texts changed; the names in it are those of this module's authors."""
    if isinstance(data, list | tuple):
        return [_each(item, kind, change) for item in data]
    if isinstance(data, dict):
        return {name: _each(item, kind, change) for name, item in data.items()}
    return change(data) if isinstance(data, kind) else data


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
