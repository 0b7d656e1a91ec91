"""The program of ``--push``: receives what an agent needs from the controller, and becomes the agent.

Its text is sent as the argument of ``python3 -c``, so it needs Python 3.11 and nothing else. What arrives is the
controller's: it comes on standard input and has the digest that was announced there.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import pwd
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

CHUNK = 1 << 18
"""Bytes that are asked for at a time."""
UNUSED = 30 * 86400
"""Seconds after which what was not used is removed."""
START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from pytrace.remote import agent; sys.exit(agent.run(pushed=True))"
)


def say(**message: object) -> None:
    """Write a message."""
    os.write(1, json.dumps(message, separators=(",", ":")).encode() + b"\n")


def exactly(size: int) -> bytes:
    """So many bytes of standard input, and no more: the rest is for the agent."""
    parts = []
    while size:
        part = os.read(0, size)
        if not part:
            raise SystemExit("the controller is gone")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def offer() -> dict[str, object]:
    """The controller's line."""
    data = b""
    while not data.endswith(b"\n"):
        data += exactly(1)
    found: dict[str, object] = json.loads(data)
    return found


def private(*names: str) -> str:
    """A folder below the user's own that nobody else can write to, as none on the way can be; made where missing."""
    path = pwd.getpwuid(os.geteuid()).pw_dir
    folder = os.open(path, os.O_DIRECTORY)
    for name in names:
        check(folder, path)
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:
            pass
        inner = os.open(name, os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        os.close(folder)
        folder, path = inner, os.path.join(path, name)
    check(folder, path)
    os.close(folder)
    return path


def check(folder: int, path: str) -> None:
    """Refuse a folder that somebody else can write to."""
    status = os.fstat(folder)
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        raise SystemExit(f"{path} belongs to or can be written by others, so nothing is kept there: --push=once")


def received(digest: str, size: int) -> bytes:
    """The archive.

    Raises:
        SystemExit: it is another one.
    """
    data = bytearray()
    while len(data) < size:
        say(type="send", start=len(data))
        data += exactly(min(CHUNK, size - len(data)))
    if hashlib.sha256(data).hexdigest() != digest:
        raise SystemExit("what arrived of pytrace is damaged")
    return bytes(data)


def unpack(data: bytes, folder: str) -> None:
    """Unpack an archive."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)


def kept(digest: str, size: int) -> str:
    """The folder of the archive, which is received unless it is there; others that nobody uses are removed."""
    base = private(".cache", "pytrace-push")
    folder = os.path.join(base, digest)
    if not os.path.isdir(folder):
        new = tempfile.mkdtemp(dir=base)
        try:
            unpack(received(digest, size), new)
            os.rename(new, folder)
        except OSError:
            if not os.path.isdir(folder):
                raise
        finally:
            shutil.rmtree(new, ignore_errors=True)
    os.utime(folder)
    for name in os.listdir(base):
        other = os.path.join(base, name)
        if time.time() - os.stat(other).st_mtime > UNUSED:
            shutil.rmtree(other, ignore_errors=True)
    return folder


def run_once(digest: str, size: int) -> int:
    """Run the agent from a folder that is removed at the end. Returns its exit status."""
    folder = tempfile.mkdtemp(prefix="pytrace-push-")
    try:
        unpack(received(digest, size), folder)
        agent = subprocess.Popen([sys.executable, "-IB", "-c", START, folder])
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: agent.send_signal(number))
        return agent.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Receive and run it."""
    say(type="need", python=".".join(map(str, sys.version_info[:2])), machine=platform.machine())
    code = offer()
    digest, size = str(code["digest"]), int(str(code["size"]))
    if code["once"]:
        raise SystemExit(run_once(digest, size))
    os.execv(sys.executable, [sys.executable, "-I", "-c", START, kept(digest, size)])


if __name__ == "__main__":
    main()
