"""The text form of values of every type, at any nesting.

A form takes a decoded value (see :mod:`pytrace.runtime.output.render.decoders`) and gives bytes: strings of traced
programs go out as they are, whatever their encoding.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from pytrace.core import types
from pytrace.core.numbers import truncated
from pytrace.runtime.output.render.decoders import ByType, named_fields
from pytrace.runtime.output.render.names import Names

Form = Callable[[Any], bytes]


class TextForms(ByType[Form]):
    """Makes text forms. *compact* ones have no spaces between members: the keys of JSON objects."""

    def __init__(self, names: Names, *, compact: bool = False) -> None:
        super().__init__(ROWS)
        self.names = names
        self.compact = compact
        self.comma = b"," if compact else b", "

    def form(self, kind: types.Type) -> Form:
        """The text form of values of type *kind*."""
        return self.made(kind)

    def key(self, kind: types.Type) -> Form:
        """The form of a map key: tuples without their parentheses."""
        if isinstance(kind, types.Tuple):
            return _members([self.form(member) for member in kind.members], self.comma)
        return self.form(kind)


def _members(forms: list[Form], comma: bytes) -> Form:
    if len(forms) == 2:
        first, second = forms

        def pair(value: tuple[Any, Any]) -> bytes:
            return b"%s%s%s" % (first(value[0]), comma, second(value[1]))

        return pair
    return lambda value: comma.join([form(item) for form, item in zip(forms, value, strict=True)])


# ---------------------------------------------------------------------------------------------- buffers


_UNPRINTABLE = re.compile(rb"[^ -~]").search
_BYTES = tuple(bytes((code,)) if 32 <= code <= 126 else b"\\x%02x" % code for code in range(256))


def escaped(data: bytes) -> bytes:
    """``%r``: printable ASCII as it is, other bytes as ``\\xNN``."""
    return b"".join([_BYTES[code] for code in data]) if _UNPRINTABLE(data) else data


def hex_escaped(data: bytes) -> bytes:
    """``%rx``: every byte as ``\\xNN``."""
    return b"".join([b"\\x%02x" % code for code in data])


def hex_spaced(data: bytes) -> bytes:
    """``%rh``: two hex digits for each byte, separated by spaces."""
    return data.hex(" ").encode()


# ---------------------------------------------------------------------------------------------- rows


def inet(value: tuple[int, bytes]) -> bytes:
    """An address in the usual notation."""
    import socket

    family, address = value
    if family not in (socket.AF_INET, socket.AF_INET6):
        return b""
    return socket.inet_ntop(family, address).encode()


def mac(value: bytes) -> bytes:
    """A hardware address, upper case."""
    return value.hex(":").upper().encode()


def _always(form: Form) -> Callable[[TextForms, types.Type], Form]:
    return lambda _forms, _kind: form


def void(_value: object) -> bytes:
    """What stands for no value."""
    return b"null"


def boolean(value: bool) -> bytes:
    """``true`` or ``false``."""
    return b"true" if value else b"false"


def _int(value: int) -> bytes:
    return b"%d" % value


def _pointer(value: int) -> bytes:
    return b"0x%x" % value


def _same(value: bytes) -> bytes:
    return value


def _enum(_forms: TextForms, kind: types.Type) -> Form:
    known: dict[int, bytes] = {}
    for name, value in cast(types.Enum, kind).members:
        known.setdefault(value, name.encode())
    return lambda value: known.get(value) or b"%d" % value


def _array(forms: TextForms, kind: types.Type) -> Form:
    element = forms.form(cast(types.Array, kind).element)
    return lambda value: b"[%s]" % b",".join([element(item) for item in value])


def _tuple(forms: TextForms, kind: types.Type) -> Form:
    inner = _members([forms.form(member) for member in cast(types.Tuple, kind).members], forms.comma)
    return lambda value: b"(%s)" % inner(value)


def _named(forms: TextForms, names: list[str], kinds: list[types.Type]) -> Form:
    if not names:
        return lambda _value: b"{}"
    equals, opening, closing = (b"=", b"{", b"}") if forms.compact else (b" = ", b"{ ", b" }")
    parts = [(b".%s%s" % (name.encode(), equals), forms.form(kind)) for name, kind in zip(names, kinds, strict=True)]

    def text(value: tuple[Any, ...]) -> bytes:
        inner = forms.comma.join([label + form(item) for (label, form), item in zip(parts, value, strict=True)])
        return opening + inner + closing

    return text


def _record(forms: TextForms, kind: types.Type) -> Form:
    record = cast(types.Record, kind)
    return _named(forms, list(record.names), list(record.members))


def _struct(forms: TextForms, kind: types.Type) -> Form:
    fields = list(named_fields(cast(types.Struct, kind)))
    return _named(forms, [field.name for field in fields], [field.type for field in fields])


def _stack(forms: TextForms, kind: types.Type) -> Form:
    return forms.names.stack(cast(types.Stack, kind), b"" if forms.compact else b"        ")


def _average(value: tuple[int, int]) -> bytes:
    return b"%d" % truncated(*value)


STATS = ("count", "average", "total")
"""Members of a stats value as it prints."""


def stats_members(value: tuple[int, int]) -> tuple[int, int, int]:
    """What a stats value prints, in the order of :data:`STATS`."""
    total, count = value
    return count, truncated(total, count), total


def _stats(forms: TextForms, _kind: types.Type) -> Form:
    record = _named(forms, list(STATS), [types.UINT64, types.INT64, types.INT64])
    return lambda value: record(stats_members(value))


def _extreme(value: tuple[int, int]) -> bytes:
    return b"%d" % value[0]


def _hist(_forms: TextForms, kind: types.Type) -> Form:
    from pytrace.runtime.output.render import histogram

    shape = histogram.shape(cast("types.Hist | types.LHist", kind))
    return lambda counts: histogram.text(shape, counts)


def _tseries(_forms: TextForms, kind: types.Type) -> Form:
    from pytrace.runtime.output.render import tseries

    series = cast(types.TSeries, kind)
    return lambda value: tseries.text(tseries.whole(series, value))


ROWS: dict[type[types.Type], Callable[[TextForms, types.Type], Form]] = {
    types.Void: _always(void),
    types.Bool: _always(boolean),
    types.Int: _always(_int),
    types.Enum: _enum,
    types.Pointer: _always(_pointer),
    types.String: _always(_same),
    types.Buffer: _always(escaped),
    types.Array: _array,
    types.Tuple: _tuple,
    types.Record: _record,
    types.Struct: _struct,
    types.Stack: _stack,
    types.KSym: lambda forms, _kind: forms.names.kernel_symbol,
    types.USym: lambda forms, _kind: forms.names.user_symbol,
    types.Inet: _always(inet),
    types.Mac: _always(mac),
    types.Timestamp: lambda forms, _kind: forms.names.timestamp,
    types.Username: lambda forms, _kind: forms.names.user,
    types.InterfaceName: lambda forms, _kind: forms.names.interface,
    types.NetworkNamespace: lambda forms, _kind: forms.names.network_namespace,
    types.CgroupPath: lambda forms, _kind: forms.names.cgroup,
    types.Count: _always(_int),
    types.Sum: _always(_int),
    types.Avg: _always(_average),
    types.Stats: _stats,
    types.Min: _always(_extreme),
    types.Max: _always(_extreme),
    types.Hist: _hist,
    types.LHist: _hist,
    types.TSeries: _tseries,
}
