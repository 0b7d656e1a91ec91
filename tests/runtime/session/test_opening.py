"""Where a run prints to, and which snapshots it can save."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from pytrace.base.interruption import EndRequests
from pytrace.core.config import Config
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest
from pytrace.core.options.run_options import RunOptions
from pytrace.runtime.session import opening

NOTHING = Manifest((), (), (), (), Config())


@pytest.mark.parametrize(
    ("form", "descriptor"), [("text", 1), ("json", 1), ("csv", 1), ("folded", 2), ("html", 2)], ids=str
)
def test_text_goes_to_standard_error_beside_a_format_of_snapshots(form: str, descriptor: int) -> None:
    with ExitStack() as stack:
        opened = opening.output(RunOptions(format=form), EndRequests(), stack)
        assert opened.descriptor == descriptor
        assert (opened.json, opened.csv) == (form == "json", form == "csv")


def test_output_to_a_file(tmp_path: Path) -> None:
    with ExitStack() as stack:
        opened = opening.output(RunOptions(output=str(tmp_path / "x")), EndRequests(), stack)
        assert opened.descriptor > 2
        assert not opened.terminal
    assert (tmp_path / "x").read_text() == ""


def test_a_file_of_a_snapshot_that_cannot_be_written_is_refused_before_anything_is_traced(tmp_path: Path) -> None:
    assert opening.check_saving(NOTHING, RunOptions()) == []
    with pytest.raises(TraceError, match="missing"):
        opening.check_saving(NOTHING, RunOptions(save=str(tmp_path / "missing" / "x")))
