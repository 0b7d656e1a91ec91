"""Options for developers: the stages that ``-d`` shows, the files of ``--emit-…`` and ``--aot``, ``--debug-bundle``.

A bundle has everything about the compilation and loading of a script, in one archive for a bug report. The script is
compiled anew, loaded and attached, and not run: its probes are detached before they could print, and begin probes and
the command of ``-c`` do not run.  So nothing of what it would trace is in the archive.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pwd
import re
import sys
import tarfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TextIO

import msgspec
from msgspec.structs import replace

from pytrace import pipeline
from pytrace.cli import info, messages, request
from pytrace.cli.options import OPTIONS, CommandLine
from pytrace.cli.request import Script
from pytrace.codegen.lower import generator
from pytrace.codegen.lower.generator import LlvmTexts
from pytrace.core.diagnostics import Diagnostics, ScriptError, TraceError, bytes_shown, render_all
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions, RunOptions
from pytrace.core.source import Source
from pytrace.core.types import Type
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import Expr, Node, Program
from pytrace.frontend.syntax.typed_program import CheckedProgram
from pytrace.pipeline import Compilation, Watch
from pytrace.runtime.load.loaded_script import LoadError
from pytrace.runtime.load.loader import LoadOptions, load
from pytrace.runtime.session import opening


def develop(
    line: CommandLine, script: Script, compile_options: CompileOptions, run: RunOptions
) -> CompiledScript | None:
    """Compile a script, show the stages of ``-d``, and write the requested files.

    Returns:
        The script to run; None if an output file was requested, as the script is not run then.

    Raises:
        ScriptError: the script has errors, which have been printed.
    """
    diagnostics = Diagnostics()
    kernel = request.live_kernel(run, ahead=compile_options.ahead)
    try:
        return _shown(line, run, Compilation(script.source, compile_options, kernel, diagnostics))
    finally:
        messages.show(diagnostics, warnings=run.warnings)


def _shown(line: CommandLine, run: RunOptions, compilation: Compilation) -> CompiledScript | None:
    out = shown_on(run)
    front = pipeline.front_end(replace(compilation, watch=front_end_watch(run.debug, out)))
    llvm, elf, aot = (line.text(key) for key in ("emit_llvm", "emit_elf", "aot"))
    verify = line.flag("verify_llvm_ir")
    if llvm or run.debug & {"ir", "ir-opt", "asm"} or verify:
        texts = generator.llvm_texts(front.checked, compilation.kernel, compilation.options, verify=verify)
        show_back_end(texts, run.debug, out)
        if llvm:
            messages.write_file(f"{llvm}.original.ll", texts.original.encode())
            messages.write_file(f"{llvm}.optimized.ll", texts.optimized.encode())
            if not (elf or aot):
                return None
    result = pipeline.back_end(compilation, front)
    if elf:
        messages.write_file(elf, result.elf)
    if aot:
        messages.write_file(aot, result.to_bytes(executable=True), executable=True)
    return None if elf or aot else result


def shown_on(options: RunOptions) -> TextIO:
    """The stream for stages: standard output, unless it carries JSON or CSV."""
    return sys.stdout if options.format == "text" else sys.stderr


def front_end_watch(stages: frozenset[str], out: TextIO) -> Watch:
    """The callback that prints the results of the passes in *stages*."""

    def watch(name: str, result: object) -> None:
        if name == "parse" and "ast" in stages and isinstance(result, Program):
            out.write("\n== syntax tree\n" + tree(result))
        if "types" in stages and isinstance(result, CheckedProgram):
            out.write("\n== programs with types\n" + typed(result))

    return watch


def show_back_end(texts: LlvmTexts, stages: frozenset[str], out: TextIO) -> None:
    """Print the code of *stages*."""
    for stage, title, text in (
        ("ir", "LLVM code", texts.original),
        ("ir-opt", "LLVM IR, optimised", texts.optimized),
        ("asm", "BPF code", texts.assembly),
    ):
        if stage in stages:
            out.write(f"\n== {title}\n{text}")


def tree(node: Node, types: Mapping[Expr, Type] | None = None) -> str:
    """A node and its descendants, one per line, indented; with *types*, the type of each expression."""
    return "".join(f"{line}\n" for line in _lines(node, types or {}, 0))


def typed(checked: CheckedProgram) -> str:
    """Programs, maps and functions of a checked script, with the type of each expression."""
    parts = []
    for map_ in checked.maps.values():
        key = "" if map_.key is None else f"[{map_.key}]"
        parts.append(f"map {map_.name}{key}: {map_.value} ({map_.kind}, {map_.max_entries})\n")
    parts.extend(
        f"fn {function.name}: {function.result}\n{tree(function.body, checked.types)}"
        for function in checked.functions
    )
    for unit in checked.units:
        names = ", ".join(target.probe for target in unit.targets)
        parts.append(f"program {unit.symbol} ({names})\n{tree(unit.body, checked.types)}")
    return "".join(parts)


def _lines(node: Node, types: Mapping[Expr, Type], depth: int) -> Iterator[str]:
    indent = "  " * depth
    attributes: list[str] = []
    children: list[Node] = []
    for name in node.__struct_fields__:
        if name == "span" or name.endswith("_span") or name == "head":
            continue
        part: object = getattr(node, name)
        below = [item for item in (part if isinstance(part, tuple) else (part,)) if isinstance(item, Node)]
        children.extend(below)
        if not below:
            attributes.append(f"{name}={part!r}")
    shown = f" {' '.join(attributes)}" if attributes else ""
    type_ = types.get(node) if isinstance(node, Expr) else None
    yield f"{indent}{type(node).__name__}{shown}{'' if type_ is None else f' : {type_}'}"
    for child in children:
        yield from _lines(child, types, depth + 1)


# ---------------------------------------------------------------------------------------------- --debug-bundle


FOLDER = "pytrace-debug"

MOST_LOG = 32 << 20
"""Bytes of verifier logs; of programs after that only the ends."""

_LOG_END = 16 << 10

LEFT_OUT = (
    "Left out: what the script would print (it was loaded and attached, and not run), the names of hosts and users, "
    "home directories, and the command of -c with its arguments. The script itself is as it was written: look through "
    "the files before you pass them on."
)


class BundleRequest(msgspec.Struct, frozen=True):
    """What a bundle describes."""

    script: Script
    compile_options: CompileOptions
    options: RunOptions
    shown: Mapping[str, object] = {}
    """Options of the command line, and parameters of the script, as they are shown."""


class Bundle(msgspec.Struct):
    """Files by name with a line about each, stages with their duration in milliseconds, errors by stage."""

    redactor: Redactor
    files: dict[str, tuple[bytes, str]] = msgspec.field(default_factory=dict)
    timing: dict[str, float] = msgspec.field(default_factory=dict)
    errors: dict[str, str] = msgspec.field(default_factory=dict)

    def text(self, name: str, text: str, about: str) -> None:
        """Add a text; an empty one is left out."""
        if text:
            self.files[name] = (self.redactor.text(text).encode("utf-8", "backslashreplace"), about)

    def binary(self, name: str, data: bytes, about: str) -> None:
        """Add a binary file."""
        self.files[name] = (self.redactor.binary(data), about)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage, and record why it failed; defects of pytrace with their traceback."""
        start = time.perf_counter()
        try:
            yield
        except ScriptError:
            self.errors[name] = "the script has errors, see messages.txt"
        except TraceError as error:
            self.errors[name] = "\n".join((error.message, *(f"HINT: {hint}" for hint in error.hints)))
            if isinstance(error, LoadError):
                self.text("refused.log", error.log, "the log about what the kernel refused")
        except Exception as error:  # noqa: BLE001  (a defect of pytrace is what the archive is for)
            self.errors[name] = f"BUG: {type(error).__name__}: {error}"
            self.text("traceback.txt", traceback.format_exc(), "where pytrace failed")
        finally:
            self.timing[name] = round((time.perf_counter() - start) * 1e3, 3)

    @property
    def failed(self) -> bool:
        """Whether a stage failed."""
        return bool(self.errors)


