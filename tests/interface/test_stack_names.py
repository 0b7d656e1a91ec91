"""Functions that hosts could not name, named by files of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytrace.core import types
from pytrace.core.config import Config
from pytrace.core.types import Stack, StackMode, Tuple
from pytrace.interface.stack_names import StackNames
from pytrace.remote.messages import Function, NamedPlace, Place
from pytrace.results.snapshot import SnapshotData
from pytrace.results.values import Frame, StackTrace
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.elf import debug_files
from pytrace.runtime.symbols.met_binaries import Detail
from tests.support import small_program
from tests.support.snapshots import COUNT, STRING, map_data, snapshot, table


class Stripped:
    """A stripped program, and a folder with its debug file."""

    def __init__(self, folder: Path) -> None:
        self.whole, self.debuginfo = small_program.built(folder), folder / "debug"
        self.path, debug = small_program.split(self.whole, folder)
        self.build_id = Binary.open(str(self.whole)).elf.build_id
        self.helper = small_program.addresses(self.whole)["helper"]
        place = self.debuginfo / ".build-id" / self.build_id[:2] / f"{self.build_id[2:]}.debug"
        place.parent.mkdir(parents=True)
        debug.rename(place)

    def frame(self, module: str = "", build_id: str = "") -> Frame:
        """What a host says of a place in ``helper``."""
        address = self.helper + 4
        return Frame("", address, module or str(self.path), build_id or self.build_id, address=address)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Stripped:
    return Stripped(tmp_path_factory.mktemp("stripped"))


def of(*frames: Frame, mode: StackMode = StackMode.BPFTRACE) -> SnapshotData:
    key = Tuple((STRING, Stack(True, mode=mode)))
    stack = StackTrace(frames)
    rows = table(["s"], [Stack(True, mode=mode)], [(stack,)])
    return snapshot(map_data("@", key, COUNT, {("a", stack): 3}), tables=(rows,))


def named(names: StackNames, before: SnapshotData) -> list[str]:
    """The names of the functions of the only stack, which the table has, too."""
    after = names.named(before)
    ((_, stack),) = after.maps["@"].entries
    assert after.tables[0].rows["run-1"] == [(stack,)]
    return [frame.function for frame in stack.frames]


def test_a_debug_file_has_the_names(program: Stripped) -> None:
    known = Frame("main", 3, "/bin/x", "ab" * 20, address=8)
    assert named(StackNames([str(program.debuginfo)]), of(program.frame(), known)) == ["helper", "main"]
    assert named(StackNames([str(program.debuginfo)]), of(program.frame("/only/there"))) == ["helper"]
    ((_, stack),) = StackNames([str(program.debuginfo)]).named(of(program.frame())).maps["@"].entries
    assert stack.frames == (Frame("helper", 4, str(program.path), program.build_id, address=program.helper + 4),)


def test_the_same_binary_is_here(program: Stripped) -> None:
    assert named(StackNames(["/nowhere"]), of(program.frame(str(program.whole)))) == ["helper"]


def test_the_cache_of_debuginfod(program: Stripped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / program.build_id
    folder.mkdir(mode=0o700)
    shutil.copy(program.whole, folder / "debuginfo")
    (folder / "debuginfo").chmod(0o600)
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path))
    assert named(StackNames(["/nowhere"]), of(program.frame("/only/there"))) == ["helper"]


def test_servers_are_asked_for_the_final_answer(program: Stripped, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, and none after one that fails, or when the user does not wait."""
    fetched: list[str] = []
    answers: dict[str, tuple[str | None, list[str]]] = {program.build_id: (str(program.whole), [])}

    def fetch(build_id: str, stop: Callable[[], bool]) -> tuple[str | None, list[str]]:
        assert not stop()
        fetched.append(build_id)
        return answers.get(build_id, (None, []))

    monkeypatch.setattr(debug_files, "fetch", fetch)
    names = StackNames(["/nowhere"])
    other, third = "ab" * 20, "cd" * 20
    answer = names.named(of(program.frame("/a", other), program.frame("/b"), program.frame("/c", third)))
    assert names.final(answer, lambda: False) == answer
    assert not fetched, "no server is named"
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:1")
    assert names.final(answer, lambda: True) == answer
    assert not fetched, "the user does not wait"
    for problems, asked in ([], [other, program.build_id, third]), (["no answer"], [other]):
        answers[other] = None, problems
        fetched.clear()
        after = StackNames(["/nowhere"]).final(answer, lambda: False)
        ((_, stack),) = after.maps["@"].entries
        assert [frame.function for frame in stack.frames] == ["", "" if problems else "helper", ""]
        assert fetched == asked


