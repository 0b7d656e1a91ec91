"""pytrace.runtime.output.context: messages about places in the script."""

from __future__ import annotations

import json

import pytest

from pytrace.core.event_layout import EventSpec, NoStaticPart
from pytrace.core.types import INT64
from pytrace.runtime.output.context import Context
from pytrace.runtime.output.run_state import RenderOptions
from tests.support.encode import PLACE, Run

SPEC = EventSpec(0, "unwatch", (), NoStaticPart(), PLACE)


def context(*, as_json: bool = False, warnings: bool = True) -> tuple[Run, Context]:
    run = Run(json=as_json, options=RenderOptions(warnings=warnings))
    run.keyed("@m", INT64, INT64, {1: 5})
    return run, run.renderer._context


def test_a_message_as_text() -> None:
    run, made = context()
    made.located("WARNING", "helper_error", b"why \xff", SPEC, [("helper", b'"x"')], "do that")
    made.located("WARNING", "helper_error", b"plain", SPEC)
    said, _, plain = run.messages.decode("utf-8", "surrogateescape").partition("stdin:1:9-26: WARNING: plain\n")
    assert "HINT" not in plain
    assert said.startswith("stdin:1:9-26: WARNING: why \udcff\n")
    assert said.endswith("HINT: do that\n")
    assert run.printed() == b""


@pytest.mark.parametrize(("kind", "place"), [("warnf", ""), ("helper_error", "stdin:1:9-26: ")])
def test_what_a_tool_says_has_no_place_in_its_script(kind: str, place: str) -> None:
    run = Run(options=RenderOptions(tool=True))
    run.renderer._context.located("WARNING", kind, b"less is shown", SPEC)
    assert run.messages.decode().startswith(f"{place}WARNING: less is shown\n")
    assert ("~~~" in run.messages.decode()) is bool(place)


def test_a_message_as_json() -> None:
    run, made = context(as_json=True)
    made.located("WARNING", "helper_error", b"why", SPEC, [("retcode", b"-2")], "do that")
    found = json.loads(run.printed())
    assert (found["type"], found["msg"], found["retcode"]) == ("helper_error", "why", -2)
    assert (found["filename"], found["line"], found["col"]) == ("stdin", 1, 9)
    assert run.messages == b""


@pytest.mark.parametrize("warnings", [True, False])
def test_warnings_of_the_runtime_itself(warnings: bool) -> None:
    run, made = context(as_json=True, warnings=warnings)
    made.warn(SPEC, "careful")
    assert (b"stdin:1:9-26: WARNING: careful\n" in run.messages) is warnings, "on standard error, in JSON too"