def debug_bundle(line: CommandLine, script: Script, options: RunOptions) -> int:
    """Write the archive for a bug report. Its errors are those of the script, so writing it is a success."""
    path = line.text("debug_bundle")
    if not path:
        hints = ("for example bundle.tar.gz, or - for standard output",)
        raise TraceError("--debug-bundle needs the name of a file", hints=hints)
    given = {**shown_options(line), "script": options.script, "parameters": options.parameters}
    bundle = collect(BundleRequest(script, request.compile_options(line, options, script), options, given))
    data = archive(bundle)
    messages.write_file(path, data)
    out = sys.stderr if path == "-" else sys.stdout
    out.write(bytes_shown(f"{path} ({len(data)} bytes) has\n{listing(bundle)}"))
    for stage, text in bundle.errors.items():
        out.write(bytes_shown(f"{stage} failed: {text}\n"))
    return 0


def shown_options(line: CommandLine) -> dict[str, object]:
    """The options of a command line; of those whose values may name somebody only that they were given."""
    public = {row.key for row in OPTIONS if row.public}
    return {
        key: value if key in public or value is True else "(given)" for key, value in sorted(line.values.items())
        if key not in ("debug_bundle", "program")
    }  # fmt: skip


def collect(wanted: BundleRequest) -> Bundle:
    """Compile, load and attach a script, as far as it gets."""
    bundle = Bundle(Redactor.of_machine())
    script: CompiledScript | None = None
    if wanted.script.compiled is not None:
        with bundle.stage("read"):
            compiled = CompiledScript.from_bytes(wanted.script.compiled)
            script = request.prepared(wanted.script, compiled, wanted.options)
    else:
        script = _compiled(bundle, wanted)
    if script is not None:
        # Objects are binary files of others, with the paths where they were compiled.
        manifest = replace(script.manifest, objects=())
        bundle.text("manifest.json", manifest.encoded().decode(), "programs, maps and events of the script")
        bundle.binary("program.elf", script.elf, "the BPF object; names are overwritten by x")
        _try_kernel(bundle, script, wanted.options)
    with bundle.stage("info"):
        report = info.json_report(wanted.options.no_features)
        bundle.text("info.json", report, "versions and kernel features, as --info -f json")
    bundle.text("summary.json", _summary(bundle, wanted), "options, environment, errors, duration of each stage")
    bundle.text("README.txt", listing(bundle), "this list")
    return bundle


