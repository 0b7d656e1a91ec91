"""What pytrace does with binaries, on damaged ones: an answer or an error of its own, never any other exception."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries import debug_files
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.binaries.user_binary import Binary, UserBinaries
from pytrace.runtime.stacks import unwind_tables
from pytrace.runtime.stacks.images import Images
from tests.support.compile import compiled, tool
from tests.support.damage import Damaged, damaged
from tests.support.waiting import finished

PROGRAM = """\
struct point { int x; char tag[4]; struct point *next; };
extern int getpid(void);
static inline __attribute__((always_inline)) int inner(int v) { return v * 3 + getpid(); }
__attribute__((noinline)) int work(struct point *p, int n) { int r = inner(p->x); return r + n; }
int main(int argc, char **argv) { struct point p = {argc, "tag", 0}; return work(&p, 3); }
__asm__(".pushsection .note.stapsdt, \\"\\", \\"note\\"\\n.balign 4\\n.4byte 8, 5f-4f, 3\\n.asciz \\"stapsdt\\"\\n"
        "4: .8byte work\\n.8byte 0\\n.8byte 0\\n.asciz \\"prov\\"\\n.asciz \\"name\\"\\n.asciz \\"4@%edi\\"\\n5:\\n"
        ".balign 4\\n.popsection\\n");
"""

FORMS = ["-O2", "-O2 -gdwarf-4", "-O2 -gdwarf-2 -gz", "-O2 -gsplit-dwarf", "-O2 -gdwarf64 -fdebug-types-section"]

STRIDE = 37
"""Every so many of the damaged files of a form are tried, from another one on for each form, to stay within seconds."""


@pytest.fixture(scope="module", params=FORMS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    return compiled(folder, "program", PROGRAM, "-g", "-fPIC", "-Wl,--build-id", *request.param.split())


def _questions(path: str, places: list[int]) -> Iterator[tuple[str, Callable[[], object]]]:
    """All that is asked of a binary, by name."""
    known = UserBinaries((str(Path(path).parent),))
    yield "executable", lambda: known.executable(path)
    yield "symbols", lambda: known.symbols(path, "*")
    yield "a symbol", lambda: known.symbols(path, "work")
    yield "names", lambda: list(known.binary(path).function_names("w*"))
    yield "C++ symbols", lambda: known.cpp_symbols(path, "*")
    yield "static tracepoints", lambda: known.usdt(path, "*", "*")
    yield "parameters", lambda: known.parameters(path, "work")
    yield "result", lambda: known.result(path, "work")
    yield "type", lambda: known.named_type(path, "struct", "point")
    yield "lines", lambda: known.lines(path, "program.c", 4, None)
    yield "variable", lambda: known.binary(path).variable("main")
    yield "debug file", lambda: debug_files.find(ElfFile.open(path), debug_files.DEFAULT_DIRECTORIES)
    yield "supplement", lambda: debug_files.supplement(ElfFile.open(path), debug_files.DEFAULT_DIRECTORIES)
    yield "mini debug info", lambda: ElfFile.open(path).mini_debug_info
    yield "unwind table", lambda: finished(unwind_tables.compile_table(*_frames_of(path)))
    images = Images({}, lines=True)
    for place in places:
        yield f"address {place:#x}", partial(known.offset, path, place)
        yield f"offset {place:#x}", partial(known.address_at, path, place)
        yield f"line {place:#x}", partial(_line, known, path, place)
        yield f"frames {place:#x}", partial(_named, known, images, path, place)


def _frames_of(path: str) -> tuple[bytes, int]:
    file = ElfFile.open(path)
    section = file.section(".eh_frame")
    return (b"", 0) if section is None else (bytes(file.contents(section)), section.address)


def _named(known: UserBinaries, images: Images, path: str, place: int) -> object:
    return images.frames(known.binary(path), path, place)


def _line(known: UserBinaries, path: str, place: int) -> object:
    binary = known.binary(path)
    return None if binary.debug is None else (binary.debug.decoder.line_of(place), binary.debug.frames(place))


def _complaints(path: Path, damage: Damaged, places: list[int]) -> list[str]:
    path.unlink(missing_ok=True)
    path.write_bytes(damage.data)
    found = []
    for name, ask in _questions(str(path), places):
        try:
            ask()
        except TraceError:
            pass
        except Exception:  # noqa: BLE001 - any other one is what this looks for
            found.append(f"{damage.what}: {name}: {traceback.format_exc(limit=-2)}")
    return found


def _asked(program: Path) -> list[int]:
    starts = [symbol.address for symbol in Binary.open(str(program)).functions("*") if symbol.name in ("main", "work")]
    return [*starts, starts[-1] + 9]


def _some(program: Path, data: bytes) -> list[Damaged]:
    form = len(program.read_bytes()) % STRIDE
    return list(damaged(data))[form::STRIDE]


def test_damaged_binaries_give_answers_or_errors(program: Path, tmp_path: Path) -> None:
    cases = _some(program, program.read_bytes())
    assert len(cases) > 25
    places = _asked(program)
    found = [text for case in cases for text in _complaints(tmp_path / "program", case, places)]
    assert not found, f"{len(found)} complaints\n" + "\n".join(found[:20])


def test_narrow_files(program: Path, tmp_path: Path) -> None:
    narrow = tmp_path / "narrow"
    tool("objcopy", "-I", "elf64-x86-64", "-O", "elf32-x86-64", program, narrow)
    cases = _some(program, narrow.read_bytes())[::3]
    found = [text for case in cases for text in _complaints(tmp_path / "program", case, [0x1139])]
    assert not found, f"{len(found)} complaints\n" + "\n".join(found[:20])
