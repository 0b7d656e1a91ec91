from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.script_options import Value
from tests.support.multitools import script, translate


@pytest.mark.parametrize(
    ("pattern", "options", "key"),
    [
        ("vfs_read", {}, "kstack, ustack"),
        ("/bin/app:work", {}, "ustack"),
        ("u:/bin/app:start", {}, "ustack"),
        ("vfs_read", {"kernel-stacks-only": True}, "kstack"),
        ("vfs_read", {"user-stacks-only": True}, "ustack"),
        ("/bin/app:work", {"kernel-stacks-only": True}, "kstack"),
        ("vfs_read", {"delimited": True}, 'kstack, "--", ustack'),
        ("vfs_read", {"perpid": True}, "pid, comm, kstack, ustack"),
        ("vfs_read", {"perpid": True, "folded": True, "delimited": True}, "comm, pid, kstack, ustack"),
    ],
)
def test_keys(pattern: str, options: dict[str, Value], key: str) -> None:
    assert f"@stacks[{key}] = count();" in script("stackcount", None, pattern=pattern, **options)


def test_intervals() -> None:
    text = script("stackcount", pattern="t:sched:sched_switch", interval=2, timestamp=True, cpu="1")
    assert "tracepoint:sched:sched_switch /cpu == 1/ {" in text
    assert 'interval:s:2, end {\n    time("%H:%M:%S\\n");\n    print_clear(@stacks);\n}' in text
    assert "end {\n    time(" in script("stackcount", pattern="vfs_read", timestamp=True)


def test_words_of_the_run() -> None:
    made = translate("stackcount", pattern="vfs", regexp=True, pid="3", duration=4, folded=True, offset=True)
    assert made.arguments[:4] == ("--pid", "3", "--duration", "4")
    assert made.arguments[-2:] == ("--format", "folded")
    assert "-s" in made.notes[0]


def test_mistakes() -> None:
    with pytest.raises(TraceError, match="-K and -U"):
        translate("stackcount", None, pattern="vfs_read", **{"kernel-stacks-only": True, "user-stacks-only": True})
    with pytest.raises(TraceError, match="whole run"):
        translate("stackcount", pattern="vfs_read", folded=True, interval=1)
