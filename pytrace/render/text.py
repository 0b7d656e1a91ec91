"""The text form of values of every type, at any nesting.

A form takes a decoded value (see :mod:`pytrace.render.decoders`) and gives bytes: strings of traced
programs go out as they are, whatever their encoding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Never, TypeVar

from pytrace.core import types
from pytrace.core.types.builtin_types import truncated
from pytrace.render.decoders import ByType, Value, Values, for_any, row

if TYPE_CHECKING:
    # Loaded only by scripts that have such maps.
    from pytrace.render import tseries
    from pytrace.render.names import ValueNames

Form = Callable[[Value], bytes]
Formatted = Callable[[types.Joined, "TextForms"], Form]

V = TypeVar("V")


class TextForms(ByType[Form]):
    """Makes text forms. *compact* ones have no spaces between members: the keys of JSON objects.

    *formatted* makes those of values that ``sprintf`` formats; without it they must be text already. *printable* ones
    are for terminals: control characters of traced data are escapes.
    """

    def __init__(
        self,
        names: ValueNames,
        *,
        compact: bool = False,
        formatted: Formatted | None = None,
        printable: bool = False,
    ) -> None:
        super().__init__()
        self.printable = printable
        self.names = names
        self.formatted = formatted
        self.compact = compact
        self.comma = b"," if compact else b", "

    def _make(self, kind: types.Type) -> Form:
        return self.escaping(kind, for_any(ROWS[type(kind)](self, kind)))

    def escaping(self, kind: types.Type, form: Form) -> Form:
        """The *form* of values of type *kind*, with escapes where these are wanted and traced data decides the text."""
        if not self.printable or not isinstance(kind, _TRACED):
            return form
        from pytrace.base import control_characters  # only on terminals

        if isinstance(kind, types.Stack):
            return lambda value: control_characters.printable_lines(form(value))
        return lambda value: control_characters.printable(form(value))

    def form(self, kind: types.Type) -> Form:
        """The text form of values of type *kind*."""
        return self.made(kind)

    def many_stacks(self, kind: types.Stack) -> Form:
        """As :meth:`form`, for very many stacks at one moment (see :meth:`ValueNames.many_stacks`)."""
        return self.escaping(kind, for_any(self.names.many_stacks(kind, self.indent)))

    @property
    def indent(self) -> bytes:
        """What the frames of stacks start with."""
        return b"" if self.compact else b"        "

    def key(self, kind: types.Type) -> Form:
        """The form of a map key: tuples without their parentheses."""
        if isinstance(kind, types.Tuple):
            return for_any(_members([self.form(member) for member in kind.members], self.comma))
        return self.form(kind)


_TRACED = (
    types.String, types.Stack, types.KSym, types.USym, types.Username, types.InterfaceName, types.NetworkNamespace,
    types.CgroupPath,
)  # fmt: skip
"""Types whose text is decided by what is traced; those of which they are parts have their forms."""


def _members(forms: list[Form], comma: bytes) -> Callable[[Values], bytes]:
    if len(forms) == 2:
        first, second = forms

        def pair(value: Values) -> bytes:
            return b"%s%s%s" % (first(value[0]), comma, second(value[1]))

        return pair
    return lambda value: comma.join([form(item) for form, item in zip(forms, value, strict=True)])


# ---------------------------------------------------------------------------------------------- buffers


_BYTES = tuple(bytes((code,)) if 32 <= code <= 126 else b"\\x%02x" % code for code in range(256))


def escaped(data: bytes) -> bytes:
    """``%r``: printable ASCII as it is, other bytes as ``\\xNN``."""
    if data.isascii() and data.decode().isprintable():
        return data
    return b"".join([_BYTES[code] for code in data])


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


def _always(form: Callable[[V], bytes]) -> Callable[[TextForms, types.Type], Callable[[V], bytes]]:
    return lambda _forms, _kind: form


def _name(
    form: Callable[[ValueNames], Callable[[V], bytes]],
) -> Callable[[TextForms, types.Type], Callable[[V], bytes]]:
    return lambda forms, _kind: form(forms.names)


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


def _enum(_forms: TextForms, kind: types.Enum) -> Callable[[int], bytes]:
    known: dict[int, bytes] = {}
    for name, value in kind.members:
        known.setdefault(value, name.encode())
    return lambda value: known.get(value) or b"%d" % value


def _array(forms: TextForms, kind: types.Array) -> Callable[[Values], bytes]:
    element = forms.form(kind.element)
    return lambda value: b"[%s]" % b",".join([element(item) for item in value])


def _tuple(forms: TextForms, kind: types.Tuple) -> Callable[[Values], bytes]:
    inner = _members([forms.form(member) for member in kind.members], forms.comma)
    return lambda value: b"(%s)" % inner(value)


def _named(forms: TextForms, names: list[str], kinds: list[types.Type]) -> Callable[[Values], bytes]:
    if not names:
        return lambda _value: b"{}"
    equals, opening, closing = (b"=", b"{", b"}") if forms.compact else (b" = ", b"{ ", b" }")
    parts = [(b".%s%s" % (name.encode(), equals), forms.form(kind)) for name, kind in zip(names, kinds, strict=True)]

    def text(value: Values) -> bytes:
        inner = forms.comma.join([label + form(item) for (label, form), item in zip(parts, value, strict=True)])
        return opening + inner + closing

    return text


def _record(forms: TextForms, kind: types.Record) -> Callable[[Values], bytes]:
    return _named(forms, list(map(types.shown_name, kind.names)), list(kind.members))


def _struct(forms: TextForms, kind: types.Struct) -> Callable[[Values], bytes]:
    fields = list(types.named_fields(kind))
    return _named(forms, [field.name for field in fields], [field.type for field in fields])


def fixed(kind: types.Fixed) -> Callable[[int], bytes]:
    """Decimal numbers, which are rounded half away from zero."""
    one, half, divisor, digits = kind.one, kind.divisor, 2 * kind.divisor, kind.digits
    if not digits:
        return lambda value: b"%d" % kind.scaled(value)
    twice = 2 * one

    def text(value: int) -> bytes:
        if value >= 0:
            return b"%d.%0*d" % ((number := (value * twice + half) // divisor) // one, digits, number % one)
        number = (half - value * twice) // divisor
        return b"%s%d.%0*d" % (b"-" if number else b"", number // one, digits, number % one)

    return text


def _fixed(_forms: TextForms, kind: types.Fixed) -> Callable[[int], bytes]:
    return fixed(kind)


def _joined(forms: TextForms, kind: types.Joined) -> Callable[[Values | bytes], bytes]:
    if kind.formatted and forms.formatted is not None:
        return forms.formatted(kind, forms)
    parts = [forms.form(member) for member in kind.members]
    separator = kind.separator.encode("utf-8", "surrogateescape")

    def text(value: Values | bytes) -> bytes:
        # In snapshots it is a text already.
        if isinstance(value, bytes):
            return value
        return separator.join([part(item) for part, item in zip(parts, value, strict=True)])

    return text


def _stack(forms: TextForms, kind: types.Stack) -> Callable[[Never], bytes]:
    return forms.names.stack(kind, forms.indent)


def _average(value: tuple[int, int]) -> bytes:
    return b"%d" % truncated(*value)


STATS = ("count", "average", "total")
"""Members of a stats value as it prints."""


def stats_members(value: tuple[int, int]) -> tuple[int, int, int]:
    """What a stats value prints, in the order of :data:`STATS`."""
    total, count = value
    return count, truncated(total, count), total


def _stats(forms: TextForms, _kind: types.Type) -> Callable[[tuple[int, int]], bytes]:
    record = _named(forms, list(STATS), [types.UINT64, types.INT64, types.INT64])
    return lambda value: record(stats_members(value))


def _extreme(value: tuple[int, int]) -> bytes:
    return b"%d" % value[0]


def _hist(_forms: TextForms, kind: types.Hist | types.LHist) -> Callable[[tuple[int, ...]], bytes]:
    from pytrace.render import histogram

    shape = histogram.shape(kind)
    return lambda counts: histogram.text(shape, counts)


def _tseries(_forms: TextForms, kind: types.TSeries) -> Callable[[tuple[tseries.Interval, ...]], bytes]:
    from pytrace.render import tseries

    return lambda value: tseries.text(tseries.whole(kind, value))


ROWS: dict[type[types.Type], Callable[[TextForms, types.Type], Callable[[Never], bytes]]] = dict((
    row(types.Void, _always(void)),
    row(types.Bool, _always(boolean)),
    row(types.Int, _always(_int)),
    row(types.Enum, _enum),
    row(types.Pointer, _always(_pointer)),
    row(types.String, _always(_same)),
    row(types.Buffer, _always(escaped)),
    row(types.Array, _array),
    row(types.Tuple, _tuple),
    row(types.Record, _record),
    row(types.Struct, _struct),
    row(types.Stack, _stack),
    row(types.KSym, _name(lambda names: names.kernel_symbol)),
    row(types.USym, _name(lambda names: names.user_symbol)),
    row(types.Inet, _always(inet)),
    row(types.Mac, _always(mac)),
    row(types.Timestamp, _name(lambda names: names.timestamp)),
    row(types.Username, _name(lambda names: names.user)),
    row(types.InterfaceName, _name(lambda names: names.interface)),
    row(types.NetworkNamespace, _name(lambda names: names.network_namespace)),
    row(types.CgroupPath, _name(lambda names: names.cgroup)),
    row(types.Fixed, _fixed),
    row(types.Joined, _joined),
    row(types.Count, _always(_int)),
    row(types.Sum, _always(_int)),
    row(types.Avg, _always(_average)),
    row(types.Stats, _stats),
    row(types.Min, _always(_extreme)),
    row(types.Max, _always(_extreme)),
    row(types.Hist, _hist),
    row(types.LHist, _hist),
    row(types.TSeries, _tseries),
))
