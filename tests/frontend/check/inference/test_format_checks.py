"""Values against the conversions of a format."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

import pytest

from tests.frontend.checking import refused, warned
from tests.support.front import analyse

# fmt: off
REFUSED = [
    ("begin { printf(\"%d\", comm); }", "1:9-27", "printf(): %d takes an integer, not string[16]"),
    ("begin { printf(\"%gr\", true); }", "1:9-28", "printf(): %gr takes an integer of GFP flags, not bool"),
    ("begin { printf(\"%r\", comm); }", "1:9-27", "printf(): %r takes a buffer, not string[16]"),
    ("begin { printf(\"%d\"); }", "1:9-21", "not enough values for printf(): the format takes 1, 0 given"),
    ("begin { printf(\"x\", 1); }", "1:9-23", "too many values for printf(): the format takes 0, 1 given"),
    ("begin { printf(\"%e\", 1); }", "1:9-24", "printf(): conversion '%e' is not supported"),
    ("begin { printf(\"100% sure %d\", 1); }",
     "1:9-34", "not enough values for printf(): the format takes 2, 1 given"),
    ("begin { @h = hist(1); printf(\"%s\", @h); }", "1:36-38", "a value of hist_t cannot be read by the script"),
]
WARNED = [
    ("begin { printf(\"%y\"); }", "1:9-21", "printf(): '%y' is not a conversion: the % is printed as it is"),
]
# fmt: on


@pytest.mark.parametrize(("script", "place", "message"), REFUSED)
def test_refused(script: str, place: str, message: str) -> None:
    assert refused(script) == (place, message)


@pytest.mark.parametrize(("script", "place", "message"), WARNED)
def test_warned(script: str, place: str, message: str) -> None:
    assert warned(script) == (place, message)


@pytest.mark.parametrize(
    ("conversion", "value"),
    [(c, v) for c in ("d", "i", "u", "o", "x", "X", "c", "p") for v in ("1", "true", "curtask", "pid")]
    + [("gr", "pid"), ("s", "pid"), ("s", "comm"), ("s", "(1, 2)"), ("r", 'buf("a")'), ("rx", 'buf("a")'), ("rh", 'buf("a")')],
)
def test_what_conversions_take(conversion: str, value: str) -> None:
    assert not analyse(f'begin {{ printf("%{conversion}", {value}); }}').errors


def test_a_space_is_a_flag() -> None:
    (error,) = analyse('begin { printf("100% done"); }').diagnostics.errors
    assert error.hints == ("'% d' is a conversion; write %% for a % sign",)
