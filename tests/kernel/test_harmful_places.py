"""Programs give the same results while patterns probe functions that the kernel's uprobes get wrong."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pytrace.runtime.machine import syscalls
from tests.support.machine import need
from tests.support.patience import patience

pytestmark = [
    pytest.mark.own_process,
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="instructions of x86-64"),
]


def trace(script: str, child: str, *options: str) -> tuple[dict[str, dict[str, int]], str, str]:
    """The maps of a run, and what the child and pytrace write otherwise."""
    command = [sys.executable, "-m", "pytrace", "-q", "-f", "json", *options, "-e", script, "-c", child]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    lines = done.stdout.splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    maps = {name: value for row in rows if row["type"] == "map" for name, value in row["data"].items()}
    return maps, "\n".join(line for line in lines if not line.startswith("{")), done.stderr


def by_name(maps: dict[str, dict[str, int]]) -> dict[str, int]:
    """The counts of ``@[probe]`` by the last part of the probe."""
    return {name.rpartition(":")[2]: count for name, count in maps["@"].items()}


@pytest.mark.parametrize("kind", ["uprobe", "uretprobe"])
@pytest.mark.parametrize("options", [(), ("--no-feature", "uprobe_multi")], ids=["multi", "perf"])
def test_vector_instructions(programs: Path, tmp_path: Path, kind: str, options: tuple[str, ...]) -> None:
    need("uprobe" if options else "uprobe_multi")
    binary = programs / "vectors"
    plain, traced = tmp_path / "plain", tmp_path / "traced"
    subprocess.run([binary, plain], check=True, timeout=patience(30))
    calls = Counter(line.split()[0] for line in plain.read_text().splitlines())
    if not calls:
        pytest.skip("the processor has no AVX")
    assert set(calls.values()) == {100}
    maps, _, errors = trace(f"{kind}:{binary}:vector_* {{ @[probe] = count(); }}", f"{binary} {traced}", *options)
    assert traced.read_text() == plain.read_text()
    if kind == "uretprobe":
        # It is on the return instructions, which the kernel does not misread.
        assert by_name(maps) == calls
        assert "left out" not in errors
        return
    assert by_name(maps) == {"vector_safe_add": 100, "vector_safe_and": 100}
    assert "12 of 14 probes left out: the kernel would corrupt the program there" in errors


def test_a_named_function_is_refused(programs: Path, tmp_path: Path) -> None:
    need("uprobe")
    binary, file = programs / "vectors", tmp_path / "results"
    _, _, errors = trace(f"uprobe:{binary}:vector_harm_or {{ @ = count(); }}", f"{binary} {file}")
    assert "would misread the instruction there (c5 f9 eb c1)" in errors
    assert not file.exists()
    # The instruction after it is another one.
    maps, _, _ = trace(f"uprobe:{binary}:vector_harm_or+4 {{ @[1] = count(); }}", f"{binary} {file}")
    if "vector_harm_or" not in file.read_text():
        pytest.skip("the processor has no AVX")
    assert maps["@"] == {"1": 100}
    assert "vector_harm_or c1a8000141236767 7fc040403f9f1001" in file.read_text()


def replaces_nops() -> bool:
    """Whether the kernel replaces nops of 5 bytes by calls, asked as the kernel's own tests do."""
    try:
        syscalls.call("uprobe")
    except OSError as error:
        return error.errno == errno.ENXIO
    return False


def test_the_red_zone_is_left_alone(programs: Path) -> None:
    need("uprobe")
    binary = programs / "redzone"
    maps, output, errors = trace(f"usdt:{binary}:zone:* {{ @[probe] = count(); }}", str(binary))
    assert output == "leaf 0 framed 0 entry 0"
    expected = {"framed": 1000, "entry": 1000}
    if replaces_nops():
        assert "1 of 3 probes left out" in errors
    else:
        expected["leaf"] = 1000
    assert by_name(maps) == expected


def test_without_the_check_the_kernel_overwrites_it(programs: Path) -> None:
    """As long as this holds, the check is needed; the other functions of the program are not affected."""
    need("uprobe")
    if not replaces_nops():
        pytest.skip("this kernel leaves nops of 5 bytes alone")
    binary = programs / "redzone"
    script = f"usdt:{binary}:zone:* {{ @[probe] = count(); }}"
    _, output, _ = trace(script, str(binary), "--no-feature", "nop5_uprobes")
    leaf, framed, entry = (int(word) for word in output.split()[1::2])
    assert leaf > 0
    assert (framed, entry) == (0, 0)
