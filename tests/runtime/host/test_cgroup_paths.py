"""pytrace.runtime.host.cgroup_paths on directories that stand for mounted hierarchies."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.base import cgroups
from pytrace.runtime.host import fingerprints
from pytrace.runtime.host.cgroup_paths import CgroupPaths


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three hierarchies and their table of mounts; the unified one is not the first."""
    for folder in ("memory/job", "unified/system.slice/ssh.service", "unified/user.slice", "cpu,cpuacct/job"):
        (tmp_path / folder).mkdir(parents=True)
    rows = [
        ("tmpfs", "unified", "tmpfs"),
        ("cgroup", "memory", "cgroup"),
        ("cgroup2", "unified", "cgroup2"),
        ("cgroup", "cpu,cpuacct", "cgroup"),
    ]
    lines = [
        f"{number} 1 0:{number} / {tmp_path}/{folder} rw,relatime shared:9 - {kind} {source} rw\n"
        for number, (source, folder, kind) in enumerate(rows, 20)
    ]
    (tmp_path / "mounts").write_text("".join(lines))
    return tmp_path


def inode(path: Path) -> int:
    return path.stat().st_ino


def made(root: Path) -> CgroupPaths:
    return CgroupPaths(str(root / "mounts"))


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("unified", "unified:/"),
        ("unified/system.slice/ssh.service", "unified:/system.slice/ssh.service"),
        ("memory/job", "memory:/job"),
        ("cpu,cpuacct", "cpu,cpuacct:/"),
    ],
)
def test_paths_by_id(root: Path, folder: str, path: str) -> None:
    assert made(root).paths(inode(root / folder)) == path


def test_unknown_ids_have_no_path(root: Path) -> None:
    assert made(root).paths(1) == ""
    assert CgroupPaths("/dev/null").paths(inode(root)) == ""


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [("*", True), ("cpu*", True), ("cpu,cpuacct", True), ("memory", False), ("cpu?cpuacct", False), ("[c]pu*", False)],
)
def test_only_a_star_is_special_in_a_pattern(root: Path, pattern: str, shown: bool) -> None:
    assert bool(made(root).paths(inode(root / "cpu,cpuacct/job"), pattern)) is shown


def test_the_unified_hierarchy_comes_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hierarchies are file systems of their own, so one id may be in several."""
    roots = [f"{root}/{folder}" for folder in ("memory", "unified", "cpu,cpuacct")]
    monkeypatch.setattr(fingerprints, "inode", lambda path: 7 if path.rstrip("/") in roots else 1)
    assert made(root).paths(7) == "unified:/,cpu,cpuacct:/,memory:/"


def test_one_walk_serves_all_ids(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walks: list[str] = []
    walk = cgroups.directories

    def counted(top: str) -> object:
        walks.append(top)
        return walk(top)

    monkeypatch.setattr(cgroups, "directories", counted)
    found = made(root)
    for folder in ("system.slice", "user.slice", "system.slice/ssh.service"):
        assert found.paths(inode(root / "unified" / folder), "unified") == f"unified:/{folder}"
    assert walks == [f"{root}/unified"]


def test_a_cgroup_that_was_removed_or_made_later(root: Path) -> None:
    found = made(root)
    slice_ = root / "unified/user.slice"
    identity = inode(slice_)
    assert found.paths(identity) == "unified:/user.slice"
    moved = slice_.rename(root / "unified/renamed.slice")
    assert found.paths(identity) == "unified:/renamed.slice"
    later = root / "unified/later"
    later.mkdir()
    assert found.paths(inode(later)) == "unified:/later"
    moved.rmdir()
    assert found.paths(identity) == ""
    assert "/renamed.slice" not in found._known.values(), "containers come and go"


def test_links_are_not_followed(root: Path) -> None:
    inner = root / "outside/inner"
    inner.mkdir(parents=True)
    (root / "unified/link").symlink_to(inner.parent)
    assert made(root).paths(inode(inner)) == ""


def mounted_again(root: Path, device: str, shown: str, folder: str, kind: str) -> None:
    place = f"{root}/{folder}".replace(" ", r"\040")
    with (root / "mounts").open("a") as file:
        file.write(f"90 1 {device} {shown} {place} rw - {kind} none rw\n")


def test_a_hierarchy_that_is_mounted_twice_is_one(root: Path) -> None:
    (root / "chroot/sys").mkdir(parents=True)
    for kind, device, folder in (("cgroup2", "0:22", "unified"), ("cgroup", "0:21", "memory")):
        (root / "chroot/sys" / folder).symlink_to(root / folder)
        mounted_again(root, device, "/", f"chroot/sys/{folder}", kind)
    assert made(root).paths(inode(root / "unified/user.slice")) == "unified:/user.slice"
    assert made(root).paths(inode(root / "memory/job")) == "memory:/job"
    assert len(cgroups.mounts(str(root / "mounts"))) == 5
    assert len(cgroups.hierarchies(str(root / "mounts"))) == 3
