"""What a run writes, seen from outside: it runs on an overlay of the root file system, which keeps what is written."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machine import need
from tests.support.patience import patience

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = Path(__file__).resolve().parents[2]
OVERLAY = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs {folder}
cd {folder}
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
for place in proc sys dev; do mount --rbind /$place root/$place; done
chroot root env -u XDG_CACHE_HOME PYTHONDONTWRITEBYTECODE=1 HOME=/root sh -c {command}
cd upper
find . -not -type d
"""
"""Prints what the command prints, and then the files that it changed, made or removed."""


def written(folder: Path, *words: str) -> tuple[list[str], list[str]]:
    """Lines of the command's output, and files that it left."""
    need("overlay")
    command = f"cd {ROOT} && exec {shlex.join([sys.executable, '-m', 'pytrace', '-q', *words])}"
    script = OVERLAY.format(folder=folder, command=shlex.quote(command))
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=True, timeout=patience(60)
    )
    lines = done.stdout.split()
    return [line for line in lines if line[0] != "."], [line[1:] for line in lines if line[0] == "."]


def test_a_run_writes_what_it_was_asked_for_and_its_cache(tmp_path: Path) -> None:
    """Loading, tracing, stacks with names, a command, and the end."""
    script = 't:syscalls:sys_enter_getpgid { @[ustack(3), kstack(3), comm] = count(); } begin { print("begins"); }'
    output, files = written(tmp_path, "-e", script, "-c", "true", "-o", "/srv/out", "--save", "/srv/run.pts")
    assert output == []
    asked = {"/srv/out", "/srv/run.pts"}
    assert asked <= set(files)
    assert all(file.startswith("/root/.cache/pytrace/") for file in set(files) - asked), files


def test_an_ahead_of_time_file_is_all_that_its_compilation_writes(tmp_path: Path) -> None:
    output, files = written(tmp_path, "--aot", "/srv/script.aot", "-e", "begin { exit(); }")
    assert output == []
    assert "/srv/script.aot" in files
    assert all(file.startswith("/root/.cache/pytrace/") for file in set(files) - {"/srv/script.aot"}), files


def test_without_a_cache_nothing_is_written(tmp_path: Path) -> None:
    script = 't:syscalls:sys_enter_getpgid { @ = count(); } begin { print("begins"); }'
    output, files = written(tmp_path, "--no-cache", "-e", script, "-c", "true")
    assert output == ["begins"]
    assert not [file for file in files if "/pytrace/scripts/" in file or not file.startswith("/root/.cache/pytrace/")]
