"""Checks of builtins that print, request another action from the runtime, or (with ``--unsafe``) change the system."""

from __future__ import annotations

from collections.abc import Iterator
from signal import Signals

from pytrace.base.dispatch import handles_names
from pytrace.core.diagnostics import did_you_mean
from pytrace.core.event_layout import (
    EXIT_STATUSES,
    CurrentTime,
    Exit,
    Formatted,
    NoStaticPart,
    PacketFile,
    PrintedMap,
    Quantiles,
    RowMembers,
    cut_exit_status,
)
from pytrace.core.event_layout import (
    Joined as JoinedTexts,
)
from pytrace.core.probe_kinds import INTERVAL, PROFILE
from pytrace.core.text import Conversion
from pytrace.core.types import (
    BOOL,
    INT64,
    UINT32,
    UINT64,
    VOID,
    Array,
    Buffer,
    Enum,
    Fixed,
    Hist,
    Int,
    Joined,
    Record,
    Stats,
    String,
    Struct,
    Tuple,
    Type,
    Void,
)
from pytrace.core.value_tables import Column, TableSchema, joined_path
from pytrace.frontend.check.calls import text_of
from pytrace.frontend.check.checker import Arguments, Node
from pytrace.frontend.check.conversions import UNKNOWN, Unknown, is_text, is_text_pointer, settle
from pytrace.frontend.check.expressions import BuiltinChecks
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import LIBRARY_PREFIX, DebugFormat, SignalNumber

_JOIN_STRINGS = 16
"""Maximum number of strings that join() prints."""
_PACKET_BYTES = 1024
"""Maximum number of bytes of a packet that skboutput() writes."""
ORDERS = ("key", "-key", "value", "-value")
_DEFAULT_PERCENTS = (50.0, 90.0, 99.0, 99.9)


def _kernel_formats(conversion: Conversion) -> bool:
    """Whether the kernel supports a conversion (``bpf_bprintf_prepare`` in kernel/bpf/helpers.c)."""
    lengths = ("", "l", "ll") if conversion.name in "dux" else ("",)
    plain = conversion.name in "duxps" and conversion.length in lengths
    return plain and "#" not in conversion.flags and conversion.width != "*" and not conversion.precision


MAX_SIGNAL = 64
_EXAMPLE = "write row((pid=pid, comm=comm)), with a name for each column"
_MOST_DIVISOR, MOST_DIGITS, _MOST_WORDS = 10**12, 9, 10_000


def _type_phrase(type_: Type) -> str:
    return f"the tuple {settle(type_)}" if isinstance(type_, Tuple) else str(settle(type_))


def _parts(value: nodes.Expr, path: str) -> Iterator[tuple[str, nodes.Expr]]:
    """The expressions whose values are sent, with their paths; literals of records and tuples are flattened."""
    if isinstance(value, nodes.RecordLiteral) and value.members:
        names = value.names
    elif isinstance(value, nodes.TupleLiteral) and value.members:
        names = tuple(map(str, range(len(value.members))))
    else:
        yield path, value
        return
    for name, member in zip(names, value.members, strict=True):
        yield from _parts(member, joined_path(path, name))


