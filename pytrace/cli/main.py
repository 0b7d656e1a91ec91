"""The command line: parses options, selects the mode, prints diagnostics of passes and sessions.

Only this module prints diagnostics and maps exceptions to exit statuses: 0 success, 1 a user error or a limit of the
machine, 2 a bug in pytrace, else the status of the script's ``exit()``. Modules that not every run needs are imported
where they are used.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

import pytrace
from pytrace.base import private_files, terminal
from pytrace.base.terminal import prepare_streams
from pytrace.cli import messages, request
from pytrace.cli.options import OPTIONS, SHORTCUTS, SUBCOMMANDS, CommandLine, help_text, read
from pytrace.cli.request import Script
from pytrace.core.diagnostics import (
    Diagnostics,
    InternalError,
    Interrupted,
    ScriptError,
    TraceError,
    bytes_shown,
    resource_limit,
)
from pytrace.core.manifest import CompiledScript, Target
from pytrace.core.options import CompileOptions, RunOptions
from pytrace.core.probe_kinds import FENTRY, FEXIT, KPROBE, KRETPROBE, probe_kind
from pytrace.core.source import Source

if TYPE_CHECKING:
    from pytrace.core.kernel_info import KernelInfo
    from pytrace.runtime.load.live_kernel import LiveKernel

LANGUAGE = "0.27.1"
"""The version of bpftrace whose language is implemented."""


def command() -> NoReturn:
    """The command ``pytrace``: :func:`main` in a process of its own."""
    # A start allocates many objects and hardly any garbage; sessions enable the collector before they wait.
    gc.disable()
    prepare_streams()
    status = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        status = 0
    except OSError as error:
        if not status:
            messages.show_error(TraceError(f"cannot write output: {error.strerror}"))
            status = 1
    # All resources are closed, so finalising the interpreter object by object would only cost time.
    os._exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line *argv* (default: the process's) and return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    _name_process()
    try:
        if words and words[0] in SUBCOMMANDS:
            from pytrace.cli import subcommands  # another mode

            return subcommands.run(words)
        shortcut = bool(words) and words[0] in SHORTCUTS
        if shortcut:
            from pytrace.cli import shortcuts  # another mode

            words = shortcuts.expand(words)
        if words[:1] == ["--complete"] and len(words) == 3:
            from pytrace.cli import completion  # another mode

            sys.stdout.write(completion.answer(words[1], words[2]))
            return 0
        line = read(words, request.find)
        if shortcut:
            line.bcc_letters.clear()  # the user has not named the tool
        try:
            request.complete(line)
            return run(line)
        except TraceError as error:
            raise line.explained(error) from None
    except TraceError as error:
        messages.show_error(error)
        return error.status
    except ScriptError:
        return 1
    except Interrupted as error:
        return error.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has gone; Python must not report that when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001  (no traceback ever reaches a user)
        return _failed(error)


def _failed(error: Exception) -> int:
    """Report an error that no step expected: a limit of the machine, files of pytrace that are gone, or a bug."""
    known: TraceError | None = None
    try:
        known = resource_limit(error)
    except ImportError as other:
        # The package was removed, and what finds the hints of the error with it.
        error = error if isinstance(error, ImportError) else other
    if known is None and isinstance(error, ImportError):
        known = _missing_part(error)
    if known is None:
        return _bug(error)
    messages.show_error(known)
    return known.status


def _missing_part(error: ImportError) -> TraceError:
    hint = "pytrace was upgraded or removed while it ran, or is not completely installed"
    removed = TraceError(f"a part of pytrace is missing: {error}", hints=(hint,))
    try:
        from pytrace.base import extras  # after an error
    except ImportError:
        return removed
    message, command = extras.left_out(error) or ("", "")
    return TraceError(message, hints=(command,)) if message else removed


def _bug(error: Exception) -> int:
    if os.environ.get("PYTRACE_TRACEBACK"):
        raise error
    name = "" if isinstance(error, InternalError) else f"{type(error).__name__}: "
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "" if frame is None else f" ({os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno})"
    sys.stderr.write(
        f"BUG: {name}{error}{place}\n"
        "HINT: this is a bug in pytrace, not in the script; PYTRACE_TRACEBACK=1 shows where, please report it\n"
    )
    return 2


def _name_process() -> None:
    """Set the process name to the command's, so that ``ps`` and ``comm`` in scripts show it instead of ``python3``."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    if name in ("", "-c", "-m", "__main__.py") or name.endswith(".py"):
        name = "pytrace"
    try:
        with open("/proc/self/comm", "w", encoding="utf-8") as file:
            file.write(name[:15])
    except OSError:
        # Cosmetic: without /proc the name is not changed.
        return


