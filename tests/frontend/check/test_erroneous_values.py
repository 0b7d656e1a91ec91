"""Mistakes in every place that a type is inferred from: inference ends, and each script gets a message or compiles."""

from __future__ import annotations

import itertools

import pytest

from tests.support.front import analyse

MISTAKES = (
    "zz", "zz()", "$zz", "@zz", "@zz[1]", "1.0", "curtask->zz", "args.zz", '(1, "a") + 1', "str(zz)", "sizeof(zz)",
    "(struct zz *)0", "-zz", "zz ? 1 : 2", "(zz, 1).1", "count()", "{ let $a = zz; $a }", "if (zz) { 1 } else { 2 }",
    "@q", "@q[1]", "$v", "($v, zz)", "(@q, 1)", "(@q[1], zz)", 'f"x"', "strftime(zz, nsecs)", "typeof(zz)", "*zz",
    "reg(\"zz\")", "nsecs(zz)", "(1, zz)", "(a = zz, b = 1)", "zz.a", "zz[1]", "!zz", "(uint8)zz", "buf(zz)",
    "kstack(zz)", "&zz",
)  # fmt: skip
"""Expressions without a type, or whose type has a part that is not known."""

WRAPPED = ("{0}", "(1, {0})", "(a = ({0}, {0}), b = 1)")

PLACES = (
    "begin {{ @q[1] = {0}; }}",
    "begin {{ @q[{0}] = 1; }}",
    "begin {{ @q[{0}, 1] = count(); }}",
    "begin {{ @q[1] = {0}; @r = @q[1]; @s[@r] = {0}; }}",
    "begin {{ @q = {0}; print(@q); }}",
    "begin {{ $v = {0}; @q[$v] = $v; }}",
    "begin {{ let $v; $v = {0}; $v = (1, {0}); }}",
    "begin {{ for ($v : @q) {{ @q[$v.0] = {0}; }} }}",
    "begin {{ for ($v : 0..{0}) {{ @q = $v; }} }}",
    "begin {{ while ({0}) {{ @q[1] = {0}; break; }} }}",
    "begin {{ unroll({0}) {{ @q = 1; }} }}",
    "begin {{ print({0}); @q = sum({0}); @h = hist({0}); }}",
    'begin {{ printf("%d %s", {0}, {0}); @q = 1; }}',
    "begin {{ if ({0}) {{ @q[{0}] = {0}; }} else {{ delete(@q, {0}); }} }}",
    "fn f($v : int64) : int64 {{ @q[$v] = {0}; return {0}; }} begin {{ @q[f({0})] = 1; }}",
    "macro m(x) {{ (x, {0}) }} begin {{ @q[1] = m({0}); }}",
)
DECLARED = ("", "let @q = hash(16);\n", "let @q = lruhash(16);\n", "let @q = percpuhash(16);\n", "let @q;\n")


@pytest.mark.parametrize("number", range(len(PLACES)))
def test_inference_ends(number: int) -> None:
    """Each mistake in every second place, with each declaration and form somewhere."""
    place = PLACES[number]
    rounds = itertools.cycle(itertools.product(DECLARED, WRAPPED))
    for mistake, (declared, wrapped) in itertools.islice(zip(MISTAKES, rounds, strict=False), number % 2, None, 2):
        script = declared + place.format(wrapped.format(mistake))
        try:
            result = analyse(script)
        except Exception as problem:  # the script that caused it is what a reader needs
            raise AssertionError(script) from problem
        assert result.errors or result.program is not None, script


def test_a_declared_map_of_tuples_with_an_unknown_name() -> None:
    result = analyse("let @q = hash(16); begin { @q[1] = (1, zz); }")
    assert [message for _, message in result.errors] == ["unknown name 'zz'"]


@pytest.mark.parametrize(
    "text",
    [
        "begin { @q[1] = (@q[1], @q[1]); }",
        "begin { $v = (1, 1); $v = ($v, $v); }",
        "begin { @a = (@b, @b); @b = (@a, @a); }",
        "begin { $a0 = (1, 1); " + "".join(f"$a{at + 1} = ($a{at}, $a{at}); " for at in range(30)) + "}",
    ],
)
def test_types_that_double(text: str) -> None:
    """They had 2^30 members and more before inference or the limit of nesting ended it."""
    assert analyse(text).errors
