"""pytrace.runtime.abi.landlock: rights by version, and limits of a child."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytrace.runtime.abi import landlock
from pytrace.runtime.abi.landlock import Limits

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("version", "files", "net", "scopes"), [
    (1, 13, 0, 0), (2, 14, 0, 0), (3, 15, 0, 0), (4, 15, 2, 0), (5, 16, 2, 0), (6, 16, 2, 2), (9, 16, 2, 2),
])  # fmt: skip
def test_no_kernel_is_asked_for_what_it_does_not_know(version: int, files: int, net: int, scopes: int) -> None:
    limits = Limits(("/usr",), (), connections=False, signals=False)
    rights = landlock.handled(limits, version)
    assert [value.bit_count() for value in rights] == [files, net, scopes]


def test_what_is_not_limited() -> None:
    files, net, scopes = landlock.handled(Limits((), (), connections=True, signals=True), 7)
    assert not files & (landlock.READ_FILE | landlock.READ_DIR)
    assert files & landlock.WRITE_FILE
    assert (net, scopes) == (landlock.BIND_TCP, 0)


CHILD = """
import os, socket, sys
from pytrace.base import whole_files
from pytrace.runtime.abi import capabilities, landlock
folder = sys.argv[1]
capabilities.gain_no_more()
limits = landlock.Limits((f"{folder}/read", f"{folder}/single", "/proc"), (f"{folder}/write", f"{folder}/none"),
                         connections=False, signals=False)
listener = socket.create_server(("127.0.0.1", 0))
landlock.restrict(limits, landlock.abi())
def refused(call, *arguments):
    try:
        call(*arguments)
    except PermissionError:
        return
    raise SystemExit(f"allowed: {arguments}")
assert open(f"{folder}/read/file").read() == "x"
assert open(f"{folder}/single").read() == "x"
whole_files.write(f"{folder}/write/out", b"new")
assert open(f"{folder}/write/out").read() == "new"
refused(open, f"{folder}/other")
refused(open, f"{folder}/read/file", "w")
refused(open, f"{folder}/read/new", "w")
refused(os.mkfifo, f"{folder}/write/pipe")
refused(os.symlink, "x", f"{folder}/write/link")
refused(os.unlink, f"{folder}/other")
refused(os.kill, os.getppid(), 0)
if landlock.abi() >= 4:
    refused(socket.create_connection, listener.getsockname())
    refused(socket.create_server, ("127.0.0.1", 0))
"""


def test_a_limited_process(tmp_path: Path) -> None:
    if not landlock.abi():
        pytest.skip("this kernel does not use Landlock")
    for name in ("read", "write"):
        (tmp_path / name).mkdir()
    for name in ("read/file", "single", "other"):
        (tmp_path / name).write_text("x")
    code = f"import encodings.idna, tempfile\n{CHILD}"  # modules cannot be read later
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "other").exists()
