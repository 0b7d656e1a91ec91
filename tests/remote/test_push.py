"""What is pushed to hosts without pytrace. tests/agent/test_bootstrap.py has the other side."""

from __future__ import annotations

import gzip
import hashlib
import io
import platform
import sys
import tarfile
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.remote import messages, push
from pytrace.remote.messages import Code, Need, Send
from pytrace.remote.push import Archive, Pusher
from tests.support.patience import patience

OWN = (f"3.{sys.version_info[1]}", platform.machine())


def test_an_archive_has_the_runtime_part_and_its_packages() -> None:
    made = push.archive(*OWN)
    assert made.digest == hashlib.sha256(made.data).hexdigest()
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(made.data))) as opened:
        names = opened.getnames()
    assert {"pytrace/agent/agent.py", "pytrace/runtime/session/session.py", "msgspec/__init__.py"} <= set(names)
    folders = {name.split("/")[0] for name in names}
    assert {"pytrace", "msgspec", "elftools", "pyroute2", "zstandard", "ClusterShell"} <= folders
    assert not {"llvmlite", "clang", "ply", "textual"} & folders
    assert not [name for name in names if name.startswith(("pytrace/frontend", "pytrace/codegen", "/")) or ".." in name]


def test_equal_contents_have_equal_archives() -> None:
    assert push._tar({"a": b"x", "b": b"y"}) == push._tar({"b": b"y", "a": b"x"})


NO_CODE = ("../bin/x", "/etc/x", "a-1.dist-info/RECORD", "a-1.data/x", "a/__pycache__/b.pyc", "a/")


@pytest.mark.parametrize("name", NO_CODE)
def test_what_is_no_code_is_left_out(name: str) -> None:
    assert not push._wanted(name)
    assert push._wanted("a/b.py")


def until_made(pusher: Pusher, need: Need, send: Send | None = None) -> bytes:
    end = time.monotonic() + patience(30)
    while not (said := pusher.answer(need, send)):
        assert time.monotonic() < end
        time.sleep(0.01)
    return said


def test_a_host_takes_it_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, str]] = []

    def archive(python: str, machine: str) -> Archive:
        made.append((python, machine))
        return Archive(b"x" * (push.CHUNK + 5), "digest")

    monkeypatch.setattr(push, "archive", archive)
    pusher, need = Pusher(once=True), Need(python="3.12", machine="x86_64")
    assert messages.to_agent(until_made(pusher, need)) == Code(digest="digest", size=push.CHUNK + 5, once=True)
    assert len(until_made(pusher, need, Send(start=0))) == push.CHUNK
    assert until_made(pusher, need, Send(start=push.CHUNK)) == b"xxxxx"
    assert pusher.answer(need, Send(start=1 << 60)) == b""
    assert made == [("3.12", "x86_64")]


def test_what_gateways_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hand it on in parts."""
    monkeypatch.setattr(push, "archive", lambda *_: Archive(b"xy", "digest"))
    pusher, need = Pusher(once=True), Need(python="3.12", machine="x86_64")
    until_made(pusher, need)
    assert pusher.forwarded(need) == messages.Archive(python="3.12", machine="x86_64", data=b"xy")
    refused = pusher.forwarded(Need(python="2.7", machine="x86_64"))
    assert refused is not None
    assert refused.error.startswith("nothing can be pushed there")
    future: Future[Archive] = Future()
    gateway = Pusher(once=False, make=lambda *_: future)
    assert gateway.answer(need, None) == b""
    future.set_result(Archive(b"xy", "digest"))
    assert messages.to_agent(gateway.answer(need, None)) == Code(digest="digest", size=2, once=False)


OTHERS = (("3.10", "x86_64"), ("2.7", "x86_64"), ("3.12; rm", "x86_64"), ("3.12", "m68k"), ("", ""))


@pytest.mark.parametrize("kind", OTHERS)
def test_other_hosts_are_refused(kind: tuple[str, str]) -> None:
    with pytest.raises(TraceError, match=r"it needs Python 3.11 or later on x86_64 or aarch64"):
        Pusher(once=False).answer(Need(python=kind[0], machine=kind[1]), None)


def test_packages_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip = tmp_path / "pip"
    pip.write_text("#!/bin/sh\necho 'ERROR: no such version' >&2; exit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    pusher = Pusher(once=False)
    with pytest.raises(TraceError, match=r"no packages for Python 3.99 on aarch64: ERROR: no such version"):
        until_made(pusher, Need(python="3.99", machine="aarch64"))


def test_the_program_is_what_a_shell_and_clustershell_pass_on() -> None:
    text = push.bootstrap()
    assert "%" not in text, "the worker exec replaces %h"
    assert len(text) < 20_000
    compile(text, "bootstrap", "exec")
