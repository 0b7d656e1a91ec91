"""Programs of a process with another root directory: links there lead to its files, not to ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compile import compiled
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the root directory"),
]

TEXT = """
#include <unistd.h>
__attribute__((noinline)) int {0}(int depth) {{ asm volatile(""); return depth + 1; }}
int main(int c, char **v) {{ for (;;) {{ {0}(c); usleep(10000); }} }}
"""


@pytest.fixture
def jailed(tmp_path: Path) -> Iterator[int]:
    """The number of a process whose ``/bin/app`` is a link to its ``/opt/app``; the host has another file there."""
    jail = tmp_path / "jail"
    place = tmp_path / "opt"
    for folder in (jail / "bin", jail / str(place).lstrip("/"), place):
        folder.mkdir(parents=True)
    inside = compiled(tmp_path, "inside", TEXT.format("inside"), "-O1", "-static")
    compiled(tmp_path, "app", TEXT.format("outside"), "-O1", "-static").rename(place / "app")
    inside.rename(f"{jail}{place}/app")
    (jail / "bin/app").symlink_to(place / "app")
    child = subprocess.Popen(["/bin/app"], preexec_fn=lambda: os.chroot(jail))  # noqa: PLW1509
    yield child.pid
    child.kill()
    child.wait()


def test_links_lead_to_the_files_of_the_process(jailed: int) -> None:
    script = "uprobe:/bin/app:inside { print(ustack(1)); exit(); }"
    done = subprocess.run(
        [sys.executable, "-m", "pytrace", "-q", "-p", str(jailed), "-e", script],
        capture_output=True, text=True, check=False, timeout=patience(60), stdin=subprocess.DEVNULL,
        cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done
    assert "inside+0" in done.stdout
    script = "uprobe:/bin/app:outside { exit(); }"
    done = subprocess.run(
        [sys.executable, "-m", "pytrace", "-q", "-p", str(jailed), "-e", script],
        capture_output=True, text=True, check=False, timeout=patience(60), stdin=subprocess.DEVNULL,
        cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 1, "that function is in the file of the host"
