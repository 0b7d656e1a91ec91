"""Converts libclang's C declarations of a script into value types, for :class:`Definitions`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.source import Source, Span
from pytrace.core.types import BOOL, UINT8, VOID, Array, Enum, Field, FieldLoader, Float, Int, Pointer, Struct, Type
from pytrace.frontend.c import translation_unit
from pytrace.frontend.c.definitions import DeclaredNames, Definitions
from pytrace.frontend.c.libclang import CType, Cursor, Kind, Token
from pytrace.frontend.c.translation_unit import Translation
from pytrace.frontend.expand import c_macros, imports
from pytrace.frontend.syntax import nodes, parser
from pytrace.frontend.syntax.typed_program import SCRIPT_ORIGIN

_ADJACENT = r'"\s*"'
"""Adjacent string literals, which C concatenates."""


def read(program: nodes.Program, options: CompileOptions, kernel: KernelInfo, diagnostics: Diagnostics) -> Definitions:
    """Read the definitions of the program's C part, of its headers and of those of ``--include``."""
    definitions = _read(program, options, kernel, diagnostics)
    for path in (*imports.files(program)[1:], *definitions.files):
        if os.path.isabs(path):
            kernel.depend_on_file(path)
    if definitions.kernel_files:
        kernel.depend_on_headers(definitions.kernel_files)
    return definitions


def _read(program: nodes.Program, options: CompileOptions, kernel: KernelInfo, diagnostics: Diagnostics) -> Definitions:
    plain = Definitions(kernel, written=c_macros.defined(program))
    if not options.includes and _plain_macros(program, plain):
        return plain
    translation = translation_unit.translate(program, options, kernel, diagnostics)
    paths = dict.fromkeys(str(included.include) for included in translation.parsed.get_includes())
    definitions = Definitions(
        kernel,
        written=plain.written,
        kernel_files=[path for path in paths if translation.headers.holds(path)],
        files=[path for path in paths if not translation.headers.holds(path)],
        skipped=partial(translation_unit.skipped_hints, translation),
    )
    for problem in translation.problems:
        diagnostics.warn(problem, program.span)
    Reader(translation, definitions).run()
    return definitions


def _plain_macros(program: nodes.Program, definitions: Definitions) -> bool:
    """Read a C part that consists of object-like macros only, without libclang; False if it has other declarations."""
    macros = [c_macros.macro(part) for part in program.c_parts]
    if any(item is None or item.parameters is not None or re.search(_ADJACENT, item.body) for item in macros):
        return False
    definitions.macros.update({item.name: item.expression for item in macros if item is not None})
    return True


def _macro(name: str, body: str, evaluate: Callable[[str], nodes.Expr | None]) -> Callable[[], nodes.Expr | None]:
    """A function that returns a macro's expression: its text parsed as the script language, else its C value."""

    def parsed() -> nodes.Expr | None:
        if not body:
            return None
        expression = parser.parse_expression(Source(f"header (macro {name})", body), Diagnostics())
        return evaluate(name) or expression if expression is None or _calls(body) else expression

    return parsed


def _calls(body: str) -> bool:
    """Whether a macro's text may call a function-like macro."""
    return re.search(r"[A-Za-z_]\w*\s*\(", body) is not None


