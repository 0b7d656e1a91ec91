"""Binaries that others can write: a limited process reads them, with the same answers, and only they fail."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytrace.base.limited_process import Limits
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries import debug_files
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.machine import foreign_files
from pytrace.runtime.stacks import images
from pytrace.runtime.stacks.image_places import Detail, detail
from pytrace.runtime.stacks.images import ForeignBinaries, ForeignBinary, Images, LineReading, SymbolFrame
from tests.support import fuse_server, small_program
from tests.support.compile import tool

STRANGER = 4321


@pytest.fixture
def programs(tmp_path: Path) -> list[Path]:
    """One program of another user for each of what tests do with them; as other users cannot give files away, this
    user's are taken for those of others then.
    """
    first = small_program.built(tmp_path)
    paths = [first, *(tmp_path / name for name in ("second", "third"))]
    for path in paths[1:]:
        path.write_bytes(first.read_bytes())
    if os.geteuid():
        pytest.skip("only root can give files to others")
    for number, path in enumerate(paths):
        os.chown(path, STRANGER + number, STRANGER)
    return paths


class Reader(Images):
    """With the process that it has."""

    def __init__(self, *, lines: bool = False, reading: LineReading | None = None) -> None:
        self.missing: dict[str, str] = {}
        self.binaries = ForeignBinaries(detail)
        super().__init__(self.missing, lines=lines, reading=reading, foreign=self.binaries)

    def of(self, path: Path, status: foreign_files.Status | None = None) -> ForeignBinary:
        binary = self.any_binary(str(path), status or foreign_files.look(str(path)))
        assert isinstance(binary, ForeignBinary)
        return binary

    def name(self, path: Path, address: int) -> str:
        return self.frames(self.of(path), str(path), address)[-1].name


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    made.binaries.process.close()


def _all(path: Path) -> list[int]:
    found = small_program.addresses(path)
    return [found[name] + more for name in ("help", "helper", "hidden", "main") for more in (0, 1, 5)]


@pytest.mark.parametrize("lines", [False, True])
def test_answers_are_those_of_this_process(lines: bool, programs: list[Path]) -> None:
    """One by one and together; each is asked for once."""
    path = programs[0]
    reader, here = Reader(lines=lines), Images({}, lines=lines)
    binary, own = reader.of(path), here.binary(str(path), path.stat())
    assert (binary.elf.segments, binary.elf.build_id) == (own.elf.segments, own.elf.build_id)
    for offset in range(0, 9000, 500):
        assert binary.elf.address_at(offset) == own.elf.address_at(offset)
    expected = {(at, caller): here.frames(own, "m", at, caller=caller) for at in _all(path) for caller in (False, True)}
    assert any(frame.line for frames in expected.values() for frame in frames) == lines
    assert {key: reader.frames(binary, "m", key[0], caller=key[1]) for key in expected} == expected
    other = Reader(lines=lines)
    for _ in other.name_ahead("m", other.of(path), [at for at, _ in expected]):
        pass
    other.binaries.process.close()
    other.binaries.process._limits = Limits(memory=1, patience=1, total=0)
    assert [other.frames(other.of(path), "m", at) for at in _all(path)] == [
        expected[at, False] for at in _all(path)
    ]
    assert reader.missing == other.missing == {}
    assert reader.binaries.process.generation == 1
    for each in (reader, other):
        each.keep()
        each.binaries.process.close()


def _hangs(_address: int) -> None:
    while True:
        pass


def _fills(_address: int) -> list[bytes]:
    return [bytes(1 << 20) for _ in range(1 << 14)]


def _fails(_address: int) -> None:
    raise IndexError("a fault in reading")


def _kills(_address: int) -> None:
    os.kill(os.getpid(), 7)


@pytest.mark.parametrize(
    ("reads", "why"),
    [
        (_hangs, "it takes more processor time than a file may"), (_fills, "it takes more than 256 MiB of memory"),
        (_fails, "IndexError: a fault in reading"), (_kills, "it was truncated while it was read"),
    ],
)  # fmt: skip
def test_one_binary_costs_its_own_names_only(
    reads: Callable[[int], object], why: str, programs: list[Path], reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is started again for the others, also for those that it knew; the bad one is not asked again."""
    bad, good, late = programs
    main = small_program.addresses(good)["main"]
    covering = Binary.covering

    def read(self: Binary, address: int) -> object:
        return reads(address) if self.path == str(bad) else covering(self, address)

    monkeypatch.setattr(Binary, "covering", read)
    monkeypatch.setattr(images, "SECONDS", 0.3 if reads is _hangs else 10.0)
    assert reader.name(good, main) == "main"
    for more in (0, 1, 2):
        assert reader.frames(reader.of(bad), "bad", main + more) == [SymbolFrame("", main + more, "bad")]
    assert reader.name(good, main + 1) == reader.name(late, main) == "main"
    assert reader.missing == {"symbols of bad": f"it is not read: {why}"}
    assert reader.binaries.process.generation <= 2


