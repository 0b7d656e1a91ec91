"""Stacks that are deeper than what is kept: marked in every format, and counted."""

from __future__ import annotations

import gzip
import json
import platform
import re
import sys
from pathlib import Path

import pytest

from tests.support.compile import compiled
from tests.support.machine import need
from tests.support.saved import read
from tests.support.server import Server

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the walkers are for x86-64"),
]

RECURSION = r"""
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
/* deep DEPTH...: for each number a getsid under as many calls of deep. */
__attribute__((noinline)) int deep(int n) {
    int sum = n > 1 ? deep(n - 1) : (int)syscall(SYS_getsid, 0);
    __asm__ volatile("" ::: "memory");
    return sum + 1;
}
int main(int count, char **words) {
    for (int i = 1; i < count; i++)
        deep(atoi(words[i]));
    return 0;
}
"""
FLAGS = ("-O2", "-fno-optimize-sibling-calls", "-fno-ipa-icf", "-fno-inline")
GETSID = "tracepoint:syscalls:sys_enter_getsid /pid == cpid/"
MARK = "[truncated]"
WALKS = {
    "frame_pointers": ("config = { stack_unwinding = frame_pointers } ", "ustack"),
    "kernel": ("", "ustack"),
    "auto": ("config = { stack_unwinding = auto } ", "ustack"),
    "tables": ("config = { unstable_dw_ustack = enable } ", "dw_ustack"),
}


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("deep"), "deep", RECURSION, "-fno-omit-frame-pointer", *FLAGS)


def raw_stacks(text: str) -> list[tuple[int, bool]]:
    """The number of frames of each stack that a script printed, and whether it has the mark at its end."""
    found = []
    for block in re.findall(r"@\[\n(.*?)\]: 1\n", text, re.DOTALL):
        lines = block.split()
        assert MARK not in lines[:-1]
        found.append((len(lines) - (lines[-1] == MARK), lines[-1] == MARK))
    return sorted(found)


@pytest.mark.parametrize("name", WALKS)
def test_a_mark_where_a_frame_is_missing(server: Server, deep: Path, name: str) -> None:
    """Walkers of pytrace look for one more frame; a stack that the kernel has walked is full or it is not."""
    need("bpf_loop")
    config, call = WALKS[name]
    script = f"{config}{GETSID} {{ @[{call}(raw)] = count(); @n = max(len({call})); }}"
    words = ("--no-feature", "current_task_btf") if name == "kernel" else ()
    first = server.run(("-q", *words, "-e", script, "-c", f"{deep} 1"), timeout=60)
    assert first.status == 0, first.stderr
    ((above, _),) = raw_stacks(first.stdout)
    depths = [127 - above, 128 - above, 129 - above, 400]  # 126, 127, 128 and more frames
    done = server.run(("-q", *words, "-e", script, "-c", f"{deep} {' '.join(map(str, depths))}"), timeout=60)
    assert "@n: 127\n" in done.stdout
    lines = [line for line in done.stderr.splitlines() if "truncated" in line]
    kernel = name == "kernel"
    assert raw_stacks(done.stdout) == [(126, False), (127, kernel), (127, True), (127, True)]
    assert lines[0].startswith(f"WARNING: {6 if kernel else 4} stacks truncated after their innermost frames (")
    assert re.search(rf"{call} of @ at \S+ {3 if kernel else 2}\b", lines[0])


def test_every_format_has_the_mark(server: Server, deep: Path, tmp_path: Path) -> None:
    script = f"{GETSID} {{ @[ustack] = count(); }}"
    names = ("text", "json", "folded", "speedscope", "firefox", "pprof", "svg", "perfetto")
    saved = tmp_path / "saved"
    done = server.run(("-q", "--save", str(saved), "-e", script, "-c", f"{deep} 300 301"), timeout=60)
    assert f"        {MARK}\n]: 2\n" in done.stdout
    assert "2 stacks truncated after their innermost frames (ustack of @ at " in done.stderr
    ((stack,),) = [list(data.entries) for data in read(saved).maps.values()]
    assert [frame.function for frame in stack.frames].count(MARK) == 1  # type: ignore[union-attr]
    for name in names:
        path = tmp_path / name
        shown = server.run(("show", str(saved), "-f", name, "-o", str(path)), timeout=60)
        assert shown.status == 0, shown.stderr
        data = path.read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        assert MARK.encode() in text, name
    assert (tmp_path / "folded").read_text().startswith(f"{MARK};deep;deep;")


@pytest.mark.parametrize("form", ["", "perf", "raw", "folded", "annotated", "inverted", "build_id"])
def test_every_mode_has_the_mark(server: Server, deep: Path, form: str) -> None:
    script = f'{GETSID} {{ printf("%s|", ustack{f"({form})" if form else ""}); }}'
    printed = server.run(("-q", "-e", script, "-c", f"{deep} 300"), timeout=60).stdout
    ends = printed.startswith(f"{MARK};") if form in ("folded", "annotated") else re.search(
        r"[;\t ]?(0 )?\[truncated\]( \(\[unknown\]\))?\n?\|", printed
    )  # fmt: skip
    assert ends, printed[-200:]


def test_a_limit_that_the_script_names_is_no_truncation(server: Server, deep: Path) -> None:
    done = server.run(("-q", "-e", f"{GETSID} {{ @[ustack(9)] = count(); }}", "-c", f"{deep} 300"), timeout=60)
    assert done.stdout.count("deep+") >= 7
    assert (MARK in done.stdout, done.stderr) == (False, "")


PYTHON = """
import os, sys
sys.setrecursionlimit(5000)
def deep(n):
    return deep(n - 1) if n > 1 else os.getsid(0)
for depth in sys.argv[1:]:
    deep(int(depth))
"""


def test_stacks_of_python(server: Server, tmp_path: Path) -> None:
    need("bpf_loop")
    source = tmp_path / "deep.py"
    source.write_text(PYTHON)
    python = Path(sys.executable).resolve()
    config = "config = { stack_unwinding = auto; python_frames = true } "
    script = f"{config}{GETSID} {{ @py[len(pystack)] = count(); print(pystack(folded)); print(ustack(folded)); }}"
    done = server.run(("-q", "-f", "json", "-e", script, "-c", f"{python} {source} 126 127 300"), timeout=60)
    stacks = [json.loads(line) for line in done.stdout.splitlines() if '"value"' in line]
    folded = [item["data"] for item in stacks if item["type"] == "value"]
    assert [text.startswith(f"{MARK};deep;") for text in folded] == [False, True, True, True, True, True]
    assert folded[0].startswith("<module>;deep;")
    assert '"@py": {"127": 3}' in done.stdout