def _version() -> str:
    """Under the name ``bpftrace``, bpftrace's version comes first: callers of that name parse it."""
    own = f"pytrace {pytrace.__version__}"
    if os.path.basename(sys.argv[0]) == "bpftrace":
        return f"bpftrace v{LANGUAGE} ({own})\n"
    return f"{own}\n"


# ---------------------------------------------------------------------------------------------- modes


def run(line: CommandLine) -> int:
    """Run the mode that the command line selects. Returns the exit status."""
    if line.flag("help"):
        messages.write_pages(help_text())
        return 0
    if line.flag("version"):
        sys.stdout.write(_version())
        return 0
    if line.flag("tools") or line.usage or line.flag("show_script"):
        from pytrace.cli import script_texts  # usage of a script

        return script_texts.show(line)
    options = request.run_options(line)
    if not options.quiet:
        terminal.show_on(2)
    viewer = None
    if line.flag("open"):
        from pytrace.cli import desktop  # few ask for it, and with it the runtime

        viewer = desktop.viewer(options.output, options.format)
    try:
        status = _run(line, options)
    finally:
        _show_notes(options)
    if viewer is not None:
        viewer.open()
    return status


def _run(line: CommandLine, options: RunOptions) -> int:
    messages.warn((f"{name} was given more than once: the last one is used" for name in line.repeated), options)
    if line.flag("info"):
        return _info(line, options)
    if line.flag("examples"):
        from pytrace.cli import script_texts  # usage of a script

        sys.stdout.write(script_texts.examples())
        return 0
    if line.flag("list"):
        return _list(line, options)
    script = request.script(line)
    options = request.of_script(options, script, line)
    if line.text("debug_bundle") is not None:
        from pytrace.cli import debugging  # another mode

        return debugging.debug_bundle(line, script, options)
    if script.compiled is not None:
        _refuse_compile_options(line, options)
        return _run_compiled_file(script, options)
    if options.mode == "format":
        return _format(script, options, suggest=line.flag("suggest"))
    compile_options = request.compile_options(line, options, script)
    if script.wants_help:
        from pytrace.cli import script_texts  # usage of a script

        return script_texts.parameters_help(line, script)
    return _run_script(line, script, compile_options, options)


def _info(line: CommandLine, options: RunOptions) -> int:
    """Report what this user may do, and what a script needs, if one was given."""
    from pytrace.cli import info  # another mode

    if options.format not in ("text", "json"):
        raise TraceError(f"-f {options.format} is for rows and maps", hints=("--info reports as text or json",))
    needs: list[tuple[str, info.Value]] = []
    if line.operands or line.text("program") is not None or line.script is not None:
        script = request.script(line)
        options = request.of_script(options, script, line)
        compile_options = request.compile_options(line, options, script)
        try:
            if script.compiled is None:
                compiled = compile_script(script, compile_options, options)
            else:
                compiled = CompiledScript.from_bytes(script.compiled)
            needs += info.rows(compiled.manifest, options)
        except TraceError as error:
            # This user may not even read what compiling takes, such as tracefs.
            needs += info.rows_without(error)
    report = info.json_report if options.format == "json" else info.report
    sys.stdout.write(bytes_shown(report(options.no_features, needs)))
    return 0


def _show_notes(options: RunOptions) -> None:
    """With ``-v``, report cache directories and files that were not used or were removed, and why."""
    if options.verbose:
        sys.stderr.write(bytes_shown("".join(f"{text}\n" for text in private_files.NOTES)))
    private_files.NOTES.clear()


# ---------------------------------------------------------------------------------------------- running


def _run_script(line: CommandLine, script: Script, compile_options: CompileOptions, options: RunOptions) -> int:
    stops = ("emit_elf", "emit_llvm", "aot")
    if options.debug - {"libbpf", "verifier"} or line.flag("verify_llvm_ir") or any(line.text(key) for key in stops):
        from pytrace.cli import debugging  # another mode

        result = debugging.develop(line, script, compile_options, options)
        if result is None:
            return 0
        request.check_machine(options)
        return _execute(result, options)
    if options.mode in ("codegen", "compiler-bench"):
        return _compile_only(script, compile_options, options)
    request.check_machine(options)
    return _execute(_compiled(line, script, compile_options, options), options)


