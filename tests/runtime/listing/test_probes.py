"""Listing of places: lists that are made in bulk say the same as lists of single places."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.listing import probes
from pytrace.runtime.live_kernel import LiveKernel
from tests.support.compile import compiled

FUNCTIONS = "vfs_read\nvfs_write\nhelper\nnf_hook [nf]\nhelper [nf]\nhelper [other]\n"


@pytest.fixture
def kernel(tmp_path: Path) -> LiveKernel:
    path = tmp_path / "functions"
    path.write_text(FUNCTIONS)
    return LiveKernel(traceable_functions=str(path))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("kprobe:vfs_*", ["kprobe:vfs_read", "kprobe:vfs_write"]),
        ("kretprobe:vfs_read", ["kretprobe:vfs_read"]),
        ("kprobe:helper", ["kprobe:helper"]),
        ("k:*", ["kprobe:vfs_read", "kprobe:vfs_write", "kprobe:helper", "kprobe:nf_hook"]),
        ("kprobe:*:helper", ["kprobe:vmlinux:helper", "kprobe:nf:helper", "kprobe:other:helper"]),
        ("kprobe:n*:*", ["kprobe:nf:nf_hook", "kprobe:nf:helper"]),
        ("kprobe:vmlinux:*e*", ["kprobe:vmlinux:vfs_read", "kprobe:vmlinux:vfs_write", "kprobe:vmlinux:helper"]),
        ("kprobe:vfs_read+4", ["kprobe:vfs_read"]),
        ("kprobe:nothing*", []),
        ("kprobe:none:*", []),
        ("fentry:nothing_at_all*", []),
    ],
)
def test_kernel_functions(kernel: LiveKernel, pattern: str, expected: list[str]) -> None:
    text = probes.listing(kernel, pattern)
    assert text == "".join(f"{line}\n" for line in expected)
    assert probes.listing(kernel, f"{pattern},{pattern}") == text, "place by place"


def test_user_functions(kernel: LiveKernel) -> None:
    path = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libc.so" in line)
    text = probes.listing(kernel, f"uprobe:{path}:str*")
    lines = text.splitlines()
    assert f"uprobe:{path}:strerror" in lines
    assert lines == sorted(set(lines))
    assert not any("@" in line for line in lines)
    assert probes.listing(kernel, f"uprobe:{path}:str*,uprobe:{path}:str*") == text
    assert probes.listing(kernel, f"uprobe:{path}:no_such_function_*") == ""
    with pytest.raises(TraceError, match="there is no binary"):
        probes.listing(kernel, f"uprobe:{path}.missing:*")
    with pytest.raises(TraceError, match="is not an ELF program or library"):
        probes.listing(kernel, f"uprobe:{__file__}:*")
    assert probes.listing(kernel, f'uprobe:{sys.executable}:cpp:"no::such*"') == ""


def test_files_that_patterns_find_may_be_broken_or_go(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(Path(sys.executable).resolve().read_bytes())
    (tmp_path / "broken").write_bytes((tmp_path / "one").read_bytes()[:40])
    kernel = LiveKernel()
    found = kernel.binaries(f"{tmp_path}/*", None)
    assert found == [str(tmp_path / "one"), str(tmp_path / "two")]
    (tmp_path / "one").unlink()
    assert [item.name for item in kernel.user_symbols(found[0], "main")] == ["main"]
    assert kernel.binaries(f"{tmp_path}/*", None) == found[1:]
    with pytest.raises(TraceError, match=r"cannot read .*/one: No such file"):
        LiveKernel().user_symbols(found[0], "main")
    assert probes.listing(kernel, f"uprobe:{tmp_path}/*:main") == f"uprobe:{found[1]}:main\n"


def test_overlapping_patterns_list_once(kernel: LiveKernel) -> None:
    assert probes.listing(kernel, "kprobe:vfs_*,kprobe:*read").splitlines() == ["kprobe:vfs_read", "kprobe:vfs_write"]


def test_names_with_line_ends_are_not_listed(kernel: LiveKernel, tmp_path: Path) -> None:
    """They would look like other probes, and a script cannot name them."""
    name = r'\"evil\\nkprobe:x\"'
    text = f'asm(".globl {name}\\n.type {name}, @function\\n{name}:\\n ret\\n"); int main(void) {{ return 0; }}'
    path = compiled(tmp_path, "named", text)
    listed = probes.listing(kernel, f"uprobe:{path}:*")
    assert f"uprobe:{path}:main\n" in listed
    assert all(line.startswith("uprobe:") for line in listed.splitlines()), listed
