"""Deep trees go through every pass and run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.server import Server

N = 500
# fmt: off
DEEP = {
    "parentheses": ("begin { print(" + "(" * N + "7" + ")" * N + "); exit(); }", "7"),
    "blocks": ("begin { " + "{ " * N + "print(7);" + " }" * N + " exit(); }", "7"),
    "angle brackets": ("begin " + "< " * N + "print(7);" + " >" * N + "begin { exit(); }", "7"),
    "if": ("begin { " + "if (pid) { " * N + "print(7);" + " }" * N + " exit(); }", "7"),
    "minus": ("begin { print(" + "- " * N + "7); exit(); }", "7"),
    "not": ("begin { print(" + "!" * N + "pid); exit(); }", "true"),
    "and": ("begin { print(" + "pid && " * N + "true); exit(); }", "true"),
    "or of many": ("begin { print(" + " || ".join(f"pid == {2**22 + n}" for n in range(N)) + "); exit(); }", "false"),
    "keys": ("begin { @a[0] = 1; print(" + "@a[" * N + "1" + "]" * N + "); clear(@a); exit(); }", "1"),
    "block values": ("begin { $x = " + "{ " * N + "7" + " }" * N + "; print($x); exit(); }", "7"),
    "unroll": ("begin { " + "unroll(1) { " * N + "print(7);" + " }" * N + " exit(); }", "7"),
    "macros": ("macro f(x) { x } begin { print(" + "f(" * N + "7" + ")" * N + "); exit(); }", "7"),
    "casts": ("begin { print(" + "(int64)(int32)" * N + "7); exit(); }", "7"),
    "members": ("begin { print(curtask" + ".real_parent" * N + ".pid == -1); exit(); }", "false"),
    "pointer type": ("begin { print(sizeof(int8" + "*" * N + ")); exit(); }", "8"),
}
# fmt: on


@pytest.mark.kernel
@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting_runs(name: str, server: Server, tmp_path: Path) -> None:
    script, expected = DEEP[name]
    (tmp_path / "deep.bt").write_text(script)
    result = server.run(
        ("-q", "deep.bt"), cwd=tmp_path, timeout=60, environment={"XDG_CACHE_HOME": str(tmp_path / ".cache")}
    )
    assert result.status == 0, result
    assert result.stdout.strip() == expected, result


@pytest.mark.kernel
def test_too_deep_is_a_message(server: Server, tmp_path: Path) -> None:
    (tmp_path / "deep.bt").write_text("begin { print(" + "1 + " * 20_000 + "1); exit(); }")
    result = server.run(("-q", "deep.bt"), cwd=tmp_path, timeout=60)
    assert result.status == 1
    assert "levels deep" in result.stderr
    assert "BUG" not in result.stderr
