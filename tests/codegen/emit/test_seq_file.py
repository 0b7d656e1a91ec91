"""printf in pinned iterators: what the kernel formats, and what it is given."""

from __future__ import annotations

import struct

import pytest

from pytrace.core.diagnostics import TraceError
from tests.codegen.running import compiled, machine


def written(call: str) -> tuple[bytes, tuple[int, ...], list[bytes]]:
    """The kernel's format, its words, and the strings that they point to."""
    found = machine(f"iter:task:pin {{ {call} }}")
    seen: list[tuple[bytes, tuple[int, ...]]] = []

    def seq_printf(_file: int, text: int, size: int, data: int, length: int) -> int:
        words = struct.unpack(f"<{length // 8}Q", found.read(data, length)) if length else ()
        seen.append((found.read(text, size), words))
        return 0

    found.helpers[126] = seq_printf
    meta = found.region(struct.pack("<Q", 1) + bytes(8))
    found.run(context=struct.pack("<QQ", meta, found.current))
    ((text, words),) = seen
    texts = [
        found.read(word, 32).partition(b"\0")[0] for word in words if word >> 32 and word >> 32 < len(found.regions)
    ]
    return text, words, texts


@pytest.mark.parametrize(
    ("call", "text", "words"),
    [
        ('printf("hello %% you\\n");', b"hello %% you\n\0", ()),
        ('printf("%d", 5);', b"%lld\0", (5,)),
        ('printf("%-5d|%08x", pid, -1);', b"%-5lld|%08llx\0", (4321, 2**64 - 1)),
        ('printf("%p", 255);', b"0x%llx\0", (255,)),
        ('printf("%c", 65);', b"%c\0", (65,)),
        ('printf("%ld %llu %hd", 1, 2, 3);', b"%lld %llu %lld\0", (1, 2, 3)),
    ],
)
def test_numbers(call: str, text: bytes, words: tuple[int, ...]) -> None:
    assert written(call)[:2] == (text, words)


def test_strings() -> None:
    text, _, texts = written('printf("%s %10s", comm, "abc");')
    assert (text, texts) == (b"%s %10s\0", [b"task", b"abc"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("print(5);", "print value is not possible in a pinned iterator"),
        ('printf("%#x", 1);', "the kernel cannot print format '%#x'"),
        ('printf("%.2s", comm);', "the kernel cannot print format"),
        ('printf("%o", 1);', "the kernel cannot print format"),
        ('printf("' + "%d" * 13 + '"' + ", 1" * 13 + ");", "more than 12 values"),
        ('printf("%s", (1, 2));', "cannot be printed so in a pinned iterator"),
        ('printf("%s", 5);', "cannot be printed so in a pinned iterator"),
    ],
)
def test_what_the_kernel_does_not_format(call: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        compiled(f"iter:task:pin {{ {call} }}")


def test_the_most_values() -> None:
    call = 'printf("' + "%d" * 12 + '"' + ", 1" * 12 + ");"
    assert written(call)[1] == (1,) * 12