class OutputChecks(BuiltinChecks):
    """Checks of builtins that print, act, or (with ``--unsafe``) change the system."""

    # ------------------------------------------------------------------------------------------ formatted

    @handles_names("printf", "heading", "errorf", "warnf", "cat", "system")
    def formatted(self, node: Node, arguments: Arguments) -> Type:
        """printf, heading, errorf, warnf, cat, system."""
        format_, values = self.checks.formatted(node, arguments)
        if format_ is not None:
            assertion = node.name == "errorf" and node.span.source.name.startswith(LIBRARY_PREFIX)
            self.events.send(node, node.name, Formatted(text_of(format_.text), assertion), values)
        return VOID

    @handles_names("debugf")
    def debugf(self, node: Node, arguments: Arguments) -> Type:
        """``debugf(fmt, …)``, within the limits of bpf_trace_printk (kernel/trace/bpf_trace.c)."""
        format_, values = self.checks.formatted(node, arguments)
        if format_ is None:
            return VOID
        for conversion, value in zip(format_.conversions, values, strict=True):
            type_ = self.checker.program.types[value]
            if not _kernel_formats(conversion):
                self.checker.error(
                    f"debugf() does not know {conversion.text}", node.span, hints=["%d %u %x %p %s are there"]
                )
            elif conversion.name == "s" and not (
                is_text(type_) or is_text_pointer(type_) or isinstance(type_, Unknown)
            ):
                what = f"the kernel writes {conversion.text} of strings only, not {settle(type_)}"
                self.checker.error(f"debugf(): {what}", node.span)
        self.checker.warn("debugf() is for debugging: it writes to a file that the whole system shares", node.span)
        self.checker.program.facts[node] = DebugFormat(text_of(format_.text))
        return VOID

    # ------------------------------------------------------------------------------------------ print

    @handles_names("print")
    def print_(self, node: Node, arguments: Arguments) -> Type:
        """``print(value)`` and ``print(@map[, top[, div[, order]]])``."""
        first = self.checks.expression(arguments[0])
        if isinstance(first, nodes.MapRef):
            return self._print_map(node, first, arguments[1:], clear=False)
        type_ = self.checker.value(first)
        if len(arguments) > 1:
            self.checker.error("only a map takes more arguments of print()", node.span)
        elif type_.aggregate and not isinstance(type_, Stats):
            self.checker.error(f"print() cannot print {type_}", first.span)
        elif isinstance(type_, Void):
            self.checker.error("there is no value to print", first.span)
        else:
            self.events.send(node, "print_value", NoStaticPart(), (first,))
        return VOID

    @handles_names("print_clear")
    def print_clear(self, node: Node, arguments: Arguments) -> Type:
        """``print_clear(@map[, top[, div[, order]]])``."""
        first = self.checks.expression(arguments[0])
        if not isinstance(first, nodes.MapRef):
            return self.checker.error("print_clear() takes a map", node.span)
        return self._print_map(node, first, arguments[1:], clear=True)

    def _print_map(self, node: Node, target: nodes.MapRef, rest: Arguments, *, clear: bool) -> Type:
        state = self.checker.map(target)
        value = self.maps.require(target, state)
        top, div, order = 0, 1, ""
        for word in rest:
            if isinstance(word, nodes.Identifier):
                self.checker.word_hints[word] = f"print({target.name}, 10) prints the 10 largest entries"
        if rest:
            top = self.checks.literal_integer(node, rest[0], "the number of entries", 0, (1 << 32) - 1) or 0
        if len(rest) > 1:
            div = self.checks.literal_integer(node, rest[1], "the divisor", 0, (1 << 63) - 1) or 1
        if len(rest) > 2:
            text = self.checker.constant_text(rest[2], "the order")
            order = text_of(text or b"")
            if text is not None and order not in ORDERS:
                self.checker.error(f"the order must be {', '.join(ORDERS)}", node.span)
        if rest and isinstance(value, Stats):
            if not order or (top, div) != (0, 1):
                self.checker.warn("number of entries and divisor have no effect on stats", node.span)
            top, div = 0, 1
        if self.checker.loops and self.checker.map_loops:
            self.checker.warn(
                f"{target.name} is printed after the loop, as it is at that time; each iteration sends another request",
                node.span,
            )
        self.checker.program.types[target] = value
        self.events.send(node, "print_map", PrintedMap(target.name, top, div, order, clear))
        return VOID

    @handles_names("quantiles")
    def quantiles(self, node: Node, arguments: Arguments) -> Type:
        """``quantiles(@hist[, percent…])``."""
        first = self.checks.expression(arguments[0])
        if not isinstance(first, nodes.MapRef):
            return self.checker.error("quantiles() takes a map", node.span)
        type_ = self.maps.require(first, self.checker.map(first))
        if not isinstance(type_, Hist | Unknown):
            return self.checker.error(
                f"quantiles() takes a map of hist(), {first.name} holds {settle(type_)}", node.span
            )
        percents = [self._percent(node, arg) for arg in arguments[1:]] or list(_DEFAULT_PERCENTS)
        self.checker.program.types[first] = type_
        self.events.send(node, "quantiles", Quantiles(first.name, percents))
        return VOID

    def _percent(self, node: Node, arg: nodes.Expr | nodes.TypeExpr) -> float:
        value = self.checks.expression(arg)
        type_ = self.checker.value(value)
        constant = self.checker.constant(value)
        text = constant.decode(errors="replace") if isinstance(constant, bytes) else str(constant)
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not 0 < number < 100:
            if not isinstance(type_, Unknown):
                self.checker.error('a percentile must be a literal between 0 and 100, such as 90 or "99.9"', node.span)
            return 50.0
        return number

    # ------------------------------------------------------------------------------------------ others

    @handles_names("join")
    def join(self, node: Node, arguments: Arguments) -> Type:
        """``join(argv[, separator])``."""
        value = self.checks.expression(arguments[0])
        self.checks.pointer(node, value, "the argument of join()")
        separator: bytes | None = b" "
        if len(arguments) > 1:
            separator = self.checker.constant_text(arguments[1], "the separator of join()")
        if separator is not None:
            types = (UINT32, *(String(self.checker.config.max_strlen),) * _JOIN_STRINGS)
            self.events.send(node, "join", JoinedTexts(text_of(separator)), (value,), types)
        return VOID

    @handles_names("exit")
    def exit_(self, node: Node, arguments: Arguments) -> Type:
        """``exit([code])``."""
        if self.checker.map_loops:
            hints = ["set a variable, leave the loop by break and call exit() after it"]
            self.checker.error("exit() cannot be called inside a for loop", node.span, hints=hints)
        values = self.checks.expressions(arguments)
        for value in values:
            self.checks.integer(node, value, "the exit status")
        known = [self.checker.constant(value) for value in values]
        for number in known:
            if isinstance(number, int) and number not in EXIT_STATUSES:
                self.checker.warn(cut_exit_status(number), node.span)
        timed = self.checker.unit is not None and self.checker.unit.kind.name in (INTERVAL, PROFILE)
        self.events.send(node, "exit", Exit(None not in known, timed), values, (INT64,) * len(values))
        return VOID

    @handles_names("skboutput")
    def skboutput(self, node: Node, arguments: Arguments) -> Type:
        """``skboutput(path, skb, length, offset)``."""
        path = self.checker.constant_text(arguments[0], "the path of skboutput()")
        skb, length, offset = self.checks.expressions(arguments[1:])
        self.checks.struct(node, skb, "sk_buff")
        self.checks.integer(node, length, "the length")
        self.checks.integer(node, offset, "the offset")
        struct = self.checker.kernel.struct("struct", "sk_buff")
        if struct is None or struct.find("data") is None:
            # Scripts can define a struct of that name.
            return self.checker.error("skboutput() needs struct sk_buff among the kernel's types", node.span)
        if path is not None:
            types = (UINT64, UINT32, Buffer(_PACKET_BYTES))
            self.events.send(node, "skboutput", PacketFile(text_of(path)), (skb, length, offset), types)
        return INT64

    @handles_names("unwatch")
    def unwatch(self, node: Node, arguments: Arguments) -> Type:
        """``unwatch(address)``."""
        address = self.checks.expression(arguments[0])
        self.checks.pointer(node, address, "the address")
        self.events.send(node, "unwatch", NoStaticPart(), (address,), (UINT64,))
        return VOID

    @handles_names("override")
    def override(self, node: Node, arguments: Arguments) -> Type:
        """``override(rc)``."""
        self.checks.integer(node, arguments[0], "the result of override()")
        if not self.checker.kernel.feature("override_return"):
            message = "this kernel does not let programs replace what a function returns (CONFIG_BPF_KPROBE_OVERRIDE)"
            return self.checker.error(message, node.span, kernel=True)
        return VOID

    @handles_names("signal", "signal_thread")
    def signal(self, node: Node, arguments: Arguments) -> Type:
        """``signal(n)`` and ``signal_thread(n)``, by number or name."""
        value = self.checks.expression(arguments[0])
        type_ = self.checker.value(value)
        constant = self.checker.constant(value)
        number: int | None = None
        if isinstance(constant, bytes):
            number = self._signal_number(node, constant.decode(errors="replace"))
            if number is None:
                return UNKNOWN
        elif isinstance(constant, int):
            number = int(constant)
        else:
            self.checks.integer(node, value, f"the argument of {node.name}()")
        if number is not None and not 1 <= number <= MAX_SIGNAL:
            return self.checker.error(f"there is no signal {number}", node.span)
        self.checker.program.facts[node] = SignalNumber(number)
        return VOID if type_ is not UNKNOWN else UNKNOWN

    def _signal_number(self, node: Node, name: str) -> int | None:
        known = {item.name: int(item) for item in Signals}
        number = known.get(name.upper()) or known.get("SIG" + name.upper())
        if number is None:
            self.checker.error(f"there is no signal {name!r}", node.span, hints=did_you_mean(name, known))
        return number

    @handles_names("write_user")
    def write_user(self, node: Node, arguments: Arguments) -> Type:
        """``write_user(target, source, length)``; *source* is an address or a value in memory."""
        self.checks.pointer(node, arguments[0], "the target of write_user()")
        source = self.checker.value(self.checks.expression(arguments[1]))
        if not isinstance(source, String | Array | Struct):
            self.checks.pointer(node, arguments[1], "the source of write_user()")
        self.checks.integer(node, arguments[2], "the length of write_user()")
        if not self.checker.kernel.feature("probe_write_user"):
            hint = "that needs CAP_SYS_ADMIN, or root, and a kernel that allows it (no lockdown)"
            return self.checker.error("programs may not write to user memory here", node.span, hints=[hint])
        return BOOL

    @handles_names("time")
    def time(self, node: Node, arguments: Arguments) -> Type:
        """``time([fmt])``."""
        text: bytes | None = b"%H:%M:%S\n"
        if arguments:
            text = self.checker.constant_text(arguments[0], "the format of time()")
        if text is not None:
            self.events.send(node, "time", CurrentTime(text_of(text)))
        return VOID


