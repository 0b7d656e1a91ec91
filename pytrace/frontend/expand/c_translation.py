"""Parses the C part of a script with libclang.

The text is parsed repeatedly until nothing is missing: headers that the machine does not have are replaced by empty
ones if BTF has the kernel's types, and kernel types that the text uses without defining them are declared, with size
and alignment from BTF.

The kernel's own headers are searched if the script, or one of its headers, includes one of them. Scripts for user
programs do not get them: the C library's headers and the kernel's define the same types differently.
"""

from __future__ import annotations

import atexit
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from pytrace.base import extras, trusted_files
from pytrace.core.diagnostics import Diagnostics, InternalError, either
from pytrace.core.kernel_info import NO_HEADERS, KernelHeaders, KernelInfo
from pytrace.core.options import CompileOptions
from pytrace.core.source import Span
from pytrace.core.types import Array, Bool, Enum, Int, Pointer, Struct, Type
from pytrace.frontend.expand import imports
from pytrace.frontend.syntax import nodes

if TYPE_CHECKING:
    from clang.cindex import Diagnostic, Index, TranslationUnit

# ------------------------------------------------------------------------------------------ constants of kernel headers

# Built-in constants of kernel headers, for machines without installed headers.
#
# Macros exist in headers only, not in BTF. Those with fixed values (part of the user-space API, or unchanged for years)
# are in `constants.json`, which scripts/generate-constants writes. What may differ between kernels is derived from
# enumerators in BTF, or left out.
#
# A script's own definition, an installed header and a kernel enumerator of the same name take precedence.


_NUMBER = r"\d+"
_BITS = (("REQ_", "__REQ_", ""), ("__GFP_", "___GFP_", "_BIT"))
"""Prefix of flag names, with prefix and suffix of the enumerator that has the bit number (``enum req_flag_bits``;
``___GFP_DMA_BIT`` since kernel 6.10).
"""

_CHANGED = {"GFP_ATOMIC": ((6, 3), 0xA20, 0x820)}
"""Constants that changed: the first kernel with the new value, the old value, the new one."""

_SAME = {"arm64": "aarch64", "ppc64": "ppc64le", "armv6l": "armv7l"}
"""Aliases of machines."""

FILE = os.path.join(os.path.dirname(__file__), "constants.json")


HEADER_NAMES = os.path.join(os.path.dirname(__file__), "header_names.txt")
"""A line for each directory of the kernel's headers: its name, and those of its headers without ``.h``."""


def _known_header(name: str) -> bool:
    """Whether a kernel of those that :data:`HEADER_NAMES` was written from has the header ``linux/sched.h``."""
    folder, _, file = name.removeprefix("uapi/").rpartition("/")
    with open(HEADER_NAMES, encoding="ascii") as lines:
        return any(words[0] == folder and file.removesuffix(".h") in words for words in map(str.split, lines))


class Tables(msgspec.Struct, frozen=True):
    """The content of :data:`FILE`: values by name, and by machine those that differ there."""

    values: Mapping[str, int]
    machines: Mapping[str, Mapping[str, int | None]]
    """None for a name that the machine does not have."""


@cache
def tables() -> Tables:
    """The shipped constants."""
    with open(FILE, encoding="ascii") as file:
        return Tables(**json.load(file))


def constant_value(name: str, kernel: KernelInfo) -> int | None:
    """The value of a constant for the traced machine and kernel; None for other names."""
    bit = _bit_value(name, kernel)
    if bit is not None:
        return bit
    if name in _CHANGED:
        since, before, after = _CHANGED[name]
        return after if _version(kernel.release) >= since else before
    special = _machine_values(kernel)
    if special is not None and name in special:
        return special[name]
    return tables().values.get(name) if special is not None else None


def constant_names(kernel: KernelInfo) -> list[str]:
    """Names of all constants of the traced machine."""
    special = _machine_values(kernel)
    if special is None:
        return []
    return [name for name in {**tables().values, **special, **_CHANGED} if special.get(name, 0) is not None]


