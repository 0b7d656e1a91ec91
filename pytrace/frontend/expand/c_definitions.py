"""C definitions of a script: types, enumerators and object-like macros, completed by the kernel's.

The kernel's headers declare tens of thousands of macros and thousands of types, of which a script uses a few: their
names are collected in one traversal of the translation unit and converted on demand.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from pytrace.core.builtins import bare_builtin
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source, Span
from pytrace.core.types import BOOL, UINT8, VOID, Array, Enum, Field, FieldLoader, Float, Int, Pointer, Struct, Type
from pytrace.frontend.expand import c_translation, imports
from pytrace.frontend.expand.c_translation import Translation
from pytrace.frontend.syntax import nodes, parser
from pytrace.frontend.syntax.typed_program import SCRIPT_ORIGIN

if TYPE_CHECKING:
    from clang.cindex import Cursor, Token, TypeKind
    from clang.cindex import Type as CType

# ---------------------------------------------------------------------------------------------------- macros as written

# Object-like macros of the C part as written: expansion of those that contain parameters of the script, and reasons
# why others have no value.
#
# The C front end (`c_translation`) evaluates macros. Parameters (`$1`, `$#`, `getopt()`) are not C, so macros that
# contain them are replaced by their text before parameters are substituted.


N = TypeVar("N", bound=nodes.Node)

_DEFINE = r"(?s)\s*#\s*define\s+(?P<name>[A-Za-z_]\w*)(?P<parameters>\([^)]*\))?(?P<body>.*)\Z"
_DIRECTIVE = r"\s*#\s*(?P<word>undef|ifdef|ifndef|if|endif)\b\s*(?P<name>\w*)"
_COMMENT = r"(?s)//[^\n]*|/\*.*?\*/|\\\r?\n"
_PARAMETER = r"\$[\d#]|\bgetopt\b"
_WORD = r"[A-Za-z_]\w*"

_MOST_USES = 2_000
"""Maximum number of replaced uses: macros defined in terms of others may double in each step."""


class CMacro(msgspec.Struct, frozen=True):
    """A macro that the script defines; *parameters* is its list of parameters, parentheses included, or None."""

    name: str
    parameters: str | None
    body: str
    span: Span

    def expression(self) -> nodes.Expr | None:
        """The body as an expression of the language, a new tree each time; None when it is not one."""
        text = Source(f"{self.span.source.name} (macro {self.name})", self.body)
        return parser.parse_expression(text, Diagnostics())


class NoValue(msgspec.Struct, frozen=True):
    """The reason why a macro has no value: a message and hints; *span* is its definition."""

    message: str
    hints: tuple[str, ...]
    span: Span


def no_value(item: CMacro) -> NoValue:
    """The reason why *item*, which macro expansion did not replace, has no value."""
    if item.parameters is not None:
        own = f"macro {item.name}{item.parameters} {{ {item.body} }}"
        return NoValue(
            f"{item.name!r} is a C macro with parameters, which scripts cannot call",
            (f"write it as a macro of the script: {own}",),
            item.span,
        )
    if not item.body:
        return NoValue(f"the macro {item.name!r} is empty; it has no value", (), item.span)
    if item.expression() is None:
        hint = "a macro can stand for one expression; a 'macro' of the script can have statements"
        return NoValue(f"the macro {item.name!r} is not an expression: {item.body}", (hint,), item.span)
    hint = f"the macro {item.name!r} refers to itself; as in C, its name is not replaced again inside its own expansion"
    return NoValue(f"unknown name {item.name!r}", (hint,), item.span)


def _c_macro(part: nodes.CPart) -> CMacro | None:
    """The macro that a directive of the C part defines; None for other parts."""
    match = re.match(_DEFINE, part.text)
    if match is None:
        return None
    return CMacro(match["name"], match["parameters"], re.sub(_COMMENT, " ", match["body"]).strip(), part.span)


def defined_macros(program: nodes.Program) -> dict[str, CMacro]:
    """Macros of the script by name, without those inside of preprocessor conditionals."""
    macros: dict[str, CMacro] = {}
    conditions = 0
    for part in program.c_parts:
        directive = re.match(_DIRECTIVE, part.text)
        item = _c_macro(part)
        if directive is not None and directive["word"].startswith("if"):
            conditions += 1
        elif directive is not None and directive["word"] == "endif":
            conditions -= 1
        elif directive is not None:
            macros.pop(directive["name"], None)
        elif item is not None and not conditions:
            macros[item.name] = item
    return macros


def parameter_expressions(program: nodes.Program) -> Iterator[nodes.Expr]:
    """The bodies of macros that contain parameters of the script themselves."""
    for item in defined_macros(program).values():
        expression = item.expression() if re.search(_PARAMETER, item.body) else None
        if expression is not None:
            yield expression


def expand_parameters(program: nodes.Program) -> nodes.Program:
    """*program* with macros replaced that contain parameters, directly or through other macros."""
    macros = _parameter_macros(defined_macros(program))
    if not macros:
        return program
    left_alone = _other_names(program)
    budget = [_MOST_USES]

    def use(node: nodes.Node) -> nodes.Node:
        if not isinstance(node, nodes.Identifier) or node in left_alone:
            return node
        return _replacement(node, macros, frozenset(), budget)

    items = tuple(nodes.rebuild(item, use) for item in program.items)
    return replace(program, items=items)


def place_at(tree: N, span: Span) -> N:
    """A copy of *tree* in which every node has *span*."""

    def place(node: nodes.Node) -> nodes.Node:
        changes = {name: span for name, value in asdict(node).items() if isinstance(value, Span)}
        return replace(node, **changes)

    result = nodes.rebuild(tree, place)
    assert isinstance(result, type(tree))
    return result


def _parameter_macros(macros: Mapping[str, CMacro]) -> dict[str, CMacro]:
    """The macros whose expansion contains parameters of the script."""
    plain = {name: item for name, item in macros.items() if item.parameters is None and not _is_name_of_language(name)}
    expanded = {name: item for name, item in plain.items() if re.search(_PARAMETER, item.body)}
    while True:
        more = {
            name: item
            for name, item in plain.items()
            if name not in expanded and not expanded.keys().isdisjoint(re.findall(_WORD, item.body))
        }
        if not more:
            return expanded
        expanded.update(more)


def _is_name_of_language(name: str) -> bool:
    """Whether a name without parentheses is a builtin or macro of the language, which takes precedence over C."""
    return bare_builtin(name) or any(not item.parameters for item in imports.library_macros(name))


def _other_names(program: nodes.Program) -> set[nodes.Node]:
    """Names that are not C macros: members, macros of the script, and their parameters."""
    own = {item.name for item in program.items if isinstance(item, nodes.Macro) and not item.parameters}
    names: set[nodes.Node] = set()
    for item in program.items:
        parameters = set(own)
        if isinstance(item, nodes.Macro):
            names.update(item.parameters)
            parameters.update(x.name for x in item.parameters if isinstance(x, nodes.Identifier))
        for node in nodes.walk(item):
            if isinstance(node, nodes.Identifier) and node.name in parameters:
                names.add(node)
            elif isinstance(node, nodes.Call) and node.name == "member_exist":
                names.update(inner for argument in node.args[1:] for inner in nodes.walk(argument))
    return names


def _replacement(
    node: nodes.Identifier, macros: Mapping[str, CMacro], active: frozenset[str], budget: list[int]
) -> nodes.Expr:
    """The expression that a name stands for; a name inside its own expansion is not replaced, as in C.

    When the *budget* of uses is spent, names are not replaced: the macros pass reports the excess.
    """
    item = macros.get(node.name)
    expression = item.expression() if item is not None and node.name not in active and budget[0] > 0 else None
    if expression is None:
        return node
    budget[0] -= 1
    inside = active | {node.name}

    def use(inner: nodes.Node) -> nodes.Node:
        return _replacement(inner, macros, inside, budget) if isinstance(inner, nodes.Identifier) else inner

    result = nodes.rebuild(place_at(expression, node.span), use)
    assert isinstance(result, nodes.Expr)
    return result


# ---------------------------------------------------------------------------------------------------------- definitions


def files(program: nodes.Program) -> list[str]:
    """Paths of the files that *program* was read from, including the script itself."""
    paths: dict[str | None, None] = {program.span.source.path: None}
    for part in (*program.items, *program.c_parts):
        paths[part.span.source.path] = None
    for item in program.objects:
        paths.update(dict.fromkeys((item.path, *item.headers)))
    return [path for path in paths if path is not None]


class Definitions(msgspec.Struct):
    """C names that a script may use: its own definitions, the kernel's, and those of the binaries it traces."""

    kernel: KernelInfo
    structs: dict[tuple[str, str], Struct] = msgspec.field(default_factory=dict)
    enums: dict[str, Enum] = msgspec.field(default_factory=dict)
    enumerators: dict[str, tuple[Enum, int]] = msgspec.field(default_factory=dict)
    typedefs: dict[str, Type] = msgspec.field(default_factory=dict)
    macros: dict[str, Callable[[], nodes.Expr | None]] = msgspec.field(default_factory=dict)
    """Macros by name: parsed, or evaluated by the C front end, on demand; each call returns a new tree."""
    written: dict[str, CMacro] = msgspec.field(default_factory=dict)
    """Macros that the script itself defines, as written, for messages."""
    headers: DeclaredNames | None = None
    """Declarations in system headers. Those of the C library take precedence over the kernel's BTF, and BTF over the
    kernel's own headers.
    """
    files: list[str] = msgspec.field(default_factory=list)
    """Headers that were read, other than the kernel's."""
    kernel_files: list[str] = msgspec.field(default_factory=list)
    """Headers of the kernel that were read."""
    skipped: Callable[[str], list[str]] = lambda _: []
    """Hints about headers that were not read, for a relation of a name to one (``a macro of``, ``defined in``)."""
    binaries: tuple[str, ...] = ()
    """Binaries of user probes, whose DWARF has types."""

    def struct(self, kind: str, name: str) -> Struct | None:
        """The ``struct`` or ``union`` of that name."""
        type_ = self.structs.get((kind, name)) or self._type(kind, name, self.kernel.struct(kind, name))
        return type_ if isinstance(type_, Struct) else None

    def enum(self, name: str) -> Enum | None:
        """The enumeration of that name."""
        type_ = self.enums.get(name) or self._type("enum", name, self.kernel.enum(name))
        return type_ if isinstance(type_, Enum) else None

    def _type(self, kind: str, name: str, of_btf: Type | None) -> Type | None:
        """A type that the script does not define: of the C library, the kernel, or the traced binaries."""
        return (
            (self.headers and self.headers.library_type(kind, name))
            or of_btf
            or (self.headers and self.headers.any_type(kind, name))
            or (self._binary_type(kind, name) if kind != "typedef" else None)
        )

    def _binary_type(self, kind: str, name: str) -> Type | None:
        types = (self.kernel.user_type(path, kind, name) for path in self.binaries)
        return next((item for item in types if item is not None), None)

    def enumerator(self, name: str) -> tuple[Enum, int] | None:
        """The enumeration that has a member of that name, and the member's value."""
        own = self.enumerators.get(name)
        if own is not None:
            return own
        declared = self.headers.enumerator(name) if self.headers is not None else None
        of_btf = self.kernel.enumerator(name)
        # BTF may have several definitions of a name; the one that the script included takes precedence.
        return of_btf if declared is None or (of_btf is not None and of_btf[1] == declared[1]) else declared

    def typedef(self, name: str) -> Type | None:
        """The type of a typedef or a C base type."""
        return self.typedefs.get(name) or self._type("typedef", name, self.kernel.typedef(name))

    def macro(self, name: str) -> nodes.Expr | None:
        """The expression that an object-like macro stands for; names in it are not resolved."""
        expression = self.macros.get(name)
        if expression is not None:
            return expression()
        return self.headers.macro(name) if self.headers is not None else None

    def no_value(self, name: str) -> NoValue | None:
        """The reason why a macro of the script, used as a value, has none; None for other names."""
        definition = self.written.get(name)
        return no_value(definition) if definition is not None else None

    def constant(self, name: str) -> int | None:
        """The built-in value of a kernel header macro, for names without another definition."""
        return c_translation.constant_value(name, self.kernel)

    def names(self, kind: str) -> Iterable[str]:
        """Names of all ``struct``, ``union``, ``enum``, ``typedef``, ``macro`` or ``constant`` definitions, for
        suggestions.
        """
        if kind == "macro":
            return [*self.macros, *(self.headers.macro_names() if self.headers is not None else ())]
        if kind == "constant":
            return self._constants()
        own = [name for own_kind, name in self.structs if own_kind == kind]
        own.extend(self.enums if kind == "enum" else self.typedefs if kind == "typedef" else ())
        if self.headers is not None:
            own.extend(self.headers.names(kind))
        return [*own, *self.kernel.type_names(kind)]

    def _constants(self) -> list[str]:
        declared = self.headers.enumerators() if self.headers is not None else ()
        return [*self.names("macro"), *self.enumerators, *declared, *c_translation.constant_names(self.kernel)]


