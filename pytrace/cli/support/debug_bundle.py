"""``--debug-bundle``: everything about the compilation and loading of a script, in one archive for a bug report.

The script is compiled anew, loaded and attached, and not run: its probes are detached before they could print, and
begin probes and the command of ``-c`` do not run.  So nothing of what it would trace is in the archive.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import tarfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import msgspec
from msgspec.structs import replace

from pytrace import pipeline
from pytrace.cli.support.redaction import Redactor
from pytrace.codegen import generator
from pytrace.core.diagnostics import Diagnostics, ScriptError, TraceError, render_all
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.manifest import CompiledScript
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.options.run_options import RunOptions
from pytrace.core.source import Source
from pytrace.frontend.syntax import nodes
from pytrace.runtime.load.loader import LoadOptions, load
from pytrace.runtime.load.verifier import LoadError
from pytrace.runtime.session import session

FOLDER = "pytrace-debug"

MOST_LOG = 32 << 20
"""Bytes of verifier logs; of programs after that only the ends."""

_LOG_END = 16 << 10

LEFT_OUT = (
    "Left out: what the script would print (it was loaded and attached, and not run), the names of hosts and users, "
    "home directories, and the command of -c with its arguments. The script itself is as it was written: look through "
    "the files before you pass them on."
)


class Request(msgspec.Struct, frozen=True):
    """What to describe: a script, or the bytes of a file that ``--aot`` wrote (*compiled*)."""

    source: Source
    compiled: bytes | None
    compile_options: CompileOptions
    options: RunOptions
    kernel: Callable[[], KernelInfo]
    prepare: Callable[[CompiledScript], CompiledScript]
    """Prepares a script of *compiled* for loading."""
    check: Callable[[], None]
    """Checks that this process may trace."""
    info: Callable[[], str]
    """The report of ``--info -f json``."""
    given: Mapping[str, object]
    """Options of the command line, and parameters of the script."""
    environment: Mapping[str, str]


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


def collect(request: Request) -> Bundle:
    """Compile, load and attach the script of a request, as far as it gets."""
    bundle = Bundle(Redactor.of_machine())
    script: CompiledScript | None = None
    if request.compiled is not None:
        with bundle.stage("read"):
            script = request.prepare(CompiledScript.from_bytes(request.compiled))
    else:
        script = _compiled(bundle, request)
    if script is not None:
        # Objects are binary files of others, with the paths where they were compiled.
        manifest = replace(script.manifest, objects=())
        bundle.text("manifest.json", manifest.encoded().decode(), "programs, maps and events of the script")
        bundle.binary("program.elf", script.elf, "the BPF object; names are overwritten by x")
        _try_kernel(bundle, script, request)
    with bundle.stage("info"):
        bundle.text("info.json", request.info(), "versions and kernel features, as --info -f json")
    bundle.text("summary.json", _summary(bundle, request), "options, environment, errors, duration of each stage")
    bundle.text("README.txt", listing(bundle), "this list")
    return bundle


# ---------------------------------------------------------------------------------------------- compilation


def _compiled(bundle: Bundle, request: Request) -> CompiledScript | None:
    diagnostics = Diagnostics()
    sources = [request.source]
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
        kernel = request.kernel()
        compilation = pipeline.Compilation(request.source, request.compile_options, kernel, diagnostics, watch)
        front.append(pipeline.front_end(compilation))
        result = pipeline.back_end(compilation, front[0])
    sources.extend(item.span.source for item in diagnostics.items if item.span.source not in sources)
    bundle.text("messages.txt", render_all(diagnostics.items), "errors and warnings about the script")
    _scripts(bundle, sources)
    if front:
        with bundle.stage("texts of LLVM"):
            texts = generator.llvm_texts(front[0].checked, request.kernel(), request.compile_options)
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


def _try_kernel(bundle: Bundle, script: CompiledScript, request: Request) -> None:
    """Load and attach the programs, and take the verifier's logs."""
    quiet = RunOptions(
        filters=replace(request.options.filters, exec_wait=""),
        follow=request.options.follow and not request.options.filters.exec_wait,
        dry_run=True,
        keep_privileges=True,
        quiet=True,
        disabled=request.options.disabled,
        debuginfo=request.options.debuginfo,
        usdt_file_activation=request.options.usdt_file_activation,
    )
    shown = io.StringIO()
    with bundle.stage("check"):
        request.check()
    with bundle.stage("load and attach"), contextlib.redirect_stderr(shown):
        session.run(script, quiet)
    bundle.text("attach.txt", shown.getvalue(), "messages about loading and attaching")
    libbpf_lines: list[str] = []
    logs: dict[str, str] = {}
    with contextlib.suppress(TraceError), ExitStack() as stack:
        # Its failure is that of the stage before: with logs, some kernels also refuse a program whose log is too long.
        load(
            script,
            options=LoadOptions(
                libbpf_log=libbpf_lines.append, verifier_log=logs.__setitem__, disabled=request.options.disabled
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


def _summary(bundle: Bundle, request: Request) -> str:
    summary = {
        "options": request.given,
        "environment": dict(sorted(request.environment.items())),
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


def without_secrets(values: Mapping[str, object], public: frozenset[str]) -> dict[str, object]:
    """Options of a command line; of those that are not *public* only that they were given."""
    return {key: value if key in public or value is True else "(given)" for key, value in sorted(values.items())}