def _machine_values(kernel: KernelInfo) -> Mapping[str, int | None] | None:
    """The values that differ on the traced machine; None for a machine whose constants are unknown."""
    return tables().machines.get(_SAME.get(kernel.arch, kernel.arch))


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(_NUMBER, release)[:2])


def _bit_value(name: str, kernel: KernelInfo) -> int | None:
    for start, before, suffix in _BITS:
        if name.startswith(start):
            member = kernel.enumerator(f"{before}{name.removeprefix(start)}{suffix}")
            return None if member is None else 1 << member[1]
    return None


# ----------------------------------------------------------------------------------------------------- translation unit


MAIN = "/pytrace/script.c"
PRELUDE = "/pytrace/kernel.h"
BUILTIN_HEADERS = os.path.join(os.path.dirname(__file__), "include")
"""Compiler headers that the libclang package lacks."""

SYSTEM_HEADERS = ("/usr/local/include", "/usr/include")
ROUNDS = 12
"""Maximum number of times that the text is parsed; each round adds the missing declarations."""

KERNEL_HEADER = (
    r"(?:uapi/|generated/)?(?:linux|asm|asm-generic|net|trace|scsi|block|drm|sound|rdma|xen|kvm|acpi|clocksource|crypto|"
    r"keys|math-emu|media|memory|misc|mtd|pcmcia|ras|rv|soc|target|ufs|vdso|video)/"
)
"""Names of headers whose definitions are also in BTF."""

_USER_API = r"(?:linux|asm|asm-generic|drm|misc|mtd|rdma|scsi|sound|video|xen)/"
"""Names of headers whose user-space part comes with the C library."""

VALUE = "__pytrace_value_"
"""Prefix of the enumerators that evaluate macros."""

ERROR = 3
"""``CXDiagnostic_Error`` of clang-c/CXDiagnostic.h."""

KEEP_GOING = 0x200
"""``CXTranslationUnit_KeepGoing`` of clang-c/Index.h: parsing continues after a missing header."""

_MISSING_HEADER = r"'(?P<name>[^']+)' file not found"
_INCOMPLETE = r"incomplete .*type '(?:const |volatile )*(?P<kind>struct|union|enum) (?P<name>\w+)'"
_UNKNOWN = r"unknown type name '(?P<name>\w+)'|use of undeclared identifier '(?P<value>\w+)'"


class MappedPart(msgspec.Struct):
    """A part of the text: its first line (1-based) and the corresponding span of the script."""

    line: int
    text: str
    span: Span


