"""Imports: other scripts, headers and compiled C that a script names, merged into one program.

Paths are relative to the importing script. Imported items come before the items of the importing script, each file
once. Imported code runs with the privileges of the tracer, so files that a user other than the author of the importing
script may have written are refused: files owned by other users, and files that everybody can write to or replace.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

import msgspec
from msgspec.structs import replace

from pytrace.base import trusted_files
from pytrace.core import script_files
from pytrace.core.diagnostics import Diagnostics, InternalError, did_you_mean
from pytrace.core.options import CompileOptions
from pytrace.frontend.expand import settings
from pytrace.frontend.syntax import nodes, parser
from pytrace.frontend.syntax.typed_program import LIBRARY_PREFIX

# ----------------------------------------------------------------------------------------------------- standard library

# The standard library: macros written in the language itself, in `pytrace/stdlib`.
#
# A file is parsed only when a script uses one of its macros.


LIBRARY_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "stdlib")

LIBRARY_FILES: dict[str, str] = {
    "assert": "assert.bt",
    "container_of": "memory.bt",
}
"""Macros of each file; a test checks that it is complete."""


def library_macros(name: str) -> list[nodes.Macro]:
    """The library's macros of that name, all overloads."""
    file = LIBRARY_FILES.get(name)
    return [macro for macro in load_library(file) if macro.name == name] if file is not None else []


@cache
def load_library(file: str) -> tuple[nodes.Macro, ...]:
    """All macros of one library file."""
    path = os.path.join(LIBRARY_FOLDER, file)
    source = script_files.text(path, LIBRARY_PREFIX + file)
    diagnostics = Diagnostics()
    program = parser.parse(source, diagnostics)
    if diagnostics.failed:
        raise InternalError(f"{file}: {diagnostics.errors[0].message}")
    return tuple(item for item in program.items if isinstance(item, nodes.Macro))


# -------------------------------------------------------------------------------------------------------------- imports


_BLANKS = re.compile(r"(?<!\\)\s+")

_SUFFIXES = (".bpf.c", ".bpf.o", ".bt", ".h")
"""Suffixes of files that can be imported."""


class _State(msgspec.Struct):
    options: CompileOptions
    diagnostics: Diagnostics
    seen: set[str] = msgspec.field(default_factory=set)
    c_parts: list[nodes.CPart] = msgspec.field(default_factory=list)
    items: list[nodes.RootItem] = msgspec.field(default_factory=list)
    objects: list[nodes.BpfObject] = msgspec.field(default_factory=list)
    scripts_only: bool = False
    """Whether headers and C are skipped."""
    paths: list[str] = msgspec.field(default_factory=list)
    """Files and directories that imports name, including missing ones."""


def resolve(program: nodes.Program, options: CompileOptions, diagnostics: Diagnostics) -> nodes.Program:
    """*program* with all direct and indirect imports merged; no import is left in it."""
    inner = [node for probe in program.items for node in nodes.walk(probe) if isinstance(node, nodes.Import)]
    if not options.files:
        _refuse_files(program, inner, diagnostics)
        return program
    if not inner:
        return program
    state = _State(options, diagnostics)
    if program.span.source.path is not None:
        state.seen.add(os.path.realpath(program.span.source.path))
    _merge(program, state)
    return replace(program, c_parts=tuple(state.c_parts), items=tuple(state.items), objects=tuple(state.objects))


_NAMES_FILES = re.compile(r"include|import|embed|[Pp]ragma|\?\?")
"""Words of C by which the preprocessor opens files or looks for them (``#pragma GCC dependency``), and those by which
they may be written otherwise."""
_SPLICE = re.compile(r"\\[\s\0]*?[\r\n]+", re.ASCII)
"""Where clang joins lines: also with blanks before the end of the line, which may be a lone carriage return."""


def start_here(program: nodes.Program, options: CompileOptions) -> bool:
    """Whether names of files to import or include may start from the working directory.

    Names in a script with an absolute path start from its directory, but where the C parser looks is up to that.
    """
    if options.includes or options.include_directories or any(map(_opens_files, program.c_parts)):
        return True
    source = program.span.source
    nodes_below = (node for item in program.items for node in nodes.walk(item))
    return (
        not os.path.isabs(source.path or "")
        and "import" in source.text
        and any(isinstance(node, nodes.Import) for node in nodes_below)
    )


def _opens_files(part: nodes.CPart) -> bool:
    return _NAMES_FILES.search(_SPLICE.sub("", part.text)) is not None


