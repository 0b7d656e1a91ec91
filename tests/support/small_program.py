"""A small C program whose symbols, debug files and code tests look at, with and without its symbols."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.compile import compiled, tool

TEXT = """
#include <stdlib.h>
int counter = 7;
__attribute__((noinline)) int helper(int n) { return n + counter; }
__attribute__((noinline)) int help(int n) { return helper(n) * 2; }
static __attribute__((noinline)) int hidden(int n) { return n - 1; }
int main(int argc, char **argv) { (void)argv; return help(hidden(argc)) + atoi("3"); }
"""

LAYERS = """
#pragma GCC optimize ("no-omit-frame-pointer")
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((noinline)) int innermost(void) { return syscall(SYS_getppid) + 1; }
__attribute__((noinline)) int middle(void) { return innermost() + 1; }
__attribute__((noinline)) int outer(void) { return middle() + 1; }
int main(void) { return outer() == 0; }
"""
"""Makes a system call in ``innermost``, with callers that frame pointers lead to."""

WAITING = LAYERS.replace("#include", "#include <stdio.h>\n#include", 1).replace(
    "return outer() == 0;",
    'puts("waits"); fflush(stdout); getchar(); int made = outer(); puts("called"); fflush(stdout); getchar();'
    " return made == 0;",
)
"""The same, when it has read a character; then it waits for another one."""


def built(folder: Path, name: str = "program", *, text: str = TEXT, build_id: bool = True) -> Path:
    """The program, with DWARF and a build id."""
    wanted = "-Wl,--build-id" if build_id else "-Wl,--build-id=none"
    return compiled(folder, name, text, "-g", "-O1", "-fno-inline", wanted)


def another_build(folder: Path) -> Path:
    """The program with other code in one function."""
    return built(folder, "other", text=TEXT.replace("n - 1", "n - 2"))


def addresses(path: Path) -> dict[str, int]:
    """Virtual addresses of all symbols, as ``nm`` shows them."""
    text = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout
    return {row.split()[-1]: int(row.split()[0], 16) for row in text.splitlines() if len(row.split()) == 3}


def split(program: Path, folder: Path) -> tuple[Path, Path]:
    """A stripped copy with a debug link, and its debug file beside it."""
    stripped, debug = folder / "stripped", folder / "stripped.debug"
    tool("objcopy", "--only-keep-debug", program, debug)
    tool("objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", program, stripped)
    return stripped, debug
