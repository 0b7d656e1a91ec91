from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.multitools.specs.c_types import signature
from pytrace.multitools.specs.expressions import Translator, split
from pytrace.multitools.specs.problems import SpecText
from pytrace.multitools.specs.scope import Scope
from tests.support.rows import each_row

SCOPE = Scope(parameters=signature(SpecText.of("struct sock *sk, char *name, size_t size")))


def translated(text: str) -> str:
    return Translator(SpecText.of(text), SCOPE.names()).whole()


@each_row(
    ("text", "script"),
    [
        ("size>100&&size<200", "$size > 100 && $size < 200"),
        ("arg1 == 0", "arg0 == 0"),
        ("arg2&0xFFul | 7", "arg1 & 0xFFul | 7"),
        ("sk->__sk_common.skc_family == AF_INET", "$sk->__sk_common.skc_family == AF_INET"),
        ("(int)arg1 < 0", "(int32)arg0 < 0"),
        ("(struct task_struct *)arg1", "(struct task_struct *)arg0"),
        ("(size)", "($size)"),
        ("!(size == 1) || -1 == ~arg1", "!($size == 1) || -1 == ~arg0"),
        ("size > 1 ? 2 : size ? 3 : 4", "$size > 1 ? 2 : $size ? 3 : 4"),
        ("'a' == *name", "97 == *$name"),
        (r"'\n' == '\''", "10 == 39"),
        ("sizeof(struct sock) + sizeof(size)", "sizeof(struct sock) + sizeof($size)"),
        ('STRCMP("abc", name)', '(str($name) == "abc")'),
        ('!STRCMP(name, "a,b)")', '!(str($name) == "a,b)")'),
        ("ntohs(arg1)", "bswap((uint16)arg0)"),
        ("arg1@user", "uptr(arg0)"),
        ("name[2]", "$name[2]"),
        ("$pid == 1 && $tgid != 2 && $uid", "tid == 1 && pid != 2 && uid"),
        ("$task->pid", "curtask->pid"),
        ("arg1 << 2 >> 1", "arg0 << 2 >> 1"),
        ("NULL != arg1", "0 != arg0"),
        ("strlen(str(name)) % 3", "strlen(str($name)) % 3"),
        ("+size", "$size"),
        ("(unsigned long)size * 2", "(uint64)$size * 2"),
    ],
)
def test_expressions(text: str, script: str) -> None:
    assert translated(text) == script


@each_row(
    ("text", "message", "column"),
    [
        ("", "a value is expected, the end found", 0),
        ("size >", "a value is expected, the end found", 6),
        ("siz > 1", "unknown name 'siz'", 0),
        ("size = 1", "an assignment is not possible", 5),
        ("size size", "an operator or the end is expected, 'size' found", 5),
        ("(size", "')' is expected, the end found", 5),
        ("size)", "')' found", 4),
        ("a ? 1", "unknown name 'a'", 0),
        ("size ? 1", "':' is expected", 8),
        ('"abc', "this text has no end", 0),
        (r'n == "a\q"', r"unknown escape '\q'", 7),
        (r'n == "\\\x1g\477"', r"unknown escape '\4'", 12),
        (r'n == "\x"', r"unknown escape '\x'", 6),
        ("size # 1", "'#' is not expected here", 5),
        ("nosuch(1)", "unknown function 'nosuch'", 0),
        ("sk->", "the name of a member is expected after ->", 4),
        ("arg0", "unknown name 'arg0'", 0),
        ("STRCMP(name)", "STRCMP takes a text", 0),
        ("STRCMP(name, name)", "STRCMP takes a text", 0),
        ("retval", "unknown name 'retval'", 0),
        ("ntohs()", "ntohs takes one value", 0),
        ("arg1@here", "'user' or 'kernel' is expected", 5),
        ("size++", "a value is expected", 6),
        ("name[1", "']' is expected", 6),
        ("system(1)", "unknown function", 0),
    ],
)
def test_mistakes_are_underlined(text: str, message: str, column: int) -> None:
    with pytest.raises(TraceError) as caught:
        translated(text)
    first, line, mark = caught.value.message.split("\n")
    assert message in first
    assert (line, mark.index("~")) == (text, column)


def test_near_names_are_told() -> None:
    with pytest.raises(TraceError) as caught:
        translated("siez > 1")
    assert caught.value.hints[0] == "did you mean 'size'?"
    assert "sk, name, size" in caught.value.hints[1]


def test_lists() -> None:
    assert Translator(SpecText.of('arg1, "a,b", size'), SCOPE.names()).every() == ["arg0", '"a,b"', "$size"]
    with pytest.raises(TraceError, match="a value is expected"):
        Translator(SpecText.of("arg1,"), SCOPE.names()).every()


@pytest.mark.parametrize(
    ("text", "separator", "parts"),
    [
        ("a:b:c", ":", ["a", "b", "c"]),
        ("f(a:b):c", ":", ["f(a:b)", "c"]),
        ("x ? 1 : 2 : y", ":", ["x ? 1 : 2", "y"]),
        ('"a:b":c', ":", ['"a:b"', "c"]),
        (r"':':'\'':c", ":", ["':'", r"'\''", "c"]),
        ("", ",", [""]),
        ("a,,b", ",", ["a", "", "b"]),
        ("a[1,2],b", ",", ["a[1,2]", "b"]),
    ],
)
def test_split(text: str, separator: str, parts: list[str]) -> None:
    assert [part.text for part in split(SpecText.of(text), separator)] == parts


def test_split_at_most() -> None:
    assert [part.text for part in split(SpecText.of("a, b, c"), ",", 1)] == ["a", "b, c"]
