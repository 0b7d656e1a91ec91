"""Running the C front end (libclang) over the C part of a script.

The text is parsed again with what was missing added, until nothing is: headers that the machine does not have while BTF
has the kernel's types become empty, and kernel types that the text uses without defining them are declared, with size
and alignment from BTF.
"""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from pytrace.dataclass import dataclass, field
from pytrace.diagnostics import Diagnostics
from pytrace.frontend import ast
from pytrace.kernel import KernelInfo
from pytrace.options import CompileOptions
from pytrace.source import Span
from pytrace.types import Array, Bool, Enum, Int, Pointer, Struct, Type

MAIN = "/pytrace/script.c"
PRELUDE = "/pytrace/kernel.h"
BUILTIN_HEADERS = os.path.join(os.path.dirname(__file__), "cinclude")
"""Headers that belong to a compiler and that the libclang package does not bring."""

SYSTEM_HEADERS = ("/usr/local/include", "/usr/include")
ROUNDS = 12
"""How often at most the text is parsed again; each round adds everything that was found missing."""

KERNEL_HEADER = re.compile(
    r"(?:uapi/|generated/)?(?:linux|asm|asm-generic|net|trace|scsi|block|drm|sound|rdma|xen|kvm)/"
)
"""Names of headers that only say what BTF says as well."""

ERROR = 3
"""``CXDiagnostic_Error`` of clang-c/CXDiagnostic.h."""

_MISSING_HEADER = re.compile(r"'(?P<name>[^']+)' file not found")
_INCOMPLETE = re.compile(r"incomplete .*type '(?:const |volatile )*(?P<kind>struct|union|enum) (?P<name>\w+)'")
_UNKNOWN = re.compile(r"unknown type name '(?P<name>\w+)'|use of undeclared identifier '(?P<value>\w+)'")


@dataclass(slots=True)
class Piece:
    """One part of the text: the line where it starts (1-based) and the span of the script that it stands for."""

    line: int
    text: str
    span: Span


@dataclass(slots=True)
class Translation:
    """The result: the translation unit, its pieces, and which names of it are the kernel's."""

    kernel: KernelInfo
    text: str = ""
    pieces: list[Piece] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    missing_headers: list[str] = field(default_factory=list)
    declared: dict[str, str] = field(default_factory=dict)
    """C declarations that were added, by what they declare (``struct x``, ``u64``)."""
    unit: Any = None

    def parse(self, behind: str = "") -> Any:
        """The translation unit of the text as it is now, with *behind* after it."""
        from clang import cindex

        # The binding gives spellings back as UTF-8, so a byte that is none is no character of the text.
        text = f"{self.text}{behind}".encode("utf-8", "replace").decode()
        files = [(MAIN, f'#include "{PRELUDE}"\n{text}'), (PRELUDE, self.prelude())]
        files.extend((os.path.join(BUILTIN_HEADERS, name), "") for name in self.missing_headers)
        options = cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD
        return _index().parse(MAIN, args=self.arguments, unsaved_files=files, options=options)

    def prelude(self) -> str:
        """What is declared before the script's own text."""
        return "".join(f"{text}\n" for text in self.declared.values())

    def span(self, line: int, column: int) -> Span:
        """The script's characters at a position of the main file (1-based, the prelude's line not counted)."""
        piece = next((item for item in reversed(self.pieces) if item.line <= line), self.pieces[0])
        if piece.span.text.strip() != piece.text.strip():
            return piece.span
        lines = piece.text.split("\n")
        at = sum(len(text) + 1 for text in lines[: line - piece.line]) + column - 1
        start = min(piece.span.start + max(0, at), piece.span.end)
        word = re.match(r"\w+|.", piece.span.source.text[start : piece.span.end])
        return Span(piece.span.source, start, start + (word.end() if word is not None else 0))


def translate(
    program: ast.Program, options: CompileOptions, kernel: KernelInfo, diagnostics: Diagnostics
) -> Translation:
    """Parse the C part of *program*; what is wrong in it is reported at its place in the script."""
    found = Translation(kernel, arguments=_arguments(options, kernel))
    line = 1
    # A file of the working directory comes before a header of that name in the directories for headers.
    files = [os.path.abspath(path) if os.path.exists(path) else path for path in options.includes]
    parts = [(f'#include "{path}"', program.span) for path in files]
    parts.extend((part.text, part.span) for part in program.c_parts)
    for text, span in parts:
        # A definition may stand without its semicolon at the end of a part; an empty declaration is harmless.
        text = text if text.lstrip().startswith("#") or text.rstrip().endswith(";") else f"{text};"
        found.pieces.append(Piece(line, text, span))
        found.text += f"{text}\n"
        line += text.count("\n") + 1
    wrong: list[Any] = []
    for _ in range(ROUNDS):
        found.unit = found.parse()
        wrong = [item for item in found.unit.diagnostics if item.severity >= ERROR]
        added = [_add(item, found) for item in wrong]
        if not any(added):
            break
    _report(wrong, found, diagnostics)
    return found


