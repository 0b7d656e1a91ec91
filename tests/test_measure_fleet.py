"""scripts/measure-fleet: the fleet whose agents are played. It checks states and counts itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytrace.core import types
from pytrace.results import file_form
from pytrace.results.snapshot import Frame, MapData, SnapshotData, StackTrace
from tests.support import fleet_simulation
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parents[1]
STACKS = MapData(
    "@on", types.Stack(user=True), types.Count(),
    {StackTrace((Frame("work", offset), Frame("main", 7))): 100 + offset for offset in range(20)},
)  # fmt: skip
RECORDED = SnapshotData((fleet_simulation.run(0),), {"@on": STACKS})


@pytest.mark.parametrize("recorded", [None, RECORDED], ids=["made", "recorded"])
def test_hosts_directly_and_behind_gateways(recorded: SnapshotData | None) -> None:
    """Each hundred has all faults; of 51 gateways one is lost, which has two of the hosts."""
    directly = fleet_simulation.measure(100, recorded)
    assert directly.sent > 0
    assert directly.gateway is None
    tree = fleet_simulation.measure_tree(102, recorded, width=2)
    assert tree.gateway


def test_the_script(tmp_path: Path) -> None:
    """Its table and its picture, with a snapshot that was saved."""
    file_form.write(RECORDED, str(tmp_path / "run.pts"))
    words = ("--recorded", str(tmp_path / "run.pts"), "--plot", str(tmp_path / "plot.svg"), "10", "20")
    done = measure_fleet("--tree", *words)
    assert [line.split(" | ")[0] for line in done.splitlines()] == ["| 10", "| 20"]
    assert all(line.count("|") == 7 for line in done.splitlines()), done
    titles = [text.text for text in ElementTree.parse(tmp_path / "plot.svg").iter() if text.get("font-weight")]
    assert titles == ["processor time, s", "messages, MB", "most memory, MB"]


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="traces")
def test_a_recorded_run(tmp_path: Path) -> None:
    """System calls, stacks and histograms of what the script starts, and of nothing else."""
    path = tmp_path / "run.pts"
    assert "@calls " in measure_fleet("--record", str(path))
    maps = file_form.read(str(path)).maps
    commands = {key[0] for key in maps["@calls"].entries if isinstance(key, tuple)}
    assert {"sh", "sort", "cp"} <= commands
    assert not [command for command in commands if str(command).startswith("pytest")]
    assert maps["@waits"].entries
    assert "sort" in maps["@usecs"].entries


def measure_fleet(*words: str) -> str:
    """What the script prints."""
    command = [sys.executable, str(ROOT / "scripts/measure-fleet"), *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=patience(60)).stdout