class RowChecks(BuiltinChecks):
    """Checks of builtins for tables and rows."""

    @handles_names("row")
    def row(self, node: Node, arguments: Arguments) -> Type:
        """``row((name=value, …)[, column…])``."""
        record = arguments[0]
        if not isinstance(record, nodes.Expr):
            return self.checker.error("row() takes a record, not a type", record.span, hints=[_EXAMPLE])
        if self._report_whole_map(record):
            return VOID
        type_ = self.checker.value(record)
        if isinstance(type_, Unknown):
            return VOID
        if not isinstance(type_, Record):
            self.checker.error(
                f"row() takes a record, whose members have names, not {_type_phrase(type_)}",
                record.span,
                hints=[_EXAMPLE],
            )
            return VOID
        parts = list(_parts(record, ""))
        for _, part in parts:
            if isinstance(self.checker.program.types[part], Void):
                self.checker.error("there is no value for the column", part.span)
                return VOID
        names = [path for path, _ in parts]
        member_types = [settle(self.checker.program.types[part]) for _, part in parts]
        order = self._order(node, TableSchema.of(names, member_types).columns, arguments[1:])
        self.events.send(node, "row", RowMembers(names, order), tuple(part for _, part in parts))
        return VOID

    def _order(self, node: Node, columns: tuple[Column, ...], arguments: Arguments) -> list[int]:
        """The value of :attr:`RowMembers.order` for the columns that a call names."""
        order: list[int] = []
        names = [column.name for column in columns]
        descending = False
        for argument in arguments:
            text = self.checker.constant_text(argument, "the column that rows are sorted by")
            if text is None:
                return []
            name = text.decode("utf-8", "surrogateescape")
            if name == "-" and not descending:
                descending = True
                continue
            if name not in names and name.startswith("-"):
                descending, name = True, name[1:]
            if name not in names:
                hints = did_you_mean(name, names) or ("the columns are " + ", ".join(names),)
                self.checker.error(f"the rows have no column {name!r} to sort by", argument.span, hints=hints)
                return []
            number = names.index(name) + 1
            order.append(-number if descending else number)
            descending = False
        if descending:
            self.checker.error(
                'no column follows the "-"', node.span, hints=['"-name" sorts by name in descending order']
            )
        return order

    @handles_names("print_rows")
    def print_rows(self, node: Node, arguments: Arguments) -> Type:
        """``print_rows([n])``."""
        values = self.checks.expressions(arguments)
        for value in values:
            self.checks.integer(node, value, "the number of rows of print_rows()")
            number = self.checker.constant(value)
            if isinstance(number, int) and number < 0:
                hints = ["0 prints all"]
                return self.checker.error(f"print_rows() cannot print {number} rows", value.span, hints=hints)
        self.events.send(node, "print_rows", NoStaticPart(), values, (INT64,) * len(values))
        return VOID

    @handles_names("clear_terminal")
    def clear_terminal(self, node: Node, _arguments: Arguments) -> Type:
        """``clear_terminal()``."""
        self.events.send(node, "clear_terminal", NoStaticPart())
        return VOID

    @handles_names("fixed")
    def fixed(self, node: Node, arguments: Arguments) -> Type:
        """``fixed(value, divisor, digits)``."""
        type_ = self.checks.integer(node, arguments[0], "the value of fixed()")
        divisor = self.checks.literal_integer(node, arguments[1], "the divisor of fixed()", 1, _MOST_DIVISOR)
        digits = self.checks.literal_integer(node, arguments[2], "the number of decimals of fixed()", 0, MOST_DIGITS)
        if isinstance(type_, Unknown) or divisor is None or digits is None:
            return UNKNOWN
        settled = settle(type_)
        return Fixed(divisor, digits, isinstance(settled, Int | Enum) and settled.signed)

    @handles_names("file_number")
    def file_number(self, node: Node, arguments: Arguments) -> Type:
        """``file_number(path, word, digits)``."""
        path = self.checker.constant_text(arguments[0], "the path of file_number()")
        word = self.checks.literal_integer(node, arguments[1], "the word of file_number()", 1, _MOST_WORDS)
        digits = self.checks.literal_integer(
            node, arguments[2], "the number of decimals of file_number()", 0, MOST_DIGITS
        )
        if path is None or word is None or digits is None:
            return UNKNOWN
        if not path.startswith(b"/"):
            hints = ["a relative path would depend on where the script is started"]
            return self.checker.error("file_number() needs an absolute path", arguments[0].span, hints=hints)
        return Fixed(10**digits, digits, True, text_of(path), word)

    @handles_names("joined")
    def joined(self, _node: Node, arguments: Arguments) -> Type:
        """``joined(separator, value…)``."""
        separator = self.checker.constant_text(arguments[0], "the separator of joined()")
        members: list[Type] = []
        for value in self.checks.expressions(arguments[1:]):
            type_ = self.checker.value(value)
            if isinstance(type_, Void) or type_.aggregate:
                return self.checker.error(f"{settle(type_)} cannot be part of a text", value.span)
            members.append(type_)
        if separator is None:
            return UNKNOWN
        return Joined(text_of(separator), tuple(members))

    @handles_names("sprintf")
    def sprintf(self, node: Node, arguments: Arguments) -> Type:
        """``sprintf(fmt, value…)``."""
        format_, values = self.checks.formatted(node, arguments)
        if format_ is None:
            return UNKNOWN
        types = tuple(self.checker.value(value) for value in values)
        if any(isinstance(type_, Unknown) for type_ in types):
            return UNKNOWN
        return Joined(text_of(format_.text), types, formatted=True)

    def _report_whole_map(self, record: nodes.Expr) -> bool:
        """Whether a keyed map is used without a key; reports an error."""
        if not isinstance(record, nodes.MapRef) or not self.checker.map(record).keyed:
            return False
        hints = [f"print({record.name}) prints the map, row({record.name}[key]) the record of one key"]
        self.checker.error(f"row() takes a record, not the map {record.name}", record.span, hints=hints)
        return True


FAMILIES = (OutputChecks, RowChecks)