class DeclaredNames:
    """Macros of all files, and types and enumerators of system headers, by name."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._macros: dict[str, Cursor] = {}
        self._types: dict[tuple[str, str], Cursor] = {}
        self._enums: list[Cursor] = []
        self._parsed: dict[str, Callable[[], nodes.Expr | None] | None] = {}
        self._enumerators: dict[str, Cursor] | None = None
        self._nested = False

    # ---- filled by the reader

    def add_macro(self, name: str, cursor: Cursor) -> None:
        """Add a macro; the last definition of a name takes effect."""
        self._macros[name] = cursor

    def add_type(self, kind: str, name: str, cursor: Cursor) -> None:
        """Add a definition of a system header; *name* is empty for an anonymous enumeration."""
        if name:
            self._types.setdefault((kind, name), cursor)
        if kind == "enum":
            self._enums.append(cursor)

    # ---- queried by the definitions

    def macro(self, name: str) -> nodes.Expr | None:
        """The expression that an object-like macro stands for."""
        if name not in self._parsed:
            cursor = self._macros.get(name)
            self._parsed[name] = self._reader.define(cursor) if cursor is not None else None
        parsed = self._parsed[name]
        return parsed() if parsed is not None else None

    def macro_names(self) -> list[str]:
        """Names of all macros that files define."""
        return [name for name, cursor in self._macros.items() if cursor.location.file is not None]

    def library_type(self, kind: str, name: str) -> Type | None:
        """The ``struct``, ``union``, ``enum`` or ``typedef`` of that name in headers other than the kernel's."""
        cursor = self._types.get((kind, name))
        return None if cursor is None or self._of_kernel(cursor) else self._read(kind, cursor)

    def any_type(self, kind: str, name: str) -> Type | None:
        """Like :meth:`library_type` for all headers, nested types included: C has no scopes there."""
        if (kind, name) not in self._types:
            self._find_nested()
        cursor = self._types.get((kind, name))
        return self._read(kind, cursor) if cursor is not None else None

    def _read(self, kind: str, cursor: Cursor) -> Type | None:
        if kind == "typedef":
            return self._reader.type(cursor.underlying_typedef_type)
        type_ = self._reader.enum(cursor) if kind == "enum" else self._reader.record(cursor)
        return type_ if isinstance(type_, Enum | Struct) else None

    def enumerator(self, name: str) -> tuple[Enum, int] | None:
        """The enumeration that has a member of that name, and the member's value."""
        if self._enumerators is None:
            self._enumerators = {item.spelling: cursor for cursor in self._enums for item in cursor.get_children()}
        cursor = self._enumerators.get(name)
        enum = self._reader.enum(cursor) if cursor is not None else None
        if not isinstance(enum, Enum):
            return None
        value = dict(enum.members).get(name)
        return None if value is None else (enum, value)

    def enumerators(self) -> list[str]:
        """Names of all members of enumerations."""
        self.enumerator("")
        return list(self._enumerators or ())

    def names(self, kind: str) -> Iterator[str]:
        """Names of all types of one kind."""
        return (name for own_kind, name in self._types if own_kind == kind)

    def _of_kernel(self, cursor: Cursor) -> bool:
        return self._reader.translation.headers.holds(str(cursor.location.file))

    def _find_nested(self) -> None:
        """Add types declared inside structs; done once."""
        if self._nested:
            return
        self._nested = True
        records = [cursor for (kind, _), cursor in self._types.items() if kind in ("struct", "union")]
        while records:
            for kind, cursor in self._reader.inner(records.pop()):
                self.add_type(kind, self._reader.name(cursor), cursor)
                if kind != "enum":
                    records.append(cursor)
        self._enumerators = None


