"""pytrace.runtime.elf.debuginfod: debug files from a server on this machine, from the cache, and from nobody."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pytrace.base import private_folders
from pytrace.runtime.binaries.user_binary import UserBinaries
from pytrace.runtime.elf import debuginfod
from tests.support.compile import compiled, tool

TEXT = """__attribute__((noinline)) int work(int depth) { return depth + 1; }
int main(int c, char **v) { return work(c); }
"""


class Site:
    """A server with files by path; *asked* are the paths of the questions."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                found = site.files.get(self.path)
                self.send_response(404 if found is None else 200)
                self.send_header("Content-Length", str(len(found or b"")))
                self.end_headers()
                self.wfile.write(found or b"")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stripped(tmp_path: Path) -> tuple[Path, bytes, str]:
    """A program without debug information, the file that has it, and the build id of both."""
    path = compiled(tmp_path, "program", TEXT, "-g", "-O2", "-Wl,--build-id")
    tool("objcopy", "--only-keep-debug", path, tmp_path / "full")
    tool("objcopy", "--strip-debug", path)
    data = (tmp_path / "full").read_bytes()
    return path, data, UserBinaries().binary(str(path)).elf.build_id


def _names(binaries: UserBinaries, path: Path) -> list[str]:
    return [item.name for item in binaries.parameters(str(path), "work") or ()]


