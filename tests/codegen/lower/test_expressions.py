"""Expressions: operators, members, calls."""

from __future__ import annotations

import struct

import pytest

from tests.codegen.running import compiled, machine, messages, printed, ran

VALUES = [
    ("print(5);", 5),
    ('print("text");', b"text"),
    ("print(true);", True),
    ("print(18446744073709551615);", 18446744073709551615),
    ("print(TASK_STOPPED);", 4),
    ('print((1, "a", (2, true)));', (1, b"a", (2, True))),
    ('print((a=1, b="x"));', (1, b"x")),
    ("print((1, (2, 3)).1.0);", 2),
    ('print((a=1, b="x").b);', b"x"),
    ("print({ let $a = pid; $a + 1 });", 4322),
    ('print(if (pid > 5) { "big" } else { "small" });', b"big"),
    ("print(if (pid == 5) { 1 } else if (pid == 4321) { 2 } else { 3 });", 2),
    ("$t = pid == 5 ? (1, 2) : (3, 4); print($t);", (3, 4)),
    ('$s = pid == 5 ? "a" : "bcd"; print($s);', b"bcd"),
    ("$x = 5; $p = &$x; print(*$p);", 5),
    ("$x = (1, 2); $p = &$x; print((*$p).1);", 2),
    ("@x = 7; $p = &@x; print(*$p);", 7),
    ("@x[1] = 8; $p = &@x[1]; print(*$p);", 8),
    ("print(comm[1]);", 97),
    ("$i = pid - 4319; print(comm[$i]);", 115),
    ("print((1, 2)[1]);", 2),
    ("print(sizeof(int32));", 4),
    ("print(comptime (2 * 3));", 6),
]


@pytest.mark.parametrize(("body", "wanted"), VALUES)
def test_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


# ------------------------------------------------------------------------------------------------------------ operators

OPERATORS_VALUES = [
    ("print(pid + 1);", 4322),
    ("print(pid - 5000);", -679),
    ("print(pid * pid);", 18671041),
    ("print(pid / 100);", 43),
    ("print((int32)pid / -100);", -43),
    ("print((int64)0 - pid % 100);", -21),
    ("print(((int64)0 - pid) / 100);", -43),
    ("print(((int64)0 - pid) % 100);", -21),
    ("print((uint64)(0 - pid) / 2);", 9223372036854773647),
    ("print(pid & 15);", 1),
    ("print(pid | 4096);", 4321),
    ("print(pid ^ 1);", 4320),
    ("print(pid << 3);", 34568),
    ("print(pid >> 2);", 1080),
    ("print(((int64)0 - pid) >> 1);", -2161),
    ("print(~pid);", 18446744073709547294),
    ("print(!pid);", False),
    ("print(-pid);", -4321),
    ("print(pid < 5000);", True),
    ("print(((int64)0 - pid) < 5);", True),
    ("print((uint64)(0 - pid) < 5);", False),
    ("print(pid == 4321 && tid == 4322);", True),
    ("print(pid == 1 || tid == 4322);", True),
    ("print(pid == 1 && { @x = 1; true });", False),
    ("$x = (uint8)255; print(++$x);", 256),
    ("let $x: uint8 = 255; print(++$x);", 0),
    ("let $x: int8 = 127; $x++; print($x);", -128),
    ("@x = 5; print(@x++); ", 5),
    ("@x = 5; print(--@x);", 4),
    ("$p = (int32 *)100; $p++; print((uint64)$p);", 104),
    ("$p = (int32 *)100; print((uint64)($p + 3));", 112),
    ("$p = (int32 *)100; print((uint64)($p - 3));", 88),
    ("print(pid > 1 ? 7 : 8);", 7),
    ("print((pid - 4321) ?: 9);", 9),
    ("$x = 10; $x -= pid; print($x);", -4311),
    ("$x = pid; $x <<= 2; print($x);", 17284),
    ("@m[1] = 6; @m[1] *= 7; print(@m[1]);", 42),
]


@pytest.mark.parametrize(("body", "wanted"), OPERATORS_VALUES)
def test_operators_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


@pytest.mark.parametrize("operator", ["/", "%"])
@pytest.mark.parametrize("type_", ["int64", "uint64"])
def test_division_by_zero_gives_1_and_is_reported(operator: str, type_: str) -> None:
    found = ran(f"begin {{ $z = ({type_})(pid - 4321); @ = ({type_})pid {operator} $z; }}")
    assert found.slot("@") == 1
    assert [kind for kind, _ in found.values()] == ["runtime_error"]


def test_the_least_number_divided_by_minus_1() -> None:
    assert printed("$x = (int64)pid - 4322; $m = (int64)9223372036854775807 * $x - 1; print($m / $x);") == [-(2**63)]
    assert printed("$x = (int64)pid - 4322; $m = (int64)9223372036854775807 * $x - 1; print($m % $x);") == [0]


# -------------------------------------------------------------------------------------------------------------- members

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


def test_members_and_elements() -> None:
    found = machine("begin { print(curtask.real_parent.real_parent.tgid); }", task=bytes(TASK))
    found.write(found.current + 24, struct.pack("<Q", found.current))
    found.run()
    assert found.printed() == [77]
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


# ---------------------------------------------------------------------------------------------------------------- calls


@pytest.mark.parametrize(
    ("function", "call", "wanted"),
    [
        ("fn f($a: int64): int64 { return $a * 2; }", "f(21)", 42),
        ("fn f($a: int64): int64 { $a + 1 }", "f(1)", 2),
        ("fn f($a: uint8, $b: int64): int64 { return $b - $a; }", "f((uint8)255, 5)", -250),
        ("fn f($a: int64): uint8 { return (uint8)$a; }", "f(300)", 44),
        ("fn f($a: int64): bool { return $a > 1; }", "f(5)", True),
        ("fn g($a: int64): int64 { return $a + 1; } fn f($a: int64): int64 { return g($a) * g($a + 1); }", "f(1)", 6),
        ("fn f(): int64 { @c++; return (int64)@c; }", "f() + f() * 10", 21),
    ],
)
def test_calls_values(function: str, call: str, wanted: object) -> None:
    assert ran(f"{function} begin {{ print({call}); }}").printed() == [wanted]


def test_memory_of_a_function_is_its_own() -> None:
    script = """fn f($a: int64): int64 { $s = ("inner", $a); @[$s] = 1; return $a; }
    begin { $s = ("outer", f(1), f(2)); print($s); @k[f(3), "x", f(4)] = 1; }"""
    found = ran(script)
    assert found.printed() == [(b"outer", 1, 2)]
    assert found.entries("@") == {(b"inner", at): 1 for at in range(1, 5)}
    assert found.entries("@k") == {(3, b"x", 4): 1}


def test_functions_without_a_result() -> None:
    assert ran("fn f($a: int64) { print($a); } begin { f(5); f(6); }").printed() == [5, 6]