def _refuse_files(program: nodes.Program, imports: Iterable[nodes.Import], diagnostics: Diagnostics) -> None:
    """Report everything by which a script would open a file; none is opened."""
    hints = ["this host's policy decides (rule files)"]
    for node in imports:
        diagnostics.error("import is not allowed here", node.span, hints=hints)
    for part in program.c_parts:
        if _opens_files(part):
            diagnostics.error("C that may open files is not allowed here", part.span, hints=hints)


def scripts(program: nodes.Program) -> tuple[nodes.Program, list[str]]:
    """*program* with the scripts that it imports, as far as they can be read, and the paths that this depends on."""
    state = _State(CompileOptions(), Diagnostics(), scripts_only=True)
    if program.span.source.path is not None:
        state.seen.add(os.path.realpath(program.span.source.path))
    _merge(program, state)
    return replace(program, items=tuple(state.items)), state.paths


def _merge(program: nodes.Program, state: _State) -> None:
    """Add the imports of *program*, then its own items."""
    _merge_block_imports(program, state)
    for item in program.items:
        if isinstance(item, nodes.Import):
            _import(item, state)
    state.c_parts.extend(program.c_parts)
    state.items.extend(item for item in program.items if not isinstance(item, nodes.Import))


def _merge_block_imports(program: nodes.Program, state: _State) -> None:
    """Imports inside a block take effect as those at the root do, where the configuration allows them."""
    roots = {item for item in program.items if isinstance(item, nodes.Import)}
    imports = [
        node
        for item in program.items
        for node in nodes.walk(item)
        if isinstance(node, nodes.Import) and node not in roots
    ]
    if not imports:
        return
    config = settings.read(program, state.options, Diagnostics())
    for node in imports:
        if config.unstable_import_statement == "error":
            state.diagnostics.error(
                "import is not allowed inside a block",
                node.span,
                hints=["move it to the start of the script, or set unstable_import_statement=enable in the config"],
            )
            continue
        if config.unstable_import_statement == "warn":
            state.diagnostics.warn("import inside a block is unstable: its behaviour may change", node.span)
        _import(node, state)


_LIBRARY = re.compile(r"stdlib(/(map|process|stack|strings|system|task|test|usdt)(/.+)?|/base\.bpf\.c)?")
"""Names of bpftrace's own library, which it can import; what is in there is built in here."""


def _import(node: nodes.Import, state: _State) -> None:
    base = node.span.source.path
    # In a script without a file, names are relative to the working directory.
    path = node.path if base is None else os.path.join(os.path.dirname(os.path.abspath(base)), node.path)
    with suppress(FileNotFoundError):
        # That directory may have been removed.
        path = os.path.join(os.getcwd(), path)
    path = _plain_path(path)
    state.paths.append(path)
    if os.path.isdir(path):
        _directory(path, node, state)
    elif not os.path.exists(path):
        if _LIBRARY.fullmatch(node.path):
            return
        hints = did_you_mean(os.path.basename(path), _names(os.path.dirname(path)))
        state.diagnostics.error(f"cannot import {node.path!r}: there is no {path}", node.span, hints=hints)
    elif reason := _distrust(path, node):
        state.diagnostics.error(f"refusing to import {node.path!r}: {reason[0]}", node.span, hints=[reason[1]])
    elif not path.endswith(_SUFFIXES):
        state.diagnostics.error(
            f"cannot import {node.path!r}", node.span, hints=[f"files end in {', '.join(_SUFFIXES)}"]
        )
    else:
        _file(path, node, state)


def _plain_path(path: str) -> str:
    """*path* without ``..`` for messages, unless that is another file because of a symbolic link."""
    if not os.path.isabs(path):
        # The working directory was removed.
        return path
    plain = os.path.normpath(path)
    return plain if os.path.realpath(plain) == os.path.realpath(path) else path


def _directory(path: str, node: nodes.Import, state: _State) -> None:
    """Import all files of a directory with a known suffix, in name order; subdirectories are not searched."""
    if reason := _distrust(path, node):
        state.diagnostics.error(f"refusing to import from {node.path!r}: {reason[0]}", node.span, hints=[reason[1]])
        return
    for name in sorted(_names(path)):
        inner = os.path.join(path, name)
        state.paths.append(inner)
        if not name.endswith(_SUFFIXES) or not os.path.isfile(inner):
            continue
        if reason := _distrust(inner, node):
            state.diagnostics.warn(f"{inner} is not imported: {reason[0]}", node.span, hints=[reason[1]])
            continue
        _file(inner, node, state)


