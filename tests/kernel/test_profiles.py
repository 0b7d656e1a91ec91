"""Profiles of real runs, opened by programs that others wrote."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pytrace.runtime.binaries.elf_file import ElfFile
from tests.support import pictures
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.readers import pprof, speedscope_stacks
from tests.support.saved import read, start

pytestmark = pytest.mark.kernel

SAMPLES = "software:cpu-clock:1000000 /pid == cpid/ { @[comm, kstack, ustack] = count(); }"


def run(*arguments: str | Path, status: int = 0) -> tuple[str, str]:
    """Standard output and standard error."""
    child = start(*arguments)
    try:
        out, error = child.communicate(timeout=patience(60))
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise
    assert child.returncode == status, error
    return out, error


def hot(stacks: dict[str, float]) -> float:
    """Weights of the stacks in which main called warm and that called hot."""
    return sum(weight for stack, weight in stacks.items() if ";main;warm;hot" in f";{stack};".removesuffix(";"))


def test_events_go_to_standard_error_and_stacks_to_standard_output(programs: Path) -> None:
    script = f'{SAMPLES} begin {{ printf("%s\\n", "ready"); row((a=1)); }} end {{ print(7); }}'
    out, error = run("-q", "-f", "folded:process", "-e", script, "-c", f"{programs}/busy 300")
    stacks = {}
    for line in out.splitlines():
        match = re.fullmatch(r"(\S.*) (\d+)", line)
        assert match is not None, line
        stacks[match[1]] = float(match[2])
    assert [line for line in error.splitlines() if line in ("ready", "7")] == ["ready", "7"]
    assert "WARNING: format folded cannot show rows\n" in error
    assert hot(stacks) > sum(stacks.values()) / 2
    assert all(stack.startswith("busy;") for stack in stacks if ";main;" in stack)


@pytest.mark.slow
@pytest.mark.needs("readers")
def test_each_format_is_opened_by_its_readers(programs: Path, tmp_path: Path) -> None:
    saved, folded, profile = (tmp_path / name for name in ("x.pts", "x.folded", "x.pb.gz"))
    scope = tmp_path / "x.speedscope.json"
    run("--save", saved, "-o", profile, "-e", SAMPLES, "-c", f"{programs}/busy 300")
    for path in (folded, scope):
        assert run("show", saved, "-o", path) == ("", "")
    total = sum(int(str(count)) for count in read(saved).maps["@"].entries.values())
    (whole,) = speedscope_stacks(folded).values()
    assert sum(whole.values()) == total
    assert hot(whole) > total / 2
    by_process = speedscope_stacks(scope)
    assert next(iter(by_process)) == "@ busy"
    assert sum(sum(stacks.values()) for stacks in by_process.values()) == total
    assert hot(by_process["@ busy"]) == hot(whole)
    (read_again,) = speedscope_stacks(profile).values()
    assert sum(read_again.values()) == total
    found = pprof(profile)
    texts = found["stringTable"]
    first = found["mapping"][0]
    program = programs / "busy"
    assert texts[first["filename"]] == str(program.resolve())
    assert texts[first["buildId"]] == ElfFile.open(str(program)).build_id
    assert sum(int(sample["value"][0]) for sample in found["sample"]) == total
    assert {texts[label["str"]] for sample in found["sample"] for label in sample["label"]} >= {"busy"}


def test_the_second_snapshot_replaces_the_file_of_the_first(programs: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.folded"
    script = "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @[ustack(1)] = count(); }"
    need("tracepoint")
    for calls in (5, 8):
        assert run("-q", "-o", path, "-e", script, "-c", f"{programs}/syscalls {calls}")[0] == ""
        (line,) = path.read_text().splitlines()
        assert int(line.rpartition(" ")[2]) == calls
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.folded"]


def test_a_dry_run_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.folded"
    path.write_text("old")
    run("-q", "--dry-run", "-o", path, "-e", "begin { @[kstack] = count(); }")
    assert path.read_text() == "old"


def test_what_the_format_cannot_show_is_refused_before_anything_runs(tmp_path: Path) -> None:
    _, error = run("-f", "folded", "-e", "begin { @h = hist(3); exit(); }", "-c", f"touch {tmp_path}/ran", status=1)
    assert error.startswith("ERROR: format folded cannot show @h (histograms)\n")
    assert list(tmp_path.iterdir()) == []


def test_maps_that_cannot_be_written_are_printed() -> None:
    script = "begin { @[kstack(2), 1] = sum(-3); exit(); }"
    out, error = run("-q", "-f", "folded", "-e", script, status=1)
    assert out == ""
    assert "ERROR: format folded has no negative numbers, and @ has -3" in error
    assert re.search(r"@\[.*, 1\]: -3\n", error, re.DOTALL)


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_a_flame_graph_in_one_command(programs: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    run("flame", "-F", "999", "-c", f"{programs}/busy 300", "-o", path)
    text = path.read_text()
    assert text.startswith("<!DOCTYPE html>" if suffix == "html" else "<svg ")
    if suffix == "svg":
        boxes = pictures.boxes(text.encode())
        assert any(re.match(r"hot: \S+ m?s \(\d+ samples?\), ", box.title) for box in boxes)


def test_time_off_the_processor_in_one_command(tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    run("flame", "--off-cpu", "-c", "sleep 0.2", "-o", path)
    texts = pictures.texts(path.read_bytes())
    assert texts[0] == "Where sleep 0.2 waited"
    (total,) = filter(
        None, (re.fullmatch(r"@off_us: (\S+) (ms|s) waited, most in the function:", text) for text in texts)
    )
    assert float(total[1]) >= (190 if total[2] == "ms" else 0.19)


def test_a_heat_map_in_one_command(programs: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.html"
    script = "profile:hz:99 /pid == cpid/ { @ = hist(nsecs % 1000); }"
    run("heatmap", "--every", "0.1", "-o", path, "-e", script, "-c", f"{programs}/busy 500")
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert len(list((tmp_path / "x.snapshots").iterdir())) >= 2