# ---------------------------------------------------------------------------------------- declarations read by libclang

# Converts libclang's C declarations of a script into value types, for Definitions.


_ADJACENT = r'"\s*"'
"""Adjacent string literals, which C concatenates."""


def read(program: nodes.Program, options: CompileOptions, kernel: KernelInfo, diagnostics: Diagnostics) -> Definitions:
    """Read the definitions of the program's C part, of its headers and of those of ``--include``."""
    written = bool(program.c_parts or options.includes)
    definitions = _read(program, options, kernel, diagnostics) if written else Definitions(kernel)
    for path in (*files(program)[1:], *definitions.files):
        if os.path.isabs(path):
            kernel.depend_on_file(path)
    if definitions.kernel_files:
        kernel.depend_on_headers(definitions.kernel_files)
    return definitions


def _read(program: nodes.Program, options: CompileOptions, kernel: KernelInfo, diagnostics: Diagnostics) -> Definitions:
    plain = Definitions(kernel, written=defined_macros(program))
    if not options.includes and _read_simple(program, plain):
        return plain
    translation = c_translation.translate(program, options, kernel, diagnostics)
    paths = dict.fromkeys(str(included.include) for included in translation.parsed.get_includes())
    definitions = Definitions(
        kernel,
        written=plain.written,
        kernel_files=[path for path in paths if translation.headers.holds(path)],
        files=[path for path in paths if not translation.headers.holds(path)],
        skipped=partial(c_translation.skipped_hints, translation),
    )
    for problem in translation.problems:
        diagnostics.warn(problem, program.span)
    Reader(translation, definitions).run()
    return definitions


