"""Pointers whose type the verifier must know."""

from __future__ import annotations

import pytest

from tests.codegen.running import compiled, messages

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
