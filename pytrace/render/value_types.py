"""The table of value types: one row for each, which all output reads.

A row has the functions that a maker (:mod:`pytrace.render.forms`) calls for types of its class; they are defined in
modules by subject. Text, JSON, CSV, tables, snapshots with their formats, and values of the Python interface are all
made by these rows: a new type gets a row, and nothing else. Snapshots and their formats decide by *held*, *merging* and
*number*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Never, TypeVar, cast

import msgspec

from pytrace.core import types
from pytrace.render import decoders, histogram, json, percpu_merge, portable, python_values, sort_keys, text, tseries
from pytrace.render.percpu_merge import Divide, Merging
from pytrace.render.portable import Held, same
from pytrace.render.sort_keys import Piece

if TYPE_CHECKING:
    from pytrace.render.decoders import Decode, Value
    from pytrace.render.forms import Decoders, JsonForms, PortableForms, PythonForms, Restored, TextForms
    from pytrace.render.names import ValueNames
    from pytrace.render.portable import Plain
    from pytrace.render.python_values import Result

T_contra = TypeVar("T_contra", bound=types.Type, contravariant=True)
Form = TypeVar("Form")


class ValueRow(msgspec.Struct, Generic[T_contra], frozen=True, kw_only=True):
    """One value type; *T_contra* is its class."""

    decode: Callable[[Decoders, T_contra], Decode]
    """From memory to decoded values."""
    code: Callable[[T_contra], str] | None = None
    """The code of :mod:`struct` for values of up to 8 bytes that one has."""
    text: Callable[[TextForms, T_contra], Callable[[Never], bytes]]
    """From decoded values to text."""
    json: Callable[[JsonForms, T_contra], Callable[[Never], bytes]]
    """From decoded values to JSON."""
    held: Held
    """The form of values in snapshots."""
    portable: Callable[[PortableForms, T_contra], Callable[[Never], Plain]] = same
    """From decoded values to that form."""
    restored: Callable[[Restored, T_contra], Callable[[Never], Value]] = same
    """From that form back to decoded values."""
    python: Callable[[PythonForms, T_contra], Callable[[Never], Result]] = same
    """From that form to values for Python programs."""
    merging: Merging = percpu_merge.SINGLE
    """Per-CPU copies, and the order of entries of a map by their values."""
    divided: Divide | None = None
    """The ``div`` argument of ``print()``; None: it changes nothing, or the members of a value."""
    order: Callable[[T_contra], list[Piece] | None] | None = None
    """The parts of the memory of a value in the order in which they compare; None: only decoded values compare, or
    members do one after another."""
    number: bool = False
    """Formats for numbers show values of the type."""
    width: int | None = None
    """Characters that texts in columns of tables usually have, where that is known."""
    traced: bool = False
    """The traced program decides the text, which may have control characters; not of types with members."""
    durable: bool = True
    """A value means the same at any later time. Others are resolved when they arrive: processes end."""


def _name(
    get: Callable[[ValueNames], Callable[[Never], bytes]], *, width: int | None = None
) -> ValueRow[types.Type]:
    """The row of a number that prints as a name."""
    return ValueRow(
        decode=decoders.scalar, code=decoders.word_code, text=text.name(get), json=json.textual,
        held=Held.TEXT, portable=portable.printed, restored=portable.restored_text,
        order=sort_keys.number, width=width, traced=True, durable=False,
    )  # fmt: skip


# ---- the table


def row(type_: type[T_contra], of: ValueRow[T_contra]) -> tuple[type[types.Type], ValueRow[types.Type]]:
    """A row of the table, whose functions are only called with types of its own class."""
    return type_, cast("ValueRow[types.Type]", of)


def _extreme(merging: Merging) -> ValueRow[types.Min | types.Max]:
    return ValueRow(
        decode=decoders.extreme, text=text.always(text.extreme), json=text.always(json.extreme),
        held=Held.INTEGER, portable=portable.extreme, restored=portable.restored_extreme,
        merging=merging, divided=percpu_merge.divided_extreme, number=True, durable=False,
    )  # fmt: skip


def _buckets(divided: Divide | None) -> ValueRow[types.Hist | types.LHist]:
    return ValueRow(
        decode=decoders.buckets, text=histogram.text_form, json=histogram.json_form,
        held=Held.COUNTS, portable=portable.buckets, restored=portable.restored_buckets,
        python=python_values.histogram_value, merging=percpu_merge.BUCKETS, divided=divided, durable=False,
    )  # fmt: skip


ROWS: dict[type[types.Type], ValueRow[types.Type]] = dict((
    row(types.Void, ValueRow(
        decode=decoders.void, text=text.always(text.void), json=text.always(text.void), held=Held.MEMBERS,
    )),
    row(types.Bool, ValueRow(
        decode=decoders.scalar, code=decoders.bool_code, text=text.always(text.boolean), json=text.always(text.boolean),
        held=Held.BOOL, order=sort_keys.number, number=True, width=5,
    )),
    row(types.Int, ValueRow(
        decode=decoders.scalar, code=decoders.code_of_integer,
        text=text.always(text.integer), json=text.always(json.number), held=Held.INTEGER,
        merging=percpu_merge.NUMBER, divided=percpu_merge.divided_number, order=sort_keys.signed_number, number=True,
    )),
    row(types.Float, ValueRow(
        decode=decoders.scalar, code=decoders.code_of_fraction, text=text.fraction, json=json.fraction,
        held=Held.FLOAT, portable=portable.fraction, restored=portable.fraction,
    )),
    row(types.Enum, ValueRow(
        decode=decoders.scalar, code=decoders.code_of_integer, text=text.enum, json=text.always(json.number),
        held=Held.INTEGER, merging=percpu_merge.RANKED, order=sort_keys.signed_number, number=True,
    )),
    row(types.Pointer, ValueRow(
        decode=decoders.scalar, code=decoders.word_code, text=text.always(text.pointer), json=text.always(json.number),
        held=Held.INTEGER, order=sort_keys.number, width=18,
    )),
    row(types.String, ValueRow(
        decode=decoders.string, text=text.always(text.same), json=text.always(json.quoted),
        held=Held.TEXT, portable=portable.string, restored=portable.restored_text, order=sort_keys.text, traced=True,
    )),
    row(types.Buffer, ValueRow(
        decode=decoders.buffer, text=text.always(text.escaped), json=text.always(json.buffer),
        held=Held.BYTES, order=sort_keys.buffer,
    )),
    row(types.Array, ValueRow(
        decode=decoders.array, text=text.array, json=json.array,
        held=Held.ARRAY, portable=portable.array, restored=portable.restored_array,
    )),
    row(types.Tuple, ValueRow(
        decode=decoders.members, text=text.tuple_, json=json.tuple_,
        held=Held.MEMBERS, portable=portable.tuple_, restored=portable.restored_members, python=python_values.members,
    )),
    row(types.Record, ValueRow(
        decode=decoders.members, text=text.record, json=json.record,
        held=Held.MEMBERS, portable=portable.tuple_, restored=portable.restored_members, python=python_values.members,
    )),
    row(types.Struct, ValueRow(
        decode=decoders.struct_members, text=text.record, json=json.record,
        held=Held.MEMBERS, portable=portable.tuple_, restored=portable.restored_members,
    )),
    row(types.Stack, ValueRow(
        decode=decoders.stack, text=text.stack, json=json.textual, held=Held.STACK, portable=portable.stack,
        order=sort_keys.stack, traced=True, durable=False,
    )),
    row(types.KSym, _name(lambda names: names.kernel_symbol, width=20)),
    row(types.USym, ValueRow(
        decode=decoders.usym, text=text.name(lambda names: names.user_symbol), json=json.textual,
        held=Held.TEXT, portable=portable.printed, restored=portable.restored_text,
        order=sort_keys.parts(Piece(8, 4), Piece(0, 8)), width=20, traced=True, durable=False,
    )),
    row(types.Inet, ValueRow(
        decode=decoders.inet, text=text.always(text.inet), json=json.textual,
        held=Held.TEXT, portable=portable.printed, restored=portable.restored_inet,
        order=sort_keys.parts(Piece(0, 4), Piece(4, 16, False)), width=15,
    )),
    row(types.Mac, ValueRow(
        decode=decoders.mac, text=text.always(text.mac), json=json.textual,
        held=Held.TEXT, portable=portable.printed, restored=portable.restored_mac, order=sort_keys.data, width=17,
    )),
    row(types.Timestamp, ValueRow(
        decode=decoders.fields("=QII"), text=text.name(lambda names: names.timestamp), json=json.textual,
        held=Held.TEXT, portable=portable.printed, restored=portable.restored_text,
        order=sort_keys.parts(Piece(0, 8), Piece(8, 4), Piece(12, 4)), width=8,
    )),
    row(types.Username, _name(lambda names: names.user, width=8)),
    row(types.InterfaceName, _name(lambda names: names.interface, width=8)),
    row(types.NetworkNamespace, _name(lambda names: names.network_namespace)),
    row(types.CgroupPath, ValueRow(
        decode=decoders.fields("=QI"), text=text.name(lambda names: names.cgroup), json=json.textual,
        held=Held.TEXT, portable=portable.printed, restored=portable.restored_text,
        order=sort_keys.parts(Piece(0, 8), Piece(8, 4)), traced=True, durable=False,
    )),
    row(types.Fixed, ValueRow(
        decode=decoders.fixed, code=decoders.fixed_code, text=text.fixed_form, json=json.fixed,
        held=Held.INTEGER, python=python_values.fixed, merging=percpu_merge.RANKED, order=sort_keys.signed_number,
    )),
    row(types.Joined, ValueRow(
        decode=decoders.members, text=text.joined, json=json.textual,
        held=Held.TEXT, portable=portable.printed, restored=portable.restored_text, width=21,
    )),
    row(types.Count, ValueRow(
        decode=decoders.scalar, code=decoders.word_code, text=text.always(text.integer), json=text.always(json.number),
        held=Held.INTEGER, merging=percpu_merge.SUM, divided=percpu_merge.divided_number, order=sort_keys.number,
        number=True, durable=False,
    )),
    row(types.Sum, ValueRow(
        decode=decoders.sum_, text=text.always(text.integer), json=text.always(json.number),
        held=Held.INTEGER, merging=percpu_merge.SUM, divided=percpu_merge.divided_number,
        order=sort_keys.signed_number, number=True, durable=False,
    )),
    row(types.Avg, ValueRow(
        decode=decoders.pair, text=text.always(text.average), json=json.average,
        held=Held.PAIR, python=python_values.average, merging=percpu_merge.MEAN, divided=percpu_merge.divided_average,
        number=True, durable=False,
    )),
    row(types.Stats, ValueRow(
        decode=decoders.pair, text=text.stats, json=json.stats,
        held=Held.PAIR, python=python_values.stats, merging=percpu_merge.MEAN, number=True, durable=False,
    )),
    row(types.Min, _extreme(percpu_merge.LEAST)),
    row(types.Max, _extreme(percpu_merge.GREATEST)),
    row(types.Hist, _buckets(percpu_merge.divided_buckets)),
    row(types.LHist, _buckets(None)),
    row(types.TSeries, ValueRow(
        decode=decoders.series, text=tseries.text_form, json=tseries.json_form,
        held=Held.SERIES, portable=portable.series, restored=portable.restored_series, python=python_values.series,
        merging=percpu_merge.SERIES, durable=False,
    )),
))  # fmt: skip


def merging_of(type_: types.Type) -> Merging:
    """The merging of values of a type."""
    return ROWS[type(type_)].merging


def divided(type_: types.Type, div: int) -> Callable[[Value], Value]:
    """Divides the numbers of decoded values of a type by *div*, at any nesting; other values stay."""
    divide = ROWS[type(type_)].divided
    if divide is not None:
        return decoders.for_any(lambda value: divide(value, div))
    if isinstance(type_, types.Array):
        return decoders.for_any(percpu_merge.divided_members([divided(type_.element, div)] * type_.count))
    if members := types.member_types(type_):
        return decoders.for_any(percpu_merge.divided_members([divided(member, div) for member in members]))
    return percpu_merge.itself


def with_div(form: Callable[[Value], Form], type_: types.Type, div: int) -> Callable[[Value], Form]:
    """*form* for values of a type that are divided by *div* first."""
    if div <= 1:
        return form
    change = divided(type_, div)
    return lambda value: form(change(value))


def pieces(type_: types.Type) -> list[Piece] | None:
    """The parts of a value's memory in the order in which they compare; None for a type that has no such order.

    The order is that of decoded values (:mod:`pytrace.render.decoders`).
    """
    order = ROWS[type(type_)].order
    if order is not None:
        return order(type_)
    if isinstance(type_, types.Array):
        members = [(type_.element, type_.element.size * index) for index in range(type_.count)]
    elif isinstance(type_, types.Members):
        members = list(zip(type_.members, type_.offsets, strict=True))
    else:
        return None
    inner: list[Piece] = []
    for member, offset in members:
        parts = pieces(member)
        if parts is None:
            return None
        inner += [piece.moved(offset) for piece in parts]
    return inner