def _compiled(
    line: CommandLine, script: Script, compile_options: CompileOptions, options: RunOptions
) -> CompiledScript:
    from pytrace import cache  # with it the runtime

    def compile_now() -> CompiledScript:
        return compile_script(script, compile_options, options, tool=bool(line.tool))

    if line.flag("no_cache"):
        return compile_now()
    result, from_cache = cache.load_or_compile(script.source, compile_options, compile_now)
    if from_cache and options.warnings:
        sys.stderr.write("".join(result.manifest.warnings))
    return result


def compile_script(
    script: Script, compile_options: CompileOptions, options: RunOptions, *, tool: bool = False
) -> CompiledScript:
    """Compile a script and print the diagnostics; *tool*: it is pytrace's own, and its lines say nothing to users.

    Raises:
        ScriptError: the script has errors; they have been printed.
        TraceError: the machine lacks what the script needs.
    """
    from pytrace import pipeline  # the compiler

    diagnostics, kernel = Diagnostics(), request.live_kernel(options)
    try:
        with terminal.step("compiling"):
            return pipeline.compile_script(script.source, compile_options, kernel, diagnostics)
    except (ScriptError, TraceError) as error:
        absent = kernel.absent_types()
        if absent is None or (isinstance(error, TraceError) and not tool):
            raise
        if tool:
            diagnostics.items.clear()
        raise absent from None
    finally:
        messages.show(diagnostics, warnings=options.warnings)


def _execute(script: CompiledScript, options: RunOptions) -> int:
    from pytrace.runtime.session import opening  # the runtime: not with -l or --aot

    _show_notes(options)
    return opening.run(script, request.in_format(options, script.manifest.output_format))


_OF_THE_TEXT = {"format": "--fmt", "codegen": "--mode codegen", "compiler-bench": "--mode compiler-bench"}
"""Modes that need the text of a script, with the option to name in errors."""


def _refuse_compile_options(line: CommandLine, options: RunOptions) -> None:
    for row in OPTIONS:
        if row.compiling and line.values.get(row.key):
            raise TraceError(f"the file is already compiled; give {row.spelling} when compiling it")
    option = _OF_THE_TEXT.get(options.mode)
    if line.flag("verify_llvm_ir"):
        option = "--verify-llvm-ir"
    elif options.debug and not options.debug & {"libbpf", "verifier"}:
        option = "-d"
    if option is not None:
        raise TraceError(f"the file is already compiled; {option} needs the script that it was made from")


def _run_compiled_file(script: Script, options: RunOptions) -> int:
    from pytrace.runtime.load import ahead_of_time  # a compiled file

    assert script.compiled is not None
    compiled = CompiledScript.from_bytes(script.compiled)
    if script.wants_help:
        sys.stdout.write(ahead_of_time.usage(compiled, script.source.name))
        return 0
    request.check_machine(options)
    return _execute(request.prepared(script, compiled, options), options)


def _compile_only(script: Script, compile_options: CompileOptions, options: RunOptions) -> int:
    start = time.perf_counter()
    result = compile_script(script, compile_options, options)
    took = time.perf_counter() - start
    if options.mode == "compiler-bench":
        sys.stdout.write(f"compiled {len(result.manifest.programs)} programs in {took * 1e3:.1f} ms\n")
    return 0


def _format(script: Script, options: RunOptions, *, suggest: bool) -> int:
    from pytrace.frontend.syntax import call_suggestions, formatter  # another mode

    diagnostics = Diagnostics()
    source = script.source
    if suggest:
        text, pairs = call_suggestions.suggest(source, diagnostics)
        source = Source(source.name, text)
        for pair in pairs:
            said = f"stays as it is, as {pair.reason}" if pair.reason else "is one probe now"
            diagnostics.note(f"{pair.call} {said}", pair.entry)
        if not pairs and not diagnostics.failed:
            sys.stderr.write("no entry keeps values by tid for a return, so there is nothing to suggest\n")
    text = formatter.format_source(source, diagnostics)
    messages.show(diagnostics, warnings=options.warnings)
    diagnostics.check()
    data = text.encode("utf-8", "surrogateescape")
    if options.output:
        messages.write_file(options.output, data)
    else:
        messages.write_output(data, raw=options.raw)
    return 0


