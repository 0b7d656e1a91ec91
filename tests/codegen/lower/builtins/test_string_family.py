"""Builtins on strings and memory, as programs compute them."""

from __future__ import annotations

import pytest

from tests.codegen.running import machine, printed

VALUES = [
    ("print(strlen(comm));", 4),
    ('print(strlen("ab"));', 2),
    ('print(strcontains(comm, "as"));', True),
    ('print(strcontains(comm, "x"));', False),
    ('print(strstr(comm, "sk"));', 2),
    ('print(strstr(comm, ""));', 0),
    ('print(strstr(comm, "task"));', 0),
    ('print(strstr(comm, "tasks"));', -1),
    ('$n = comm; print(strstr("a task here", $n));', 2),
    ('print(strncmp(comm, "taxi", 2));', 0),
    ('print(strncmp(comm, "taxi", 3) == 0);', False),
    ('print(strncmp(comm, "task", 16));', 0),
    ('print(str_concat(comm, "-x"));', b"task-x"),
    ('print(str_concat("a", str_concat(comm, "b")));', b"ataskb"),
    ("print(str(comm, 2));", b"ta"),
    ("print(str(comm, 0));", b""),
    ("$n = 3; print(str(comm, $n));", b"tas"),
    ("print(buf(comm, 3));", b"tas"),
    ("$n = pid - 4319; print(buf(comm, $n));", b"ta"),
    ('print(memcmp(comm, "task", 4));', 0),
    ('print(memcmp(comm, "tasa", 4) > 0);', True),
    ('print(memcmp(comm, "tasz", 4) < 0);', True),
    ('$n = 3; print(memcmp(comm, "tasz", $n));', 0),
    ("print(bswap((uint16)pid));", 57616),
    ("print(bswap((uint32)pid));", 3775922176),
    ("print(bswap((uint64)pid));", 16217462258161156096),
    ("print(signal_name(pid - 4312));", b"Killed"),
    ("print(strerror(pid - 4319));", b"No such file or directory"),
    ("print(strerror(4319 - pid));", b"No such file or directory"),
    ("print(syscall_name(pid - 4321));", b"read"),
]


@pytest.mark.parametrize(("body", "wanted"), VALUES)
def test_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


@pytest.mark.parametrize("needle", ["n" * 5, "n" * 40, "n" * 300])
@pytest.mark.parametrize("known", [True, False])
def test_needles_of_all_lengths(needle: str, known: bool) -> None:
    hay = "ab" + "n" * (len(needle) - 1) + "x" + needle + "cd"
    term = f'"{needle}"' if known else "$n"
    body = f'$n = "{needle}"; $h = "{hay}"; if (pid == 0) {{ $n = "q"; $h = "q"; }}'
    assert printed(f"{body} print(strstr($h, {term}));") == [2 + len(needle)]


def user(script: str, text: bytes) -> list[object]:
    found = machine(script)
    context = bytearray(168)
    context[112:120] = found.region(text).to_bytes(8, "little")
    found.run(context=bytes(context))
    return found.printed()


def test_text_of_pointers() -> None:
    assert user("kprobe:vfs_read { print(str(kptr(arg0))); }", b"hello\0rest") == [b"hello"]
    assert user("kprobe:vfs_read { print(str(kptr(arg0), 2)); }", b"hello\0rest") == [b"he"]
    assert user("kprobe:vfs_read { print(strlen(kptr((int8 *)arg0))); }", b"hello\0") == [5]
    assert user("kprobe:vfs_read { print(buf(kptr(arg0), 4)); }", b"a\0bcdef") == [b"a\0bc"]


@pytest.mark.parametrize("number", [-5, 100000])
def test_unknown_numbers_have_a_name(number: int) -> None:
    assert printed(f"print(signal_name({number} + pid - 4321));")[0]
