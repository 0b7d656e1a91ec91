"""Files that the user of a live view asks for: snapshots and reports, new ones in the working directory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from pytrace.base import whole_files
from pytrace.core.diagnostics import TraceError
from pytrace.live.messages import Notice
from pytrace.results.formats import table
from pytrace.results.snapshot import SnapshotData

Write = Callable[[SnapshotData, str], None]
"""Writes a snapshot to a path."""


def new_path(suffix: str) -> str:
    """The name of a new file, by the time of day."""
    return time.strftime(f"pytrace-%Y%m%d-%H%M%S.{suffix}")


def written(snapshot: SnapshotData, path: str, write: Write) -> Notice:
    """Write a snapshot. Returns what the view says of it."""
    try:
        write(snapshot, path)
    except OSError as error:
        return Notice(f"{path} cannot be written: {error.strerror or error}", error=True)
    except TraceError as error:
        return Notice(f"{path} was not written: {'; '.join((error.message, *error.hints))}", error=True)
    return Notice(f"written: {path}")


def write_report(snapshot: SnapshotData, path: str) -> None:
    """Write a snapshot as a report in HTML."""
    row, settings = table.chosen("html", None)
    write = row.writer()
    with whole_files.replacing(os.path.abspath(path)) as file:
        write(snapshot, settings, file)
