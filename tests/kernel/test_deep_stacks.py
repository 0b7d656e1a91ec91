"""Stacks that are deeper than what is kept: marked in every format, and counted."""

from __future__ import annotations

import gzip
import json
import platform
import re
import sys
from pathlib import Path

import pytest

from tests.support.compile import SOURCES, compiled
from tests.support.machine import need
from tests.support.saved import read
from tests.support.server import Server

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the walkers are for x86-64"),
]

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
    return compiled(tmp_path_factory.mktemp("deep"), "deep", SOURCES / "recursion.c", "-fno-omit-frame-pointer", *FLAGS)


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


DEEPER = "max_stack_depth = 1000"
DEEP_WALKS = {
    "frame_pointers": ("stack_unwinding = frame_pointers", "ustack"),
    "auto": ("stack_unwinding = auto", "ustack"),
    "tables": ("unstable_dw_ustack = enable", "dw_ustack"),
}


@pytest.mark.parametrize("name", DEEP_WALKS)
def test_deeper_stacks_have_all_frames(server: Server, deep: Path, name: str) -> None:
    """Chunks of 32 frames: stacks about their ends, and about the limit, in keys beside other members and in events."""
    need("bpf_loop")
    config, call = DEEP_WALKS[name]
    depths = [1, 20, 26, 27, 28, 29, 30, 31, 32, 33, 60, 500, 990, 991, 992, 993, 994, 995, 996, 997, 998, 999, 1400]
    body = f'@["x", {call}(raw), pid] = count(); printf("%d %s|\\n", len({call}), {call}(raw));'
    script = f"config = {{ {DEEPER}; {config} }} {GETSID} {{ {body} }}"
    done = server.run(("-q", "-e", script, "-c", f"{deep} {' '.join(map(str, depths))}"), timeout=60)
    assert done.status == 0, done.stderr
    printed = re.findall(r"^(\d+) \n(.*?)\|", done.stdout, re.MULTILINE | re.DOTALL)
    events = [(int(count), lines.split()) for count, lines in printed]
    assert len(events) == len(depths)
    (above,) = {count - depth for (count, _), depth in zip(events, depths, strict=True) if depth < 990}
    keys = [lines.split() for lines in re.findall(r"@\[x, \n(.*?)\n, \d+\]: \d", done.stdout, re.DOTALL)]
    root = events[0][1]
    for (count, frames), depth in zip(events, depths, strict=True):
        assert count == min(depth + above, 1000)
        assert (frames[-1] == MARK) is (depth + above > 1000)
        assert len(frames) == count + (frames[-1] == MARK)
        assert frames in keys
        if depth + above <= 1000:
            # The recursion is one address between the innermost frame and what called it first.
            assert len(set(frames[len(frames) - len(root) - depth + 2 : len(frames) - above])) <= 2
            assert frames[-1] == root[-1]
    assert "stacks truncated after" in done.stderr


def test_chunks_have_no_room(server: Server, deep: Path) -> None:
    """The frames that were stored are shown; both stacks share the outer ones."""
    config = "config = { max_stack_depth = 256; max_map_keys = 1; stack_unwinding = frame_pointers } "
    script = f"{config}let @ = percpuhash(9); {GETSID} {{ @[ustack(raw)] = count(); }}"
    done = server.run(("-q", "-e", script, "-c", f"{deep} 200 210"), timeout=60)
    assert re.search(r"\d stacks? lost frames, as the map of chunks was full \(ustack at ", done.stderr), done.stderr
    assert MARK in done.stdout


def test_limits_of_deeper_stacks(server: Server, deep: Path) -> None:
    script = f"config = {{ max_stack_depth = 300 }} {GETSID} {{ @[ustack(301)] = count(); }}"
    refused = server.run(("-q", "-e", script, "-c", f"{deep} 1"), timeout=60)
    assert "ustack() takes 1 to 300 frames, not 301" in refused.stderr
    assert "max_stack_depth = 301" in refused.stderr
    shallow = f"config = {{ max_stack_depth = 5 }} {GETSID} {{ @[ustack(raw)] = count(); }}"
    done = server.run(("-q", "-e", shallow, "-c", f"{deep} 9"), timeout=60)
    assert raw_stacks(done.stdout) == [(5, True)]
    # Stored in a variable, compared, as key and value, in a saved run.
    body = "$s = ustack; @same = $s == ustack; @[$s] = count(); @v[pid] = $s; @k[kstack, ustack(7)] = count();"
    script = f"config = {{ max_stack_depth = 512 }} {GETSID} {{ {body} delete(@d, ustack); @d[ustack] = 1; }}"
    done = server.run(("-q", "-e", script, "-c", f"{deep} 400"), timeout=60)
    assert "@same: true\n" in done.stdout
    assert done.stdout.count("deep+") >= 3 * 398 + 5


def test_deeper_stacks_of_python(server: Server, tmp_path: Path) -> None:
    need("bpf_loop")
    source = tmp_path / "deep.py"
    source.write_text(PYTHON)
    python = Path(sys.executable).resolve()
    config = "config = { max_stack_depth = 512; stack_unwinding = auto; python_frames = true } "
    script = f'{config}{GETSID} {{ printf("%s|%s|\\n", pystack(folded), ustack(folded)); }}'
    done = server.run(("-q", "-e", script, "-c", f"{python} {source} 300 511 512"), timeout=60)
    lines = [line.split("|") for line in done.stdout.splitlines() if "|" in line]
    assert [py.count("deep") for py, _, _ in lines[:2]] == [300, 511]
    assert lines[0][1].count("deep") == 300
    assert lines[0][0].startswith("<module>;deep;")
    assert [py.startswith(MARK) for py, _, _ in lines] == [False, False, True]
