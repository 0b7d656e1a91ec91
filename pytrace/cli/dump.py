"""Output of ``-d``: the tree after parsing, the typed tree after analysis, the LLVM and BPF code."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from pytrace.frontend.ast.nodes import Expr, Node, Program
from pytrace.frontend.ast.typed_program import CheckedProgram

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytrace.codegen.generator import LlvmTexts
    from pytrace.core.types import Type
    from pytrace.pipeline import Watch


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