# ---------------------------------------------------------------------------------------------- compilation


def _compiled(bundle: Bundle, wanted: BundleRequest) -> CompiledScript | None:
    diagnostics = Diagnostics()
    sources = [wanted.script.source]
    passes = [time.perf_counter()]
    front: list[pipeline.FrontEnd] = []
    result: CompiledScript | None = None

    def watch(name: str, value: object) -> None:
        now = time.perf_counter()
        bundle.timing[f"pass {name}"] = round((now - passes.pop()) * 1e3, 3)
        passes.append(now)
        if isinstance(value, nodes.Program):
            sources.extend(item.span.source for item in value.items if item.span.source not in sources)

    with bundle.stage("compile"):
        kernel = request.live_kernel(wanted.options, ahead=wanted.compile_options.ahead)
        compilation = pipeline.Compilation(
            wanted.script.source, wanted.compile_options, kernel, diagnostics, watch
        )
        front.append(pipeline.front_end(compilation))
        result = pipeline.back_end(compilation, front[0])
    sources.extend(item.span.source for item in diagnostics.items if item.span.source not in sources)
    bundle.text("messages.txt", render_all(diagnostics.items), "errors and warnings about the script")
    _scripts(bundle, sources)
    if front:
        with bundle.stage("texts of LLVM"):
            texts = generator.llvm_texts(front[0].checked, kernel, wanted.compile_options)
            bundle.text("ir.original.ll", texts.original, "LLVM IR as generated")
            bundle.text("ir.optimized.ll", texts.optimized, "LLVM IR after optimisation")
            bundle.text("program.s", texts.assembly, "BPF instructions")
    return result


def _scripts(bundle: Bundle, sources: list[Source]) -> None:
    """The script and the files that it imports, under numbered names: those they have may be anything."""
    bundle.text("script.bt", sources[0].text, "the script")
    for number, source in enumerate(sources[1:], 1):
        name = re.sub(r"[^A-Za-z0-9._-]", "_", source.name.rpartition("/")[2])[:60]
        bundle.text(f"imports/{number:02}-{name}", source.text, f"imported: {bundle.redactor.text(repr(source.name))}")


# ---------------------------------------------------------------------------------------------- kernel


