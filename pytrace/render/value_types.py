"""What output makes of values: one row for each value type.

A row has the functions that a maker (:mod:`pytrace.render.forms`) calls for types of its class; they are defined in
modules by subject. Text, JSON, CSV, tables, snapshots with their formats, and values of the Python interface all come
from here: a new type gets a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, cast

import msgspec

from pytrace.core import types
from pytrace.render import decoders, json, portable, text
from pytrace.render.portable import same

if TYPE_CHECKING:
    from pytrace.render.decoders import Decode, Value
    from pytrace.render.forms import Decoders, JsonForms, PortableForms, PythonForms, Restored, TextForms

T = TypeVar("T", bound=types.Type)


def _plain(_forms: object, _type: types.Type) -> Callable[[Any], Any]:
    """For types whose values Python programs get as they are in snapshots."""
    return portable.as_it_is


class ValueRow(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One value type; *T* is its class."""

    decode: Callable[[Decoders, T], Decode]
    """From memory to decoded values."""
    code: Callable[[T], str] | None = None
    """The code of :mod:`struct` for values of up to 8 bytes that one has."""
    text: Callable[[TextForms, T], Callable[[Never], bytes]]
    """From decoded values to text."""
    json: Callable[[JsonForms, T], Callable[[Never], bytes]]
    """From decoded values to JSON."""
    portable: Callable[[PortableForms, T], Callable[[Never], Any]] = same
    """From decoded values to what snapshots hold (:mod:`pytrace.results.values`)."""
    restored: Callable[[Restored, T], Callable[[Never], Value]] = same
    """From there back to decoded values."""
    python: Callable[[PythonForms, T], Callable[[Never], Any]] = _plain
    """From there to values for Python programs."""
    width: int | None = None
    """Characters that texts in columns of tables usually have, where that is known."""
    traced: bool = False
    """Whether what is traced decides the text, so that it may have control characters; not of types with members."""
    durable: bool = True
    """Whether a value says the same at any later time. Others are resolved when they come: processes end."""


def _name(get: Callable[[Any], Callable[[Never], bytes]], *, width: int | None = None) -> ValueRow[types.Type]:
    """The row of a number that prints as a name."""
    return ValueRow(
        decode=decoders.scalar,
        code=decoders.word_code,
        text=text.name(get),
        json=json.textual,
        portable=portable.printed,
        restored=portable.restored_text,
        width=width,
        traced=True,
        durable=False,
    )


# ---- values that Python programs get as objects: few programs of Python's ask for them


def _fixed(forms: PythonForms, type_: types.Fixed) -> Callable[[int], float]:
    from pytrace.render import python_values

    return python_values.fixed(forms, type_)


def _members(forms: PythonForms, type_: types.Tuple | types.Record) -> Callable[[tuple[Any, ...]], Any]:
    from pytrace.render import python_values

    return python_values.members(forms, type_)


def _average(forms: PythonForms, type_: types.Avg) -> Callable[[tuple[int, int]], Any]:
    from pytrace.render import python_values

    return python_values.average(forms, type_)


def _stats(forms: PythonForms, type_: types.Stats) -> Callable[[tuple[int, int]], Any]:
    from pytrace.render import python_values

    return python_values.stats(forms, type_)


def _histogram(forms: PythonForms, type_: types.Hist | types.LHist) -> Callable[[portable.Counts], Any]:
    from pytrace.render import python_values

    return python_values.histogram_value(forms, type_)


def _series(forms: PythonForms, type_: types.TSeries) -> Callable[[portable.Series], Any]:
    from pytrace.render import python_values

    return python_values.series(forms, type_)


# ---- the table


def row(type_: type[T], of: ValueRow[T]) -> tuple[type[types.Type], ValueRow[types.Type]]:
    """A row of the table, whose functions are only called with types of its own class."""
    return type_, cast("ValueRow[types.Type]", of)


_INTEGER: ValueRow[Any] = ValueRow(
    decode=decoders.scalar, code=decoders.code_of_integer, text=text.always(text.integer), json=text.always(json.number)
)
_EXTREME: ValueRow[Any] = ValueRow(
    decode=decoders.extreme, text=text.always(text.extreme), json=text.always(json.extreme),
    portable=portable.extreme, restored=portable.restored_extreme, durable=False,
)  # fmt: skip
_BUCKETS: ValueRow[Any] = ValueRow(
    decode=decoders.buckets, text=text.hist, json=json.hist,
    portable=portable.buckets, restored=portable.restored_buckets, python=_histogram, durable=False,
)  # fmt: skip

