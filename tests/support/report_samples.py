"""Made-up snapshots for pictures and measurements of reports.

``python -m tests.support.report_samples pictures FOLDER`` (scripts/screenshots), ``save FILE NUMBER`` a snapshot of so
many different stacks, ``open REPORT`` prints the seconds until Chromium shows it.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from pytrace.core import types
from pytrace.core.diagnostics import TraceError
from pytrace.results import file_form
from pytrace.results.formats import table
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.snapshot import Frame, SnapshotData, StackTrace
from tests.support.snapshots import COUNT, SECOND, STRING, map_data, run, snapshot

HTML = table.named("html")
KEY = types.Tuple((STRING, types.Stack(False), types.Stack(True)))
_BEGIN = 1_764_150_000 * SECOND

_CALLS = {
    "main": ("worker_loop", "timer_loop"), "worker_loop": ("read_request", "handle", "write_reply"),
    "timer_loop": ("expire_cache", "rotate_log"), "read_request": ("parse_headers", "recv"),
    "handle": ("find_route", "render", "query", "compress"), "render": ("template_expand", "escape_html", "malloc"),
    "template_expand": ("escape_html", "memcpy", "template_expand"), "query": ("encode_row", "send", "recv", "malloc"),
    "compress": ("deflate", "memcpy"), "deflate": ("longest_match", "fill_window"), "write_reply": ("send", "memcpy"),
    "send": ("tcp_sendmsg",), "recv": ("tcp_recvmsg",), "malloc": ("sysmalloc",), "sysmalloc": ("do_mmap",),
    "tcp_sendmsg": ("tcp_write_xmit", "skb_copy"), "tcp_recvmsg": ("skb_copy", "schedule"),
    "tcp_write_xmit": ("ip_queue_xmit",),
}  # fmt: skip
_KERNEL = {"tcp_sendmsg", "tcp_recvmsg", "tcp_write_xmit", "skb_copy", "schedule", "ip_queue_xmit", "do_mmap"}
_LIBRARIES = dict.fromkeys(("malloc", "sysmalloc", "memcpy", "send", "recv"), "libc.so.6")
_LIBRARIES |= dict.fromkeys(("deflate", "longest_match", "fill_window"), "libz.so.1")

_RARE = {"timer_loop": 0.15, "read_request": 0.5, "write_reply": 0.4}


def _frame(name: str, seed: random.Random) -> Frame:
    if name in _KERNEL:
        return Frame(name, 16, "[kernel]")
    module = f"/usr/lib/{_LIBRARIES[name]}" if name in _LIBRARIES else "/usr/sbin/httpd"
    return Frame(name, 16, module, "", "" if name in _LIBRARIES else f"src/{name}.c", seed.randrange(10, 14))


def profile(number: int, slow: str = "") -> SnapshotData:
    """Samples of a profiler; the function *slow* is met three times as often."""
    seed = random.Random(number)
    entries: dict[Any, int] = {}
    for _ in range(4000):
        names = ["main"]
        while names[-1] in _CALLS and (len(names) < 3 or seed.random() < 0.93):
            choices = _CALLS[names[-1]]
            names.append(seed.choices(choices, [4 if name == slow else _RARE.get(name, 1) for name in choices])[0])
        frames = [_frame(name, seed) for name in reversed(names)]
        kernel = tuple(frame for frame in frames if frame.module == "[kernel]")
        user = tuple(frame for frame in frames if frame.module != "[kernel]")
        key = (seed.choice(["httpd", "httpd", "httpd-admin"]), StackTrace(kernel, False), StackTrace(user))
        entries[key] = entries.get(key, 0) + 1
    return snapshot(map_data("@", KEY, COUNT, entries), of=run(f"run-{number}", start=_BEGIN, end=_BEGIN + 60 * SECOND))


def minute() -> list[SnapshotData]:
    """Snapshots of each second of a minute."""
    seed, calls, states = random.Random(1), {"httpd": 0, "postgres": 0}, []
    counts: dict[str, dict[int, int]] = {}
    for second in range(1, 61):
        for name in calls:
            middle = 9 + 2.5 * math.sin(second / 9) + (2 if name == "postgres" else 0) + (4 if 40 <= second < 44 else 0)
            for _ in range(seed.randrange(150, 300)):
                bucket = max(1, min(40, round(seed.gauss(middle, 1.3))))
                mine = counts.setdefault(name, {})
                mine[bucket] = mine.get(bucket, 0) + 1
                calls[name] += 1
        maps = [
            map_data("@read_us", STRING, types.Hist(0), {name: dict(found) for name, found in counts.items()}),
            map_data("@reads", STRING, COUNT, dict(calls)),
        ]
        states.append(snapshot(*maps, of=run(start=_BEGIN, end=_BEGIN + second * SECOND)))
    return states


def many_stacks(number: int) -> SnapshotData:
    """So many different stacks of up to 30 frames, which share callers as those of a large program do."""
    seed = random.Random(7)
    modules = [f"/usr/lib/lib{at}.so" for at in range(40)]
    frames = [
        Frame(
            f"function_{at}_of_module_{at % 40}", at % 300, modules[at % 40], f"{at % 40:040x}", f"src/{at % 200}.c", at
        )
        for at in range(4000)
    ]
    kernel = [Frame(f"kernel_function_{at}", 12, "[kernel]", "", "", 0, False, at * 64) for at in range(1000)]
    paths = [frames[:1]]
    entries: dict[Any, int] = {}
    while len(entries) < number:
        base = seed.choice(paths)
        path = base[: seed.randint(max(1, len(base) - 8), len(base))]
        path = [*path, *(seed.choice(frames) for _ in range(seed.randint(1, 6)))][:30]
        paths.append(path)
        stack = StackTrace(tuple(kernel[: seed.randint(0, 6)]), False)
        key = (seed.choice(["nginx", "bash"]), stack, StackTrace(tuple(reversed(path))))
        entries[key] = seed.randint(1, 50)
    return snapshot(map_data("@", KEY, COUNT, entries))


def pictures(folder: Path) -> None:
    """Screenshots for the documents."""
    from tests.support.browser import opened

    if HTML.differential is None or HTML.series is None:
        raise TraceError("format html compares nothing")
    reports = {
        "flame": HTML.differential(profile(1), profile(2, slow="query"), WriteOptions()),
        "heat": HTML.series(minute(), WriteOptions()),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in reports.items():
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "report.html"
            path.write_bytes(data)
            with opened(path) as page:
                page.wait_for_timeout(300)
                section = page.locator("section.heat" if name == "heat" else "section.flame")
                section.screenshot(path=folder / f"report-{name}.png")


def seconds_to_open(path: Path) -> float:
    """Seconds from the start of loading until the report is drawn, as the page measures them: the least of five."""
    from tests.support.browser import opened

    found = []
    for _ in range(5):
        with opened(path) as page:
            found.append(int(page.evaluate("document.documentElement.dataset.ready")) / 1000)
    return min(found)


if __name__ == "__main__":
    act, place = sys.argv[1], Path(sys.argv[2])
    if act == "pictures":
        pictures(place)
    elif act == "save":
        file_form.write(many_stacks(int(sys.argv[3])), str(place))
    else:
        print(seconds_to_open(place))
