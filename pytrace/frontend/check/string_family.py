"""Checks of builtins on strings, buffers and memory, on networks, and on objects of Python."""

from __future__ import annotations

import ipaddress
import sys

from msgspec.structs import replace

from pytrace.base.dispatch import handles_names
from pytrace.core.probe_kinds import Context
from pytrace.core.types import (
    AF_INET,
    AF_INET6,
    BOOL,
    DOUBLE,
    INT64,
    UINT8,
    UINT64,
    Array,
    Buffer,
    Field,
    Float,
    Inet,
    Int,
    InterfaceName,
    Mac,
    Pointer,
    String,
    Struct,
    Type,
)
from pytrace.frontend.check.checker import Arguments, Node
from pytrace.frontend.check.conversions import UNKNOWN, Unknown, is_integer, is_text, is_text_pointer, settle
from pytrace.frontend.check.expressions import BuiltinChecks
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import (
    BufferLength,
    ComparedLength,
    CountedString,
    NetworkAddress,
    ShortText,
    StringLength,
)

_MAC_BYTES = 6
_LONGEST_CHAIN = 20
"""Number of inference passes after which a string that grew in each of them is considered unbounded."""
NAME = String(64)
"""Result type of strerror(), signal_name() and syscall_name()."""
_STRINGS = ("basic_string<", "basic_string_view<", "&str", "&mut str", "&[u8]", "&mut [u8]", "string", "Box<str")
"""Prefixes of the names of classes whose objects have the address of a text, and its length."""
_PLACES = (("_M_dataplus._M_p", "_M_string_length"), ("_M_str", "_M_len"), ("data_ptr", "length"), ("str", "len"),
           ("__data_", "__size_"), ("__data", "__size"))  # fmt: skip
"""Members with the address and the length: of std::string (libstdc++ since GCC 5), std::string_view, slices of Rust,
strings of Go, std::string_view (libc++).
"""
_WIDE_PLACES = (("d.ptr", "d.size"), ("m_data", "m_size"))
"""Members with address and length of QString and QStringView (Qt 6)."""
_HEADER = 24
"""Bytes of ``_Rep`` before the text of an older std::string (``_GLIBCXX_USE_CXX11_ABI=0``); its length comes first."""


def _counted_string(struct: Struct) -> CountedString | None:
    """Where a string of C++, Rust or Go has its text; None for other structs."""
    if struct.name.startswith(_STRINGS):
        for address, length in _PLACES:
            place, count = _text_member(struct, address), _member(struct, length)
            if place is not None and count is not None and count.type.size == UINT64.size:
                return CountedString(place, count.offset)
        place = _text_member(struct, "_M_dataplus._M_p")
        return _two_form_string(struct) if place is None else CountedString(place, 0, _HEADER)
    if struct.name == "String" or struct.name.startswith("Vec<u8"):
        # Of Rust; which members lead to the address differs from release to release.
        vector = struct.find("vec") if struct.name == "String" else Field("", struct, 0)
        if vector is not None and isinstance(vector.type, Struct):
            place, count = _first_text(vector.type), vector.type.find("len")
            if place is not None and count is not None and count.type.size == UINT64.size:
                return CountedString(vector.offset + place, vector.offset + count.offset)
    return None


def _two_form_string(struct: Struct) -> CountedString | None:
    """libc++'s std::string: a union of a long form, with an address, and a short one.

    A bit says which it is. Before LLVM 14 it is no member but the lowest one of the capacity, and so of the first byte,
    whose other bits are the length of the short form.
    """
    found = _union_of(struct, ("__l", "__s"))
    if found is None:
        return None
    union, start = found
    forms = [field.type for name in ("__l", "__s") if (field := _member(union, name)) is not None]
    if len(forms) < 2 or not all(isinstance(form, Struct) for form in forms):
        return None
    long, short = (form for form in forms if isinstance(form, Struct))
    address, length, text = _text_member(long, "__data_"), _member(long, "__size_"), _member(short, "__data_")
    size, flag = _member(short, "__size_"), _member(short, "__is_long_")
    if address is None or length is None or length.type.size != UINT64.size or text is None or size is None:
        return None
    if not is_text(text.type):
        return None
    if flag is None:
        place = ShortText(start + text.offset, start + size.offset, 0, start + size.offset, 1, 7)
    else:
        place = ShortText(
            start + text.offset, start + flag.offset + flag.bit_offset // 8, flag.bit_offset % 8,
            start + size.offset + size.bit_offset // 8, size.bit_offset % 8, size.bit_size or 8,
        )  # fmt: skip
    return CountedString(start + address, start + length.offset, short=place)


