from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.script_options import Value
from tests.support.facts import RecordedKernel
from tests.support.multitools import translate


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({"lib": "/bin/app"}, ("-l", "usdt:/bin/app:*")),
        ({"lib": "c", "filter": "set*"}, ("-l", "usdt:libc:set*")),
        ({"lib": "pthread", "verbose": True}, ("-l", "-v", "usdt:libpthread:*")),
        ({"pid": "12"}, ("-l", "-p", "12", "usdt:*:*")),
        ({"filter": "block:*"}, ("-l", "tracepoint:block:*")),
        ({"filter": "sched_switch"}, ("-l", "tracepoint:*:sched_switch")),
        ({}, ("-l", "tracepoint:*")),
    ],
)
def test_arguments(options: dict[str, Value], arguments: tuple[str, ...]) -> None:
    kernel = RecordedKernel(files={"libc": ["/lib/c"], "libpthread": ["/lib/p"]})
    made = translate("tplist", kernel, **options)
    assert (made.text, made.arguments) == ("", arguments)


def test_mistakes() -> None:
    with pytest.raises(TraceError, match="cannot be used together"):
        translate("tplist", lib="c", pid="1")
    with pytest.raises(TraceError, match="one process"):
        translate("tplist", pid="1,2")
