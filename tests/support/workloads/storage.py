"""Disks and file systems of a test's own: loop devices on images, mounted and taken away again."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.kernel_features import needs_program, program
from tests.support.tools import cannot

MEGABYTE = 1 << 20
SIZES = {"ext4": 64 * MEGABYTE, "xfs": 320 * MEGABYTE, "btrfs": 128 * MEGABYTE}
"""Images are sparse; these are close to the smallest that the programs make."""
_MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-m", "single"),
}


@dataclass(frozen=True)
class Disk:
    """A loop device."""

    path: str
    size: int

    @property
    def name(self) -> str:
        """As tools show it: ``loop3``."""
        return os.path.basename(self.path)

    @property
    def number(self) -> tuple[int, int]:
        """Major and minor number."""
        device = os.stat(self.path).st_rdev
        return os.major(device), os.minor(device)


@dataclass(frozen=True)
class FileSystem:
    """A mounted file system."""

    kind: str
    folder: Path
    disk: Disk


def load(module: str) -> None:
    """Load a kernel module, which the kernel may have built in."""
    subprocess.run([program("modprobe") or "true", "-q", module], check=False)


def call(*words: object) -> str:
    """Run a program of the system; its output.

    Raises:
        AssertionError: it failed; with what it said.
    """
    done = subprocess.run([program(str(words[0])), *map(str, words[1:])], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def loop_disk(size: int = 32 * MEGABYTE) -> Iterator[Disk]:
    """A block device of that size, empty."""
    load("loop")
    needs_program("losetup")
    with ExitStack() as stack:
        image = stack.enter_context(tempfile.NamedTemporaryFile(prefix="pytrace-disk-"))
        os.truncate(image.fileno(), size)
        path = call("losetup", "--find", "--show", image.name).strip()
        stack.callback(call, "losetup", "--detach", path)
        yield Disk(path, size)


@contextmanager
def file_system(kind: str, size: int = 0) -> Iterator[FileSystem]:
    """A new file system of a kind of ``SIZES``, mounted; the test is skipped where the kernel has none of that kind."""
    needs_program(_MAKE[kind][0])
    load(kind)
    if kind not in Path("/proc/filesystems").read_text().split():
        cannot(f"this kernel ({os.uname().release}) has no {kind}")
    with ExitStack() as stack:
        disk = stack.enter_context(loop_disk(size or SIZES[kind]))
        call(*_MAKE[kind], disk.path)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"pytrace-{kind}-"))
        call("mount", "-t", kind, disk.path, folder)
        stack.callback(call, "umount", folder)
        yield FileSystem(kind, Path(folder), disk)


def _new_array(file: Path) -> str:
    """Make an array of a name that no other test uses at the same time."""
    for number in range(97, 128):
        try:
            file.write_text(f"md{number}")
        except FileExistsError:
            continue
        return f"md{number}"
    raise AssertionError("all arrays are in use")


@contextmanager
def software_raid(disk: Disk) -> Iterator[Disk]:
    """An array of one disk (raid1, without metadata), made through sysfs (Documentation/admin-guide/md.rst).

    The test is skipped where the kernel has no software RAID.
    """
    load("raid1")
    new = Path("/sys/module/md_mod/parameters/new_array")
    if not new.exists():
        cannot(f"this kernel ({os.uname().release}) has no software RAID")
    name = _new_array(new)
    made = Path("/sys/block", name, "md")
    with ExitStack() as stack:
        stack.callback((made / "array_state").write_text, "clear")
        major, minor = disk.number
        settings = {
            "metadata_version": "none", "level": "raid1", "raid_disks": "1", "new_dev": f"{major}:{minor}",
            f"dev-{disk.name}/slot": "0", "component_size": f"{disk.size // 1024}", "array_state": "active",
        }  # fmt: skip
        for file, value in settings.items():
            (made / file).write_text(value)
        yield Disk(f"/dev/{name}", disk.size)
