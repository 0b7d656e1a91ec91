"""Programs that documents show, and those that their command lines become, are right for a kernel.

All passes of the front end see them, so that an argument that a tracepoint lacks is found. Some are also loaded or run,
by the tests that ``tests/test_documents.py`` names.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytrace.cli import request, tools
from pytrace.core.diagnostics import render_all
from pytrace.core.options.compile_options import CompileOptions
from pytrace.runtime.load.live_kernel import LiveKernel
from tests import test_documents
from tests.support import front
from tests.test_documents import RUN, SHORTENED, SHOWN, accepted, of_sort, runs

MISSING_HERE = re.compile(
    r"is not possible: this kernel|there is no file|probes need a process|there is no tracepoint category"
)


def programs() -> list[tuple[str, str]]:
    """The place and text of each."""
    found = [(f"{block.page}:{block.line}", block.text) for block in of_sort("script")]
    for shown in SHOWN:
        for line in filter(None, map(accepted, runs(shown.text))):
            text = line.text("program")
            if line.tool in tools.TRANSLATED and not line.usage:
                request.complete(line)
                text = line.script[0].text if line.script is not None else None
            if text is not None:
                found.append((shown.place, text))
    return [(place, text) for place, text in found if place.partition(":")[0] not in RUN and not SHORTENED.search(text)]


def test_programs_are_right_for_this_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_documents.enter_folder(tmp_path, monkeypatch)
    kernel = LiveKernel()
    wrong = {}
    for place, text in programs():
        errors = front.analyse(text, CompileOptions(unsafe=True), kernel).diagnostics.errors
        if found := [item for item in errors if not MISSING_HERE.search(item.message)]:
            wrong[place] = render_all(found)
    assert not wrong
