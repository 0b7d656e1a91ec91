"""The run modes of the command line: run, list, dump stages, compile ahead of time."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, TextIO

from msgspec.structs import replace

from pytrace.base import private_folders
from pytrace.base.terminal import colour
from pytrace.cli import request
from pytrace.core import manifest
from pytrace.core.diagnostics import Diagnostics, TraceError, bytes_shown, render_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytrace.cli.options import CommandLine
    from pytrace.cli.request import Script
    from pytrace.core.manifest import CompiledScript
    from pytrace.core.options.compile_options import CompileOptions
    from pytrace.core.options.run_options import RunOptions
    from pytrace.pipeline import Compilation, FrontEnd
    from pytrace.runtime.live_kernel import LiveKernel


def run(line: CommandLine) -> int:
    """Run the mode that the command line selects. Returns the exit status."""
    if line.flag("tools"):
        from pytrace.cli.scripts import tools

        sys.stdout.write(tools.listing(" ".join(line.operands)))
        return 0
    if line.usage or line.flag("show_script"):
        from pytrace.cli import script_texts

        return script_texts.show(line)
    options = request.run_options(line)
    try:
        return _run(line, options)
    finally:
        _show_notes(options)


def _run(line: CommandLine, options: RunOptions) -> int:
    _warn((f"{name} was given more than once: the last one is used" for name in line.repeated), options)
    if line.flag("info"):
        from pytrace.cli import info

        sys.stdout.write(info.report(options.disabled))
        return 0
    if line.flag("examples"):
        from pytrace.cli import script_texts

        sys.stdout.write(script_texts.examples())
        return 0
    if line.flag("list"):
        return _list(line, options)
    script = request.script(line)
    options = request.of_script(options, script, line)
    if script.compiled is not None:
        _refuse_compile_options(line, options)
        return _run_compiled_file(script, options)
    if options.mode == "format":
        return _format(script, options)
    compile_options = request.compile_options(line, options, script)
    if script.wants_help:
        from pytrace.cli import script_texts

        return script_texts.parameters_help(line, script)
    return _run_script(line, script, compile_options, options)


def _show_notes(options: RunOptions) -> None:
    """With ``-v``, report cache directories and files that were not used or were removed, and why."""
    if options.verbose:
        sys.stderr.write(bytes_shown("".join(f"{text}\n" for text in private_folders.NOTES)))
    private_folders.NOTES.clear()


def live_kernel(options: RunOptions, *, ahead: bool = False) -> LiveKernel:
    """Facts about this machine, some of which options override; *ahead* as for :class:`LiveKernel`."""
    from pytrace.runtime.live_kernel import LiveKernel

    return LiveKernel(
        disabled=options.disabled,
        traceable_functions=options.traceable_functions,
        debuginfo=options.debuginfo,
        ahead=ahead,
    )


# ---------------------------------------------------------------------------------------------- running


def _run_script(line: CommandLine, script: Script, compile_options: CompileOptions, options: RunOptions) -> int:
    stops = ("emit_elf", "emit_llvm", "aot")
    if options.debug - {"libbpf", "verifier"} or line.flag("verify_llvm_ir") or any(line.text(key) for key in stops):
        return _develop(line, script, compile_options, options)
    if options.mode in ("codegen", "compiler-bench"):
        return _compile_only(script, compile_options, options)
    _check_machine(options)
    return _execute(_compiled(line, script, compile_options, options), options)


def _compiled(
    line: CommandLine, script: Script, compile_options: CompileOptions, options: RunOptions
) -> CompiledScript:
    from pytrace import cached_compilation

    def compile_now() -> CompiledScript:
        return compile_script(script, compile_options, options)

    if line.flag("no_cache"):
        return compile_now()
    result, from_cache = cached_compilation.load_or_compile(script.source, compile_options, compile_now)
    if from_cache and options.warnings:
        sys.stderr.write("".join(result.manifest.warnings))
    return result


def compile_script(script: Script, compile_options: CompileOptions, options: RunOptions) -> CompiledScript:
    """Compile a script and print the diagnostics.

    Raises:
        ScriptError: the script has errors; they have been printed.
    """
    from pytrace import pipeline

    diagnostics = Diagnostics()
    try:
        return pipeline.compile_script(script.source, compile_options, live_kernel(options), diagnostics)
    finally:
        _print(diagnostics, options)


def _print(diagnostics: Diagnostics, options: RunOptions) -> None:
    shown = diagnostics.items if options.warnings else diagnostics.errors
    sys.stderr.write(render_all(shown, colour=colour()))


def _warn(texts: Iterable[str], options: RunOptions) -> None:
    if options.warnings:
        sys.stderr.write("".join(f"WARNING: {text}\n" for text in texts))


def _check_machine(options: RunOptions) -> None:
    """Raise an error if this process may not trace, and warn about missing features of the machine."""
    from pytrace.runtime.abi import privileges

    _warn(privileges.check(), options)
    privileges.keep_capabilities()


def _execute(script: CompiledScript, options: RunOptions) -> int:
    from pytrace.runtime.session import session

    _show_notes(options)
    return session.run(script, request.in_format(options, script.manifest.output_format))


_COMPILE_ONLY = {
    "aot": "--aot",
    "emit_elf": "--emit-elf",
    "emit_llvm": "--emit-llvm",
    "include_directories": "-I",
    "includes": "--include",
    "probe_filter": "--probe-filter",
    "warnings": "-k",
}
"""Options that do not apply to a file that is already compiled."""

_OF_THE_TEXT = {"format": "--fmt", "codegen": "--mode codegen", "compiler-bench": "--mode compiler-bench"}
"""Modes that need the text of a script, with the option to name in errors."""


def _refuse_compile_options(line: CommandLine, options: RunOptions) -> None:
    for key, name in _COMPILE_ONLY.items():
        if line.text(key) or line.many(key):
            raise TraceError(f"the file is already compiled; give {name} when compiling it")
    option = _OF_THE_TEXT.get(options.mode)
    if line.flag("verify_llvm_ir"):
        option = "--verify-llvm-ir"
    elif options.debug and not options.debug & {"libbpf", "verifier"}:
        option = "-d"
    if option is not None:
        raise TraceError(f"the file is already compiled; {option} needs the script that it was made from")


def _run_compiled_file(script: Script, options: RunOptions) -> int:
    from pytrace.runtime.aot import prepare

    assert script.compiled is not None
    compiled = manifest.CompiledScript.from_bytes(script.compiled)
    if script.wants_help:
        sys.stdout.write(prepare.usage(compiled, script.source.name))
        return 0
    _check_machine(options)
    parameters = prepare.Given(script.positional, script.named)
    prepared = prepare.prepare(compiled, parameters, options, live_kernel(options))
    _warn(prepared.warnings, options)
    return _execute(prepared.script, options)


def _compile_only(script: Script, compile_options: CompileOptions, options: RunOptions) -> int:
    start = time.perf_counter()
    result = compile_script(script, compile_options, options)
    took = time.perf_counter() - start
    if options.mode == "compiler-bench":
        sys.stdout.write(f"compiled {len(result.manifest.programs)} programs in {took * 1e3:.1f} ms\n")
    return 0


# ---------------------------------------------------------------------------------------------- for developers


def _develop(line: CommandLine, script: Script, compile_options: CompileOptions, options: RunOptions) -> int:
    """Show the stages of ``-d``, and write the files of ``--emit-…`` and ``--aot``."""
    from pytrace import pipeline
    from pytrace.cli import dump

    diagnostics = Diagnostics()
    kernel = live_kernel(options, ahead=compile_options.ahead)
    watch = dump.front_end_watch(options.debug, _shown_on(options))
    compilation = pipeline.Compilation(script.source, compile_options, kernel, diagnostics, watch)
    try:
        result = _develop_back_end(line, compilation, pipeline.front_end(compilation), options)
    finally:
        _print(diagnostics, options)
    if result is None:
        return 0
    _check_machine(options)
    return _execute(result, options)


def _shown_on(options: RunOptions) -> TextIO:
    """The stream for stages: standard output, unless it carries JSON or CSV."""
    return sys.stdout if options.format == "text" else sys.stderr


def _develop_back_end(
    line: CommandLine, compilation: Compilation, front: FrontEnd, options: RunOptions
) -> CompiledScript | None:
    """The script to run; None if an output file was requested, as the script is not run then."""
    from pytrace import pipeline
    from pytrace.cli import dump
    from pytrace.codegen import generator

    llvm, elf, aot = (line.text(key) for key in ("emit_llvm", "emit_elf", "aot"))
    if llvm or options.debug & {"ir", "ir-opt", "asm"} or line.flag("verify_llvm_ir"):
        verify = line.flag("verify_llvm_ir")
        texts = generator.llvm_texts(front.checked, compilation.kernel, compilation.options, verify=verify)
        dump.show_back_end(texts, options.debug, _shown_on(options))
        if llvm:
            _write(f"{llvm}.original.ll", texts.original.encode())
            _write(f"{llvm}.optimized.ll", texts.optimized.encode())
            if not (elf or aot):
                return None
    result = pipeline.back_end(compilation, front)
    if elf:
        _write(elf, result.elf)
    if aot:
        _write(aot, result.to_bytes(executable=True), executable=True)
    return None if elf or aot else result


def _write(path: str, data: bytes, *, executable: bool = False) -> None:
    """Write a file atomically; ``-`` is standard output."""
    if path == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return
    from pytrace.base import whole_files

    try:
        whole_files.write(path, data, executable=executable)
    except OSError as error:
        raise TraceError(f"cannot write {path!r}: {error.strerror}") from error


def _format(script: Script, options: RunOptions) -> int:
    from pytrace.frontend.format import formatter

    diagnostics = Diagnostics()
    text = formatter.format_source(script.source, diagnostics)
    _print(diagnostics, options)
    diagnostics.check()
    data = text.encode("utf-8", "surrogateescape")
    if options.output:
        _write(options.output, data)
    else:
        sys.stdout.buffer.write(data)
    return 0


# ---------------------------------------------------------------------------------------------- listing


def _list(line: CommandLine, options: RunOptions) -> int:
    from pytrace.runtime.listing import probes

    kernel = live_kernel(options)
    operand = line.operands[0] if line.operands else None
    if line.text("program") is not None or line.script is not None or (operand and os.path.isfile(operand)):
        return _list_script(line, kernel, options)
    if operand is not None and "." in operand and not {":", "*"} & set(operand) and options.warnings:
        sys.stderr.write(
            bytes_shown(f"WARNING: there is no file {operand!r}, so it is used as a pattern of probe names\n")
        )
    pattern = None if operand is None else ",".join(line.operands)
    listed = _write_listing(probes.pieces(kernel, pattern, pid=options.filters.pid, verbose=options.verbose))
    if not listed and options.warnings:
        sys.stderr.write(_nothing_matches(pattern))
    _print_missing(kernel, options)
    return 0


def _nothing_matches(pattern: str | None) -> str:
    """The message for an empty listing; a pattern without ``*`` is most often meant as a substring."""
    if pattern is None:
        return "WARNING: no probes found\n"
    text = f"WARNING: nothing matches {pattern!r}\n"
    if "*" not in pattern and ":" not in pattern:
        text += f"HINT: * matches any text: {f'*{pattern}*'!r}\n"
    return bytes_shown(text)


def _write_listing(pieces: Iterable[str]) -> bool:
    """Write a text. Returns whether it was not empty."""
    any_text = False
    for text in pieces:
        any_text = any_text or bool(text)
        _write_piece(text)
    _write_piece("")
    return any_text


def _write_piece(text: str) -> None:
    """Write a part of a text to standard output; an empty one ends the text."""
    try:
        # Names in binaries may contain any bytes.
        data = text.encode(errors="surrogateescape")
        if os.isatty(1):
            from pytrace.base.control_characters import printable_lines  # only on terminals

            data = printable_lines(data)
        sys.stdout.buffer.write(data)
        if not text:
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TraceError(f"cannot write output: {error.strerror}") from None


def _print_missing(kernel: LiveKernel, options: RunOptions) -> None:
    """Report missing debug information, which is needed for the arguments of user functions."""
    _warn(kernel.debug_problems(), options)


def _list_script(line: CommandLine, kernel: LiveKernel, options: RunOptions) -> int:
    from pytrace import pipeline
    from pytrace.runtime.listing import probes

    script = request.script(line)
    if script.compiled is not None:
        programs = manifest.CompiledScript.from_bytes(script.compiled).manifest.programs
        places = [(item.kind, target) for item in programs if not item.service for target in item.targets]
        _write_listing([probes.targets(kernel, places, verbose=options.verbose)])
        return 0
    diagnostics = Diagnostics()
    listing_options = replace(request.compile_options(line, options, script), mode="list")
    try:
        front = pipeline.find_programs(pipeline.Compilation(script.source, listing_options, kernel, diagnostics))
    finally:
        _print(diagnostics, options)
    targets = [(unit.kind.name, target) for unit in front.units for target in unit.targets]
    _write_listing([probes.targets(kernel, targets, verbose=options.verbose)])
    _print_missing(kernel, options)
    return 0
