"""Programs that tests need beside the environment of Python: what scripts/test installs for the tests that it runs.

A test names them by the mark ``needs``: ``pytest.mark.needs("ruby")``. Without them it is skipped, and fails in CI.
``python -m tests.support.parts [PART…] [FILE…]`` prints what those tests need that this machine lacks: a line
``packages …`` with Debian's names, and a line ``fetch …`` with functions of scripts/setup.sh.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support import downloads

ROOT = Path(__file__).resolve().parents[2]
_MARK = re.compile(r"mark\.needs\(([^)]*)\)")


@dataclass(frozen=True)
class Part:
    """What tests need."""

    programs: tuple[str, ...] = ()
    """Programs that show that it is installed, or paths."""
    packages: tuple[str, ...] = ()
    """Debian's packages."""
    fetch: str = ""
    """The function of scripts/setup.sh that fetches it into the cache; *programs* are paths in the cache then."""
    only_in_ci: bool = False
    """Its package enables a service, which is no developer's wish."""
    beside: str = ""
    """Another part that it needs."""

    def lacks(self) -> str:
        """What this machine does not have of it; empty when nothing."""
        names = [name for name in self.programs if not _is_there(name, downloads.folder() if self.fetch else Path("/"))]
        return ", ".join(names)


def _is_there(name: str, folder: Path) -> bool:
    if "/" in name:
        return any(folder.glob(name.lstrip("/")))
    return bool(shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"))


PARTS = {
    "compilers": Part(
        ("gcc", "g++", "make", "nm", "/usr/include/stdio.h", "unshare", "ps"),
        ("gcc", "g++", "make", "binutils", "libc6-dev", "util-linux", "procps"),
    ),
    "machine": Part(("qemu-system-x86_64", "modprobe", "busybox"), ("qemu-system-x86", "kmod", "busybox-static")),
    "bpftool": Part(("bpftool",), ("bpftool",)),
    "btrfs": Part(("mkfs.btrfs",), ("btrfs-progs",)),
    "chromium": Part(("chromium",), ("chromium",)),
    "clang": Part(("clang",), ("clang",)),
    "strace": Part(("strace",), ("strace",)),
    "dotnet": Part(("dotnet/.ready",), fetch="ensure_dotnet"),
    "dwz": Part(("dwz", "llvm-dwp"), ("dwz", "llvm")),
    "ext4": Part(("mkfs.ext4",), ("e2fsprogs",)),
    "fish": Part(("fish",), ("fish",)),
    "go": Part(("go",), ("golang-go",)),
    "headers": Part(("kernel-headers/6.1.*/.ready",), fetch="ensure_headers 6.1"),
    "ip": Part(("ip",), ("iproute2",), only_in_ci=True),
    "java": Part(("javac",), ("default-jdk-headless",)),
    "mono": Part(("mcs",), ("mono-mcs",)),
    "node": Part(("node", "npm"), ("nodejs", "npm")),
    "openssl": Part(("openssl",), ("openssl",)),
    "php": Part(("php",), ("php-cli",)),
    "postgresql": Part(("/usr/lib/postgresql/*/bin/initdb",), ("postgresql",)),
    "readers": Part(("readers/stamp",), fetch="ensure_readers", beside="node"),
    "ruby": Part(("ruby",), ("ruby",)),
    "ssh": Part(("sshd",), ("openssh-server",), only_in_ci=True),
    "sudo": Part(("sudo",), ("sudo",), only_in_ci=True),
    "tmux": Part(("tmux",), ("tmux",)),
    "xfs": Part(("mkfs.xfs",), ("xfsprogs",)),
    "zsh": Part(("zsh",), ("zsh",)),
}
"""By the name in the mark."""

ALWAYS = "compilers"


def need(*names: str) -> None:
    """Skip the test that runs where this machine lacks a part; in CI, where scripts/test installs it, it fails."""
    import pytest

    for name in names:
        lack = PARTS[name].lacks()
        if lack and os.environ.get("CI") == "true" and not os.environ.get("PYTRACE_TEST_VM"):
            pytest.fail(f"{name}: {lack} could not be installed", pytrace=False)
        if lack:
            pytest.skip(f"{name}: there is no {lack}, which scripts/test installs")


# ------------------------------------------------------------------------------------------------ for scripts/test


def needed(part: str) -> set[str]:
    """Names of what the tests of a part of scripts/test need."""
    found = {"machine"} if part in ("core", "vm") else set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        if runs(part, file):
            found.update(_named(file.read_text(encoding="utf-8")))
    return found


def runs(part: str, file: Path) -> bool:
    """Whether a part may run tests of a file."""
    traces = file.relative_to(ROOT).parts[1] in ("kernel", "tools")
    if part in ("core", "vm"):
        return traces and names_a_mark(file, *(("core",) if part == "core" else ("core", "each_kernel")))
    if part == "unit":
        return not traces
    return traces or names_a_mark(file, "kernel", "tool", "soak")


def names_a_mark(file: Path, *names: str) -> bool:
    """Whether the text of a file has one of these marks."""
    text = file.read_text(encoding="utf-8")
    return any(f"mark.{name}" in text for name in names)


def _named(text: str) -> Iterator[str]:
    for names in _MARK.findall(text):
        yield from re.findall(r'"([^"]+)"', names)


def wanted(words: list[str]) -> set[str]:
    """Names of what tests need: of parts of scripts/test, or of files (``tests/…``, also ``tests/…::NAME``) only."""
    files = [ROOT / word.partition("::")[0] for word in words if word.startswith("tests/")]
    parts = [word for word in words if not word.startswith("tests/")]
    if files:
        texts = [file.read_text(encoding="utf-8") for name in files for file in _files(name)]
        found = {name for text in texts for name in _named(text)}
        return found | {ALWAYS} | ({"machine"} if {"core", "vm"}.intersection(parts) else set())
    # A first look at the tests takes a minute and no root: tests that need more are skipped.
    if set(parts) <= {"unit", "quick"}:
        return {ALWAYS}
    return set().union({ALWAYS}, *map(needed, parts))


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("test_*.py")) if path.is_dir() else [path]


def main(words: list[str]) -> None:
    """Print what is missing."""
    names = wanted(words)
    names |= {PARTS[name].beside for name in names} - {""}
    missing = {name: PARTS[name] for name in sorted(names) if PARTS[name].lacks()}
    if os.environ.get("CI") != "true":
        missing = {name: part for name, part in missing.items() if not part.only_in_ci}
    print("packages", *dict.fromkeys(package for part in missing.values() for package in part.packages))
    for part in missing.values():
        if part.fetch:
            print("fetch", part.fetch)


if __name__ == "__main__":
    main(sys.argv[1:])