def test_a_server_is_asked_once_and_its_answer_kept(
    site: Site, stripped: tuple[Path, bytes, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, data, build_id = stripped
    assert _names(UserBinaries(), path) == []
    monkeypatch.setenv("DEBUGINFOD_URLS", f"ftp://elsewhere {site.url}/empty {site.url}/")
    site.files[f"/buildid/{build_id}/debuginfo"] = data
    binaries = UserBinaries()
    assert binaries.result(str(path), "work") is None
    assert site.asked == [], "the type of a result is not worth a download"
    assert _names(binaries, path) == ["depth"]
    assert [symbol.name for symbol in binaries.lines(str(path), "program.c", 1, None)] == ["work"]
    assert binaries.problems(str(path)) == []
    assert site.asked == [f"/empty/buildid/{build_id}/debuginfo", f"/buildid/{build_id}/debuginfo"]
    assert (tmp_path / "cache" / build_id / "debuginfo").read_bytes() == data
    monkeypatch.delenv("DEBUGINFOD_URLS")
    assert _names(UserBinaries(), path) == ["depth"], "from the cache"
    assert len(site.asked) == 2


def test_a_home_that_is_not_there_is_not_made(
    site: Site, stripped: tuple[Path, bytes, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, data, build_id = stripped
    monkeypatch.delenv("DEBUGINFOD_CACHE_PATH")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    monkeypatch.setattr(private_folders, "SYSTEM_BASE", str(tmp_path / "nowhere/cache"))
    monkeypatch.setenv("DEBUGINFOD_URLS", site.url)
    site.files[f"/buildid/{build_id}/debuginfo"] = data
    binaries = UserBinaries()
    assert _names(binaries, path) == []
    assert any(f"{tmp_path}/nowhere: No such file" in text for text in binaries.problems(str(path)))
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "nowhere").mkdir()
    assert _names(UserBinaries(), path) == ["depth"]


def test_what_is_of_another_build_is_not_believed(
    site: Site, stripped: tuple[Path, bytes, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, _, build_id = stripped
    other = compiled(tmp_path, "other", TEXT.replace("depth", "height"), "-g", "-Wl,--build-id")
    monkeypatch.setenv("DEBUGINFOD_URLS", site.url)
    site.files[f"/buildid/{build_id}/debuginfo"] = other.read_bytes()
    assert _names(UserBinaries(), path) == []


def test_debug_information_on_this_machine_comes_first(
    site: Site, stripped: tuple[Path, bytes, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, data, build_id = stripped
    monkeypatch.setenv("DEBUGINFOD_URLS", site.url)
    place = tmp_path / "symbols/.build-id" / build_id[:2]
    place.mkdir(parents=True)
    (place / f"{build_id[2:]}.debug").write_bytes(data)
    assert _names(UserBinaries([str(tmp_path / "symbols")]), path) == ["depth"]
    assert site.asked == []


def test_servers_that_do_not_answer(stripped: tuple[Path, bytes, str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = stripped[0]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("DEBUGINFOD_URLS", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("DEBUGINFOD_TIMEOUT", "0.3")
        binaries = UserBinaries()
        started = time.monotonic()
        assert _names(binaries, path) == []
        assert _names(binaries, path) == []
        assert time.monotonic() - started < 8
        (problem,) = binaries.problems(str(path))
        assert f"debuginfod at http://127.0.0.1:{port}" in problem
    # Nobody listens there any more.
    monkeypatch.delenv("DEBUGINFOD_TIMEOUT")
    binaries = UserBinaries()
    assert _names(binaries, path) == []
    (problem,) = binaries.problems(str(path))
    assert "refused" in problem


def test_half_of_a_file_is_not_kept(
    site: Site, stripped: tuple[Path, bytes, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build_id = stripped[2]
    monkeypatch.setenv("DEBUGINFOD_URLS", site.url)
    monkeypatch.setattr(private_folders, "SYSTEM_BASE", str(tmp_path / "nowhere/cache"))
    site.files[f"/buildid/{build_id}/debuginfo"] = b"some"
    folder = tmp_path / "cache" / build_id
    folder.parent.mkdir()
    folder.write_text("in the way")
    found, (problem,) = debuginfod.fetch(build_id)
    assert found is None
    assert "is a link or no directory" in problem or "No such file" in problem
    assert folder.read_text() == "in the way"


@pytest.mark.parametrize("answer", [b"user ALL=(ALL:ALL) NOPASSWD: ALL\n", b"\x7fELF", b""])
def test_what_is_not_the_debug_file_is_not_stored(
    answer: bytes, site: Site, stripped: tuple[Path, bytes, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build_id = stripped[2]
    monkeypatch.setenv("DEBUGINFOD_URLS", site.url)
    site.files[f"/buildid/{build_id}/debuginfo"] = answer
    found, (problem,) = debuginfod.fetch(build_id)
    assert found is None
    assert "no ELF file with this build id" in problem
    assert list((tmp_path / "cache" / build_id).iterdir()) == []


def test_a_file_that_is_too_large_is_given_up(
    site: Site, stripped: tuple[Path, bytes, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, data, build_id = stripped
    monkeypatch.setenv("DEBUGINFOD_URLS", site.url)
    monkeypatch.setenv("DEBUGINFOD_MAXSIZE", "1000")
    site.files[f"/buildid/{build_id}/debuginfo"] = data
    found, (problem,) = debuginfod.fetch(build_id)
    assert found is None
    assert "larger than 1000 bytes (DEBUGINFOD_MAXSIZE)" in problem
    assert list((tmp_path / "cache" / build_id).iterdir()) == []


# ---------------------------------------------------------------------------------------------- attacks


@pytest.mark.parametrize("level", ["cache", "build id", "file"])
def test_nothing_is_written_or_believed_through_a_link(
    level: str, site: Site, stripped: tuple[Path, bytes, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``debuginfod_client/BUILDID -> /etc/sudoers.d``: the server's answer would be a file there."""
    path, data, build_id = stripped
    monkeypatch.setenv("DEBUGINFOD_URLS", site.url)
    monkeypatch.setattr(private_folders, "SYSTEM_BASE", str(tmp_path / "nowhere/cache"))
    site.files[f"/buildid/{build_id}/debuginfo"] = data
    target = tmp_path / "target"
    (target / build_id).mkdir(parents=True)
    link = {"cache": "cache", "build id": f"cache/{build_id}", "file": f"cache/{build_id}/debuginfo"}[level]
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(target / "file" if level == "file" else target)
    expected = ["depth"] if level == "file" else []
    assert _names(UserBinaries(), path) == expected, "a link in place of the file is replaced"
    assert [found.name for found in target.rglob("*")] == [build_id]
    (target / "debuginfo").write_bytes(data)
    (target / build_id / "debuginfo").write_bytes(data)
    monkeypatch.delenv("DEBUGINFOD_URLS")
    assert _names(UserBinaries(), path) == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("level", ["cache", "cache/BUILDID", "cache/BUILDID/debuginfo"])
def test_what_another_user_fetched_is_not_believed(
    level: str, stripped: tuple[Path, bytes, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, data, build_id = stripped
    (tmp_path / "cache" / build_id).mkdir(parents=True)
    (tmp_path / "cache" / build_id / "debuginfo").write_bytes(data)
    assert _names(UserBinaries(), path) == ["depth"]
    os.chown(tmp_path / level.replace("BUILDID", build_id), 12345, 12345)
    assert _names(UserBinaries(), path) == []