def _union_of(struct: Struct, names: tuple[str, ...]) -> tuple[Struct, int] | None:
    """The struct or union in a value that has members of these names, and its offset."""
    if all(struct.find(name) is not None for name in names):
        return struct, 0
    for field in struct.fields:
        inner = _union_of(field.type, names) if isinstance(field.type, Struct) else None
        if inner is not None:
            return inner[0], field.offset + inner[1]
    return None


def _member(struct: Struct, path: str) -> Field | None:
    offset = 0
    type_: Type = struct
    field: Field | None = None
    for name in path.split("."):
        field = type_.find(name) if isinstance(type_, Struct) else None
        if field is None:
            return None
        offset, type_ = offset + field.offset, field.type
    return None if field is None else replace(field, offset=offset)


def _text_member(struct: Struct, path: str) -> int | None:
    """The offset of a member that points to bytes."""
    field = _member(struct, path)
    return field.offset if field is not None and is_text_pointer(field.type) else None


def _first_text(struct: Struct) -> int | None:
    """The offset of the first member that points to bytes, at any depth."""
    for field in struct.fields:
        if is_text_pointer(field.type):
            return field.offset
        inner = _first_text(field.type) if isinstance(field.type, Struct) else None
        if inner is not None:
            return field.offset + inner
    return None


def _is_of_program(struct: Struct) -> bool:
    """Whether a struct is that of a traced program: those of the kernel and of a script are cast on purpose."""
    return struct.origin.startswith("/")


def _begins_with_text(type_: Type) -> bool:
    """Whether the bytes at the address of a value are characters."""
    if isinstance(type_, Struct):
        return not type_.size or any(not field.offset and _begins_with_text(field.type) for field in type_.fields)
    return is_text(type_)


def _member_hint(struct: Struct, source: nodes.Expr) -> str:
    """A hint: the members that str() reads, or how to give it a length."""
    texts = []
    for field in struct.fields:
        target = field.type.target if isinstance(field.type, Pointer) else field.type
        known = isinstance(target, Struct) and _counted_string(target) is not None
        if field.name and (known or is_text(field.type) or is_text_pointer(field.type)):
            texts.append(f"str({source.span.text}.{field.name})")
    for address, length in (*_PLACES, *_WIDE_PLACES):
        place, count = _member(struct, address), _member(struct, length)
        if place is not None and count is not None and isinstance(place.type, Pointer):
            name, size = source.span.text, place.type.target.size
            if size in (2, 4):
                bits = f"its characters have {8 * size} bits, and str() reads those of 8"
                return f"{bits}: buf({name}.{address}, {size} * {name}.{length}) has its bytes"
    if texts:
        return f"write {' or '.join(texts[:3])}"
    return "write str(ADDRESS, LENGTH) of the members that have them; print(*p) shows all members"


def _compared_size(type_: Type) -> int | None:
    """Number of bytes of a value that memcmp() can compare, unlimited for pointers; None for unsupported types."""
    if isinstance(type_, Unknown | Pointer):
        return sys.maxsize
    if isinstance(type_, String | Buffer):
        return type_.capacity
    if isinstance(type_, Array | Struct):
        return type_.size
    return UINT64.size if settle(type_).scalar else None


_MOST_FACTOR = 1 << 53
"""The greatest factor of scaled()."""


def size_of_text(type_: Type) -> int:
    """Capacity of a string or character array."""
    return type_.capacity if isinstance(type_, String) else type_.size


