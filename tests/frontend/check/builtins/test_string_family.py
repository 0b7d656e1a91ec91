"""Builtins on strings, buffers and memory: how long what they give is, and what is known when compiling."""


from __future__ import annotations

import pytest

from tests.frontend.checking import refused, value, warned

# fmt: off
REFUSED = [
    ("begin { str(\"a\", \"b\"); }", "1:9-22", "the length of str() must be an integer, not string[2]"),
    ("begin { print(str((1,2))); }", "1:15-25", "str() takes a pointer, an integer or a string, not (int8,int8)"),
    ("begin { print(strlen(username)); }", "1:15-31", "strlen() takes a string, not username"),
    ("begin { print(bswap(\"a\")); }", "1:15-25", "the argument of bswap() must be an integer, not string[2]"),
    ("begin { print(bswap(true)); }", "1:15-26", "the argument of bswap() must be an integer, not bool"),
    ("begin { print(bswap(curtask)); }",
     "1:15-29", "the argument of bswap() must be an integer, not struct task_struct *"),
    ("begin { print(buf(5)); }", "1:15-21", "buf() needs a length for int8"),
    ("begin { print(buf(curtask)); }", "1:15-27", "buf() needs a length for struct task_struct *"),
    ("begin { print(buf(\"a\", \"b\")); }", "1:15-28", "the length of buf() must be an integer, not string[2]"),
    ("begin { print(buf(\"a\", -1)); }", "1:15-27", "the length of buf() cannot be negative"),
    ("begin { print(buf((1, 2), 3)); }",
     "1:15-29", "buf() takes a pointer, integer, array or string, not (int8,int8)"),
    ("begin { print(signal_name(\"SIGKILL\")); }",
     "1:15-37", "the argument of signal_name() must be an integer, not string[8]"),
    ("begin { print(strerror(\"x\")); }", "1:15-28", "the argument of strerror() must be an integer, not string[2]"),
    ("begin { print(syscall_name(curtask)); }",
     "1:15-36", "the argument of syscall_name() must be an integer, not struct task_struct *"),
    ("begin { print(str(\"a\", -1)); }", "1:15-27", "the length of str() cannot be negative"),
    ("begin { print(strcap(5)); }", "1:15-24", "strcap() takes a string, not int8"),
    ("begin { print(strlen((uint64*)5)); }", "1:15-33", "strlen() takes a string, not uint64 *"),
    ("begin { print(strlen(curtask)); }", "1:15-30", "strlen() takes a string, not struct task_struct *"),
    ("begin { print(strcontains(5, \"a\")); }",
     "1:15-34", "the first argument of strcontains() must be a string, not int8"),
    ("begin { print(strstr(\"a\", 5)); }", "1:15-29", "the second argument of strstr() must be a string, not int8"),
    ("begin { print(strncmp(1, \"a\", 1)); }",
     "1:15-33", "the first argument of strncmp() must be a string, not int8"),
    ("begin { $n = 2; print(strncmp(\"a\", \"b\", $n)); }",
     "1:23-44", "the length of strncmp() must be an integer literal"),
    ("begin { print(strncmp(\"a\", \"b\", -1)); }",
     "1:15-36", "the length of strncmp() must be 0 to 2147483647, not -1"),
    ("begin { print(memcmp(\"ab\", comm, 4)); }", "1:15-36", "memcmp() compares 4 bytes, but string[3] is shorter"),
    ("begin { print(memcmp(\"ab\", (1, 2), 1)); }",
     "1:15-38", "memcmp() takes strings, arrays, integers and pointers, not (int8,int8)"),
    ("begin { print(memcmp(\"ab\", comm, -1)); }", "1:15-37", "the length of memcmp() must be 0 to 1024, not -1"),
    ("begin { print(memcmp(\"ab\", comm, 1025)); }", "1:15-39", "the length of memcmp() must be 0 to 1024, not 1025"),
    ("begin { print(memcmp(1, 2, 9)); }", "1:15-30", "memcmp() compares 9 bytes, but int8 is shorter"),
    ("fentry:vfs_getattr { print(path(5)); }", "1:28-35", "path() takes a struct path, not int8"),
    ("fentry:vfs_read { print(path(args.file)); }", "1:25-40", "path() takes a struct path, not struct file *"),
    ("fentry:vfs_getattr { print(path(args.path, 1025)); }",
     "1:28-49", "the size of path() must be 1 to 1024, not 1025"),
    ("begin { print(str_concat(\"a\", 5)); }",
     "1:15-33", "the second argument of str_concat() must be a string, not int8"),
]
VALUES = [
    ("begin { print(str(0)); }", "string[1024]", None),
    ("begin { print(str(0, 5)); }", "string[6]", None),
    ("begin { print(str(0, 0)); }", "string[1]", None),
    ("begin { print(str(0, pid)); }", "string[1024]", None),
    ("begin { print(str(\"abc\")); }", "string[4]", b"abc"),
    ("begin { print(str(\"abc\", 2)); }", "string[3]", b"ab"),
    ("begin { print(str(\"abc\", pid)); }", "string[4]", None),
    ("begin { print(str(comm)); }", "string[16]", None),
    ("begin { print(str(comm, 3)); }", "string[4]", None),
    ("begin { print(str(comm, 100)); }", "string[16]", None),
    ("begin { print(buf(\"abc\")); }", "buffer[4]", None),
    ("begin { print(buf(\"abc\", 2)); }", "buffer[2]", None),
    ("begin { print(buf(0, 8)); }", "buffer[8]", None),
    ("begin { print(buf(0, 0)); }", "buffer[1]", None),
    ("begin { print(buf(0, pid)); }", "buffer[1024]", None),
    ("begin { print(buf(curtask.bits)); }", "buffer[32]", None),
    ("begin { print(strcap(\"abc\")); }", "uint64", 4),
    ("begin { print(strcap(comm)); }", "uint64", 16),
    ("begin { print(strcap((int8*)0)); }", "uint64", 1024),
    ("begin { print(strlen(\"abc\")); }", "uint64", 3),
    ("begin { print(strlen(comm)); }", "uint64", None),
    ("begin { print(strlen(\"a\\x00b\")); }", "uint64", 1),
    ("begin { print(strcontains(\"a\", comm)); }", "bool", None),
    ("begin { print(strstr(\"a\", comm)); }", "int64", None),
    ("begin { print(strncmp(\"a\", comm, 3)); }", "uint64", None),
    ("begin { print(str_concat(\"ab\", comm)); }", "string[18]", None),
    ("begin { print(str_concat(\"ab\", str(0))); }", "string[1024]", None),
    ("begin { print(memcmp(\"ab\", comm, 2)); }", "int64", None),
    ("begin { print(bswap((uint16)0x1234)); }", "uint16", 13330),
    ("begin { print(bswap((uint32)1)); }", "uint32", 16777216),
    ("begin { print(bswap(nsecs)); }", "uint64", None),
    ("begin { print(bswap((uint8)5)); }", "uint8", 5),
    ("begin { print(strerror(1)); }", "string[64]", None),
    ("begin { print(signal_name(1)); }", "string[64]", None),
    ("begin { print(syscall_name(1)); }", "string[64]", None),
    ("fentry:vfs_getattr { print(path(args.path)); }", "string[1024]", None),
    ("fentry:vfs_getattr { print(path(args.path, 16)); }", "string[16]", None),
    ("begin { $s = comm; $s = str_concat($s, $s); print($s); }", "string[1024]", None),
]
WARNED = [
    ("begin { print(str(0, 1025)); }", "1:15-27", "str() is truncated to max_strlen, which is 1024"),
    ("begin { print(buf(0, 1025)); }", "1:15-27", "buf() is truncated to max_strlen, which is 1024"),
]
# fmt: on


@pytest.mark.parametrize(("script", "place", "message"), REFUSED)
def test_refused(script: str, place: str, message: str) -> None:
    assert refused(script) == (place, message)


@pytest.mark.parametrize(("script", "type_", "constant"), VALUES)
def test_values(script: str, type_: str, constant: object) -> None:
    assert value(script) == (type_, constant)


@pytest.mark.parametrize(("script", "place", "message"), WARNED)
def test_warned(script: str, place: str, message: str) -> None:
    assert warned(script) == (place, message)
