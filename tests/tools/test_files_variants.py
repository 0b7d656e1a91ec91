"""Scripts of file tools for other kernels than this one: they compile, with the types of this kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytrace.cli.main import main
from pytrace.runtime.load import features

FEATURES = ("fentry", "kprobe")


def pretended(present: frozenset[str]) -> Callable[[str], bool]:
    """``features.has`` of a kernel that has these of ``FEATURES``."""
    real = features.has
    return lambda name: name in present if name in FEATURES else real(name)


@pytest.mark.kernel
@pytest.mark.parametrize("present", [("fentry", "kprobe"), ("kprobe",), ()], ids=["fentry", "kprobe", "neither"])
@pytest.mark.parametrize(
    ("name", "everywhere"),
    [
        ("fsslower -t ext4 -m 1", True), ("fsslower 5", True), ("fsdist -T 1", True), ("btrfsdist -m", True),
        ("vfsstat 2 3", False), ("vfscount 5", False), ("dcstat", False), ("dcsnoop -a", False),
    ],
)  # fmt: skip
def test_variants_compile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    name: str, everywhere: bool, present: tuple[str, ...],
) -> None:  # fmt: skip
    monkeypatch.setattr(features, "has", pretended(frozenset(present)))
    target = tmp_path / "compiled.o"
    status = main([*name.split(), "--no-cache", "--emit-elf", str(target)])
    said = capsys.readouterr().err
    if present or everywhere:
        assert status == 0, said
        assert not said
        assert target.stat().st_size > 0
    else:
        assert status == 1
        assert "neither kprobes nor fentry" in said
