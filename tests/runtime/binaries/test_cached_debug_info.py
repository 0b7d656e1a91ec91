"""pytrace.runtime.binaries.cached_debug_info: what needs DWARF decoded, and what does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytrace.runtime.binaries.cached_debug_info import CachedDebugInfo
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.elf.file import ElfFile
from tests.support.compile import compiled

PROGRAM = "int work(int a) { return a * 2; }\nint main(void) { return work(3); }\n"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return compiled(tmp_path, "program", PROGRAM, "-g", "-O0")


def _address(path: Path, name: str) -> int:
    address = Binary.open(str(path)).address_of(name)
    assert address is not None
    return address


def _decodes(path: Path, name: str) -> bool:
    """Whether a new process that asks for the place of a function imports what decodes DWARF."""
    script = (
        "import sys; from pytrace.runtime.binaries.user_binary import Binary; "
        f"binary = Binary.open({str(path)!r}); address = binary.address_of({name!r}); "
        f"assert binary.debug.frames(address)[-1].function == {name!r}; binary.keep_lines(); "
        "print('elftools' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout == "True\n"


def test_cached_places_need_no_decoder(program: Path) -> None:
    assert _decodes(program, "work")
    assert not _decodes(program, "work")
    assert _decodes(program, "main"), "a function that no run asked for"
    assert not _decodes(program, "main")


def test_what_is_read_is_known(program: Path) -> None:
    debug = CachedDebugInfo(ElfFile.open(str(program)))
    work = _address(program, "work")
    assert not debug.knows(work)
    for _ in debug.reading(work):
        pass
    assert debug.knows(work)
    assert not debug.knows(_address(program, "main"))
    (place,) = debug.frames(work)
    assert (place.function, Path(place.file).name, place.line) == ("work", "program.c", 1)
    assert list(debug.reading(work)) == []


def test_the_file_may_go_after_it_was_opened(program: Path) -> None:
    debug, work = CachedDebugInfo(ElfFile.open(str(program))), _address(program, "work")
    program.unlink()
    assert debug.frames(work)[-1].function == "work"


def test_problems_and_files_of_nothing_that_was_decoded(program: Path) -> None:
    debug = CachedDebugInfo(ElfFile.open(str(program)))
    assert debug.problems == debug.files == []
    debug.keep()


def test_questions_of_probes_go_to_the_decoder(program: Path) -> None:
    debug = CachedDebugInfo(ElfFile.open(str(program)))
    found = debug.decoder.parameters("work", _address(program, "work"))
    assert found is not None
    assert [item.name for item in found] == ["a"]