def _try_kernel(bundle: Bundle, script: CompiledScript, options: RunOptions) -> None:
    """Load and attach the programs, and take the verifier's logs."""
    quiet = RunOptions(
        filters=replace(options.filters, exec_wait=""),
        follow=options.follow and not options.filters.exec_wait,
        dry_run=True,
        keep_privileges=True,
        quiet=True,
        no_features=options.no_features,
        debuginfo=options.debuginfo,
        usdt_file_activation=options.usdt_file_activation,
    )
    shown = io.StringIO()
    with bundle.stage("check"):
        request.check_machine(options)
    with bundle.stage("load and attach"), contextlib.redirect_stderr(shown):
        opening.run(script, quiet)
    bundle.text("attach.txt", shown.getvalue(), "messages about loading and attaching")
    libbpf_lines: list[str] = []
    logs: dict[str, str] = {}
    with contextlib.suppress(TraceError), ExitStack() as stack:
        # Its failure is that of the stage before: with logs, some kernels also refuse a program whose log is too long.
        load(
            script,
            options=LoadOptions(
                libbpf_log=libbpf_lines.append, verifier_log=logs.__setitem__, disabled=options.no_features
            ),
            stack=stack,
        )
    bundle.text("libbpf.log", "".join(f"{line.rstrip()}\n" for line in libbpf_lines), "what libbpf said")
    size = 0
    for symbol, log in logs.items():
        size += len(log)
        shortened = log if size <= MOST_LOG else f"(its end)\n{log[-_LOG_END:]}"
        bundle.text(f"verifier/{symbol}.log", shortened, "the verifier's log of the program")


# ---------------------------------------------------------------------------------------------- archive


def _summary(bundle: Bundle, wanted: BundleRequest) -> str:
    summary = {
        "options": wanted.shown,
        "environment": dict(sorted(wanted.compile_options.environment.items())),
        "errors": bundle.errors,
        "milliseconds": bundle.timing,
    }
    return json.dumps(summary, indent=1, default=str) + "\n"


def listing(bundle: Bundle) -> str:
    """What is in a bundle, and what is not."""
    width = max(map(len, bundle.files), default=0)
    lines = [
        f"  {name:<{width}}  {len(data):>9}  {about}" for name, (data, about) in sorted(bundle.files.items())
    ]
    return "\n".join([*lines, LEFT_OUT, ""])


def archive(bundle: Bundle) -> bytes:
    """The files as ``.tar.gz``, in the order of their names, without times and owners."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for name, (data, _) in sorted(bundle.files.items()):
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


# ---------------------------------------------------------------------------------------------- redaction


_PUBLIC = frozenset({"", "/", "/root", "root", "localhost"})
"""Names that tell nothing."""

_SHORTEST = 2
"""Characters of a name that is removed."""

_HOME = r"/home/[^/\s\"':;,)]+"
"""The home directory of any user."""

_START = r"(?:(?<![\w-])|(?<=\\[nrt])|(?<=\\[0-9A-F]{2})|(?<=\\[0-7]{3})|(?<=\\u[0-9a-f]{4}))"
"""Where a name starts: not inside a word, but after an escape sequence of C, LLVM, its assembly or JSON."""


class Redactor(msgspec.Struct, frozen=True):
    """Removes *homes*, *users* and *hosts*."""

    homes: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    @classmethod
    def of_machine(cls, environment: Mapping[str, str] = os.environ) -> Redactor:
        """The redactor for this machine and the user of this process, also behind ``sudo``."""
        users, homes = {environment.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")}, {
            environment.get("HOME", "")
        }
        for entry in pwd.getpwall():
            if entry.pw_uid == os.geteuid() or entry.pw_name in users:
                users.add(entry.pw_name)
                homes.add(entry.pw_dir)
        host = os.uname().nodename
        return cls(_names(homes), _names(users), _names({host, host.partition(".")[0]}))

    def text(self, text: str) -> str:
        """*text* with ``HOME``, ``USER`` and ``HOST`` in place of the names."""
        for home in self.homes:
            text = re.sub(f"{re.escape(home)}(?![\\w.-])", "HOME", text)
        text = re.sub(_HOME, "HOME", text)
        for names, mark in ((self.hosts, "HOST"), (self.users, "USER")):
            for name in names:
                text = re.sub(rf"{_START}{re.escape(name)}(?![\w-])", mark, text)
        return text

    def binary(self, data: bytes) -> bytes:
        """*data* of the same length, with ``x`` in place of home directories and of hosts.

        A user's name outside of these may be part of a symbol.
        """
        for name in (*self.homes, *self.hosts):
            word = os.fsencode(name)
            data = data.replace(word, b"x" * len(word))
        return re.sub(_HOME.replace(r"\s", r"\s\0").encode(), lambda match: b"x" * len(match[0]), data)


def _names(names: set[str]) -> tuple[str, ...]:
    """Those to remove, longest first, as one may contain another."""
    kept = {name for name in names if name not in _PUBLIC and len(name) >= _SHORTEST}
    return tuple(sorted(kept, key=lambda name: (-len(name), name)))
