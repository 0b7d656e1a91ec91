"""Compilation for developers: the stages that ``-d`` shows, and the files of ``--emit-…`` and ``--aot``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TextIO

from msgspec.structs import replace

from pytrace import pipeline
from pytrace.cli import messages
from pytrace.cli.options import CommandLine
from pytrace.codegen import generator
from pytrace.codegen.generator import LlvmTexts
from pytrace.core.manifest import CompiledScript
from pytrace.core.options.run_options import RunOptions
from pytrace.core.types import Type
from pytrace.frontend.syntax.nodes import Expr, Node, Program
from pytrace.frontend.syntax.typed_program import CheckedProgram
from pytrace.pipeline import Compilation, Watch


def develop(line: CommandLine, run: RunOptions, compilation: Compilation) -> CompiledScript | None:
    """Compile a script, show the stages of ``-d``, and write the requested files.

    Returns:
        The script to run; None if an output file was requested, as the script is not run then.

    Raises:
        ScriptError: the script has errors, which are in its diagnostics.
    """
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
    for info in checked.maps.values():
        key = "" if info.key is None else f"[{info.key}]"
        parts.append(f"map {info.name}{key}: {info.value} ({info.kind}, {info.max_entries})\n")
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