def test_other_places_stay_as_they_are(program: Stripped, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    names = StackNames(["/nowhere"])
    for module, build_id in ((str(program.whole), "ab" * 20), (str(fifo), ""), ("relative", ""), ("\0", ""),
                             (str(program.path), "../../etc/passwd")):  # fmt: skip
        before = of(program.frame(module, build_id))
        assert names.named(before) == before
    chosen = of(program.frame(), mode=StackMode.RAW)
    assert StackNames([str(program.debuginfo)]).named(chosen) == chosen


def test_stacks_that_become_equal_are_joined(program: Stripped) -> None:
    """One process has run the binary from where its symbols could be read."""
    place = program.frame()
    whole = place._replace(function="helper", offset=4)
    key = Stack(True)
    before = snapshot(map_data("@", key, COUNT, {StackTrace((place,)): 3, StackTrace((whole,)): 4}),
                      map_data("@n", STRING, types.Hist(), {"x": {1: 2}}))  # fmt: skip
    after = StackNames([str(program.debuginfo)]).named(before)
    assert after.maps["@"].entries == {StackTrace((whole,)): 7}
    assert after.maps["@n"] is before.maps["@n"]


def answered(names: StackNames, place: Frame, said: NamedPlace | None = None) -> list[tuple[str, int, int]]:
    """Function, offset, line of the frames of the final answer with one place."""
    known = {} if said is None else {said.place: said}
    ((_, stack),) = names.final(of(place), lambda: False, known).maps["@"].entries
    return [(frame.function, frame.offset, frame.line) for frame in stack.frames]


def test_the_one_that_knows_more_names_a_place(program: Stripped) -> None:
    """This machine, or a host that was asked; the functions of hosts are only shown in their place."""
    place = program.frame("/only/there")
    inlined = Function("inlined", 4, "a.c", 3, inlined=True), Function("theirs", 4, "a.c", 9)
    said = NamedPlace(Place(program.build_id, program.helper + 4), Detail.SYMBOLS, inlined)
    nothing, whole = StackNames(["/nowhere"]), StackNames([str(program.debuginfo)])
    assert (nothing.detail(program.build_id, "/only/there"), nothing.detail(program.build_id, str(program.path))) == (
        Detail.NOTHING, Detail.BINARY
    )  # fmt: skip
    assert whole.detail(program.build_id, str(program.path)) == Detail.LINES
    assert answered(nothing, place, said) == [("inlined", 4, 3), ("theirs", 4, 9)]
    assert answered(nothing, place) == [("", program.helper + 4, 0)]
    ((function, offset, line),) = answered(whole, place, said)
    assert (function, offset, bool(line)) == ("helper", 4, True)
    ((_, stack),) = whole.named(of(place)).maps["@"].entries
    assert [(frame.function, frame.line) for frame in stack.frames] == [("helper", 0)]
    assert answered(StackNames([str(program.debuginfo)], Config(show_debug_info=False)), place) == [("helper", 4, 0)]


def test_a_return_address_is_named_by_its_call(program: Stripped) -> None:
    """It may be that of the next function. Without a name, it is the place itself."""
    start = small_program.addresses(program.whole)["help"]
    calling = Frame("", start - 1, str(program.path), program.build_id, address=start)
    names = StackNames([str(program.debuginfo)])
    ((function, offset, _),) = answered(names, calling)
    assert function not in ("", "help")
    assert offset > 1
    ((begun, at, _),) = answered(names, calling._replace(offset=start))
    assert (begun, at) == ("help", 0)
    assert answered(StackNames(["/nowhere"]), calling) == [("", start, 0)]
    said = NamedPlace(Place(program.build_id, start - 1), Detail.SYMBOLS, (Function("caller", 7),))
    assert answered(StackNames(["/nowhere"]), calling, said) == [("caller", 8, 0)]