_ENUM = re.compile(r"(?s)\s*enum\b\s*(?P<name>[A-Za-z_]\w*)?\s*\{(?P<body>[^{}]*)\}\s*;?\s*", re.ASCII)
_STRUCT = re.compile(r"(?s)\s*struct\s+(?P<name>[A-Za-z_]\w*)\s*\{(?P<body>[^{}]*)\}\s*;?\s*", re.ASCII)
_ENUMERATOR = re.compile(
    r"\s*(?P<name>[A-Za-z_]\w*)\s*(?:=\s*(?P<value>-?(?:0[xX][0-9a-fA-F]+|[1-9]\d*|0))\s*)?", re.ASCII
)
_FIELD = re.compile(
    r"\s*(?P<type>[A-Za-z_]\w*(?:\s+[A-Za-z_]\w*)*?)(?P<pointers>\s*(?:\*\s*)+|\s+)"
    r"(?P<name>[A-Za-z_]\w*)\s*(?P<sizes>(?:\[\s*[1-9]\d{0,6}\s*\]\s*)*)", re.ASCII,
)  # fmt: skip
_KEYWORDS = frozenset({
    "auto", "bool", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
    "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
    "sizeof", "static", "struct", "switch", "typedef", "typeof", "union", "unsigned", "void", "volatile", "while",
})  # fmt: skip
_C_INTEGERS = {
    tuple(sorted(words.split())): Int(size, signed)
    for size, signed, names in (
        (1, True, "char|signed char"), (1, False, "unsigned char"),
        (2, True, "short|short int|signed short"), (2, False, "unsigned short|short unsigned int"),
        (4, True, "int|signed int|signed"), (4, False, "unsigned|unsigned int"),
        (8, True, "long|long int|long long|long long int"),
        (8, False, "unsigned long|long unsigned int|unsigned long long|long long unsigned int"),
    )
    for words in names.split("|")
}  # fmt: skip
"""C's integers by the sorted words of their names, on 64-bit machines."""