# ---------------------------------------------------------------------------------------------- listing


def _list(line: CommandLine, options: RunOptions) -> int:
    from pytrace.runtime.load import listing  # another mode

    kernel = request.live_kernel(options)
    operand = line.operands[0] if line.operands else None
    if line.text("program") is not None or line.script is not None or (operand and os.path.isfile(operand)):
        places = _places(line, kernel, options)
        _write_listing([listing.targets_text(kernel, places, verbose=options.verbose)], raw=options.raw)
        messages.warn(kernel.debug_problems(), options)
        return 0
    if operand is not None and "." in operand and not {":", "*"} & set(operand):
        messages.warn([f"there is no file {operand!r}, so it is used as a pattern of probe names"], options)
    pattern = None if operand is None else ",".join(line.operands)
    pieces = listing.listing_pieces(kernel, pattern, pid=options.filters.pid, verbose=options.verbose)
    listed = _write_listing(pieces, raw=options.raw)
    if not listed and options.warnings:
        sys.stderr.write(_nothing_matches(pattern))
        if absent := kernel.absent_types():
            messages.warn([absent.message.replace("this script", "this listing")], options)
    elif options.warnings and pattern is not None:
        messages.warn(_unattachable(pattern, kernel), options)
    messages.warn(kernel.debug_problems(), options)
    return 0


_ATTACHED_BY = {
    KPROBE: ("kprobe", "perf_kprobe", "kprobe_multi"), KRETPROBE: ("kprobe", "perf_kprobe", "kprobe_multi"),
    FENTRY: ("fentry",), FEXIT: ("fentry",),
}  # fmt: skip
"""Features, one of which probes of a kind need; the functions themselves are there without."""


def _unattachable(pattern: str, kernel: KernelInfo) -> Iterator[str]:
    """Warnings about kinds of probes that the pattern names and that this kernel cannot attach.

    Who may not trace cannot ask the kernel, and is told nothing.
    """
    from pytrace.runtime.machine import privileges  # the runtime

    if privileges.missing_capabilities(privileges.effective_capabilities(), privileges.NEEDED):
        return
    kinds = {probe_kind(item.partition(":")[0]) for item in pattern.split(",") if ":" in item}
    for kind in kinds:
        needed = _ATTACHED_BY.get(kind.name, ()) if kind is not None else ()
        if kind is not None and needed and not any(kernel.feature(name) for name in needed):
            yield f"this kernel has no {kind.name} probes: they are listed, but cannot be attached"


def _nothing_matches(pattern: str | None) -> str:
    """The message for an empty listing; a pattern without ``*`` is most often meant as a substring."""
    if pattern is None:
        return "WARNING: no probes found\n"
    text = f"WARNING: nothing matches {pattern!r}\n"
    if "*" not in pattern and ":" not in pattern:
        text += f"HINT: * matches any text: {f'*{pattern}*'!r}\n"
    return bytes_shown(text)


def _write_listing(pieces: Iterable[str], *, raw: bool) -> bool:
    """Write a text. Returns whether it was not empty."""
    any_text = False
    for text in pieces:
        any_text = any_text or bool(text)
        _write_piece(text, raw=raw)
    _write_piece("", raw=raw)
    return any_text


def _write_piece(text: str, *, raw: bool) -> None:
    """Write a part of a text to standard output; an empty one ends the text."""
    try:
        # Names in binaries may contain any bytes.
        messages.write_output(text.encode(errors="surrogateescape"), raw=raw)
        if not text:
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TraceError(f"cannot write output: {error.strerror}") from None


def _places(line: CommandLine, kernel: LiveKernel, options: RunOptions) -> list[tuple[str, Target]]:
    """The targets of a script, each with the kind of its probe."""
    script = request.script(line)
    if script.compiled is not None:
        programs = CompiledScript.from_bytes(script.compiled).manifest.programs
        return [(item.kind, target) for item in programs if not item.service for target in item.targets]
    from pytrace import pipeline  # the compiler

    diagnostics = Diagnostics()
    listing_options = replace(request.compile_options(line, options, script), mode="list")
    try:
        front = pipeline.find_programs(pipeline.Compilation(script.source, listing_options, kernel, diagnostics))
    finally:
        messages.show(diagnostics, warnings=options.warnings)
    return [(unit.kind.name, target) for unit in front.units for target in unit.targets]
