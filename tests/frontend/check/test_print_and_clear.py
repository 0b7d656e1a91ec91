"""print() and clear() of one map become one step."""

from __future__ import annotations

import pytest

from tests.support.front import analyse


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ("print(@m); clear(@m);", [("print_map", True), ("clear", True)]),
        ('print(@m); printf("x"); clear(@m);', [("print_map", True), ("clear", True)]),
        (
            "print(@m); print(@n); clear(@m); clear(@n);",
            [("print_map", True), ("print_map", True), ("clear", True), ("clear", True)],
        ),
        ("if (pid) { print(@m); clear(@m); }", [("print_map", True), ("clear", True)]),
        ("clear(@m); print(@m);", [("clear", False), ("print_map", False)]),
        ("print(@m); @m[2] = 2; clear(@m);", [("print_map", False), ("clear", False)]),
        ("print(@m); print(@m[1]); clear(@m);", [("print_map", False), ("clear", False)]),
        ("print(@m); print(@m); clear(@m);", [("print_map", False), ("print_map", True), ("clear", True)]),
        ("print(@m); if (pid) { clear(@m); }", [("print_map", False), ("clear", False)]),
        ("print(@m); zero(@m);", [("print_map", False), ("zero", False)]),
        ("print(@m); exit(); clear(@m);", [("print_map", False)]),
        ("print(@m); clear(@n);", [("print_map", False), ("clear", False)]),
        ("print_clear(@m); clear(@m);", [("print_map", True), ("clear", False)]),
    ],
)
def test_pairs(body: str, kinds: list[tuple[str, bool]]) -> None:
    program = analyse(f"end {{ {body} }} begin {{ @m[1] = 1; @n[1] = 1; }}").checked()
    found = [
        (item.kind, bool(getattr(item.static, "clear", False) or getattr(item.static, "joined", False)))
        for item in program.event_list
        if item.kind in ("print_map", "clear", "zero")
    ]
    assert found == kinds


def test_the_clear_sends_nothing() -> None:
    program = analyse("begin { @m[1] = 1; print(@m); clear(@m); }").checked()
    assert len(program.dead) == 1