def _read_simple(program: nodes.Program, definitions: Definitions) -> bool:
    """Read object-like macros, enumerations of plain numbers and structs of C's own integers; False if there is more.

    libclang, which takes longer to load than most scripts to compile, reads the rest, and reports mistakes.
    """
    macros: list[CMacro] = []
    words: set[str] = set()
    for part in program.c_parts:
        macro = _c_macro(part)
        text = re.sub(_COMMENT, " ", part.text)
        if macro is not None:
            if macro.parameters is not None or re.search(_ADJACENT, macro.body):
                return False
            macros.append(macro)
        elif match := _ENUM.fullmatch(text):
            if not _read_enum(match, definitions):
                return False
        elif match := _STRUCT.fullmatch(text):
            if not _read_struct(match, definitions):
                return False
        else:
            return False
        if macro is None:
            words.update(re.findall(_WORD, text))
    # A macro may stand for any word of a definition, and its value may have the type of an enumeration.
    bodies = (word for macro in macros for word in re.findall(_WORD, macro.body))
    if words & {macro.name for macro in macros} or not definitions.enumerators.keys().isdisjoint(bodies):
        return False
    definitions.macros.update({macro.name: macro.expression for macro in macros})
    return True


def _read_enum(match: re.Match[str], definitions: Definitions) -> bool:
    name, items = match["name"] or "", match["body"].rstrip().removesuffix(",").split(",")
    members: dict[str, int] = {}
    value = -1
    for item in items:
        entry = _ENUMERATOR.fullmatch(item)
        if entry is None or entry["name"] in members or entry["name"] in _KEYWORDS:
            return False
        value = value + 1 if entry["value"] is None else int(entry["value"], 0)
        members[entry["name"]] = value
    if name in definitions.enums or name in _KEYWORDS or not members.keys().isdisjoint(definitions.enumerators):
        return False
    if max(members.values()) > 0x7FFFFFFF or min(members.values()) < -0x80000000:
        return False
    enum = Enum(name, 4, min(members.values()) < 0, tuple(members.items()))
    if name:
        definitions.enums[name] = enum
    definitions.enumerators.update({member: (enum, number) for member, number in members.items()})
    return True


