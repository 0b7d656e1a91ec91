from __future__ import annotations

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.script_options import Value
from tests.support.multitools import script, translate

WHOLE = """\
config = { print_maps_on_exit = false }

uprobe:/bin/app:work* {
    @calls[probe] = count();
}

end {
    for ($kv : @calls) {
        $name = $kv.0;
        row((func=str((int8 *)&$name + 16, 128), count=$kv.1), "-count");
    }
    print_rows();
}
"""


def test_the_whole_script() -> None:
    assert script("funccount", pattern="/bin/app:work*") == WHOLE


def test_kernel_functions_are_told_by_address() -> None:
    text = script("funccount", pattern="vfs_*")
    assert "kprobe:vfs_* {\n    @calls[func] = count();" in text
    assert 'row((func=$name, count=$kv.1), "-count");' in text


@pytest.mark.parametrize(
    ("pattern", "point"),
    [
        ("vfs_read", "fentry:vfs_read {"), ("t:sched:sched_*", "tracepoint:sched:sched_* {"),
        ("r:/bin/app:work", "uretprobe:/bin/app:work {"), ("u:/bin/app:*", "usdt:/bin/app:* {"),
        ("kretprobe:vfs_*", "kretprobe:vfs_* {"), ("software:faults:1", "software:faults:1 {"),
    ],
)  # fmt: skip
def test_places(pattern: str, point: str) -> None:
    assert point in script("funccount", pattern=pattern)


def test_intervals_lose_no_calls() -> None:
    text = script("funccount", pattern="vfs_*", interval=2)
    assert "interval:s:2, end {" in text
    assert "$new = $kv.1 - @shown[$name];" in text
    assert "clear(" not in text


def test_time_cpu() -> None:
    text = script("funccount", pattern="vfs_*", timestamp=True, cpu="3")
    assert 'time("%H:%M:%S\\n");' in text
    assert "kprobe:vfs_* /cpu == 3/ {" in text


def test_words_of_the_run() -> None:
    made = translate("funccount", pattern="^vfs_", pid="12", duration=9, regexp=True)
    assert made.arguments[:4] == ("--pid", "12", "--duration", "9")
    assert made.arguments[4:] == ("--probe-filter", ":(?:vfs_)[^:]*$|^interval:|:sched_process_exit$")
    assert "kprobe:* {" in made.text


def test_one_cpu() -> None:
    assert "/cpu == 2/" in translate("funccount", pattern="vfs_*", cpu=2).text
    assert "cpu ==" not in translate("funccount", pattern="vfs_*").text


def test_mistakes() -> None:
    with pytest.raises(TraceError, match="names nothing"):
        translate("funccount", pattern="c:")


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
        ("vfs_read", {"delimited": True, "python": True}, 'kstack, "--", pystack'),
        ("/bin/app:work", {"python": True}, "pystack"),
        ("vfs_read", {"perpid": True}, "kstack, ustack, comm, pid"),
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


def test_words_of_the_run_of_stackcount() -> None:
    made = translate("stackcount", pattern="vfs", regexp=True, pid="3", duration=4, folded=True, offset=True)
    assert made.arguments[:4] == ("--pid", "3", "--duration", "4")
    assert made.arguments[-2:] == ("--format", "folded")
    assert "stack_layout" not in made.text
    shown = translate("stackcount", pattern="vfs", regexp=True, offset=True, all=True)
    assert [word for word in ("names", "offsets", "all", "lines") if f'stack_layout("{word}");' in shown.text] == [
        "names", "offsets", "all",
    ]  # fmt: skip


def test_mistakes_of_stackcount() -> None:
    with pytest.raises(TraceError, match="-K and -U"):
        translate("stackcount", None, pattern="vfs_read", **{"kernel-stacks-only": True, "user-stacks-only": True})
    with pytest.raises(TraceError, match="whole run"):
        translate("stackcount", pattern="vfs_read", folded=True, interval=1)