def test_one_owner_cannot_take_the_time_of_others(
    programs: list[Path], reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good, _ = programs
    main = small_program.addresses(good)["main"]
    monkeypatch.setattr(images, "OWNER_TOTAL", 0.0)
    with pytest.raises(TraceError, match=f"files of user {STRANGER} took more processor time than they may"):
        reader.of(bad)
    monkeypatch.setattr(images, "OWNER_TOTAL", 5.0)
    reader.binaries.spend(STRANGER, 5.0)
    with pytest.raises(TraceError, match=f"files of user {STRANGER}"):
        reader.of(bad)
    assert reader.binaries.process.generation == 0, "it is not tried again"
    assert reader.name(good, main) == "main"


def test_lines_that_take_too_long_leave_the_names(programs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(lines=True)
    path = programs[0]
    main = small_program.addresses(path)["main"]
    monkeypatch.setattr(images, "LINE_SECONDS", 0.2)
    monkeypatch.setattr(Images, "read_lines", lambda *_: _hangs(0))
    (frame,) = reader.frames(reader.of(path), "m", main)
    assert (frame.name, frame.line) == ("main", 0)
    assert reader.missing == {"source lines of m": "they are not read: it takes more processor time than a file may"}
    reader.binaries.process.close()


def test_who_gives_up_lines_does_not_wait(programs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C comes while the process reads: it is started again for the name."""
    reading = LineReading()
    reader = Reader(lines=True, reading=reading)
    path = programs[0]
    main = small_program.addresses(path)["main"]
    monkeypatch.setattr(Images, "read_lines", lambda *_: time.sleep(1000))
    reading.hurry(None, "stacks")
    steps = reader.of(path).reading([main], reading)
    next(steps)
    reading.given_up = True
    del steps
    (frame,) = reader.frames(reader.of(path), "m", main)
    assert (frame.name, frame.line) == ("main", 0)
    reader.binaries.process.close()


def test_a_file_that_changes(programs: list[Path], reader: Reader) -> None:
    """Truncated while it is known, replaced, gone: its own names go, or are those of what was opened."""
    short, other, gone = programs
    main = small_program.addresses(short)["main"]
    status = foreign_files.look(str(short))
    reader.of(short)
    reader.of(gone)
    os.truncate(short, 100)
    gone.unlink()
    assert reader.frames(reader.of(short, status), "m", main)[-1].name == ""
    assert reader.name(other, main) == "main"
    assert list(reader.missing) == ["symbols of m"]
    before = foreign_files.look(str(other))
    other.rename(gone)
    other.write_bytes(b"something else")
    fresh = Reader()
    with pytest.raises(TraceError, match="was replaced while it was opened"):
        fresh.any_binary(str(other), before)


def test_hard_links_and_writable_files_are_judged_by_the_file(tmp_path: Path) -> None:
    """What counts is the owner and the mode of the file that was reached."""
    path = small_program.built(tmp_path)
    reader = Reader()
    os.link(path, tmp_path / "link")
    assert isinstance(reader.any_binary(str(tmp_path / "link"), foreign_files.look(str(path))), Binary)
    path.chmod(0o777)
    assert isinstance(Reader().any_binary(str(tmp_path / "link"), foreign_files.look(str(path))), ForeignBinary)


def test_details_and_debug_files(
    programs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: Reader
) -> None:
    """What a server sends is read by the process, too."""
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    path = programs[0]
    main = small_program.addresses(path)["hidden"]
    stripped = tmp_path / "stripped"
    tool("objcopy", "--strip-all", path, stripped)
    os.chown(stripped, STRANGER, STRANGER)
    assert (detail(reader.of(path)), detail(reader.of(stripped))) == (Detail.LINES, Detail.BINARY)
    assert reader.name(stripped, main) == ""
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:1")
    monkeypatch.setattr(debug_files, "fetch", lambda *_: (str(path), []))
    reading = LineReading()
    asking = Reader(reading=reading)
    assert asking.name(stripped, main) == ""
    reading.hurry(None, "stacks")
    asking.forget_unknown()
    assert asking.name(stripped, main) == "hidden"
    asking.binaries.process.close()


@pytest.mark.skipif(not fuse_server.possible(), reason="/dev/fuse cannot be used here")
def test_a_program_on_a_file_system_of_a_user(tmp_path: Path) -> None:
    """It says that root owns it, which nobody believes."""
    path = small_program.built(tmp_path)
    main = small_program.addresses(path)["main"]
    (tmp_path / "fuse").mkdir()
    with fuse_server.mounted(tmp_path / "fuse", {"program": path.read_bytes()}):
        reader = Reader()
        assert reader.name(tmp_path / "fuse" / "program", main) == "main"
        reader.binaries.process.close()
