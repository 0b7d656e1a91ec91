from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.multitools.specs import signatures
from pytrace.multitools.specs.problems import SpecText


def test_parameters() -> None:
    sock, text, there, size = signatures.parse(
        SpecText.of("struct sock *sk, const char *name, struct iovec __user *vec, size_t size")
    )
    assert (sock.name, sock.type, sock.value("arg0")) == ("sk", "struct sock *", "(struct sock *)arg0")
    assert (text.text, text.value("arg1")) == (True, "arg1")
    assert there.value("arg2") == "uptr((struct iovec *)arg2)"
    assert (size.type, size.value("arg3")) == ("uint64", "arg3")
    assert (sock.value("args.sk"), there.value("args.vec")) == (
        "(struct sock *)args.sk",
        "uptr((struct iovec *)args.vec)",
    )


def test_user_text_and_arrays() -> None:
    name, values = signatures.parse(SpecText.of("const char __user *name, int values[4]"))
    assert name.value("arg0") == "uptr((int8 *)arg0)"
    assert values.type == "int32 *"


@pytest.mark.parametrize("text", ["", "void"])
def test_none(text: str) -> None:
    assert signatures.parse(SpecText.of(text)) == ()


@pytest.mark.parametrize(
    ("text", "message", "word"),
    [
        ("int a, size", "'size' is not a parameter", "size"),
        ("int a, , int b", "'' is not a parameter", ""),
        ("struct sock", "is not a parameter", "struct sock"),
        ("int a, int a", "two parameters 'a'", "int a"),
        ("in t a", "'in t' is not a C type", "in t"),
        ("int (*f)(int)", "is not a parameter", "int (*f)(int)"),
    ],
)
def test_mistakes(text: str, message: str, word: str) -> None:
    with pytest.raises(TraceError, match=r"parameter|type") as caught:
        signatures.parse(SpecText.of(text))
    first, line, mark = caught.value.message.split("\n")
    assert message in first
    assert line == text
    assert line[mark.index("~") : mark.index("~") + max(1, len(word))].startswith(word)