class StringChecks(BuiltinChecks):
    """Checks of builtins on strings, buffers and memory."""

    @handles_names("str")
    def str_(self, node: Node, arguments: Arguments) -> Type:
        """``str(address[, length])``."""
        source = self.checks.expression(arguments[0])
        type_ = self.checker.value(source)
        struct = type_.target if isinstance(type_, Pointer) else type_
        counted = _counted_string(struct) if isinstance(struct, Struct) else None
        if counted is not None and counted.short is not None and self._is_copy(source):
            message = f"{source.span.text} is a copy, and {struct} may have its text in the object that was copied"
            return self.checker.error(
                message, node.span, hints=["keep the address of the object, or the result of str()"]
            )
        if counted is not None:
            self.checker.program.facts[node] = StringLength(len(arguments) == 1, counted)
        elif isinstance(struct, Struct) and _is_of_program(struct) and not _begins_with_text(struct):
            message = f"str() reads characters, and {struct} is not a string that it knows"
            return self.checker.error(message, node.span, hints=[_member_hint(struct, source)])
        elif not isinstance(type_, Unknown | Pointer) and not is_integer(type_) and not is_text(type_):
            return self.checker.error(f"str() takes a pointer, an integer or a string, not {settle(type_)}", node.span)
        if isinstance(type_, Pointer) and isinstance(type_.target, Struct) and type_.target.origin == "python":
            message = "str() reads C strings, and this is a Python object"
            return self.checker.error(message, node.span, hints=["pystr() reads it"])
        limit = self.checker.config.max_strlen
        capacity, length = limit, None
        if len(arguments) > 1:
            capacity, length = self._length_argument(node, arguments[1], limit)
            self.checker.program.facts[node] = StringLength(length is not None and length >= limit, counted)
        text = self.checker.constant(source)
        if isinstance(text, bytes) and (len(arguments) == 1 or length is not None):
            kept = text[:length]
            # Longer strings are truncated, and counted as such, at run time.
            if len(kept) < limit:
                self.checker.set_constant(node, kept)
                return String(len(kept) + 1)
        if is_text(type_):
            return String(min(capacity, max(1, size_of_text(type_))))
        return String(capacity)

    def _is_copy(self, source: nodes.Expr) -> bool:
        """Whether an object is in a variable or map, not in the memory of the program."""
        while not isinstance(self.checker.value(source), Pointer):
            if not isinstance(source, nodes.FieldAccess | nodes.TupleAccess | nodes.Index):
                return isinstance(source, nodes.Variable | nodes.MapRef | nodes.MapIndex)
            source = source.base
        return False

    def _length_argument(self, node: Node, arg: nodes.Expr | nodes.TypeExpr, limit: int) -> tuple[int, int | None]:
        value = self.checks.expression(arg)
        self.checks.integer(node, value, "the length of str()")
        length = self.checker.constant(value)
        if isinstance(length, bool) or not isinstance(length, int):
            return limit, None
        if length < 0:
            self.checker.error("the length of str() cannot be negative", node.span)
            return limit, None
        if length >= limit:
            if length > limit:
                hints = [f"set max_strlen = {length + 1} in the config block"]
                self.checker.warn(f"str() is truncated to max_strlen, which is {limit}", node.span, hints=hints)
            return limit, length
        return length + 1, length

    @handles_names("buf")
    def buf(self, node: Node, arguments: Arguments) -> Type:
        """``buf(data[, length])``."""
        source = self.checks.expression(arguments[0])
        type_ = self.checker.value(source)
        sized = is_text(type_) or isinstance(type_, Array)
        if not sized and not isinstance(type_, Unknown | Pointer | Buffer) and not is_integer(type_):
            return self.checker.error(
                f"buf() takes a pointer, integer, array or string, not {settle(type_)}", node.span
            )
        limit = self.checker.config.max_strlen
        if len(arguments) > 1:
            self.checks.integer(node, arguments[1], "the length of buf()")
            length = self.checker.constant(self.checks.expression(arguments[1]))
        elif sized:
            length = size_of_text(type_)
        else:
            return self.checker.error(f"buf() needs a length for {settle(type_)}", node.span)
        if isinstance(length, bool) or not isinstance(length, int):
            return Buffer(limit)
        if length < 0:
            return self.checker.error("the length of buf() cannot be negative", node.span)
        if length > limit:
            hints = [f"set max_strlen = {length} in the config block"]
            self.checker.warn(f"buf() is truncated to max_strlen, which is {limit}", node.span, hints=hints)
        length = min(length, limit)
        self.checker.program.facts[node] = BufferLength(length)
        return Buffer(max(1, length))

    @handles_names("path")
    def path(self, node: Node, arguments: Arguments) -> Type:
        """``path(struct path[, size])``."""
        type_ = self.checker.value(self.checks.expression(arguments[0]))
        target = type_.target if isinstance(type_, Pointer) else type_
        if not isinstance(type_, Unknown) and not (isinstance(target, Struct) and target.name == "path"):
            return self.checker.error(f"path() takes a struct path, not {settle(type_)}", node.span)
        iterating = self.checker.unit is not None and self.checker.unit.kind.context is Context.ITERATOR
        if iterating and not self.checker.kernel.feature("iterator_paths"):
            hints = ["Linux 5.13 can (bpf_d_path)"]
            message = "this kernel cannot tell iterators the paths of files"
            return self.checker.error(message, node.span, hints=hints, kernel=True)
        capacity = self.checker.config.max_strlen
        if len(arguments) > 1:
            size = self.checks.literal_integer(node, arguments[1], "the size of path()", 1, capacity)
            capacity = size if size is not None else capacity
        return String(capacity)

    # ------------------------------------------------------------------------------------------ string queries

    @handles_names("strcap")
    def strcap(self, node: Node, arguments: Arguments) -> Type:
        """``strcap(x)``."""
        type_ = settle(self.checker.value(self.checks.expression(arguments[0])))
        if isinstance(type_, Unknown):
            return UINT64
        if is_text(type_):
            self.checker.set_constant(node, size_of_text(type_))
        elif not is_text_pointer(type_):
            return self.checker.error(f"strcap() takes a string, not {type_}", node.span)
        else:
            self.checker.set_constant(node, self.checker.config.max_strlen)
        return UINT64

    @handles_names("strlen")
    def strlen(self, node: Node, arguments: Arguments) -> Type:
        """``strlen(x)``."""
        source = self.checks.expression(arguments[0])
        type_ = self.checker.value(source)
        if not isinstance(type_, Unknown) and not is_text(type_) and not is_text_pointer(type_):
            return self.checker.error(f"strlen() takes a string, not {settle(type_)}", node.span)
        text = self.checker.constant(source)
        if isinstance(text, bytes):
            self.checker.set_constant(node, len(text.split(b"\0", 1)[0]))
        return UINT64

    def _check_texts(self, node: Node, arguments: Arguments) -> None:
        for arg, what in zip(arguments, ("the first argument", "the second argument"), strict=True):
            self.checks.text(node, arg, f"{what} of {node.name}()")

    @handles_names("strcontains")
    def strcontains(self, node: Node, arguments: Arguments) -> Type:
        """``strcontains(haystack, needle)``."""
        self._check_texts(node, arguments)
        return BOOL

    @handles_names("strstr")
    def strstr(self, node: Node, arguments: Arguments) -> Type:
        """``strstr(haystack, needle)``."""
        self._check_texts(node, arguments)
        return INT64

    @handles_names("strncmp")
    def strncmp(self, node: Node, arguments: Arguments) -> Type:
        """``strncmp(a, b, n)``."""
        self._check_texts(node, arguments[:2])
        length = self.checks.literal_integer(node, arguments[2], "the length of strncmp()", 0, (1 << 31) - 1)
        self.checker.program.facts[node] = ComparedLength(length or 0)
        return UINT64

    @handles_names("str_concat")
    def str_concat(self, node: Node, arguments: Arguments) -> Type:
        """``str_concat(a, b)``."""
        self._check_texts(node, arguments)
        parts = [settle(self.checker.program.types[self.checks.expression(arg)]) for arg in arguments]
        if any(not is_text(part) for part in parts):
            return UNKNOWN
        size = sum(size_of_text(part) for part in parts) - 1
        if self.checker.number > _LONGEST_CHAIN:
            # A string that is appended to itself gets the maximum capacity.
            size = self.checker.config.max_strlen
        return String(max(1, min(size, self.checker.config.max_strlen)))

    @handles_names("memcmp")
    def memcmp(self, node: Node, arguments: Arguments) -> Type:
        """``memcmp(left, right, n)``: *n* may be known at run time only; it is limited to the smaller side."""
        sides = [self.checker.value(self.checks.expression(arg)) for arg in arguments[:2]]
        self.checks.integer(node, arguments[2], "the length of memcmp()")
        limit = self.checker.config.max_strlen
        length = self.checker.constant(self.checks.expression(arguments[2]))
        if isinstance(length, int) and not 0 <= length <= limit:
            self.checker.error(f"the length of memcmp() must be 0 to {limit}, not {length}", node.span)
        for side in sides:
            room = _compared_size(side)
            if room is None:
                self.checker.error(
                    f"memcmp() takes strings, arrays, integers and pointers, not {settle(side)}", node.span
                )
            elif isinstance(length, int) and room < length <= limit:
                self.checker.error(f"memcmp() compares {length} bytes, but {settle(side)} is shorter", node.span)
            limit = min(limit, room or 0)
        self.checker.program.facts[node] = ComparedLength(
            length if isinstance(length, int) else limit, isinstance(length, int)
        )
        return INT64

    @handles_names("scaled")
    def scaled(self, node: Node, arguments: Arguments) -> Type:
        """``scaled(d, factor)``."""
        type_ = self.checker.value(self.checks.expression(arguments[0]))
        if not isinstance(type_, Float | Unknown):
            self.checker.error(f"scaled() takes a floating-point number, not {settle(type_)}", node.span)
        self.checks.literal_integer(node, arguments[1], "the factor of scaled()", 1, _MOST_FACTOR)
        return INT64

    @handles_names("bswap")
    def bswap(self, node: Node, arguments: Arguments) -> Type:
        """``bswap(n)``: unsigned, with the width of its argument."""
        value = self.checks.expression(arguments[0])
        type_ = settle(self.checks.integer(node, value, "the argument of bswap()"))
        if not isinstance(type_, Int):
            return UNKNOWN if isinstance(type_, Unknown) else UINT64
        number = self.checker.constant(value)
        if isinstance(number, int):
            data = (number & ((1 << (8 * type_.width)) - 1)).to_bytes(type_.width, "little")
            self.checker.set_constant(node, int.from_bytes(data, "big"))
        return Int(type_.width, False)

    @handles_names("signal_name", "strerror", "syscall_name")
    def name_of_number(self, node: Node, arguments: Arguments) -> Type:
        """strerror, signal_name, syscall_name."""
        self.checks.integer(node, arguments[0], f"the argument of {node.name}()")
        return NAME


