"""pytrace.runtime.stacks.images: what is known of binaries is shared by all processes that run them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytrace.runtime.binaries import debug_files
from pytrace.runtime.binaries.function_places import Place
from pytrace.runtime.binaries.user_binary import Binary, CachedDebugInfo
from pytrace.runtime.machine import procfs
from pytrace.runtime.stacks import images
from pytrace.runtime.stacks.images import Images, LineReading, SymbolFrame, vdso_image, with_lines
from pytrace.runtime.stacks.symbolizer import Symbolizer
from tests.support.compile import compiled, tool

TEXT = """
#include <stdio.h>
__attribute__((noinline)) int place(int n) { return n + 1; }
int main() { printf("%p\\n", (void *)place); fflush(stdout); return getchar() + place(1); }
"""

Start = Callable[..., tuple[int, int]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program, and gives its process and the address that it prints; all end with the test."""
    children = []

    def run(*command: str | Path) -> tuple[int, int]:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stdout is not None
        return child.pid, int(child.stdout.readline(), 16)

    yield run
    for child in children:
        child.communicate("\n")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Addresses that DWARF was asked for."""
    addresses: list[int] = []
    frames = CachedDebugInfo.frames

    def noted(debug: CachedDebugInfo, address: int) -> list[Place]:
        addresses.append(address)
        return frames(debug, address)

    monkeypatch.setattr(CachedDebugInfo, "frames", noted)
    return addresses


def test_processes_of_a_program_share_what_is_found(tmp_path: Path, start: Start, asked: list[int]) -> None:
    path = compiled(tmp_path, "shared", TEXT, "-g")
    symbols = Symbolizer(lines=True)
    found = []
    for pid, address in (start(path) for _ in range(3)):
        found += [symbols.user(pid, address + 4), symbols.user(pid, address + 4, caller=True)]
    assert [frames[0].name for frames in found] == ["place"] * 6
    assert len({id(frames) for frames in found}) == 2
    assert len(asked) == 2


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_binary_of_containers_is_read_once(tmp_path: Path, start: Start, asked: list[int]) -> None:
    """Each process of a container is reached by a path of its own."""
    path = compiled(tmp_path, "contained", TEXT, "-g")
    symbols = Symbolizer(lines=True)
    for pid, address in (start("unshare", "-m", path) for _ in range(2)):
        (frame,) = symbols.user(pid, address)
        assert (frame.name, frame.line) == ("place", 3)
    assert len(asked) == 1
    assert len(symbols._images._binaries) == 1


def test_only_the_latest_binaries_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_BINARIES", 2)
    known = Images({})
    paths = [compiled(tmp_path, f"program_{at}", "int main(void) { return 0; }\n") for at in range(4)]

    def name(path: Path) -> str:
        binary = known.binary(str(path), path.stat())
        address = binary.address_of("main")
        assert address is not None
        return known.frames(binary, str(path), address)[0].name

    kept = known.binary(str(paths[0]), paths[0].stat())
    for path in paths[1:]:
        assert name(path) == name(paths[0]) == "main"
        assert known.binary(str(paths[0]), paths[0].stat()) is kept, "what is in use stays"
        assert len(known._binaries) <= 2
    assert {binary.path for binary, *_ in known._places} <= {str(paths[0]), str(paths[3])}


COROUTINE = """
__asm__(".text\\n.p2align 6\\nbefore: ret\\n.type before, @function\\n.size before, 1\\n.p2align 6\\n"
        "first: nop\\nret\\n.type first, @function\\n.size first, 2\\n"
        "next: ret\\n.type next, @function\\n.size next, 1\\n");
