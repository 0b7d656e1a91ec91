"""pytrace.runtime.binaries.debug_files: which file has the symbols and DWARF of a stripped binary."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from pytrace.base import private_files
from pytrace.cli import options, request
from pytrace.runtime.binaries import debug_files
from pytrace.runtime.binaries.elf_file import SHT_NOBITS, ElfFile, Section
from pytrace.runtime.binaries.user_binary import UserBinaries
from tests.support.compile import compiled, tool
from tests.support.small_program import addresses, another_build, built, split


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("elf"))


def test_debug_link_beside_the_binary(program: Path, tmp_path: Path) -> None:
    stripped, debug = split(program, tmp_path)
    binary = UserBinaries().binary(str(stripped))
    assert binary.elf.debug_link is not None
    assert binary.elf.debug_link[0] == "stripped.debug"
    assert binary.debug_path == str(debug)
    assert [symbol.address for symbol in binary.functions("hidden")] == [addresses(program)["hidden"]]
    assert binary.debug is not None


@pytest.mark.parametrize("name", ["../../sys/kernel/tracing/trace_pipe", "sub/x.debug", "/etc/passwd", "..", ""])
def test_a_debug_link_is_a_base_name(name: str, program: Path, tmp_path: Path) -> None:
    stripped, _ = split(program, tmp_path)
    (tmp_path / "link").write_bytes(name.encode() + bytes(4 - len(name) % 4) + b"1234")
    tool("objcopy", f"--update-section=.gnu_debuglink={tmp_path}/link", stripped)
    assert ElfFile.open(str(stripped)).debug_link is None


def test_debug_file_by_build_id(program: Path, tmp_path: Path) -> None:
    stripped, debug = split(program, tmp_path)
    store = tmp_path / "store"
    build_id = ElfFile.open(str(program)).build_id
    place = store / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    place.parent.mkdir(parents=True)
    debug.rename(place)
    assert UserBinaries().binary(str(stripped)).functions("hidden") == []
    assert UserBinaries((f"{tmp_path}/nothing:{store}",)).binary(str(stripped)).debug_path == str(place)


def test_debug_file_of_another_build_is_refused(program: Path, tmp_path: Path) -> None:
    stripped, debug = split(program, tmp_path)
    other = another_build(tmp_path)
    tool("objcopy", "--only-keep-debug", other, debug)
    assert debug_files.find(ElfFile.open(str(stripped)), debug_files.DEFAULT_DIRECTORIES) is None


def test_checksum_is_enough_when_asked_for(program: Path, tmp_path: Path) -> None:
    bare = built(tmp_path, "bare", build_id=False)
    stripped, debug = split(bare, tmp_path)
    assert debug_files.find(ElfFile.open(str(stripped)), ("+",)) == str(debug)
    debug.write_bytes(debug.read_bytes() + b"\0")
    assert debug_files.find(ElfFile.open(str(stripped)), ("+",)) is None


def _named_folders(*words: str) -> tuple[str, ...]:
    return request.run_options(options.read([*words, "-e", "begin {}"])).debuginfo


def test_folders_are_relative_to_the_binary_and_to_the_working_directory(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stripped, debug = split(program, tmp_path)
    elsewhere = tmp_path / "elsewhere"
    for folder in (tmp_path / "symbols", elsewhere / "symbols"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    for place in (tmp_path / "symbols" / debug.name, elsewhere / "symbols" / debug.name):
        debug = debug.rename(place)
        found = UserBinaries(_named_folders("--debuginfo=symbols")).binary(str(stripped)).debug_path
        assert found == str(place)


@pytest.mark.parametrize("linked", [True, False])
def test_a_debug_file_by_the_name_of_its_binary(linked: bool, program: Path, tmp_path: Path) -> None:
    stripped, debug = split(program, tmp_path)
    if not linked:
        tool("objcopy", "--remove-section=.gnu_debuglink", stripped)
    store = tmp_path / "store"
    store.mkdir()
    place = debug.rename(store / f"{stripped.name}.debug")
    assert UserBinaries((str(store),)).binary(str(stripped)).debug_path == str(place)
    place.write_bytes(program.read_bytes()[:-1] + b"\1")
    assert UserBinaries((str(store),)).binary(str(stripped)).debug_path == str(place), "its build id is the same"
    other = another_build(tmp_path)
    tool("objcopy", "--only-keep-debug", other, place)
    assert UserBinaries((str(store),)).binary(str(stripped)).debug_path is None, "it is of another build"


def test_a_store_of_build_ids_relative_to_the_binary(program: Path, tmp_path: Path) -> None:
    stripped, debug = split(program, tmp_path)
    build_id = ElfFile.open(str(program)).build_id
    place = tmp_path / "store" / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    place.parent.mkdir(parents=True)
    debug.rename(place)
    assert UserBinaries(("store",)).binary(str(stripped)).debug_path == str(place)


def test_folders_are_part_of_what_compiled_scripts_are_kept_by() -> None:
    line = options.read(["--debuginfo=a:+b:/c", "-e", "begin {}"])
    run = request.run_options(line)
    assert run.debuginfo == ("a", f"{Path.cwd()}/a", "+b", f"+{Path.cwd()}/b", "/c")
    assert request.compile_options(line, run, None).debuginfo == run.debuginfo


# ---------------------------------------------------------------------------------------------- places, in order


@dataclass
class Described:
    """What places depend on of a binary."""

    path: str
    build_id: str = ""
    debug_link: tuple[str, int] | None = None
    supplement_link: tuple[str, str] | None = None


def places(binary: Described, *search: str, root: str = "") -> list[str]:
    return [path for path, _ in debug_files.candidates(cast(ElfFile, binary), search, root)]


def test_a_folder_beside_the_binary() -> None:
    linked = Described("/opt/app/bin/tool", "abcdef", ("tool.dbg", 7))
    assert places(linked, "", ".debug")[:6] == [
        "/opt/app/bin/.build-id/ab/cdef.debug",
        "/opt/app/bin/tool.dbg",
        "/opt/app/bin/tool.debug",
        "/opt/app/bin/.debug/.build-id/ab/cdef.debug",
        "/opt/app/bin/.debug/tool.dbg",
        "/opt/app/bin/.debug/tool.debug",
    ]
    assert places(Described("/opt/tool"), "") == ["/opt/tool.debug"], "neither build id nor link"


def test_a_folder_of_all_debug_files_mirrors_the_tree() -> None:
    assert places(Described("/opt/bin/tool", "", ("tool.debug", 7)), "/usr/lib/debug") == [
        "/usr/lib/debug/opt/bin/tool.debug",
        "/usr/lib/debug/tool.debug",
    ]


def test_folders_of_a_container_come_before_our_own() -> None:
    binary = Described("/proc/7/root/opt/tool", "abcdef")
    assert places(binary, "/usr/lib/debug", root="/proc/7/root")[:4] == [
        "/proc/7/root/usr/lib/debug/.build-id/ab/cdef.debug",
        "/proc/7/root/usr/lib/debug/opt/tool.debug",
        "/proc/7/root/usr/lib/debug/tool.debug",
        "/usr/lib/debug/.build-id/ab/cdef.debug",
    ]


def test_a_folder_beside_a_binary_of_a_container_is_in_the_container(program: Path, tmp_path: Path) -> None:
    root = f"/proc/{os.getpid()}/root"
    (tmp_path / "bin").mkdir()
    stripped, debug = split(program, tmp_path / "bin")
    (tmp_path / "link").symlink_to(stripped)
    binary = ElfFile.open(f"{root}{tmp_path}/link")
    assert debug_files.find(binary, ("",), root) == f"{root}{debug}"
    assert places(Described(binary.path), ".debug", root=root) == [f"{root}{tmp_path}/bin/.debug/stripped.debug"]
    assert places(Described(binary.path), "/store", root=root)[0] == f"{root}/store{tmp_path}/bin/stripped.debug"
    (tmp_path / "bin/shared").write_bytes(program.read_bytes())
    shared = Described(binary.path, supplement_link=("shared", ElfFile.open(str(program)).build_id))
    found = debug_files.supplement(cast(ElfFile, shared), (), root)
    assert found == ("shared", f"{root}{tmp_path}/bin/shared")


def test_a_debug_file_without_a_build_id_needs_the_checksum(program: Path, tmp_path: Path) -> None:
    bare = built(tmp_path, "bare", build_id=False)
    stripped, debug = split(bare, tmp_path)
    assert debug_files.find(ElfFile.open(str(stripped)), ("",)) == str(debug)
    debug.write_bytes(debug.read_bytes() + b"\0")
    assert debug_files.find(ElfFile.open(str(stripped)), ("",)) is None


def test_a_plus_is_no_part_of_the_folder() -> None:
    found = list(debug_files.candidates(cast(ElfFile, Described("/opt/tool")), ("+/store", "sub")))
    assert found == [("/store/opt/tool.debug", True), ("/store/tool.debug", True), ("/opt/sub/tool.debug", False)]


@pytest.mark.parametrize(
    ("environment", "folders"),
    [
        ({"DEBUGINFOD_CACHE_PATH": "/cache"}, ["/cache"]),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/home/me"}, ["/x/debuginfod_client", "/home/me/.debuginfod_client_cache"]),
        ({"HOME": "/h"}, ["/h/.cache/debuginfod_client", "/h/.debuginfod_client_cache"]),
    ],
)
def test_what_clients_of_debuginfod_fetched_comes_last(
    environment: dict[str, str], folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DEBUGINFOD_CACHE_PATH", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if os.geteuid() == 0:
        folders = [*folders, "/var/cache/pytrace/debuginfo"]
    expected = [f"{folder}/abcdef/debuginfo" for folder in folders]
    assert list(debug_files.fetched("abcdef")) == expected
    assert places(Described("/opt/tool", "abcdef"), "/store")[-len(expected) :] == expected
    assert not set(places(Described("/opt/tool"), "/store")) & set(expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], debug_files.DEFAULT_DIRECTORIES),
        (["/a:b"], ("/a", "b")),
        (["/a", "+b:"], ("/a", "+b", "")),
    ],
)
def test_named_folders_replace_the_built_in_ones(options: list[str], expected: tuple[str, ...]) -> None:
    assert debug_files.directories(options) == expected


# ---------------------------------------------------------------------------------------------- what fits


def test_a_binary_is_not_its_own_debug_file(program: Path, tmp_path: Path) -> None:
    itself = tmp_path / "tool"
    itself.write_bytes(program.read_bytes())
    (tmp_path / "tool.debug").symlink_to(itself)
    assert debug_files.find(ElfFile.open(str(itself)), ("",)) is None


def test_what_is_no_elf_file_is_passed_over(program: Path, tmp_path: Path) -> None:
    stripped, debug = split(program, tmp_path)
    (tmp_path / ".debug").mkdir()
    (tmp_path / ".debug" / debug.name).write_text("text")
    assert debug_files.find(ElfFile.open(str(stripped)), (".debug", "")) == str(debug)
    debug.write_bytes(b"\x7fELF")
    assert debug_files.find(ElfFile.open(str(stripped)), ("",)) is None


def test_files_with_a_build_id(program: Path, tmp_path: Path) -> None:
    build_id = ElfFile.open(str(program)).build_id
    assert debug_files.has_build_id(str(program), build_id)
    assert debug_files.has_build_id(str(program), "")
    assert not debug_files.has_build_id(str(program), "00")
    assert not debug_files.has_build_id(str(tmp_path / "missing"), "")
    assert not debug_files.has_build_id(__file__, "")


def test_dwarf_that_was_left_out_is_none(program: Path, tmp_path: Path) -> None:
    assert debug_files.has_dwarf(ElfFile.open(str(program)))
    stripped, debug = split(program, tmp_path)
    assert not debug_files.has_dwarf(ElfFile.open(str(stripped)))
    assert debug_files.has_dwarf(ElfFile.open(str(debug)))


@pytest.mark.parametrize(
    ("name", "kind", "there"),
    [
        (".debug_info", 1, True),
        (".zdebug_info", 1, True),
        (".debug_info", SHT_NOBITS, False),
        (".debug_line", 1, False),
    ],
)
def test_sections_with_dwarf(name: str, kind: int, there: bool) -> None:
    file = SimpleNamespace(sections=(Section(name, kind, 0, 0, 0, 9, 0),))
    assert debug_files.has_dwarf(cast(ElfFile, file)) is there


# ---------------------------------------------------------------------------------------------- supplementary files


def test_a_file_without_a_link_has_no_supplement() -> None:
    assert debug_files.supplement(cast(ElfFile, Described("/opt/tool")), ("",)) is None


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("shared", "bin/shared"),
        ("../lib/shared", "lib/shared"),
        ("gone/shared", "bin/shared"),
        ("gone/shared", "bin/.dwz/shared"),
        ("gone/shared", "store/shared"),
        ("/gone/shared", "store/.dwz/shared"),
    ],
)
def test_where_a_supplement_is(name: str, place: str, program: Path, tmp_path: Path) -> None:
    build_id = ElfFile.open(str(program)).build_id
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / "bin").mkdir(exist_ok=True)
    (tmp_path / place).write_bytes(program.read_bytes())
    binary = Described(str(tmp_path / "bin/tool"), supplement_link=(name, build_id))
    found = debug_files.supplement(cast(ElfFile, binary), ("", f"+{tmp_path}/store"))
    assert found is not None
    assert found[0] == name
    assert found[1] is not None
    assert Path(found[1]).resolve() == tmp_path / place
    other = Described(binary.path, supplement_link=(name, "00" * 20))
    assert debug_files.supplement(cast(ElfFile, other), ("", f"{tmp_path}/store")) == (name, None)


def test_a_supplement_by_its_build_id(program: Path, tmp_path: Path) -> None:
    build_id = ElfFile.open(str(program)).build_id
    place = tmp_path / "usr/lib/debug/.build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    place.parent.mkdir(parents=True)
    place.write_bytes(program.read_bytes())
    binary = cast(ElfFile, Described("/opt/tool", supplement_link=("/gone", build_id)))
    assert debug_files.supplement(binary, ("/usr/lib/debug",), root=str(tmp_path)) == ("/gone", str(place))


# ---------------------------------------------------------------------------------------------- debuginfod


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

    @contextmanager
    def running(self) -> Iterator[Site]:
        """It answers until the end of the block."""
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    with Site().running() as running:
        yield running


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


def test_a_function_of_a_stripped_program_by_name(
    site: Site, stripped: tuple[Path, bytes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data, build_id = stripped
    place = addresses(path)["work"]
    tool("objcopy", "--strip-all", path)
    monkeypatch.setenv("DEBUGINFOD_URLS", site.url)
    site.files[f"/buildid/{build_id}/debuginfo"] = data
    many = UserBinaries()
    assert many.can_open(str(path))
    assert many.symbols(str(path), "work") == UserBinaries().symbols(str(path), "wor*") == []
    assert site.asked == [], "neither for files of a pattern, nor for a pattern of functions"
    binaries = UserBinaries()
    assert [symbol.address for symbol in binaries.symbols(str(path), "work")] == [place]
    assert binaries.symbols(str(path), "missing") == []
    assert len(site.asked) == 1
    covering = UserBinaries().binary(str(path)).covering(place)
    assert covering is not None
    assert covering.name == "work", "stacks have the name, too, from the cache"


def test_a_home_that_is_not_there_is_not_made(
    site: Site, stripped: tuple[Path, bytes, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, data, build_id = stripped
    monkeypatch.delenv("DEBUGINFOD_CACHE_PATH")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    monkeypatch.setattr(private_files, "SYSTEM_BASE", str(tmp_path / "nowhere/cache"))
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
        monkeypatch.setattr(debug_files, "_WAIT", 600)  # the test would be ended
        binaries = UserBinaries()
        assert _names(binaries, path) == []
        assert _names(binaries, path) == []
        (problem,) = binaries.problems(str(path))
        assert f"debuginfod at http://127.0.0.1:{port}" in problem
        silent.setblocking(False)
        silent.accept()
        with pytest.raises(BlockingIOError):  # it was asked once
            silent.accept()
    # Nobody listens there any more.
    monkeypatch.delenv("DEBUGINFOD_TIMEOUT")
    binaries = UserBinaries()
    assert _names(binaries, path) == []
    (problem,) = binaries.problems(str(path))
    assert "refused" in problem


def test_a_download_that_the_user_does_not_wait_for(
    stripped: tuple[Path, bytes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build_id = stripped[2]
    asked: list[bool] = []

    def stop() -> bool:
        asked.append(len(asked) == 2)
        return asked[-1]

    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("DEBUGINFOD_URLS", f"http://127.0.0.1:{silent.getsockname()[1]}")
        path, (problem,) = debug_files.fetch(build_id, stop)
    assert path is None
    assert problem.endswith("the user did not wait for it")
    assert asked == [False, False, True]


def test_half_of_a_file_is_not_kept(
    site: Site, stripped: tuple[Path, bytes, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build_id = stripped[2]
    monkeypatch.setenv("DEBUGINFOD_URLS", site.url)
    monkeypatch.setattr(private_files, "SYSTEM_BASE", str(tmp_path / "nowhere/cache"))
    site.files[f"/buildid/{build_id}/debuginfo"] = b"some"
    folder = tmp_path / "cache" / build_id
    folder.parent.mkdir()
    folder.write_text("in the way")
    found, (problem,) = debug_files.fetch(build_id)
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
    found, (problem,) = debug_files.fetch(build_id)
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
    found, (problem,) = debug_files.fetch(build_id)
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
    monkeypatch.setattr(private_files, "SYSTEM_BASE", str(tmp_path / "nowhere/cache"))
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