class Translation(msgspec.Struct):
    """The translation unit of a script's C part, the parts of its text, and what was added to or missing from it."""

    kernel: KernelInfo
    text: str = ""
    parts: list[MappedPart] = msgspec.field(default_factory=list)
    arguments: list[str] = msgspec.field(default_factory=list)
    headers: KernelHeaders = NO_HEADERS
    """The kernel's headers, when the text includes any."""
    words: tuple[str, ...] = ()
    """Names to evaluate, if they are macros."""
    refused: set[str] = msgspec.field(default_factory=set)
    """Names that have no C value."""
    missing_headers: list[str] = msgspec.field(default_factory=list)
    """Headers that the machine lacks, replaced by empty ones."""
    absent: list[str] = msgspec.field(default_factory=list)
    """Headers that the script itself includes."""
    partial: dict[str, str] = msgspec.field(default_factory=dict)
    """Kernel headers of which only the user-space part was read, and its path."""
    problems: tuple[str, ...] = ()
    """Problems of the directories that environment variables name."""
    tolerated: list[str] = msgspec.field(default_factory=list)
    """Errors in system headers."""
    declared: dict[str, str] = msgspec.field(default_factory=dict)
    """C declarations that were added, by what they declare (``struct x``, ``u64``)."""
    unit: TranslationUnit | None = None

    @property
    def parsed(self) -> TranslationUnit:
        """The result of the last round of parsing."""
        if self.unit is None:
            raise InternalError("the C part is not parsed")
        return self.unit

    def parse(self, suffix: str = "") -> TranslationUnit:
        """The translation unit of the current text, followed by *suffix*."""
        from clang import cindex

        # The binding decodes spellings as UTF-8, so bytes that are not UTF-8 are replaced.
        text = f"{self.text}{suffix}".encode("utf-8", "replace").decode()
        files = [(MAIN, f'#include "{PRELUDE}"\n{text}'), (PRELUDE, self.prelude())]
        files.extend((os.path.join(BUILTIN_HEADERS, name), "") for name in self.missing_headers)
        options = cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD | KEEP_GOING
        if self.headers.folders:
            options |= cindex.TranslationUnit.PARSE_SKIP_FUNCTION_BODIES
        return _index().parse(MAIN, self.arguments, files, options)

    def questions(self) -> str:
        """C code that evaluates :attr:`words`, three lines for each; the last line shows whether it was read."""
        asked = "".join(f"#ifdef {word}\nenum {{ {VALUE}{word} = ({word}) }};\n#endif\n" for word in self.words)
        return f"{asked}enum {{ {VALUE} }};\n" if asked else ""

    @property
    def lines(self) -> int:
        """Number of lines of the main file that belong to the prelude and the script."""
        return 1 + self.text.count("\n")

    def system(self, path: str) -> bool:
        """Whether a file is a header that belongs to the system."""
        return self.headers.holds(path) or path.startswith(SYSTEM_HEADERS)

    def system_folders(self) -> tuple[str, ...]:
        """Include directories for user programs, the most specific first."""
        return (f"/usr/include/{_machine(self.kernel)}-linux-gnu", *SYSTEM_HEADERS)

    def prelude(self) -> str:
        """The declarations before the script's own text."""
        return "".join(f"{text}\n" for text in self.declared.values())

    def span(self, line: int, column: int) -> Span:
        """The script's characters at a position of the main file (1-based, the prelude's line not counted)."""
        part = next((item for item in reversed(self.parts) if item.line <= line), self.parts[0])
        if part.span.text.strip() != part.text.strip():
            return part.span
        lines = part.text.split("\n")
        offset = sum(len(text) + 1 for text in lines[: line - part.line]) + column - 1
        start = min(part.span.start + max(0, offset), part.span.end)
        word = re.match(r"\w+|.", part.span.source.text[start : part.span.end])
        return Span(part.span.source, start, start + (word.end() if word is not None else 0))


def translate(
    program: nodes.Program, options: CompileOptions, kernel: KernelInfo, diagnostics: Diagnostics
) -> Translation:
    """Parse the C part of *program*; errors are reported at their position in the script.

    Raises:
        ScriptError: libclang is not installed.
    """
    _check_installed(program, diagnostics)
    translation = Translation(kernel)
    line = 1
    # A file of the working directory comes before a header of that name in the directories for headers.
    files = [os.path.abspath(path) if os.path.exists(path) else path for path in options.includes]
    parts = [(f'#include "{path}"', program.span) for path in files]
    parts.extend((part.text, part.span) for part in program.c_parts)
    for text, span in parts:
        # The last definition of a part may lack its semicolon; an empty declaration is harmless.
        text = text if text.lstrip().startswith("#") or text.rstrip().endswith(";") else f"{text};"
        translation.parts.append(MappedPart(line, text, span))
        translation.text += f"{text}\n"
        line += text.count("\n") + 1
    wrong = _with_headers(program, options, translation)
    _report(wrong, translation, diagnostics)
    _warn_unknown_headers(translation, diagnostics)
    if os.geteuid() == 0:
        _refuse_foreign_headers(program, options, translation, diagnostics)
    return translation


def _check_installed(program: nodes.Program, diagnostics: Diagnostics) -> None:
    """Report that libclang is not installed."""
    try:
        import clang.cindex  # noqa: F401
    except ImportError:
        spans = [part.span for part in program.c_parts if not part.text.lstrip().startswith("#define")]
        message = "C definitions like these, and #include, need libclang, which is not installed"
        diagnostics.error(message, (spans or [program.span])[0], hints=(extras.hint("c"),))
        diagnostics.check()


