"""Returns of user functions: programs do what they do without probes, and every return is counted.

IFUNC symbols: the functions that stand for them are probed.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.compile import SOURCES, compiled
from tests.support.machine import need
from tests.support.server import Server

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="code of x86-64")


def unchanged(server: Server, program: Path, script: str) -> str:
    """What a script prints; the program prints and returns the same as without it."""
    need("uprobe")
    alone = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    command = f"{program}; echo status=$?"
    words = ("--follow", "-e", script.replace("BIN", str(program)), "-c", f"/bin/sh -c '{command}'")
    result = server.run(words, timeout=120)
    assert result.status == 0, result
    assert result.stdout.startswith(f"{alone.stdout}status={alone.returncode}\n"), result
    assert alone.returncode > 2
    return result.stdout


def test_exceptions_pass_through_traced_functions(server: Server, tmp_path: Path) -> None:
    program = compiled(tmp_path, "throws", SOURCES / "throws.cpp", "-O2", language="c++")
    script = "uretprobe:BIN:cpp:* { @[func] = count(); } uretprobe:BIN:main { @main = count(); }"
    text = unchanged(server, program, script)
    found = dict(re.findall(r"@\[([^(]+)\(.*\]: (\d+)", text))
    # A return by a jump to a virtual method is seen at the jump, whether or not the method throws.
    assert [found[name] for name in ("deep", "middle", "jumps")] == ["1000"] * 3
    assert "@main: 1" in text


def test_values_that_are_not_known_are_left_out(server: Server, tmp_path: Path) -> None:
    need("uprobe")
    source = (SOURCES / "throws.cpp").read_text().replace("base->call(x)", "(base->*(&Base::call))(x)")
    program = compiled(tmp_path, "throws", source, "-O2", "-fno-devirtualize", language="c++")
    result = server.run(
        ("-e", f"uretprobe:{program}:cpp:virtually {{ @ = sum(retval); }}", "-c", str(program)), timeout=60
    )
    assert "retval is not known there" in result.stderr
    assert "2000 returns left out" in result.stderr, result


def test_threads_are_cancelled_in_traced_functions(server: Server, tmp_path: Path) -> None:
    program = compiled(tmp_path, "cancels", SOURCES / "cancels.c", "-O2", "-pthread")
    script = "uretprobe:BIN:waits, uretprobe:BIN:run, uretprobe:libc:pthread_join { @[func] = count(); }"
    assert "@[pthread_join]: 1000" in unchanged(server, program, script)


@pytest.mark.skipif(shutil.which("rustc") is None, reason="no compiler of Rust")
def test_panics_pass_through_traced_functions(server: Server, tmp_path: Path) -> None:
    program = tmp_path / "panics"
    program.with_suffix(".rs").write_text((SOURCES / "panics.rs").read_text())
    subprocess.run(["rustc", "-O", "-o", program, program.with_suffix(".rs")], check=True, timeout=100)
    assert "@: 1000" in unchanged(server, program, "uretprobe:BIN:middle { @ = count(); }")


def test_all_returns_of_a_recursion_and_of_functions_that_jump_to_others(server: Server, tmp_path: Path) -> None:
    """More than the 64 nested returns that the kernel follows, and values of functions that another one returns for."""
    need("uprobe")
    program = compiled(tmp_path, "nested", SOURCES / "nested_returns.c", "-O2", "-fno-optimize-sibling-calls")
    jumping = compiled(tmp_path, "jumping", SOURCES / "nested_returns.c", "-O2", "-fno-inline")
    scripts = [
        f"uprobe:{path}:down {{ @in = count(); }} uretprobe:{path}:down {{ @out = count(); @deepest = max(retval); }}"
        f"uretprobe:{path}:leaf,uretprobe:{path}:tail,uretprobe:{path}:chain,uretprobe:{path}:maybe"
        "{ @n[func] = count(); @sum[func] = sum(retval); }"
        for path in (program, jumping)
    ]
    texts = [server.run(("-e", text, "-c", str(path)), timeout=60)
             for text, path in zip(scripts, (program, jumping), strict=True)]  # fmt: skip
    assert not any("WARNING" in text.stderr for text in texts), texts
    assert texts[0].stdout == texts[1].stdout
    for line in ("@in: 2000", "@out: 2000", "@deepest: 199", "@n[leaf]: 35", "@n[tail]: 20", "@n[chain]: 10"):
        assert line in texts[1].stdout


@pytest.mark.parametrize("options", [(), ("-static",)], ids=["shared", "static"])
def test_calls_of_functions_that_programs_choose_when_they_start(
    server: Server, tmp_path: Path, options: tuple[str, ...]
) -> None:
    need("uprobe")
    program = compiled(tmp_path, "chooses", SOURCES / "chosen_functions.c", "-O1", "-fno-builtin", *options)
    library = program if options else "libc"
    script = (
        f"uprobe:{program}:own {{ @own = count(); @least = min(arg0); }}"
        f"uretprobe:{program}:own {{ @sum = sum(retval); }}"
        f'uprobe:{library}:strlen /comm == "chooses" && str(arg0) == "thirteen char"/ {{ @strlen = count(); }}'
        f'uretprobe:{library}:strlen /comm == "chooses" && retval == 13/ {{ @long = count(); }}'
    )
    result = server.run(("-e", script, "-c", f"{program} 'thirteen char'"), timeout=60)
    assert result.status == 0, result
    lines = result.stdout.split("\n")
    assert {"@own: 50", "@least: 100", "@strlen: 50", f"@sum: {sum(range(101, 151))}"} <= set(lines), result
    assert any(line.startswith("@long: 5") for line in lines)


def test_returns_that_the_kernel_does_not_see_are_counted(server: Server, tmp_path: Path) -> None:
    """A function that leaves by pointers: its return address is replaced, for 64 nested calls."""
    need("uprobe")
    program = compiled(tmp_path, "deep", SOURCES / "deep_returns.c", "-O2")
    script = f"uprobe:{program}:down {{ @in = count(); }} uretprobe:{program}:down {{ @out = count(); }}"
    result = server.run(("-e", script, "-c", str(program)), timeout=60)
    assert "the return address of down is replaced, as it jumps to a function whose" in result.stderr
    assert {"@in: 2000", "@out: 640"} <= set(result.stdout.split("\n"))
    assert "1360 returns not seen, as the kernel follows 64 nested calls of a task" in result.stderr, result
