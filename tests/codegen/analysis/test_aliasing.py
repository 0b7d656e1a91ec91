"""Values that are computed from the memory that they are stored to."""

from __future__ import annotations

import pytest

from tests.codegen.running import printed


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("$t = (1, 2); $t = ($t.1, $t.0); print($t);", (2, 1)),
        ("$t = (1, (2, 3)); $t = ($t.1.1, ($t.0, $t.1.0)); print($t);", (3, (1, 2))),
        ("@t = (1, 2); @t = (@t.1, @t.0); print((@t.0, @t.1));", (2, 1)),
        ("$t = (1, 2); $p = &$t; $t = ((*$p).1, (*$p).0); print($t);", (2, 1)),
        ('$s = "a"; print(($s, { $s = "b"; 1 }, $s));', (b"a", 1, b"b")),
        ("@t = (1, 2); @k[1] = @t; @t = (@k[1].1, @t.1); print((@t.0, @t.1));", (2, 2)),
        ('$s = "ab"; $u = "cd"; $s = $u; $u = "ef"; print($s);', b"cd"),
    ],
)
def test_what_is_read_was_not_changed_before(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


def test_calls_that_change_what_was_read() -> None:
    body = '@m["k"] = (1, 2); $v = (5, 6); print(($v, find(@m, "k", $v), $v));'
    assert printed(body) == [((5, 6), True, (1, 2))]
