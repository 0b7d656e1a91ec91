from __future__ import annotations

import pytest

from pytrace.multitools.specs.c_types import NoTypeError, is_text, is_type_word, is_user, script_type


@pytest.mark.parametrize(
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