class NetworkChecks(BuiltinChecks):
    """Checks of builtins about networks."""

    @handles_names("macaddr")
    def macaddr(self, node: Node, arguments: Arguments) -> Type:
        """``macaddr(address)``."""
        type_ = self.checker.value(self.checks.expression(arguments[0]))
        if isinstance(type_, Unknown | Pointer) or is_integer(type_):
            return Mac()
        if isinstance(type_, Array | String) and type_.size >= _MAC_BYTES:
            return Mac()
        return self.checker.error(f"macaddr() takes an array of {_MAC_BYTES} bytes, not {settle(type_)}", node.span)

    @handles_names("ifname")
    def ifname(self, node: Node, arguments: Arguments) -> Type:
        """``ifname(index)``."""
        self.checks.integer(node, arguments[0], "the interface index of ifname()")
        return InterfaceName()

    @handles_names("ntop")
    def ntop(self, node: Node, arguments: Arguments) -> Type:
        """``ntop([family,] address)``."""
        family = None
        if len(arguments) > 1:
            self.checks.integer(node, arguments[0], "the address family of ntop()")
            constant = self.checker.constant(self.checks.expression(arguments[0]))
            family = constant if isinstance(constant, int) else None
            if family is not None and family not in (AF_INET, AF_INET6):
                return self.checker.error(f"ntop() knows families {AF_INET} and {AF_INET6}, not {family}", node.span)
        address = self.checks.expression(arguments[-1])
        type_ = self.checker.value(address)
        if isinstance(type_, Array | String) and type_.size in (4, 16):
            if len(arguments) == 1:
                family = AF_INET if type_.size == 4 else AF_INET6
        elif is_integer(type_):
            family = AF_INET if len(arguments) == 1 else family
        elif not isinstance(type_, Unknown | Pointer):
            return self.checker.error(
                f"ntop() takes an integer or an array of 4 or 16 bytes, not {settle(type_)}", node.span
            )
        elif isinstance(type_, Pointer) and len(arguments) == 1:
            return self.checker.error("ntop() of a pointer needs the address family", node.span)
        self.checker.program.facts[node] = NetworkAddress(family, address)
        return Inet()

    @handles_names("pton")
    def pton(self, node: Node, arguments: Arguments) -> Type:
        """``pton("address")``."""
        text = self.checker.constant_text(arguments[0], "the address of pton()")
        if text is None:
            return UNKNOWN
        try:
            parsed = ipaddress.ip_address(text.decode("ascii", "replace"))
            data = parsed.packed
        except ValueError:
            return self.checker.error(f"{text.decode(errors='replace')!r} is not an IPv4 or IPv6 address", node.span)
        scope = parsed.scope_id if isinstance(parsed, ipaddress.IPv6Address) else None
        if scope is not None:
            hints = [f"write {str(parsed).partition('%')[0]!r}, and compare the interface by itself"]
            message = f"{text.decode(errors='replace')!r} has a scope, which is no part of the address in memory"
            return self.checker.error(message, node.span, hints=hints)
        self.checker.set_constant(node, data)
        return Array(UINT8, len(data))

    @handles_names("socket_cookie")
    def socket_cookie(self, node: Node, arguments: Arguments) -> Type:
        """``socket_cookie(sk)``."""
        if not self.checker.kernel.feature("socket_cookie"):
            hints = ["Linux 5.12 has it (bpf_get_socket_cookie)"]
            message = "this kernel does not tell tracing programs cookies of sockets"
            self.checker.error(message, node.span, hints=hints, kernel=True)
        type_ = self.checks.struct(node, arguments[0], "sock", "socket")
        return UNKNOWN if type_ is UNKNOWN else UINT64


