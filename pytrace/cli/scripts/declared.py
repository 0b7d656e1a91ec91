"""The options that a script declares, which must be known before its command line is read.

They are kept between runs beside the compiled scripts, so that a start from the cache does not parse: an entry is a
line that identifies the code of pytrace it was made by, then JSON. It depends on the script's text, which names it,
and on the files that the script imports, whose fingerprints are in it.
"""

from __future__ import annotations

import os
import re

import msgspec

import pytrace
from pytrace import cache
from pytrace.base import private_files, typed_json
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options.script_options import ScriptOption
from pytrace.core.source import Source
from pytrace.runtime.machine import fingerprints

FORMAT = 3
"""Version of the entries."""

_CODE = "\t".join(
    f"/{name}.py"
    for name in ("frontend/expand/parameters", "core/options/script_options", "cli/scripts/declared")
)
"""Files whose modification invalidates the entries of a checkout."""


class Declared(msgspec.Struct, frozen=True):
    """The options that a script and its imports declare at their roots; *positional*: it reads ``$1`` … or ``$#``."""

    options: tuple[ScriptOption, ...] = ()
    positional: bool = True


class _Entry(msgspec.Struct, frozen=True):
    """What is kept: the fingerprints of imported files, and the options."""

    files: tuple[tuple[str, ...], ...]
    declared: Declared


def of(source: Source, diagnostics: Diagnostics) -> Declared:
    """The options that a script declares; none, with errors in *diagnostics*, if it has syntax errors."""
    text = source.text
    if "getopt" not in text and "import" not in text:
        return Declared()
    name = _name(source)
    cached = _load(name)
    if cached is not None:
        return cached
    declarations, files = _parse(source, diagnostics)
    if not diagnostics.failed:
        _store(name, declarations, files)
    return declarations


def _name(source: Source) -> str:
    parts = (pytrace.__version__, str(FORMAT), cache.checkout(), _base(source), source.text)
    return "options-" + private_files.digest("\0".join(parts).encode("utf-8", "surrogateescape"), 20)


def _base(source: Source) -> str:
    """The directory to which names of imported files are relative."""
    if source.path is not None:
        return source.path
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _code() -> bytes:
    return cache.changes(_CODE).encode() if cache.checkout() else b""


def _load(name: str) -> Declared | None:
    code, _, rest = (private_files.read(cache.KIND, name) or b"").partition(b"\n")
    if not rest or code != _code():
        return None
    try:
        entry = typed_json.decode(rest, _Entry)
    except msgspec.ValidationError:
        return None
    return entry.declared if fingerprints.still_true(entry.files) else None


def _store(name: str, declarations: Declared, files: list[str]) -> None:
    facts = tuple(fingerprints.file_fact(file) for file in files)
    private_files.write(cache.KIND, name, _code(), b"\n", typed_json.encode(_Entry(facts, declarations)))


def _parse(source: Source, diagnostics: Diagnostics) -> tuple[Declared, list[str]]:
    from pytrace.frontend.expand import imports, parameters
    from pytrace.frontend.syntax import nodes, parser

    parsed = parser.parse(source, diagnostics)
    program, files = imports.scripts(parsed)
    options = parameters.read_declarations(program, diagnostics).options
    kinds = (nodes.PositionalParam, nodes.ParamCount)
    positional = any(isinstance(node, kinds) or _in_point(node) for node in nodes.walk(program))
    return Declared(options, positional), files


def _in_point(node: object) -> bool:
    """Whether an attach point has a positional parameter."""
    from pytrace.frontend.syntax import nodes

    return isinstance(node, nodes.AttachPoint) and re.search(r"\$[0-9]", node.text) is not None
