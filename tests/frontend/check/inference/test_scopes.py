"""Block scopes: what a name means, and what is said about one that means nothing."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

import pytest

from tests.frontend.checking import refused, warned
from tests.support.front import analyse

# fmt: off
REFUSED = [
    ("begin { $x = 1; { let $x = 2; } }", "1:19-25", "$x would hide a variable of an outer block"),
    ("begin { $i = 1; for ($i : 0..5) { } }", "1:22-24", "$i would hide a variable of an outer block"),
    ("begin { let $x = 1; let $x = 2; }", "1:21-27", "$x is already declared"),
    ("begin { for ($i : 0..2) { for ($i : 0..2) { } } }", "1:32-34", "$i would hide a variable of an outer block"),
    ("begin { { $x = 1; } print($x); }", "1:27-29", "undefined variable $x"),
    ("macro m() { $x + 1 } begin { $x = 1; print(m()); }", "1:13-15", "undefined variable $x"),
]
WARNED = [
    ("begin { let $x; }", "1:9-15", "$x is never assigned"),
]
# fmt: on


@pytest.mark.parametrize(("script", "place", "message"), REFUSED)
def test_refused(script: str, place: str, message: str) -> None:
    assert refused(script) == (place, message)


@pytest.mark.parametrize(("script", "place", "message"), WARNED)
def test_warned(script: str, place: str, message: str) -> None:
    assert warned(script) == (place, message)


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("begin { if (pid) { $b = 1; } print($b); }", "declare it before the block: let $b;"),
        ("macro m() { $x + 1 } begin { $x = 1; print(m()); }", "a macro sees only its own variables: add $x to its parameters"),
        ("begin { $counter = 1; print($countr); }", "did you mean '$counter'?"),
    ],
)
def test_hints(script: str, hint: str) -> None:
    assert analyse(script).diagnostics.errors[0].hints == (hint,)


def test_a_name_may_be_used_again_after_its_block() -> None:
    script = 'begin { { $x = 1; print($x); } { $x = "text"; print($x); } }'
    types = [str(info.type) for info in analyse(script).checked().variables.values()]
    assert set(types) == {"int8", "string[5]"}