class PythonChecks(BuiltinChecks):
    """Checks of builtins that read objects of Python."""

    @handles_names("pystr")
    def pystr(self, node: Node, arguments: Arguments) -> Type:
        """``pystr(object[, size])``."""
        self._check_object(node, arguments)
        capacity = self.checker.config.max_strlen
        if len(arguments) > 1:
            size = self.checks.literal_integer(node, arguments[1], "the size of pystr()", 1, capacity - 1)
            capacity = size + 1 if size is not None else capacity
        return String(capacity)

    @handles_names("pyint")
    def pyint(self, node: Node, arguments: Arguments) -> Type:
        """``pyint(object)``."""
        self._check_object(node, arguments)
        return INT64

    @handles_names("pyfloat")
    def pyfloat(self, node: Node, arguments: Arguments) -> Type:
        """``pyfloat(object)``."""
        self._check_object(node, arguments)
        return DOUBLE

    def _check_object(self, node: Node, arguments: Arguments) -> None:
        type_ = self.checker.value(self.checks.expression(arguments[0]))
        if not isinstance(type_, Unknown | Pointer) and not is_integer(type_):
            message = f"{node.name}() takes an argument or result of a Python function, not {settle(type_)}"
            self.checker.error(message, node.span, hints=["args.NAME and retval are such objects"])


FAMILIES = (StringChecks, NetworkChecks, PythonChecks)
