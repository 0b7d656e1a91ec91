"""A program with debug information like that of Rust, without a compiler of Rust."""

from __future__ import annotations

HANDLE, BLOCK, RUN = "_RNCNvC3app6handle0", "_RNCNCNvC3app6handle00", "_RINvC3app3runNCNvB2_6handle0E"
"""Linkage names: ``app::handle::{closure#0}``, the closure in that, ``app::run::<app::handle::{closure#0}>``."""
_ATTRIBUTES = {
    "name": (0x03, 0x08), "linkage_name": (0x6E, 0x08), "origin": (0x31, 0x13), "language": (0x13, 0x0B),
    "low": (0x11, 0x01), "high": (0x12, 0x07),
}  # fmt: skip
_SHAPES = (
    (0x11, True, ("language", "low", "high")),
    (0x39, True, ("name",)),
    (0x2E, False, ("linkage_name", "name")),
    (0x2E, True, ("origin", "low", "high")),
    (0x1D, False, ("origin", "low", "high")),
)
_UNIT, _NAMESPACE, _FUNCTION, _CODE, _INLINED = range(1, len(_SHAPES) + 1)


def _abbreviations() -> list[str]:
    lines = ['.section .debug_abbrev,"",@progbits']
    for number, (tag, children, names) in enumerate(_SHAPES, 1):
        pairs = [part for name in names for part in _ATTRIBUTES[name]]
        lines.append(".byte " + ",".join(map(str, (number, tag, int(children), *pairs, 0, 0))))
    return [*lines, ".byte 0"]


def _namespace(name: str, *inside: str) -> list[str]:
    return [f".byte {_NAMESPACE}", f'.string "{name}"', *inside, ".byte 0"]


def _function(label: str, linkage: str, name: str) -> list[str]:
    return [f"{label}: .byte {_FUNCTION}", f'.string "{linkage}"', f'.string "{name}"']


def _code(kind: int, origin: str, low: str, size: int) -> list[str]:
    return [f".byte {kind}", f".long {origin} - .Lunit", f".quad {low}", f".quad {size}"]


def text() -> str:
    """The program in C: in ``app::handle``'s body a block is inlined, from its second byte on."""
    entries = [
        *_namespace(
            "app",
            *_namespace(
                "handle",
                *_function(".Lhandle", HANDLE, "{async_fn#0}"),
                *_namespace("{async_fn#0}", *_function(".Lblock", BLOCK, "{async_block#0}")),
            ),
            *_function(".Lrun", RUN, "run<app::handle::{async_fn_env#0}>"),
        ),
        *_code(_CODE, ".Lhandle", HANDLE, 8), *_code(_INLINED, ".Lblock", f"{HANDLE} + 1", 2), ".byte 0",
        *_code(_CODE, ".Lrun", RUN, 8), ".byte 0",
        ".byte 0",
    ]  # fmt: skip
    lines = [
        ".text", *(f".type {name},@function; .size {name},8; {name}: .skip 8, 0x90" for name in (HANDLE, RUN)),
        '.section .debug_info,"",@progbits', ".Lunit:", ".long .Lend - .Lversion", ".Lversion: .short 4", ".long 0",
        ".byte 8", f".byte {_UNIT}, 0x1c", f".quad {HANDLE}", ".quad 16", *entries, ".Lend:",
        *_abbreviations(), ".text",
    ]  # fmt: skip
    body = "\n".join(f'    "{line.replace(chr(34), chr(92) + chr(34))}\\n"' for line in lines)
    return f"__asm__(\n{body}\n);\nint main(void) {{ return 0; }}\n"
