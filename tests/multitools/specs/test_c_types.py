from __future__ import annotations

import platform

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.multitools.specs.c_types import NoTypeError, is_text, is_type_word, is_user, places, script_type, signature
from pytrace.multitools.specs.problems import SpecText
from tests.support.rows import each_row


@each_row(
    ("text", "type_"),
    [
        ("int", "int32"), ("unsigned", "uint32"), ("unsigned int", "uint32"), ("unsigned long long", "uint64"),
        ("long int", "int64"), ("short", "int16"), ("unsigned char", "uint8"), ("u32", "uint32"),
        ("__u64", "uint64"),
        ("size_t", "uint64"), ("struct sock *", "struct sock *"), ("const struct sock * const", "struct sock *"),
        ("char*", "int8 *"), ("const char __user *", "int8 *"), ("char **", "int8 **"),
        ("enum pid_type", "enum pid_type"),
        ("my_type_t", "my_type_t"), ("void *", "void *"),
    ],
)  # fmt: skip
def test_types(text: str, type_: str) -> None:
    assert script_type(text) == type_


@pytest.mark.parametrize("text", ["", "*", "struct", "struct a b", "int int2", "12", "a b", "char * x", "int;"])
def test_what_is_no_type(text: str) -> None:
    with pytest.raises(NoTypeError):
        script_type(text)


def test_texts_and_user_pointers() -> None:
    assert is_text("const char *")
    assert not is_text("char")
    assert not is_text("char **")
    assert not is_text("no type")
    assert is_user("struct x __user *")
    assert not is_user("struct x *")


def test_words_that_begin_types() -> None:
    assert all(map(is_type_word, ("unsigned", "struct", "u8", "size_t", "void", "const")))
    assert not any(map(is_type_word, ("size", "arg1", "sk")))


def test_parameters() -> None:
    sock, text, there, size = signature(
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
    name, values = signature(SpecText.of("const char __user *name, int values[4]"))
    assert name.value("arg0") == "uptr((int8 *)arg0)"
    assert values.type == "int32 *"


@pytest.mark.parametrize("text", ["", "void"])
def test_none(text: str) -> None:
    assert signature(SpecText.of(text)) == ()


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
        signature(SpecText.of(text))
    first, line, mark = caught.value.message.split("\n")
    assert message in first
    assert line == text
    assert line[mark.index("~") : mark.index("~") + max(1, len(word))].startswith(word)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="registers are those of x86-64")
def test_floating_point_parameters_take_registers_of_their_own() -> None:
    mixed = signature(SpecText.of("int a, double b, long l, float *p, float g, int e, int h, int i, int k"))
    assert places(mixed) == [0, None, 1, 2, None, 3, 4, 5, 6]
    # The ninth one is on the stack, before the seventh integer.
    words = [*(f"double d{n}" for n in range(9)), *(f"int {name}" for name in "abcdefg")]
    many = signature(SpecText.of(", ".join(words)))
    assert places(many)[9:] == [0, 1, 2, 3, 4, 5, 7]