ROWS: dict[type[types.Type], ValueRow[types.Type]] = dict((
    row(types.Void, ValueRow(decode=decoders.void, text=text.always(text.void), json=text.always(text.void))),
    row(types.Bool, ValueRow(
        decode=decoders.scalar, code=decoders.bool_code, text=text.always(text.boolean), json=text.always(text.boolean),
        width=5,
    )),
    row(types.Int, _INTEGER),
    row(types.Enum, ValueRow(
        decode=decoders.scalar, code=decoders.code_of_integer, text=text.enum, json=text.always(json.number),
    )),
    row(types.Pointer, ValueRow(
        decode=decoders.scalar, code=decoders.word_code, text=text.always(text.pointer), json=text.always(json.number),
        width=18,
    )),
    row(types.String, ValueRow(
        decode=decoders.string, text=text.always(text.same), json=text.always(json.quoted),
        portable=portable.string, restored=portable.restored_text, traced=True,
    )),
    row(types.Buffer, ValueRow(
        decode=decoders.buffer, text=text.always(text.escaped), json=text.always(json.buffer),
    )),
    row(types.Array, ValueRow(
        decode=decoders.array, text=text.array, json=json.array,
        portable=portable.array, restored=portable.restored_array,
    )),
    row(types.Tuple, ValueRow(
        decode=decoders.members, text=text.tuple_, json=json.tuple_,
        portable=portable.tuple_, restored=portable.restored_members, python=_members,
    )),
    row(types.Record, ValueRow(
        decode=decoders.members, text=text.record, json=json.record,
        portable=portable.tuple_, restored=portable.restored_members, python=_members,
    )),
    row(types.Struct, ValueRow(
        decode=decoders.struct_members, text=text.struct, json=json.struct_members,
        portable=portable.struct, restored=portable.restored_struct,
    )),
    row(types.Stack, ValueRow(
        decode=decoders.stack, text=text.stack, json=json.textual, portable=portable.stack, traced=True, durable=False,
    )),
    row(types.KSym, _name(lambda names: names.kernel_symbol, width=20)),
    row(types.USym, ValueRow(
        decode=decoders.usym, text=text.name(lambda names: names.user_symbol), json=json.textual,
        portable=portable.printed, restored=portable.restored_text, width=20, traced=True, durable=False,
    )),
    row(types.Inet, ValueRow(
        decode=decoders.inet, text=text.always(text.inet), json=json.textual,
        portable=portable.printed, restored=portable.restored_inet, width=15,
    )),
    row(types.Mac, ValueRow(
        decode=decoders.mac, text=text.always(text.mac), json=json.textual,
        portable=portable.printed, restored=portable.restored_mac, width=17,
    )),
    row(types.Timestamp, ValueRow(
        decode=decoders.fields("=QII"), text=text.name(lambda names: names.timestamp), json=json.textual,
        portable=portable.printed, restored=portable.restored_text, width=8,
    )),
    row(types.Username, _name(lambda names: names.user, width=8)),
    row(types.InterfaceName, _name(lambda names: names.interface, width=8)),
    row(types.NetworkNamespace, _name(lambda names: names.network_namespace)),
    row(types.CgroupPath, ValueRow(
        decode=decoders.fields("=QI"), text=text.name(lambda names: names.cgroup), json=json.textual,
        portable=portable.printed, restored=portable.restored_text, traced=True, durable=False,
    )),
    row(types.Fixed, ValueRow(
        decode=decoders.fixed, code=decoders.fixed_code, text=text.fixed_form, json=json.fixed, python=_fixed,
    )),
    row(types.Joined, ValueRow(
        decode=decoders.members, text=text.joined, json=json.textual,
        portable=portable.printed, restored=portable.restored_text, width=21,
    )),
    row(types.Count, ValueRow(
        decode=decoders.scalar, code=decoders.word_code, text=text.always(text.integer), json=text.always(json.number),
        durable=False,
    )),
    row(types.Sum, ValueRow(
        decode=decoders.sum_, text=text.always(text.integer), json=text.always(json.number), durable=False,
    )),
    row(types.Avg, ValueRow(
        decode=decoders.pair, text=text.always(text.average), json=json.average, python=_average, durable=False,
    )),
    row(types.Stats, ValueRow(
        decode=decoders.pair, text=text.stats, json=json.stats, python=_stats, durable=False,
    )),
    row(types.Min, _EXTREME),
    row(types.Max, _EXTREME),
    row(types.Hist, _BUCKETS),
    row(types.LHist, _BUCKETS),
    row(types.TSeries, ValueRow(
        decode=decoders.series, text=text.series, json=json.intervals,
        portable=portable.series, restored=portable.restored_series, python=_series, durable=False,
    )),
))  # fmt: skip
