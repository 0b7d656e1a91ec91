"""What ``-d`` shows: the tree after parsing, the typed tree after analysis, the LLVM and BPF code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from pytrace.base.fast_dataclass import fields, is_dataclass

if TYPE_CHECKING:
    from pytrace.codegen.generator import LlvmTexts
    from pytrace.frontend.ast.typed_program import CheckedProgram
    from pytrace.pipeline import Compilation


def show_front_end(step: str, compilation: Compilation, stages: frozenset[str], out: TextIO) -> None:
    """Print what pass *step* made, when *stages* ask for it."""
    if step == "parse" and "ast" in stages:
        out.write("\n== syntax tree\n" + tree(compilation["parsed"]))
    if step == "analysis" and "types" in stages:
        out.write("\n== programs with types\n" + typed(compilation["checked"]))


def show_back_end(texts: LlvmTexts, stages: frozenset[str], out: TextIO) -> None:
    """Print the code that *stages* ask for."""
    for stage, title, text in (
        ("ir", "LLVM code", texts.original),
        ("ir-opt", "LLVM IR, optimised", texts.optimized),
        ("asm", "BPF code", texts.assembly),
    ):
        if stage in stages:
            out.write(f"\n== {title}\n{text}")


def tree(node: Any, types: Mapping[Any, Any] | None = None) -> str:
    """A node and everything below it, one node a line, indented; with *types*, the type of each expression."""
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


def _lines(value: Any, types: Mapping[Any, Any], depth: int) -> Iterator[str]:
    indent = "  " * depth
    attributes: list[str] = []
    children: list[Any] = []
    for field in fields(value):
        if field.name == "span" or field.name.endswith("_span") or field.name == "head":
            continue
        part = getattr(value, field.name)
        items = part if isinstance(part, tuple) else (part,)
        children.extend(item for item in items if is_dataclass(item))
        if not is_dataclass(part) and not _holds_nodes(part):
            attributes.append(f"{field.name}={part!r}")
    shown = f" {' '.join(attributes)}" if attributes else ""
    kind = types.get(value)
    yield f"{indent}{type(value).__name__}{shown}{'' if kind is None else f' : {kind}'}"
    for child in children:
        yield from _lines(child, types, depth + 1)


def _holds_nodes(part: Any) -> bool:
    return isinstance(part, tuple) and any(is_dataclass(item) for item in part)
