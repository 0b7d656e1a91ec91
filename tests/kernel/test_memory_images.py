"""Names of addresses of processes that execute other programs, and unload libraries: those of when they were taken."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.compile import SOURCES, compiled
from tests.support.machine import need
from tests.support.server import Server

pytestmark = pytest.mark.usefixtures("_uprobes")

FLAGS = ("-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls")


@pytest.fixture(scope="module")
def _uprobes() -> None:
    need("uprobe")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two programs at the same addresses, two libraries that are loaded at the same ones, and what loads them."""
    folder = tmp_path_factory.mktemp("images")
    source = (SOURCES / "image.c").read_text()
    for name in ("first", "second"):
        text = source.replace("NAME", name)
        compiled(folder, name, text, *FLAGS, "-static", "-no-pie")
        compiled(folder, f"lib{name}.so", text, *FLAGS, "-DLIBRARY", "-shared", "-fPIC")
    compiled(folder, "loader", SOURCES / "loader.c", *FLAGS)
    return folder


def commands(folder: Path, count: int, seconds: float) -> dict[str, tuple[str, tuple[Path, Path]]]:
    """What executes or loads *count* times, and the files that it runs."""
    programs, libraries = (folder / "first", folder / "second"), (folder / "libfirst.so", folder / "libsecond.so")
    loader = f"{folder / 'loader'} {count} {seconds} {libraries[0]} {libraries[1]}"
    return {"exec": (f"{programs[0]} {programs[1]} {count} {seconds}", programs), "dlclose": (loader, libraries)}


SCRIPT = """
uprobe:%s:first_leaf, uprobe:%s:second_leaf {
  printf("%%s %%s %%s %%s\\n", probe, func, usym(reg("ip")), ustack(folded, 3));
  @name[probe, func, usym(reg("ip"))] = count();
  @stack[probe, ustack(folded, 3)] = count();
}
"""


@pytest.mark.parametrize("way", ["exec", "dlclose"])
@pytest.mark.parametrize(("count", "seconds", "least"), [(6, 0.05, 0.99), (600, 0.0002, 0.9)])
def test_events_and_keys_have_the_names_of_their_time(
    server: Server, folder: Path, way: str, count: int, seconds: float, least: float
) -> None:
    command, files = commands(folder, count, seconds)[way]
    result = server.run(("-q", "-e", SCRIPT % files, "-c", command), timeout=60)
    assert result.status == 0, result
    named: Counter[str] = Counter()
    for line in result.stdout.splitlines():
        match = re.match(r"(?:@(?:name|stack)\[)?uprobe:\S+:(first|second)_leaf,? (.*?)(?:\]: (\d+))?$", line)
        if match is None:
            continue
        mine, other = match[1], "second" if match[1] == "first" else "first"
        assert other not in match[2].replace(str(folder), ""), line
        expected = [f"{mine}_leaf", f"{mine}_outer"] if "_outer" in match[2] or ";" in match[2] else [f"{mine}_leaf"]
        good = all(name in match[2] for name in expected) and "0x" not in match[2]
        named["good" if good else "number"] += int(match[3] or 1)
    assert named.total() == 3 * count, result.stdout
    if named["good"] == named.total():
        assert result.stdout.count("@name[") == result.stdout.count("@stack[") == 2, "rows that are alike are one"
    assert named["good"] >= least * named.total(), result.stdout


@pytest.mark.parametrize("way", ["exec", "dlclose"])
def test_samples_have_the_names_of_their_time(server: Server, folder: Path, way: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    command, _ = commands(folder, 2, 0.4)[way]
    script = "profile:hz:499 /pid == cpid/ { @[ustack(folded)] = count(); }"
    result = server.run(("-q", "-f", "json", "--save", str(saved), "-e", script, "-c", command), timeout=60)
    assert result.status == 0, result
    counts: Counter[str] = Counter()
    for row in map(json.loads, result.stdout.splitlines()):
        for stack, count in row["data"].get("@", {}).items() if row["type"] == "map" else ():
            found = set(re.findall(r"(first|second)_", stack))
            assert len(found) < 2, stack
            counts.update(dict.fromkeys(found, count))
    assert counts["first"] > 10, counts
    assert counts["second"] > 10, counts
    shown = server.run(("show", str(saved), "-f", "folded"), timeout=60).stdout
    saved_counts = Counter({
        name: sum(int(line.rsplit(" ", 1)[1]) for line in shown.splitlines() if f"{name}_" in line)
        for name in ("first", "second")
    })
    assert saved_counts == counts


def test_a_process_with_quiet_mappings_keeps_its_keys(server: Server, folder: Path, tmp_path: Path) -> None:
    """What it maps, and unmaps of data, does not matter."""
    path = compiled(tmp_path, "quiet", SOURCES / "quiet_mappings.c", *FLAGS)
    script = f"uprobe:{path}:quiet_leaf {{ @[usym(reg(\"ip\"))] = count(); }} end {{ @keys = len(@); }}"
    command = f"{path} {folder / 'libfirst.so'}"
    # The command itself is executed while it is traced.
    for program in (command, f"{path} {folder / 'libfirst.so'} close"):
        result = server.run(("-q", "-e", script, "-c", program), timeout=60)
        assert "@keys: 1\n" in result.stdout, result
        assert re.search(r"^@\[quiet_leaf\]: 2[01]$", result.stdout, re.MULTILINE), result


@pytest.mark.parametrize(
    ("stack", "frames"), [("ustack", "-fno-omit-frame-pointer"), ("dw_ustack", "-fomit-frame-pointer")]
)
def test_programs_and_libraries_in_memory(server: Server, tmp_path: Path, stack: str, frames: str) -> None:
    """Files by memfd_create(2), as container runtimes execute themselves: they have no path."""
    program = compiled(tmp_path, "memory", SOURCES / "program_in_memory.c", "-O1", frames)
    library = compiled(tmp_path, "library.so", SOURCES / "library_in_memory.c", "-O1", frames, "-shared", "-fPIC")
    script = f"t:syscalls:sys_enter_getsid /@n++ > 100/ {{ print({stack}(folded)); exit(); }} end {{ clear(@n); }}"
    result = server.run(("-q", "-e", script, "-c", f"{program} {library}"), timeout=60)
    assert "main;in_program;in_library" in result.stdout, result
    assert "[JIT]" not in result.stdout


@pytest.mark.parametrize(
    ("stack", "frames"), [("ustack", "-fno-omit-frame-pointer"), ("dw_ustack", "-fomit-frame-pointer")]
)
def test_code_that_was_moved_to_huge_pages(server: Server, tmp_path: Path, stack: str, frames: str) -> None:
    program = compiled(tmp_path, "moved", SOURCES / "moved_code.c", "-O1", frames)
    script = f"t:syscalls:sys_enter_getsid /@n++ > 100/ {{ print({stack}(folded)); exit(); }} end {{ clear(@n); }}"
    result = server.run(("-q", "-e", script, "-c", str(program)), timeout=60)
    assert "main;in_program" in result.stdout, result
    assert "[JIT]" not in result.stdout
