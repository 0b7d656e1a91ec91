"""Programs that are compiled in parts do what they do in one piece."""

from __future__ import annotations

from pathlib import Path

from tests.support.expect import Result
from tests.support.server import Server


def run(server: Server, folder: Path, text: str) -> Result:
    script = folder / "long.bt"
    script.write_text(text)
    return server.run(("-q", str(script)), timeout=60)


def test_variables_and_returns(server: Server, tmp_path: Path) -> None:
    lines = "\n".join(f"@a[{n}] = {n}; $sum += {n}; if ($sum < 0) {{ return; }}" for n in range(500))
    text = f"begin {{ $sum = 0; $v = (uint64)7; $p = &$v;\n{lines}\nprint(($sum, *$p, @a[499], len(@a))); clear(@a); }}"
    ends = "\n".join(f"@c = {n}; if (@c == 450) {{ exit(3); }}" for n in range(600))
    result = run(server, tmp_path, f"{text}\nbegin {{\n{ends}\nprint(1); }}")
    assert result.stdout.split("\n")[0] == "(124750, 7, 499, 500)", result
    assert "@c: 450" in result.stdout
    assert result.status == 3


def test_loops_are_left_from_long_bodies(server: Server, tmp_path: Path) -> None:
    lines = "\n".join(f"@b[{n} + $k] = $i; @n++;" for n in range(300))
    loop = f"for ($i : 0..9) {{ $k = $i;\n{lines}\nif ($i == 2) {{ break; }}\n{lines}\n}}"
    text = f"begin {{ {loop} print((@b[0], @b[2], @b[301], @n)); clear(@b); exit(); }}"
    assert run(server, tmp_path, text).stdout.split("\n")[0] == "(0, 2, 2, 1500)"


def test_chains_of_else_if(server: Server, tmp_path: Path) -> None:
    arms = " else ".join(f"if ($n == {n}) {{ @hit[{n}] = $n; }}" for n in range(600))
    loop = f"for ($i : 0..3) {{ $n = $i * 599; {arms} else {{ @none = $n; }} }}"
    text = f"begin {{ {loop} print(@hit); clear(@hit); exit(); }}"
    result = run(server, tmp_path, text)
    assert result.stdout.split() == ["@hit[0]:", "0", "@hit[599]:", "599", "@none:", "1198"], result


def test_failures_are_told_at_their_places(server: Server, tmp_path: Path) -> None:
    """A long program counts and reports them in one function."""
    lines = "\n".join(f"@a[{n}] = {n};" for n in range(700))
    text = f"let @a = hash(600);\nbegin {{\n{lines}\ndelete(@a, 900);\nclear(@a); exit(); }}"
    result = run(server, tmp_path, text)
    assert "long.bt:603:1-8: WARNING: @a is full (600 keys)" in result.stderr, result
    assert "100 map updates dropped (@a 100)" in result.stderr
    assert "long.bt:703:1-16: WARNING: @a has no such key to delete" in result.stderr
