"""Runs of pytrace that save snapshots, and the snapshots.

Files are written in a form of this module's own: what is under test is what a snapshot has, whatever form files have.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pytrace.base.whole_files import replacing
from pytrace.core import types
from pytrace.core.types import from_data, to_data
from pytrace.results.snapshot import MapData, Run, SnapshotData, Table
from tests.support.patience import patience

SLOW = "TEST_SLOW_WRITING"
"""A variable that makes :func:`write` stop in the middle of a file."""
ROOT = Path(__file__).resolve().parent.parent.parent


def write(snapshot: SnapshotData, path: str) -> None:
    """What takes the place of ``pytrace.results.file_form.write``."""
    maps = [
        (item.name, item.key and to_data(item.key), to_data(item.value), item.entries, item.help)
        for item in snapshot.maps.values()
    ]
    tables = [(to_data(item.type), item.rows, item.dropped) for item in snapshot.tables]
    runs = [tuple(getattr(run, name) for name in Run.__match_args__) for run in snapshot.runs]
    with replacing(path) as place, open(place, "wb") as file:
        if os.environ.get(SLOW):
            file.write(b"half")
            file.flush()
            print("writing", flush=True)
            time.sleep(600)
        pickle.dump((runs, maps, tables, snapshot.losses), file)


def read(path: Path) -> SnapshotData:
    """What :func:`write` wrote."""
    runs, maps, tables, losses = pickle.loads(path.read_bytes())
    found = [
        MapData(name, key and from_data(key), from_data(value), entries, None, text)
        for name, key, value, entries, text in maps
    ]
    kinds = [(from_data(kind), rows, dropped) for kind, rows, dropped in tables]
    return SnapshotData(
        tuple(Run(*run) for run in runs),
        {item.name: item for item in found},
        tuple(Table(kind, rows, dropped) for kind, rows, dropped in kinds if isinstance(kind, types.Record)),
        losses,
    )


def tracer(*arguments: str | Path) -> list[str]:
    """A command line of pytrace that writes snapshots with :func:`write`."""
    return [sys.executable, "-m", "tests.support.saved", *map(str, arguments)]


def start(*arguments: str | Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start pytrace with pipes for what it prints."""
    return subprocess.Popen(
        tracer(*arguments), cwd=ROOT, env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


@dataclass
class Saved:
    """A run that is over: what it printed, and the snapshot that it saved."""

    stdout: str
    stderr: str
    status: int
    path: Path

    @property
    def snapshot(self) -> SnapshotData:
        return read(self.path)

    def entries(self, name: str) -> dict[Any, Any]:
        """Of a map."""
        return dict(self.snapshot.maps[name].entries)


def save(folder: Path, *arguments: str | Path, env: Mapping[str, str] | None = None, status: int = 0) -> Saved:
    """Run pytrace to its end with ``--save``."""
    path = folder / "snapshot"
    child = start("--save", path, *arguments, env=env)
    try:
        stdout, stderr = child.communicate(timeout=patience(60))
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise
    assert child.returncode == status, stderr
    return Saved(stdout, stderr, child.returncode, path)


if __name__ == "__main__":
    import pytrace.results
    from pytrace.cli import main

    form = ModuleType("pytrace.results.file_form")
    form.write = write  # type: ignore[attr-defined]
    sys.modules["pytrace.results.file_form"] = form
    pytrace.results.file_form = form  # type: ignore[attr-defined]
    main.command()
