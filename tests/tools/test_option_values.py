"""Values of tools' options that ask for nothing: times of no length, limits that nothing passes."""

from __future__ import annotations

import pytest

from pytrace.cli.main import main
from pytrace.core.options.option_values import WrongValueError, convert
from tests.support.rows import each_row
from tests.tools.columns import TOOLS
from tests.tools.test_options import own

UNTIL_INTERRUPTED = {("llcstat", "duration")}
"""Where 0 is documented, as without it the run ends by itself."""


@each_row("tool", TOOLS)
def test_times_are_more_than_0(tool: str) -> None:
    times = [
        option
        for option in own(tool)
        if option.argument == "SECONDS" or option.name in ("interval", "duration", "seconds")
    ]
    for option in times:
        if (tool, option.name) not in UNTIL_INTERRUPTED:
            with pytest.raises(WrongValueError, match="more than 0"):
                convert(option, "0")


def test_times_are_found() -> None:
    assert {option.name for option in own("syscount") if option.argument == "SECONDS"} == {"interval", "duration"}


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("offcputime -m 10 -M 5", "at least 10 (--min-block-time) and at most 5 microseconds"),
        ("offwaketime -m 10 -M 5", "at least 10 (--min-block-time) and at most 5 microseconds"),
        ("wakeuptime -m 10 -M 5", "at least 10 (--min-block-time) and at most 5 microseconds"),
        ("mallocs -z 10 -Z 5", "at least 10 (--min-size) and at most 5 bytes"),
        ("memleak -z 10 -Z 5", "at least 10 (--min-size) and at most 5 bytes"),
        ("offcputime --user-threads-only --kernel-threads-only", "exclude each other"),
        ("filetop --read-only --write-only", "exclude each other"),
        ("fileslower --read-only --write-only", "exclude each other"),
        ("biolatency 0 1", "operand interval needs a time in seconds"),
    ],
)
def test_contradictions_are_refused(words: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words.split(), "--dry-run"]) == 1
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("ERROR") == 1
