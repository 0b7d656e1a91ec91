"""Members of structs, bit-fields, elements of arrays."""

from __future__ import annotations

import struct

import pytest

from tests.codegen.running import compiled, machine, messages, printed

TASK = bytearray(4096)
TASK[0:8] = struct.pack("<ii", -5, 77)
TASK[8:24] = b"name".ljust(16, b"\0")
TASK[40:48] = struct.pack("<q", -(2**40))
TASK[48:52] = struct.pack("<I", 0b10111)
TASK[56:88] = struct.pack("<4Q", 10, 11, 12, 13)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("curtask.pid", -5), ("curtask->tgid", 77), ("curtask.comm", b"name"), ("curtask.exit_word", -(2**40)),
        ("curtask.exit_code", 0), ("curtask.flag", 0b10), ("curtask.bits[2]", 12), ("curtask.bits", (10, 11, 12, 13)),
        ("curtask.bits[pid - 4320]", 11), ("(*curtask).tgid", 77), ("curtask.comm[1]", ord("a")),
    ],
)  # fmt: skip
def test_members_of_the_kernels_structs(expression: str, wanted: object) -> None:
    assert printed(f"print({expression});", task=bytes(TASK)) == [wanted]


def test_chains_of_pointers() -> None:
    found = machine("begin { print(curtask.real_parent.real_parent.tgid); }", task=bytes(TASK))
    found.write(found.current + 24, struct.pack("<Q", found.current))
    found.run()
    assert found.printed() == [77]


def test_an_index_outside_is_reported_and_zero() -> None:
    found = machine("begin { print(curtask.bits[pid]); }", task=bytes(TASK))
    found.run()
    assert list(found.values()) == [("runtime_error", []), ("print_value", [0])]


DEFINITIONS = "struct s { char a; int b : 5; int c : 11; unsigned d : 1; long e; short f[3]; struct { int g; }; } "


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("$s.a", -2),
        ("$s.b", -11),
        ("$s.c", -1018),
        ("$s.d", 1),
        ("$s.e", -9),
        ("$s.f[1]", 8),
        ("$s.g", 6),
        ("$s.f", (7, 8, 9)),
    ],
)
def test_members_of_the_scripts_structs(expression: str, wanted: object) -> None:
    found = machine(f"{DEFINITIONS}; kprobe:vfs_read {{ $s = (struct s *)arg0; print({expression}); }}")
    # The bit-fields share an int with the char before them.
    data = struct.pack("<Iiq3hxxi", 0xFE | 21 << 8 | 1030 << 13 | 1 << 24, 0, -9, 7, 8, 9, 6)
    context = bytearray(168)
    context[112:120] = found.region(data + bytes(16)).to_bytes(8, "little")
    found.run(context=bytes(context))
    assert found.printed() == [wanted]


def test_pointers_whose_type_must_be_known() -> None:
    assert messages("fentry:tcp_sendmsg { @s = args.sk; print(socket_cookie(@s)); }") == [
        "the kernel must know the type of this pointer"
    ]


@pytest.mark.parametrize("member", ["hash_len", "len"])
def test_members_of_unions(member: str) -> None:
    definitions = "struct q { union { struct { unsigned hash, len; }; unsigned long hash_len; }; };"
    found = machine(f"{definitions} kprobe:vfs_read {{ print(((struct q *)arg0).{member}); }}")
    context = bytearray(168)
    context[112:120] = found.region(struct.pack("<II", 3, 4)).to_bytes(8, "little")
    found.run(context=bytes(context))
    assert found.printed() == [4 << 32 | 3 if member == "hash_len" else 4]


GOOD = [
    "fentry:vfs_getattr { print(path(args.path)); }",
    "fentry:vfs_getattr { $p = args.path; print(path($p)); }",
    "fentry:vfs_getattr { $p = args.path; $q = $p; print(path($q)); }",
    "fentry:vfs_read { print(path(args.file.f_path)); }",
    "fentry:vfs_read { $f = args.file; print(path($f.f_path)); }",
    "fentry:vfs_getattr { print(path((struct path *)args.path)); }",
    "fentry:tcp_sendmsg { let $s = args.sk; print(socket_cookie($s)); }",
]
BAD = [
    "fentry:vfs_getattr { $p = args.path; $p = args.path; print(path($p)); }",
    "fentry:vfs_getattr { @p = args.path; print(path(@p)); }",
    "fentry:vfs_getattr { $p = args.path; $p++; print(path($p)); }",
    "fentry:vfs_getattr { $p = (struct path *)5; print(path($p)); }",
    "fentry:vfs_getattr { $p = args.path; if (pid) { $p = (struct path *)7; } print(path($p)); }",
    "fentry:vfs_getattr { $p = args.path; @a = &$p; print(path($p)); }",
]


@pytest.mark.parametrize("script", GOOD)
def test_what_comes_from_the_arguments_is_known(script: str) -> None:
    assert compiled(script).elf


@pytest.mark.parametrize("script", BAD)
def test_what_may_have_changed_is_not(script: str) -> None:
    assert messages(script) == ["the kernel must know the type of this pointer"]
