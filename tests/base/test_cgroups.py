"""Files of the kernel, and control groups."""

from __future__ import annotations

from pathlib import Path

from pytrace.base import cgroups, kernel_files
from pytrace.base.cgroups import MemoryLimit

# ---------------------------------------------------------------------------------------------- cgroups
# pytrace.base.cgroups on tables of mounts and directories that stand for mounted hierarchies.


def test_a_mount_of_the_whole_hierarchy_is_preferred(tmp_path: Path) -> None:
    part = "90 1 0:22 /system.slice /a\\040container rw - cgroup2 none rw\n"
    whole = "22 1 0:22 / /whole rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
    table = tmp_path / "mounts"
    for text, points in ((part, ["/a container"]), (part + whole, ["/whole"]), (whole + part, ["/whole"])):
        table.write_text(text)
        assert [mount.point for mount in cgroups.hierarchies(str(table))] == points


def test_only_newlines_end_a_mount(tmp_path: Path) -> None:
    """The kernel escapes blanks and newlines in a mount point, and nothing else that ends lines elsewhere."""
    (tmp_path / "mounts").write_bytes(b"33 24 0:28 / /a\rb\x0b\xc2\x85\\040c rw - cgroup2 cgroup rw\n")
    assert [mount.point for mount in cgroups.mounts(str(tmp_path / "mounts"))] == ["/a\rb\x0b\x85 c"]


# ---------------------------------------------------------------------------------------------- limits of memory


def grouped(folder: Path, membership: str, limits: dict[str, str], *, root: str = "/") -> MemoryLimit | None:
    """The memory limit of a process with that ``/proc/self/cgroup``, in hierarchies of both versions below *folder*."""
    for name, text in limits.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    table, groups = folder / "mountinfo", folder / "cgroup"
    table.write_text(
        f"30 1 0:30 {root} {folder}/unified rw - cgroup2 cgroup2 rw\n"
        f"31 1 0:31 / {folder}/memory rw - cgroup cgroup rw,memory\n"
        f"32 1 0:32 / {folder}/cpu rw - cgroup cgroup rw,cpu\n"
    )
    groups.write_text(membership)
    return cgroups.memory_limit(str(groups), str(table))


def test_the_least_limit_of_a_cgroup_and_of_its_ancestors(tmp_path: Path) -> None:
    limits = {"unified/a/memory.max": "5000\n", "unified/a/b/memory.max": "max\n", "unified/a/b/c/memory.max": "1\n"}
    assert grouped(tmp_path, "0::/a/b\n", limits) == MemoryLimit(5000, f"{tmp_path}/unified/a")
    assert grouped(tmp_path, "0::/a/b/c\n", limits) == MemoryLimit(1, f"{tmp_path}/unified/a/b/c")
    assert grouped(tmp_path, "0::/\n", limits) is None
    assert grouped(tmp_path, "0::/other\n", limits) is None


def test_limits_of_version_1(tmp_path: Path) -> None:
    limits = {"memory/a/memory.limit_in_bytes": "7000\n", "unified/memory.max": "max\n"}
    limit = MemoryLimit(7000, f"{tmp_path}/memory/a")
    assert grouped(tmp_path, "5:cpu,cpuacct:/a\n4:memory:/a\n0::/\n", limits) == limit
    # What a cgroup of version 1 without a limit shows.
    limits["memory/a/memory.limit_in_bytes"] = "9223372036854771712\n"
    assert grouped(tmp_path, "4:memory:/a\n0::/\n", limits) is None
    assert grouped(tmp_path, "4:cpu:/a\n", {"cpu/a/memory.limit_in_bytes": "5\n"}) is None


def test_a_container_sees_a_part_of_the_hierarchy(tmp_path: Path) -> None:
    limits = {"unified/memory.max": "9000\n", "unified/x/memory.max": "8000\n"}
    assert grouped(tmp_path, "0::/pod/one/x\n", limits, root="/pod/one") == MemoryLimit(8000, f"{tmp_path}/unified/x")
    for membership in ("0::/pod/one\n", "0::/pod/two\n"):
        limit = grouped(tmp_path, membership, limits, root="/pod/one")
        assert limit == MemoryLimit(9000, f"{tmp_path}/unified")


def test_limits_that_cannot_be_read(tmp_path: Path) -> None:
    assert cgroups.memory_limit(table=str(tmp_path / "none")) is None
    assert kernel_files.read_text(str(tmp_path)) == kernel_files.read_text(str(tmp_path / "none")) == ""
    (tmp_path / "file").write_bytes(b"a\r\n\xff\n")
    assert kernel_files.read_text(str(tmp_path / "file")) == "a\r\n\udcff\n"


# ---------------------------------------------------------------------------------------------- kernel files
# Reading files of the kernel.


def test_only_newlines_end_the_lines_of_the_kernel() -> None:
    assert kernel_files.lines("") == []
    assert kernel_files.lines("a\nb\n") == ["a", "b"]
    assert kernel_files.lines("a\x0b\x0c\x1c\x85\u2028\rb\n\nc") == ["a\x0b\x0c\x1c\x85\u2028\rb", "", "c"]