def _refuse_foreign_headers(
    program: nodes.Program, options: CompileOptions, translation: Translation, diagnostics: Diagnostics
) -> None:
    """Refuse headers that somebody could have written or replaced whom root did not name.

    Those are users other than root, the owner of the script, and the owners of the directories and files that ``-I``
    and ``--include`` name.
    """
    named = [*options.include_directories, *options.includes]
    trusted = imports.owners(program.span.source.path)
    trusted |= {os.stat(path).st_uid for path in named if os.path.exists(path)}
    for item in translation.parsed.get_includes():
        path, place = str(item.include), item.location
        # The prelude and headers that BTF replaces are no files.
        if translation.system(path) or not os.path.isfile(path):
            continue
        reason = trusted_files.distrust(path, trusted)
        if reason is not None:
            inside = str(place.file) == MAIN and translation.parts
            span = translation.span(place.line - 1, place.column) if inside else translation.parts[0].span
            own = "use a copy that belongs to root, or name its directory with -I"
            hints = [reason[1] if reason[1].startswith("chmod") else own]
            diagnostics.error(f"refusing to include {path}: {reason[0]}", span, hints=hints)


_INCLUDE = r"(?m)^[ \t]*#[ \t]*include(?:_next)?\b[ \t]*[<\"]?(?P<name>[^>\"\n]*)"


def _with_headers(program: nodes.Program, options: CompileOptions, translation: Translation) -> list[Diagnostic]:
    """Parse, with the kernel's headers if the text includes any; returns the errors."""
    named = [match["name"] for match in re.finditer(_INCLUDE, translation.text)]
    if not named:
        return _parse_repeatedly(options, translation)
    headers = translation.kernel.headers()
    if any(re.match(KERNEL_HEADER, name) for name in named):
        translation.problems = headers.problems
    if not any(_has_header(headers, name) for name in named):
        wrong = _parse_repeatedly(options, translation)
        asked = {*translation.partial, *translation.missing_headers, *_missing_headers(wrong)}
        if not any(_has_header(headers, name) for name in asked):
            return wrong
        # A header of the script's own includes one of the kernel's.
        translation.missing_headers, translation.absent, translation.partial, translation.declared = [], [], {}, {}
    translation.headers = headers
    translation.words = _script_words(program)
    return _parse_repeatedly(options, translation)


def _has_header(headers: KernelHeaders, name: str) -> bool:
    return any(os.path.isfile(f"{folder}/{name}") for folder in headers.folders)


def _warn_unknown_headers(translation: Translation, diagnostics: Diagnostics) -> None:
    """Warn of headers that were left out for BTF's sake, and that no kernel has: misspelt ones."""
    for name in translation.absent:
        if _known_header(name):
            continue
        places = (item.start("name") for item in re.finditer(_INCLUDE, translation.text) if item["name"] == name)
        start = next(places, None)
        span = translation.parts[0].span  # a header of the script's own includes it
        if start is not None:
            line, column = translation.text.count("\n", 0, start), start - translation.text.rfind("\n", 0, start)
            span = translation.span(line + 1, column)
        hints = ["nothing is taken from it: types come from the kernel's type information"]
        diagnostics.warn(f"there is no header {name!r}", span, hints=hints)


def _missing_headers(wrong: list[Diagnostic]) -> list[str]:
    matches = (re.search(_MISSING_HEADER, item.spelling) for item in wrong)
    return [match["name"] for match in matches if match is not None]


def _script_words(program: nodes.Program) -> tuple[str, ...]:
    """Every word of the script and its imports."""
    spans = (program.span, *(item.span for item in program.items), *(part.span for part in program.c_parts))
    texts = dict.fromkeys(span.source.text for span in spans)
    return tuple(dict.fromkeys(word for text in texts for word in re.findall(r"\b[A-Za-z_]\w*", text, re.ASCII)))


