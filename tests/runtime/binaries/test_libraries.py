"""Libraries and debug information of a process's binaries, and where indirect functions lead."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.binaries.user_binary import Binary, CachedDebugInfo, Libraries, library_cache
from pytrace.runtime.machine import fingerprints, procfs
from tests.support.compile import compiled
from tests.support.waiting import until

# ---------------------------------------------------------------------------------------------- libraries
# pytrace.runtime.binaries.user_binary and processes: from names to files.


MAPS = b"""\
561f88689000-561f8868d000 r--p 00000000 fe:00 1234                       /usr/bin/ls
561f8868d000-561f886a2000 r-xp 00004000 fe:00 1234                       /usr/bin/ls
7f2124933000-7f2124934000 r-xp 00002000 fe:00 99                         /opt/a b/lib.so (deleted)
7f2124940000-7f2124950000 rwxp 00000000 00:00 0
7ffc1a5f2000-7ffc1a5f4000 r-xp 00000000 00:00 0                          [vdso]
"""


def test_executable_mappings() -> None:
    rows = procfs.executable_mappings(MAPS)
    assert [(row.path, row.offset, row.inode) for row in rows] == [
        ("/usr/bin/ls", 0x4000, 1234), ("/opt/a b/lib.so", 0x2000, 99), ("", 0, 0), ("[vdso]", 0, 0),
    ]  # fmt: skip
    assert (rows[0].start, rows[0].end) == (0x561F8868D000, 0x561F886A2000)
    assert rows[0].device == os.makedev(0xFE, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("alpha", "alto"):
        compiled(tmp_path, name, "int main(void) { return 0; }\n")
    (tmp_path / "alas").write_text("no program")
    return tmp_path


def test_paths_and_globs(folder: Path) -> None:
    libraries = Libraries({"PATH": str(folder)})
    assert libraries.find(str(folder / "alpha"), None) == [str(folder / "alpha")]
    assert libraries.find(str(folder / "none"), None) == []
    assert libraries.find(f"{folder}/al*", None) == [str(folder / "alpha"), str(folder / "alto")]
    assert libraries.find("al*", None) == [str(folder / "alpha"), str(folder / "alto")]


def test_programs_are_found_in_path(folder: Path) -> None:
    other = folder / "other"
    other.mkdir()
    (other / "alpha").symlink_to(folder / "alpha")
    (other / "alto").write_bytes((folder / "alto").read_bytes())
    (other / "alto").chmod(0o755)
    libraries = Libraries({"PATH": f"{other}:{folder}"})
    assert libraries.find("alpha", None) == [str(other / "alpha")], "one file under two names is one binary"
    assert libraries.find("alto", None) == [str(other / "alto"), str(folder / "alto")]
    assert libraries.find("missing-program", None) == []


def test_what_an_answer_depends_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = folder / "first"
    first.mkdir()
    monkeypatch.setenv("PATH", f"{first}:{folder}")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(first))
    known = Libraries(os.environ).dependencies("alpha", None)
    assert fingerprints.still_true(known)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    assert not fingerprints.still_true(known)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(first))
    assert fingerprints.still_true(known)
    (first / "alpha.so").write_bytes((folder / "alpha").read_bytes())
    assert not fingerprints.still_true(known)
    monkeypatch.delenv("LD_LIBRARY_PATH")
    known = Libraries(os.environ).dependencies("alpha", None)
    (first / "alpha").symlink_to(folder / "alto")
    assert not fingerprints.still_true(known)


def test_libraries_through_the_loader_cache() -> None:
    cached = dict(library_cache())
    if "libc.so.6" not in cached:
        pytest.skip("this machine's C library has no loader cache")
    libraries = Libraries(os.environ)
    assert libraries.find("libc", None) == [cached["libc.so.6"]]
    assert libraries.find("libc.so.6", None) == [cached["libc.so.6"]]
    assert libraries.find("lib", None) == []


@pytest.mark.parametrize("kept", [48, 60, -5])
def test_a_damaged_loader_cache_names_nothing(kept: int, tmp_path: Path) -> None:
    """That of a container may be anything."""
    rows = struct.pack("=iIIIQ", -1 & 0xFFFF, 72, 80, 0, 0)
    data = b"glibc-ld.so.cache1.1" + struct.pack("=I", 1) + bytes(24) + rows + b"libx.so\0/x/libx.so"
    (tmp_path / "cache").write_bytes(data[:kept])
    assert library_cache(str(tmp_path / "cache")) == []


def test_names_in_a_hostile_loader_cache_do_not_overlap(tmp_path: Path) -> None:
    """Each of ten thousand rows has nearly all of the file as its name, which would be ten gigabytes."""
    count = 10_000
    start = 48 + 24 * count
    rows = b"".join(struct.pack("=iIIIQ", 0x0300, start + at, start + at, 0, 0) for at in range(count))
    data = b"glibc-ld.so.cache1.1" + struct.pack("=I", count) + bytes(24) + rows + b"x" * (1 << 20) + b"\0"
    (tmp_path / "cache").write_bytes(data)
    assert library_cache(str(tmp_path / "cache")) == []


def files(paths: list[str]) -> set[tuple[int, int]]:
    return {(found.st_dev, found.st_ino) for path in paths if os.path.exists(path) for found in [os.stat(path)]}


def test_of_a_process() -> None:
    libraries, me = Libraries(os.environ), os.getpid()
    assert libraries.find("", me) == [os.path.realpath(sys.executable)]
    mapped = libraries.find("*", me)
    assert os.path.realpath(sys.executable) in mapped
    assert any("libc" in path for path in mapped)
    # Other processes may have other names for the same files.
    assert files(mapped) <= files(libraries.find("*", None))
    assert libraries.find("", 1 << 22) == []


def test_a_file_has_its_own_path_before_one_through_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may end, and with it the path."""
    me, program = os.getpid(), os.path.realpath(sys.executable)
    mapped = {1: [f"/proc/{me}/root{program}"], 2: [program]}
    monkeypatch.setattr(procfs, "process_ids", lambda: [1, 2])
    monkeypatch.setattr(procfs, "mapped_files", mapped.__getitem__)
    assert Libraries(os.environ).find("*", None) == [program]


def test_through_another_mount_namespace() -> None:
    """A process in a namespace of its own is reached through its root."""
    import subprocess

    try:
        child = subprocess.Popen(["unshare", "-m", "sleep", "30"], stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        pytest.skip("unshare is missing")
    try:
        until(lambda: procfs.executable(child.pid).endswith("sleep") or child.poll() is not None)
        if child.poll() is not None:
            pytest.skip("this user may not make a mount namespace")
        (found,) = Libraries(os.environ).find("", child.pid)
        assert found.startswith(f"/proc/{child.pid}/root/")
        assert os.path.samefile(found, f"/proc/{child.pid}/exe")
        (library,) = Libraries(os.environ).find("libc", child.pid)
        assert library.startswith(f"/proc/{child.pid}/root/")
    finally:
        child.kill()
        child.wait()


# ---------------------------------------------------------------------------------------------- cached debug info
# pytrace.runtime.binaries.user_binary: what needs DWARF decoded, and what does not.


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
