"""Messages that options ask for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytrace.core.options.run_options import RunOptions
from pytrace.runtime.session.notices import Notices


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (RunOptions(), ["done\n", "WARNING: odd\nHINT: do that\n"]),
        (RunOptions(quiet=True), ["WARNING: odd\nHINT: do that\n"]),
        (RunOptions(warnings=False), ["done\n"]),
    ],
)
def test_notices_and_warnings_can_be_left_out(options: RunOptions, said: list[str]) -> None:
    messages: list[str] = []
    notices = Notices(cast(Any, SimpleNamespace(message=messages.append)), options)
    notices.tell("done\n")
    notices.warn("odd", ("do that",))
    assert messages == said