def _read_struct(match: re.Match[str], definitions: Definitions) -> bool:
    *items, rest = match["body"].split(";")
    key = ("struct", match["name"])
    if rest.strip() or not items or key in definitions.structs or match["name"] in _KEYWORDS:
        return False
    # Its size does not depend on what its pointers to itself point to.
    laid_out = _plain_fields(items, Struct(*key, 0), definitions)
    if laid_out is None:
        return False
    fields, size, alignment = laid_out

    def load() -> tuple[Field, ...]:
        again = _plain_fields(items, struct, definitions)
        return again[0] if again is not None else fields

    struct = Struct(*key, size, FieldLoader(load), origin=SCRIPT_ORIGIN, alignment=alignment)
    definitions.structs[key] = struct
    return True


def _plain_fields(
    items: Iterable[str], own: Struct, definitions: Definitions
) -> tuple[tuple[Field, ...], int, int] | None:
    """The members of the struct *own*, with its size and alignment; None where libclang is needed."""
    fields: dict[str, Field] = {}
    size, alignment = 0, 1
    for item in items:
        declared = _FIELD.fullmatch(item)
        if declared is None or declared["name"] in fields or declared["name"] in _KEYWORDS:
            return None
        words = [word for word in declared["type"].split() if word not in ("const", "volatile")]
        pointers = declared["pointers"].count("*")
        type_: Type | None
        if pointers and words == ["void"]:
            type_ = VOID
        elif pointers and words[0] == "struct":
            name = " ".join(words[1:])
            type_ = own if name == own.name else definitions.structs.get(("struct", name))
        else:
            type_ = _C_INTEGERS.get(tuple(sorted(words)))
        if type_ is None:
            return None
        for _ in range(pointers):
            type_ = Pointer(type_)
        align = type_.size
        for length in reversed(re.findall(r"\d+", declared["sizes"])):
            type_ = Array(type_, int(length))
        size += -size % align
        fields[declared["name"]] = Field(declared["name"], type_, size)
        size, alignment = size + type_.size, max(alignment, align)
    size += -size % alignment
    return (tuple(fields.values()), size, alignment) if size < 1 << 31 else None


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
        self.readers: dict[TypeKind, Callable[[CType], Type]] = {
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
                elif place.file is not None and str(place.file) != c_translation.PRELUDE:
                    handlers[kind](cursor)

    def _note(self, cursor: Cursor, declared: DeclaredNames) -> None:
        name = self.name(cursor)
        if cursor.is_definition() and (name or cursor.kind == self.kinds.ENUM_DECL):
            declared.add_type(self.keywords[cursor.kind], name, cursor)

    @staticmethod
    def name(cursor: Cursor) -> str:
        """Name of a declaration, empty for one without."""
        return "" if _is_unnamed(cursor) else str(cursor.spelling)

    def inner(self, cursor: Cursor) -> Iterator[tuple[str, Cursor]]:
        """Definitions inside a struct or union."""
        for item in cursor.get_children():
            keyword = self.keywords.get(item.kind)
            if keyword is not None and item.is_definition():
                yield keyword, item

    # ---- declarations

    def _struct(self, cursor: Cursor) -> None:
        if cursor.is_definition() and not _is_unnamed(cursor):
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
                if name.startswith(c_translation.VALUE):
                    self._store_value(name.removeprefix(c_translation.VALUE), value)
                else:
                    self.definitions.enumerators[name] = (enum, value)

    def _store_value(self, name: str, value: int) -> None:
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
            wrong = (item for item in unit.diagnostics if item.severity >= c_translation.ERROR)
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
        name = "" if _is_unnamed(cursor) else cursor.spelling
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
        name = "" if _is_unnamed(cursor) else cursor.spelling
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


def _is_unnamed(cursor: Cursor) -> bool:
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
