from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.multitools.specs import probe_text
from pytrace.multitools.specs.probe_text import ProbeText
from pytrace.multitools.specs.problems import SpecText
from tests.support.facts import RecordedKernel

KERNEL = RecordedKernel()


def parsed(text: str) -> ProbeText:
    return probe_text.parse(SpecText.of(text), KERNEL, None, stop=' "')


def test_place_signature_and_rest() -> None:
    found = parsed('/bin/app:work(int a, char *b) (a > 1) "%d", a')
    assert (found.point, found.rest.text) == ("uprobe:/bin/app:work", '(a > 1) "%d", a')
    assert [parameter.name for parameter in found.parameters] == ["a", "b"]
    assert parsed("r:/bin/app:work").point == "uretprobe:/bin/app:work"
    assert parsed('/bin/app:work"x"').rest.text == '"x"'


def test_names_of_events() -> None:
    assert parsed("/bin/app:work").event_name() == "func"
    assert parsed("t:sched:sched_switch").event_name() == '"sched_switch"'
    assert parsed("t:sched:sched_*").event_name() == "probe"


def test_scopes() -> None:
    entry, leave = parsed("/bin/app:work(int a)").scope(0), parsed("r:/bin/app:work(int a)").scope(0)
    assert entry.resolve("a") == "$a"
    assert (leave.resolve("a"), leave.resolve("arg1"), leave.resolve("retval")) == (None, None, "retval")
    event = parsed("t:sched:sched_switch").scope(0)
    assert (event.resolve("args"), event.resolve("arg1")) == ("args", None)
    assert parsed("r::vfs_read").scope(0).resolve("arg1") == "args.file"


def test_fields_that_are_text() -> None:
    event = parsed("t:sched:sched_switch")
    assert event.array_field("args->prev_comm", KERNEL)
    assert not event.array_field("args->nosuch", KERNEL)
    assert not event.array_field("comm", KERNEL)
    assert not parsed("t:syscalls:sys_enter_open").array_field("args->filename", KERNEL)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a probe is expected"), ("(int a)", "a probe is expected"), ("/bin/app:work(int a", "has no end"),
        ("t:sched:sched_switch(int a)", "tracepoints have no signature"),
    ],
)  # fmt: skip
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        parsed(text)