@cache
def _index() -> Any:
    from clang import cindex

    # Freed while the modules that its destructor uses are still there.
    atexit.register(_index.cache_clear)
    return cindex.Index.create()


def _arguments(options: CompileOptions, kernel: KernelInfo) -> list[str]:
    machine = {"arm64": "aarch64"}.get(kernel.arch, kernel.arch)
    found = ["-x", "c", "-std=gnu17", "-w", "-ferror-limit=0", "-nostdinc", "-target", f"{machine}-linux-gnu"]
    found.extend(["-D__BPF_TRACING__", '-DKBUILD_MODNAME="pytrace"'])
    if kernel.has_btf:
        found.append("-DBPFTRACE_HAVE_BTF")
    folders = list(options.include_directories)
    for variable in ("CPATH", "C_INCLUDE_PATH"):
        folders.extend(folder for folder in options.environment.get(variable, "").split(":") if folder)
    found.extend(f"-I{folder}" for folder in folders)
    headers = kernel.header_directories()
    if headers:
        found.append("-D__KERNEL__")
    for folder in (BUILTIN_HEADERS, *headers, *SYSTEM_HEADERS, f"/usr/include/{machine}-linux-gnu"):
        found.extend(("-isystem", folder))
    return found


def _add(item: Any, found: Translation) -> bool:
    """Add what a diagnostic misses; False when it is a mistake of the script."""
    text = item.spelling
    header = _MISSING_HEADER.search(text)
    if header is not None:
        name = header["name"]
        if not found.kernel.has_btf or not KERNEL_HEADER.match(name) or name in found.missing_headers:
            return False
        found.missing_headers.append(name)
        return True
    for name, declaration in _declarations(text, found.kernel):
        if name not in found.declared:
            found.declared[name] = declaration
            return True
    return False


def _declarations(text: str, kernel: KernelInfo) -> Iterator[tuple[str, str]]:
    """What declares the kernel name that a diagnostic says is not known."""
    incomplete = _INCOMPLETE.search(text)
    if incomplete is not None:
        kind, name = incomplete["kind"], incomplete["name"]
        if kind == "enum":
            enum = kernel.enum(name)
            if enum is not None:
                yield f"enum {name}", _enum(enum)
            return
        known = kernel.struct(kind, name)
        if known is not None:
            yield f"{kind} {name}", f"{kind} {name} {_opaque(known)};"
        return
    unknown = _UNKNOWN.search(text)
    if unknown is None:
        return
    name = unknown["name"] or unknown["value"]
    kind_of = kernel.typedef(name)
    if kind_of is not None:
        yield name, _typedef(name, kind_of)
        return
    member = kernel.enumerator(name)
    if member is not None:
        yield name, f"enum {{ {name} = {member[1]} }};"


def _enum(enum: Enum) -> str:
    members = ", ".join(f"{name} = {value}" for name, value in enum.members)
    return f"enum {enum.name} {{ {members} }};"


def _opaque(kind: Type) -> str:
    return f"{{ _Alignas({max(1, kind.align)}) char __opaque[{kind.size}]; }}"


_C_INTEGERS = {1: "char", 2: "short", 4: "int", 8: "long long", 16: "__int128"}


def _typedef(name: str, kind: Type) -> str:
    if isinstance(kind, Bool):
        return f"typedef _Bool {name};"
    if isinstance(kind, Int | Enum):
        return f"typedef {'signed' if kind.signed else 'unsigned'} {_C_INTEGERS[kind.size]} {name};"
    if isinstance(kind, Pointer):
        return f"typedef void *{name};"
    if isinstance(kind, Struct | Array):
        return f"typedef struct {_opaque(kind)} {name};"
    return f"typedef void {name};"


def _report(wrong: list[Any], found: Translation, diagnostics: Diagnostics) -> None:
    for item in wrong:
        place = item.location
        inside = place.file is not None and str(place.file) == MAIN
        span = found.span(place.line - 1, place.column) if inside and found.pieces else found.pieces[0].span
        where = "" if inside or place.file is None else f"{place.file}:{place.line}: "
        header = _MISSING_HEADER.search(item.spelling)
        if header is not None:
            hints = ["-I DIR adds a directory in which headers are looked for"]
            diagnostics.error(f"{where}there is no header {header['name']!r}", span, hints=hints)
        else:
            diagnostics.error(f"{where}C: {item.spelling}", span)