def _file(path: str, node: nodes.Import, state: _State) -> None:
    real = os.path.realpath(path)
    if real in state.seen or (state.scripts_only and not path.endswith(".bt")):
        return
    state.seen.add(real)
    if path.endswith(".h"):
        state.c_parts.append(nodes.CPart(node.span, f'#include "{real}"'))
    elif path.endswith(".bpf.o"):
        with open(real, "rb") as file:
            _object(real, file.read(), node, state)
    elif path.endswith(".bpf.c"):
        _compile(real, node, state)
    else:
        _script(path, node, state)


def _script(path: str, node: nodes.Import, state: _State) -> None:
    try:
        source = script_files.text(path)
    except OSError as problem:
        state.diagnostics.error(f"cannot import {node.path!r}: {problem.strerror}", node.span)
        return
    program = parser.parse(source, state.diagnostics)
    configs = [item for item in program.items if isinstance(item, nodes.ConfigBlock)]
    for item in configs:
        state.diagnostics.error("an imported script cannot have a config block", item.head)
    kept = tuple(item for item in program.items if not isinstance(item, nodes.ConfigBlock))
    _merge(replace(program, items=kept), state)


def _compile(path: str, node: nodes.Import, state: _State) -> None:
    """Compile BPF C with the machine's clang; its warnings are reported as one warning at the import."""
    import subprocess

    clang = shutil.which("clang")
    if clang is None:
        state.diagnostics.error(
            f"importing {node.path!r} needs clang, which is not installed",
            node.span,
            hints=["install clang, or compile the file elsewhere and import the .bpf.o file"],
        )
        return
    folders = [f"-I{folder}" for folder in state.options.include_directories]
    rule = os.memfd_create("headers", os.MFD_CLOEXEC)
    try:
        wanted = f"/proc/self/fd/{rule}"
        command = [clang, "-target", "bpf", "-g", "-O2", "-MD", "-MF", wanted, "-c", *folders, path, "-o", "-"]
        done = subprocess.run(command, capture_output=True, check=False, pass_fds=(rule,))
        headers = _headers(os.pread(rule, os.fstat(rule).st_size, 0), path)
    finally:
        os.close(rule)
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode != 0:
        state.diagnostics.error(f"clang cannot compile {node.path!r}:\n{said}", node.span)
        return
    if said:
        state.diagnostics.warn(f"clang warns about {node.path!r}:\n{said}", node.span)
    _object(path, done.stdout, node, state, headers)


def _headers(rule: bytes, path: str) -> tuple[str, ...]:
    """The prerequisites of a make rule (``target: file file``; spaces in names are escaped), without *path* itself."""
    _, _, listed = rule.decode("utf-8", "surrogateescape").replace("\\\n", " ").partition(": ")
    names = [name.replace("\\ ", " ") for name in _BLANKS.split(listed) if name]
    return tuple(name for name in dict.fromkeys(names) if name != path)


_EM_BPF = 247
"""ELF machine number of BPF (include/uapi/linux/elf-em.h)."""


def _object(path: str, data: bytes, node: nodes.Import, state: _State, headers: tuple[str, ...] = ()) -> None:
    little = data[5:6] == b"\x01"
    machine = int.from_bytes(data[18:20], "little" if little else "big")
    if not data.startswith(b"\x7fELF") or machine != _EM_BPF:
        state.diagnostics.error(f"cannot import {node.path!r}: it is not a BPF object file", node.span)
        return
    state.objects.append(nodes.BpfObject(node.span, path, data, headers))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _distrust(path: str, node: nodes.Import) -> tuple[str, str] | None:
    """The reason why a file or directory is refused, and a hint; None if it may be imported.

    Root imports what belongs to root, to the owner of the importing script, or to the owner of pytrace itself: a name
    that is relative to the working directory, or to a script in /tmp, could be anybody's file.
    """
    if os.geteuid() == 0:
        return trusted_files.distrust(path, owners(node.span.source.path))
    if os.stat(path).st_mode & stat.S_IWOTH:
        return "it is world-writable", f"chmod o-w {path}"
    return None


def owners(script: str | None) -> set[int]:
    """The users whose files root takes over into a script: its owner, and that of pytrace itself."""
    trusted = {os.stat(__file__).st_uid}
    with suppress(OSError):
        trusted |= {os.stat(script).st_uid} if script is not None else set()
    return trusted