def _parse_repeatedly(options: CompileOptions, translation: Translation) -> list[Diagnostic]:
    """Parse until nothing can be added; returns the remaining errors."""
    translation.arguments = _arguments(options, translation)
    wrong: list[Diagnostic] = []
    for _ in range(ROUNDS):
        translation.refused.clear()
        unit = translation.unit = translation.parse(translation.questions())
        wrong = [item for item in unit.diagnostics if item.severity >= ERROR and not _is_about_word(item, translation)]
        added = [_add(item, translation) for item in wrong]
        if not any(added) and not _is_swallowed(translation):
            break
    _note_partial(translation)
    return wrong


def _is_about_word(item: Diagnostic, translation: Translation) -> bool:
    """Whether a diagnostic is about an evaluated word, which then has no value."""
    place = item.location
    if place.file is None or str(place.file) != MAIN or place.line <= translation.lines:
        return False
    translation.refused.update(translation.words[(place.line - translation.lines - 1) // 3 :][:1])
    return True


def _is_swallowed(translation: Translation) -> bool:
    """Whether an unbalanced bracket in a macro swallowed the words after it; such a macro is not evaluated again."""
    end = translation.lines + 3 * len(translation.words)
    places = (item.location for item in translation.parsed.diagnostics if item.severity >= ERROR)
    if not any(place.file is not None and str(place.file) == MAIN and place.line > end for place in places):
        return False
    translation.words = tuple(word for word in translation.words if word not in translation.refused)
    return True


def _note_partial(translation: Translation) -> None:
    """Record the kernel headers of the script that exist only as headers for user programs."""
    if translation.headers.folders:
        return
    for item in translation.parsed.get_includes():
        path = os.path.normpath(str(item.include))
        folder = next((folder for folder in translation.system_folders() if path.startswith(f"{folder}/")), None)
        if folder is not None and not translation.system(str(item.location.file)):
            name = os.path.relpath(path, folder)
            if re.match(_USER_API, name):
                translation.partial[name] = path


@cache
def _index() -> Index:
    from clang import cindex

    # Free it before the modules that its destructor uses are unloaded.
    atexit.register(_index.cache_clear)
    return cindex.Index.create()


def _machine(kernel: KernelInfo) -> str:
    return {"arm64": "aarch64"}.get(kernel.arch, kernel.arch)


def _arguments(options: CompileOptions, translation: Translation) -> list[str]:
    kernel, headers = translation.kernel, translation.headers
    arguments = ["-x", "c", "-std=gnu17", "-w", "-ferror-limit=0", "-nostdinc"]
    arguments.extend(["-target", f"{_machine(kernel)}-linux-gnu", "-D__BPF_TRACING__", '-DKBUILD_MODNAME="pytrace"'])
    if kernel.has_btf:
        arguments.append("-DBPFTRACE_HAVE_BTF")
    folders = list(options.include_directories)
    for variable in ("CPATH", "C_INCLUDE_PATH"):
        folders.extend(folder for folder in options.environment.get(variable, "").split(":") if folder)
    arguments.extend(f"-I{folder}" for folder in folders)
    if headers.folders:
        arguments.append("-D__KERNEL__")
        arguments.extend(f"-D{item}" for item in headers.defines)
    *others, multiarch = translation.system_folders()[1:] + translation.system_folders()[:1]
    for folder in (BUILTIN_HEADERS, *headers.folders, *others, multiarch):
        arguments.extend(("-isystem", folder))
    for path in headers.included:
        arguments.extend(("-include", path))
    return arguments


def _add(item: Diagnostic, translation: Translation) -> bool:
    """Add the declaration that a diagnostic reports as missing; False for an error in the script."""
    text = item.spelling
    header = re.search(_MISSING_HEADER, text)
    if header is not None:
        return _add_header(header["name"], str(item.location.file), translation)
    for name, declaration in _declarations(text, translation.kernel):
        if name not in translation.declared:
            translation.declared[name] = declaration
            return True
    return False


def _add_header(name: str, includer: str, translation: Translation) -> bool:
    """Replace a missing header by an empty one if BTF has its types, or if a kernel header includes it."""
    inside = translation.headers.holds(includer)
    in_btf = translation.kernel.has_btf and re.match(KERNEL_HEADER, name) is not None
    if name in translation.missing_headers or not (inside or in_btf):
        return False
    translation.missing_headers.append(name)
    if not translation.system(includer):
        translation.absent.append(name)
    return True


def _declarations(text: str, kernel: KernelInfo) -> Iterator[tuple[str, str]]:
    """Declarations for the kernel name that a diagnostic reports as unknown."""
    incomplete = re.search(_INCOMPLETE, text)
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
    unknown = re.search(_UNKNOWN, text)
    if unknown is None:
        return
    name = unknown["name"] or unknown["value"]
    kind_of = kernel.typedef(name)
    if kind_of is not None:
        yield name, _typedef(name, kind_of)
        return
    member = kernel.enumerator(name)
    constant = member[1] if member is not None else constant_value(name, kernel)
    if constant is not None:
        yield name, f"enum {{ {name} = {constant} }};"


def _enum(enum: Enum) -> str:
    members = ", ".join(f"{name} = {value}" for name, value in enum.members)
    return f"enum {enum.name} {{ {members} }};"


def _opaque(type_: Type) -> str:
    return f"{{ _Alignas({max(1, type_.align)}) char __opaque[{type_.size}]; }}"


_C_INTEGERS = {1: "char", 2: "short", 4: "int", 8: "long long", 16: "__int128"}


def _typedef(name: str, type_: Type) -> str:
    if isinstance(type_, Bool):
        return f"typedef _Bool {name};"
    if isinstance(type_, Int | Enum):
        return f"typedef {'signed' if type_.signed else 'unsigned'} {_C_INTEGERS[type_.size]} {name};"
    if isinstance(type_, Pointer):
        return f"typedef void *{name};"
    if isinstance(type_, Struct | Array):
        return f"typedef struct {_opaque(type_)} {name};"
    return f"typedef void {name};"


def _report(wrong: list[Diagnostic], translation: Translation, diagnostics: Diagnostics) -> None:
    lost = [item for item in wrong if re.search(_MISSING_HEADER, item.spelling)]
    for item in lost or wrong:  # errors that follow from a missing header are not useful
        place = item.location
        path = str(place.file) if place.file is not None else ""
        inside = path == MAIN
        where = "" if inside or not path else f"{path}:{place.line}: "
        if translation.headers.folders and translation.system(path):
            # Headers for other kernels or compilers: use the declarations that parse.
            translation.tolerated.append(f"{where}{item.spelling}")
            continue
        known = inside and translation.parts
        span = translation.span(place.line - 1, place.column) if known else translation.parts[0].span
        header = re.search(_MISSING_HEADER, item.spelling)
        if header is not None:
            hints = ["-I DIR adds a directory in which headers are looked for"]
            diagnostics.error(f"{where}there is no header {header['name']!r}", span, hints=hints)
        else:
            diagnostics.error(f"{where}C: {item.spelling}", span, hints=_reasons(item.spelling, translation))


def _reasons(message: str, translation: Translation) -> list[str]:
    """Hints for a message about an unknown name."""
    unknown = re.search(_UNKNOWN, message)
    if unknown is None and re.search(_INCOMPLETE, message) is None:
        return []
    return skipped_hints(translation, "a macro of" if unknown is not None and unknown["value"] else "defined in")


def skipped_hints(translation: Translation, relation: str) -> list[str]:
    """Hints about headers that were not read and may define a name; *relation* is ``a macro of`` or ``defined in``."""
    hints = []
    if translation.absent:
        verb = "is" if len(translation.absent) == 1 else "are"
        hints.append(f"it may be {relation} {either(translation.absent)}, which {verb} not installed")
    if translation.partial:
        names, paths = either(list(translation.partial)), either(list(translation.partial.values()))
        hints.append(f"it may be {relation} the kernel's {names}, which is not installed: {paths} is for programs")
    if hints:
        hints.append("install the headers of the running kernel, or set PYTRACE_KERNEL_SOURCE to their directory")
    return hints + [f"clang could not parse: {text}" for text in translation.tolerated[:1]]
