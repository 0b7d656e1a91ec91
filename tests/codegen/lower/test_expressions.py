"""Values of all kinds of expressions."""

from __future__ import annotations

import pytest

from tests.codegen.running import printed

VALUES = [
    ("print(5);", 5),
    ('print("text");', b"text"),
    ("print(true);", True),
    ("print(18446744073709551615);", 18446744073709551615),
    ("print(TASK_STOPPED);", 4),
    ('print((1, "a", (2, true)));', (1, b"a", (2, True))),
    ('print((a=1, b="x"));', (1, b"x")),
    ("print((1, (2, 3)).1.0);", 2),
    ('print((a=1, b="x").b);', b"x"),
    ("print({ let $a = pid; $a + 1 });", 4322),
    ('print(if (pid > 5) { "big" } else { "small" });', b"big"),
    ("print(if (pid == 5) { 1 } else if (pid == 4321) { 2 } else { 3 });", 2),
    ("$t = pid == 5 ? (1, 2) : (3, 4); print($t);", (3, 4)),
    ('$s = pid == 5 ? "a" : "bcd"; print($s);', b"bcd"),
    ("$x = 5; $p = &$x; print(*$p);", 5),
    ("$x = (1, 2); $p = &$x; print((*$p).1);", 2),
    ("@x = 7; $p = &@x; print(*$p);", 7),
    ("@x[1] = 8; $p = &@x[1]; print(*$p);", 8),
    ("print(comm[1]);", 97),
    ("$i = pid - 4319; print(comm[$i]);", 115),
    ("print((1, 2)[1]);", 2),
    ("print(sizeof(int32));", 4),
    ("print(comptime (2 * 3));", 6),
]


@pytest.mark.parametrize(("body", "wanted"), VALUES)
def test_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]