class Reader:
    """Converts the declarations of one translation unit into types."""

    def __init__(self, translation: Translation, definitions: Definitions) -> None:
        from clang import cindex

        self.translation = translation
        self.definitions = definitions
        self.kernel = translation.kernel
        self.kinds = cindex.CursorKind
        self.structs: dict[str, Struct] = {}
        self.enums: dict[str, Enum] = {}
        table = cindex.TypeKind
        self.readers: dict[Kind, Callable[[CType], Type]] = {
            table.VOID: lambda _: VOID,
            table.BOOL: lambda _: BOOL,
            table.POINTER: self._pointer,
            table.CONSTANTARRAY: lambda kind: Array(self.type(kind.element_type), kind.element_count),
            table.INCOMPLETEARRAY: lambda kind: Array(self.type(kind.element_type), 0),
            table.RECORD: lambda kind: self.record(kind.get_declaration()),
            table.ENUM: lambda kind: self.enum(kind.get_declaration()),
        }
        signed = (table.CHAR_S, table.SCHAR, table.SHORT, table.INT, table.LONG, table.LONGLONG, table.INT128)
        unsigned = (table.CHAR_U, table.UCHAR, table.USHORT, table.UINT, table.ULONG, table.ULONGLONG, table.UINT128)
        self.readers.update({item: lambda kind: Int(kind.get_size(), True) for item in signed})
        self.readers.update({item: lambda kind: Float(kind.get_size()) for item in (table.FLOAT, table.DOUBLE)})
        self.readers.update({item: lambda kind: Int(kind.get_size(), False) for item in unsigned})
        self.keywords = {
            self.kinds.STRUCT_DECL: "struct",
            self.kinds.UNION_DECL: "union",
            self.kinds.ENUM_DECL: "enum",
            self.kinds.TYPEDEF_DECL: "typedef",
        }
        self.values: dict[str, int] = {}
        """Values of the macros that the script uses."""
        self.functions = (table.FUNCTIONPROTO, table.FUNCTIONNOPROTO)

    def run(self) -> None:
        """Collect all declarations; those of system headers are converted on demand."""
        kinds = self.kinds
        handlers = {
            kinds.STRUCT_DECL: self._struct,
            kinds.UNION_DECL: self._struct,
            kinds.ENUM_DECL: self._enum,
            kinds.TYPEDEF_DECL: self._typedef,
        }
        macro = kinds.MACRO_DEFINITION
        self.definitions.headers = declared = DeclaredNames(self)
        for cursor in self.translation.parsed.cursor.get_children():
            kind = cursor.kind
            if kind == macro:
                declared.add_macro(cursor.spelling, cursor)
            elif kind in handlers:
                place = cursor.location
                if place.is_in_system_header:
                    self._note(cursor, declared)
                elif place.file is not None and str(place.file) != translation_unit.PRELUDE:
                    handlers[kind](cursor)

    def _note(self, cursor: Cursor, declared: DeclaredNames) -> None:
        name = self.name(cursor)
        if cursor.is_definition() and (name or cursor.kind == self.kinds.ENUM_DECL):
            declared.add_type(self.keywords[cursor.kind], name, cursor)

    @staticmethod
    def name(cursor: Cursor) -> str:
        """Name of a declaration, empty for one without."""
        return "" if _unnamed(cursor) else str(cursor.spelling)

    def inner(self, cursor: Cursor) -> Iterator[tuple[str, Cursor]]:
        """Definitions inside a struct or union."""
        for item in cursor.get_children():
            keyword = self.keywords.get(item.kind)
            if keyword is not None and item.is_definition():
                yield keyword, item

    # ---- declarations

    def _struct(self, cursor: Cursor) -> None:
        if cursor.is_definition() and not _unnamed(cursor):
            struct = self.record(cursor)
            if isinstance(struct, Struct):
                self.definitions.structs[struct.kind, struct.name] = struct
        for inner in cursor.get_children():
            # C has no scopes inside a struct: names declared there are visible everywhere.
            if inner.kind in (self.kinds.STRUCT_DECL, self.kinds.UNION_DECL):
                self._struct(inner)
            elif inner.kind == self.kinds.ENUM_DECL:
                self._enum(inner)

    def _enum(self, cursor: Cursor) -> None:
        if not cursor.is_definition():
            return
        enum = self.enum(cursor)
        if isinstance(enum, Enum):
            if enum.name:
                self.definitions.enums[enum.name] = enum
            for name, value in enum.members:
                if name.startswith(translation_unit.VALUE):
                    self._value(name.removeprefix(translation_unit.VALUE), value)
                else:
                    self.definitions.enumerators[name] = (enum, value)

    def _value(self, name: str, value: int) -> None:
        if name not in self.translation.refused:
            self.values[name] = value

    def _typedef(self, cursor: Cursor) -> None:
        self.definitions.typedefs[cursor.spelling] = self.type(cursor.underlying_typedef_type)

    def define(self, cursor: Cursor) -> Callable[[], nodes.Expr | None] | None:
        """A function that returns a macro's expression; None for macros with parameters and predefined ones."""
        tokens = list(cursor.get_tokens())
        if len(tokens) < 2 or cursor.location.file is None:
            return None
        first, second = tokens[0].extent, tokens[1].extent
        if tokens[1].spelling == "(" and second.start.offset == first.end.offset:
            return None
        name = cursor.spelling
        if len(tokens) == 2 and self.definitions.enumerator(tokens[1].spelling) is not None:
            # #define IPPROTO_TCP IPPROTO_TCP, for #ifdef: the value has the enumeration's type.
            return _macro(name, tokens[1].spelling, self._evaluate)
        if cursor.location.is_in_system_header and name in self.values:
            return lambda: _literal(name, self.values[name])
        return _macro(name, _text(tokens[1:]), self._evaluate)

    def _evaluate(self, name: str) -> nodes.Expr | None:
        """The C value of a macro: an integer or a string; None when it has none."""
        if name in self.values:
            return _literal(name, self.values[name])
        for ending, read in (
            (f"enum {{ __pytrace_value = ({name}) }};\n", _integer),
            (f"static const char __pytrace_text[] = {name};\n", _string),
        ):
            unit = self.translation.parse(ending)
            wrong = (item for item in unit.diagnostics if item.severity >= translation_unit.ERROR)
            if any(not self.translation.system(str(item.location.file)) for item in wrong):
                continue
            last = list(unit.cursor.get_children())[-1]
            value = read(last)
            if value is not None:
                return _literal(name, value)
        return None

    # ---- types

    def type(self, kind: CType) -> Type:
        """The value type of a C type."""
        declaration = kind.get_declaration()
        if declaration.kind == self.kinds.TYPEDEF_DECL:
            if declaration.spelling in self.translation.declared or self._of_kernel(declaration):
                known = self.kernel.typedef(declaration.spelling)
                if known is not None:
                    return known
            return self.type(declaration.underlying_typedef_type)
        plain = kind.get_canonical()
        read = self.readers.get(plain.kind)
        if read is not None:
            # Typedefs of elements and of pointer targets must be kept: only the outermost layer is resolved.
            return read(kind if kind.kind == plain.kind else plain)
        # Longer floating-point numbers and vectors are bytes, which scripts can copy but not compute with.
        return Array(UINT8, max(0, plain.get_size()))

    def _of_kernel(self, cursor: Cursor) -> bool:
        """Whether a declaration is in one of the kernel's headers."""
        headers = self.translation.headers
        return bool(headers.folders) and headers.holds(str(cursor.location.file))

    def _pointer(self, kind: CType) -> Type:
        target = kind.get_pointee()
        if target.get_canonical().kind in self.functions:
            return Pointer(VOID)
        return Pointer(self.type(target))

    def record(self, cursor: Cursor) -> Type:
        """The type of a struct or union declaration."""
        definition = cursor.get_definition()
        keyword = "union" if cursor.kind == self.kinds.UNION_DECL else "struct"
        name = "" if _unnamed(cursor) else cursor.spelling
        if name and (definition is None or f"{keyword} {name}" in self.translation.declared):
            known = self.kernel.struct(keyword, name)
            return known if known is not None else Struct(keyword, name, 0, (), origin=SCRIPT_ORIGIN, alignment=1)
        definition = definition or cursor
        if name and self._of_kernel(definition):
            # BTF describes the running kernel; the headers may belong to another one.
            known = self.kernel.struct(keyword, name)
            if known is not None:
                return known
        usr = definition.get_usr() + (f"@{cursor.extent.start.offset}" if not name else "")
        if usr not in self.structs:
            type_ = definition.type
            origin = SCRIPT_ORIGIN if name else f"{SCRIPT_ORIGIN}:{usr}"
            self.structs[usr] = Struct(
                keyword,
                name,
                type_.get_size(),
                FieldLoader(lambda: self._fields(type_)),
                origin=origin,
                alignment=max(1, type_.get_align()),
            )
        return self.structs[usr]

    def _fields(self, kind: CType) -> tuple[Field, ...]:
        fields = []
        for cursor in kind.get_fields():
            name = "" if "(" in cursor.spelling else cursor.spelling
            bits = cursor.get_field_offsetof()
            member = self.type(cursor.type)
            if not cursor.is_bitfield():
                fields.append(Field(name, member, bits // 8))
            elif name:
                fields.append(_bitfield(name, member, bits, cursor.get_bitfield_width()))
        return tuple(fields)

    def enum(self, cursor: Cursor) -> Type:
        """The type of an enum declaration."""
        definition = cursor.get_definition() or cursor
        name = "" if _unnamed(cursor) else cursor.spelling
        if name and (
            cursor.get_definition() is None
            or f"enum {name}" in self.translation.declared
            or self._of_kernel(definition)
        ):
            known = self.kernel.enum(name)
            if known is not None:
                return known
        usr = f"{definition.get_usr()}@{definition.extent.start.offset}"
        if usr not in self.enums:
            members = tuple(
                (item.spelling, item.enum_value)
                for item in definition.get_children()
                if item.kind == self.kinds.ENUM_CONSTANT_DECL
            )
            base = self.type(definition.enum_type)
            signed = isinstance(base, Int) and base.signed
            self.enums[usr] = Enum(name, max(1, definition.type.get_size()), signed, members)
        return self.enums[usr]


def _literal(name: str, value: int | bytes) -> nodes.Expr:
    span = Span(Source(f"macro {name}", name), 0, len(name))
    return nodes.IntLiteral(span, value) if isinstance(value, int) else nodes.StringLiteral(span, value)


def _text(tokens: Iterable[Token]) -> str:
    """The text of *tokens*, with a blank between tokens that were separated."""
    text, end = "", None
    for token in tokens:
        extent = token.extent
        text += token.spelling if end in (None, extent.start.offset) else f" {token.spelling}"
        end = extent.end.offset
    return text


def _unnamed(cursor: Cursor) -> bool:
    return not cursor.spelling or "(" in cursor.spelling or bool(cursor.is_anonymous())


def _bitfield(name: str, member: Type, bits: int, width: int) -> Field:
    """A bitfield within the storage unit of its type, or from its first byte where it crosses units (packed)."""
    unit = max(1, member.size) * 8
    offset = bits // unit * unit
    if bits - offset + width > unit:
        offset = bits // 8 * 8
    return Field(name, member, offset // 8, bits - offset, width)


def _integer(cursor: Cursor) -> int | None:
    for item in cursor.get_children():
        if item.spelling == "__pytrace_value":
            return int(item.enum_value)
    return None


_ESCAPE = rb"(?s)\\([0-7]{1,3}|x[0-9a-fA-F]+|.)"
_SIMPLE = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v", b"e": b"\x1b"}


def _string(cursor: Cursor) -> bytes | None:
    for item in cursor.get_children():
        if item.kind.name == "STRING_LITERAL":
            # libclang spells a concatenation as one literal.
            return re.sub(_ESCAPE, _unescape, item.spelling.strip()[1:-1].encode())
    return None


def _unescape(match: re.Match[bytes]) -> bytes:
    text = match[1]
    if text[:1] == b"x":
        return bytes([int(text[1:], 16) & 0xFF])
    if text[:1].isdigit():
        return bytes([int(text, 8) & 0xFF])
    return _SIMPLE.get(text, text)