int main(void) { return 0; }
"""


def test_a_function_that_nothing_called(tmp_path: Path) -> None:
    """A coroutine's first one is returned to at its start; a call at the end of a function is that function's."""
    path = compiled(tmp_path, "coroutine", COROUTINE)
    known = Images({})
    binary = known.binary(str(path), path.stat())
    first = binary.address_of("first")
    assert first is not None
    for address, frame in ((first, ("first", 0)), (first + 1, ("first", 1)), (first + 2, ("first", 2))):
        (found,) = known.frames(binary, "coroutine", address - 1, caller=True)
        assert (found.name, found.offset) == frame
    (padding,) = known.frames(binary, "coroutine", first - 9, caller=True)
    assert padding.name == ""


def test_places_are_forgotten_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_PLACES", 8)
    path = compiled(tmp_path, "large", "int main(void) { return 0; }\n")
    known = Images({})
    binary = known.binary(str(path), path.stat())
    address = binary.address_of("main")
    assert address is not None
    for offset in range(8):
        for _ in range(2):
            assert known.frames(binary, "large", address + offset)[0].offset == offset
            assert known.frames(binary, "large", address + offset, caller=True)[0].offset == offset + 1
            assert len(known._places) <= 8


# ---------------------------------------------------------------------------------------------- vdso


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    vdso_image.cache_clear()
    yield
    vdso_image.cache_clear()


def test_servers_are_asked_once_the_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are for what has no name here: once for a binary, and no more after one that fails."""
    path = compiled(tmp_path, "program", TEXT, "-O2", "-Wl,--build-id")
    place = next(symbol.address for symbol in Binary.open(str(path)).functions("place"))
    tool("objcopy", "--only-keep-debug", path, tmp_path / "full")
    stripped = [tmp_path / name for name in ("one", "two")]
    for copy in stripped:
        tool("objcopy", "--strip-all", path, copy)
    answers: list[tuple[str | None, list[str]]] = [(None, ["no answer"])]
    fetched: list[str] = []

    def fetch(build_id: str, stop: Callable[[], bool]) -> tuple[str | None, list[str]]:
        assert not stop()
        fetched.append(build_id)
        return answers[-1]

    monkeypatch.setattr(debug_files, "fetch", fetch)
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:1")
    unreadable: dict[str, str] = {}

    def names(binaries: Images) -> list[str]:
        opened = [binaries.binary(str(copy), copy.stat()) for copy in stripped]
        return [binaries.frames(binary, binary.path, place)[0].name for binary in opened for _ in range(2)]

    for answer, found, questions in (answers[0], [""] * 4, 1), ((str(tmp_path / "full"), []), ["place"] * 4, 2):
        answers.append(answer)
        fetched.clear()
        reading = LineReading()
        binaries = Images(unreadable, reading=reading)
        assert names(binaries) == [""] * 4
        assert not fetched
        reading.hurry(None, "stacks")
        binaries.forget_unknown()
        assert names(binaries) == found
        assert len(fetched) == questions
    assert unreadable == {f"symbols of {stripped[0]}": "no answer"}


def test_servers_are_asked_for_lines_where_that_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A binary whose functions have names is asked for only then, once, and a user who ends the run gets its lines."""
    path = compiled(tmp_path, "program", TEXT, "-g", "-O2", "-Wl,--build-id")
    place = next(symbol.address for symbol in Binary.open(str(path)).functions("place"))
    tool("objcopy", "--only-keep-debug", path, tmp_path / "full")
    copy = tmp_path / "one"
    tool("objcopy", "--strip-debug", path, copy)
    fetched: list[str] = []

    def fetch(build_id: str, _stop: Callable[[], bool]) -> tuple[str | None, list[str]]:
        fetched.append(build_id)
        return str(tmp_path / "full"), []

    monkeypatch.setattr(debug_files, "fetch", fetch)
    monkeypatch.setattr("pytrace.runtime.stacks.images.ENDING", 0)
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:1")
    for wanted, lines, questions in (False, (0, 0), 0), (True, (0, 3), 1):
        fetched.clear()
        reading = LineReading()
        binaries = Images({}, lines=True, fetched=wanted, reading=reading)
        binary = binaries.binary(str(copy), copy.stat())
        for line in lines:
            found = [binaries.frames(binary, "one", place)[-1] for _ in range(2)]
            assert [(frame.name, frame.line) for frame in found] == [("place", line)] * 2
            reading.hurry(None, "stacks")
            binaries.forget_unknown()
        assert len(fetched) == questions


def test_functions_of_the_vdso() -> None:
    image = vdso_image()
    if image is None:
        pytest.skip("this kernel maps no vdso")
    names = [symbol.name for symbol in image.functions("*")]
    assert any(name.endswith("clock_gettime") for name in names)
    assert image.path == "[vdso]"
    assert image.debug is None
    assert vdso_image() is image


def test_a_machine_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "executable_mappings", lambda _text: [])
    assert vdso_image() is None


def test_bodies_of_async_functions_are_named_as_debug_information_has_them() -> None:
    outer, inner = "a::f::{closure#0}", "a::f::{closure#0}::{closure#0}"
    places = [
        Place(inner, "a.rs", 3, "a::f::{async_fn#0}::{async_block#0}"),
        Place(outer, "a.rs", 9, "a::f::{async_fn#0}"),
    ]
    names = [frame.name for frame in with_lines(places, SymbolFrame(outer, 4, "app"), str)]
    assert names == ["a::f::{async_fn#0}::{async_block#0}", "a::f::{async_fn#0}"]
