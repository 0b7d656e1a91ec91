"""Several expressions are evaluated in the order of the script."""

from __future__ import annotations

import pytest

from tests.codegen.running import printed, ran


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("$i = 1; print(($i++, $i, ++$i, $i--, $i));", (1, 2, 3, 3, 2)),
        ("@i = 1; print((@i++, @i, @i++));", (1, 2, 2)),
        ("@m[1] = 5; print((@m[1], { @m[1] = 6; 0 }, @m[1]));", (5, 0, 6)),
        ('$s = "x"; print(($s, { $s = "y"; 1 }));', (b"x", 1)),
        ("$t = (1, 2); print(($t, { $t = (3, 4); 1 }, $t));", ((1, 2), 1, (3, 4))),
    ],
)
def test_order(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


def test_arguments_of_events_and_keys() -> None:
    found = ran('begin { $i = 1; printf("%d %d %d", $i++, $i++, $i); @m[$i++, $i++] = $i; }')
    ((_, arguments),) = found.values()
    assert arguments == [1, 2, 3]
    assert found.entries("@m") == {(3, 4): 3}, "the value comes before the key"


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
