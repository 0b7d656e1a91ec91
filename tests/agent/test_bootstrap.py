"""The program of ``--push`` on a host: with a controller that is this test, and an agent of three lines."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pwd
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from pytrace.agent import bootstrap
from pytrace.remote.push import bootstrap as program

AGENT = "import os\ndef run(pushed):\n    os.write(1, b'agent ' + os.read(0, 99))\n    return 5\n"


def archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as opened:
        for name, text in (("__init__.py", ""), ("agent/__init__.py", ""), ("agent/agent.py", AGENT)):
            member = tarfile.TarInfo(f"pytrace/{name}")
            member.size = len(text)
            opened.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(file.getvalue(), mtime=0)


class Host:
    """The program, with *home* as the folder of its user."""

    def __init__(self, home: Path) -> None:
        text = program().replace("pwd.getpwuid(os.geteuid()).pw_dir", repr(str(home)))
        environment = {**os.environ, "TMPDIR": str(home)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment,
        )  # fmt: skip

    def heard(self) -> dict[str, object]:
        assert self.process.stdout is not None
        found: dict[str, object] = json.loads(self.process.stdout.readline())
        return found

    def say(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def offer(self, data: bytes, *, once: bool = False) -> None:
        need = self.heard()
        assert need == {"type": "need", "python": f"3.{sys.version_info[1]}", "machine": os.uname().machine}
        digest = hashlib.sha256(data).hexdigest()
        self.say(json.dumps({"type": "code", "digest": digest, "size": len(data), "once": once}).encode() + b"\n")

    def end(self, data: bytes = b"") -> tuple[int, bytes, str]:
        out, error = self.process.communicate(data)
        return self.process.returncode, out, error.decode()


@pytest.mark.parametrize("once", [False, True])
def test_it_becomes_the_agent(tmp_path: Path, once: bool) -> None:
    data = archive()
    host = Host(tmp_path)
    host.offer(data, once=once)
    assert host.heard() == {"type": "send", "start": 0}
    host.say(data)
    assert host.end(b"request") == (5, b"agent request", "")
    kept = tmp_path / ".cache" / "pytrace-push" / hashlib.sha256(data).hexdigest()
    if once:
        assert not list(tmp_path.iterdir())
        return
    assert kept.stat().st_mode & 0o077 == 0
    again = Host(tmp_path)
    again.offer(data)
    # It is there, and nothing is asked for.
    assert again.end(b"again") == (5, b"agent again", "")


def test_damaged_archives_are_not_used(tmp_path: Path) -> None:
    data = archive()
    host = Host(tmp_path)
    host.offer(data)
    host.heard()
    assert host.end(data[:-1] + b"x") == (1, b"", "what arrived of pytrace is damaged\n")
    assert not list((tmp_path / ".cache" / "pytrace-push").iterdir())


def test_a_controller_that_is_gone(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.offer(archive(), once=True)
    host.heard()
    assert host.end(b"x") == (1, b"", "the controller is gone\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fault", ["mode", "link"])
def test_a_folder_of_others_is_not_used(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(("u", "x", 0, 0, "", str(tmp_path), "")))
    (tmp_path / "elsewhere").mkdir()
    if fault == "mode":
        (tmp_path / ".cache").mkdir()
        (tmp_path / ".cache").chmod(0o777)
        with pytest.raises(SystemExit, match="can be written by others"):
            bootstrap.private(".cache", "pytrace-push")
    else:
        (tmp_path / ".cache").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(OSError, match=r"Not a directory|symbolic"):
            bootstrap.private(".cache", "pytrace-push")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_what_nobody_uses_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(("u", "x", 0, 0, "", str(tmp_path), "")))
    base = tmp_path / ".cache" / "pytrace-push"
    for name in ("old", "new", "digest"):
        (base / name).mkdir(parents=True)
    for folder in (tmp_path / ".cache", base):
        folder.chmod(0o700)
    os.utime(base / "old", (0, 0))
    os.utime(base / "digest", (0, 0))
    assert bootstrap.kept("digest", 5) == str(base / "digest")
    assert sorted(path.name for path in base.iterdir()) == ["digest", "new"]
