"""Builtins that print with the kernel's help, and what join() sends."""

from __future__ import annotations

import pytest

from tests.codegen.running import helpers, machine, ran


def test_strings_of_an_argument_vector() -> None:
    found = machine("kprobe:vfs_read { join(kptr(arg0)); }")
    texts = [found.region(text + b"\0") for text in (b"ls", b"-l", b"")]
    vector = b"".join(place.to_bytes(8, "little") for place in [*texts, 0])
    context = bytearray(168)
    context[112:120] = found.region(vector + bytes(64)).to_bytes(8, "little")
    found.run(context=bytes(context))
    ((kind, (count, *strings)),) = found.values()
    assert (kind, count, strings[:3]) == ("join", 3, [b"ls", b"-l", b""])


@pytest.mark.parametrize(
    ("call", "text", "values"),
    [
        ('debugf("plain");', b"plain\0", ()), ('debugf("%d %x", pid, 5);', b"%d %x\0", (4321, 5)),
        ('debugf("%d %d %d", 1, 2, 3);', b"%d %d %d\0", (1, 2, 3)),
    ],
)  # fmt: skip
def test_debug_messages(call: str, text: bytes, values: tuple[int, ...]) -> None:
    found = machine(f"begin {{ {call} }}")
    seen = []
    found.helpers[6] = lambda at, size, *given: seen.append((found.read(at, size), given[: len(values)])) or 0
    found.run()
    assert seen == [(text, values)]


def test_requests_to_the_tracer() -> None:
    found = ran('begin { @m[1] = 1; print(@m); time(); cat("f%d", pid); exit(); }')
    assert [kind for kind, _ in found.values()] == ["print_map", "time", "cat", "exit"]
    assert 6 not in helpers(found)
