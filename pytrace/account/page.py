"""The account as a page: causes as bars, under each its flame graph, and a timeline of threads with states in colour.

One HTML file without scripts, which loads nothing. All text is escaped; the size is bounded: at most so many threads,
and of each as many boxes as the picture is wide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

import msgspec

from pytrace.account.account import Account, Line, Thread
from pytrace.account.chains import Segment
from pytrace.account.reading import ON_CPU, Reading
from pytrace.account.screen import duration, heading, seconds, text_of_path
from pytrace.base.control_characters import printable_text
from pytrace.core import types
from pytrace.core.text import printable_utf8
from pytrace.results.findings import Amounts
from pytrace.results.formats import svg
from pytrace.results.formats.portable_forms import Printers
from pytrace.results.snapshot import MapData, Portable, StackTrace
from pytrace.results.stack_samples import profiles

_WIDTH, _NAMES, _ROW = 1160, 180, 15
_THREADS = 100
"""Maximum threads of the timeline."""
_FLAMES = 12
"""Maximum flame graphs."""
_STYLE = svg.Options(narrowest=1, most_rows=64)
_COLORS = {
    "on CPU": "#4c9f38", "waiting for a CPU": "#f2a33a", "lock": "#d43d51", "file and disk": "#3f6fb5",
    "network, pipe, socket": "#8c5fbf", "sleep": "#9fb4c7", "child": "#7f8c8d", "other": "#a67c52", "idle": "#ececec",
}  # fmt: skip
_KINDS = {
    "cpu": "on CPU", "short": "on CPU", "run-queue": "waiting for a CPU", "throttled": "waiting for a CPU",
    "frozen": "waiting for a CPU", "stopped": "waiting for a CPU", "sleep": "sleep", "child": "child", "join": "idle",
    "accept": "idle", "unseen": "idle", "lock": "lock", "gil": "lock", "condition": "lock", "semaphore": "lock",
    "barrier": "lock", "futex": "lock", "kernel-lock": "lock", "file-lock": "lock", "disk": "file and disk",
    "page-fault": "file and disk", "connect": "network, pipe, socket", "events": "network, pipe, socket",
}  # fmt: skip
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 1.5em auto; max-width: 1200px; padding: 0 1em;
  color: #222; background: #fff }}
h1 {{ font-size: 1.3em }} h2 {{ font-size: 1.1em; margin-top: 2em }}
summary {{ cursor: pointer; display: grid; grid-template-columns: 4em 18em 1fr; gap: .6em; align-items: center }}
details {{ border-bottom: 1px solid #ddd; padding: .25em 0 }}
.bar {{ height: 1em; border-radius: 2px }} .share {{ text-align: right; font-variant-numeric: tabular-nums }}
.where {{ grid-column: 2 / 4; color: #555 }} .picture {{ max-height: 40em; overflow: auto }}
pre {{ overflow: auto; background: #f6f6f6; padding: .6em }} table {{ border-collapse: collapse }}
td, th {{ text-align: left; padding: .15em .8em .15em 0; vertical-align: top }} td:first-child {{ text-align: right }}
.key {{ display: inline-block; width: .9em; height: .9em; margin: 0 .3em 0 1em; vertical-align: -.1em }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def page(account: Account, reading: Reading) -> bytes:
    """The page, UTF-8."""
    head = list(heading(account))
    body = [f"<h1>{_escaped(head[0])}</h1>"]
    body += [f"<p>{_escaped(line.strip())}</p>" for line in head[1:]]
    body += _bars(account, reading)
    if account.path:
        text = "\n".join(map(printable_text, text_of_path(account)))
        body.append(f"<h2>Critical path</h2><pre>{_escaped(text)}</pre>")
    body += _timeline(account, reading)
    body += _wakers(account)
    return _PAGE.format(title=_escaped(head[0]), body="\n".join(body)).encode()


def _escaped(text: str) -> str:
    return escape(printable_utf8(text.encode("utf-8", "surrogateescape")).decode())


def _kind(name: str) -> str:
    """The colour's name of a cause."""
    if name in _KINDS:
        return _KINDS[name]
    if name.startswith("file-"):
        return "file and disk"
    return "network, pipe, socket" if name.startswith(("net-", "pipe-", "unix-")) else "other"


# -------------------------------------------------------------------------------------------------------------- causes


def _bars(account: Account, reading: Reading) -> Iterator[str]:
    flames = _by_cause(reading)
    yield "<h2>Where the time went</h2>"
    most = max((line.share for line in account.lines), default=1.0)
    shown: set[str] = set()
    for number, line in enumerate(account.lines):
        color = _COLORS[_kind(line.cause.name)]
        where = ", ".join(
            f"{part.place.text} {part.ns / line.ns:.0%}" if len(line.parts) > 1 else part.place.text
            for part in line.parts[:4]
        )
        where = f"{where} → {line.about}" if line.about else where
        summary = (
            f'<span class="share">{line.share:.1%}</span><span>{_escaped(line.cause.title)}</span>'
            f'<span class="bar" style="width:{line.share / most * 100:.1f}%;background:{color}"></span>'
            f'<span class="where">{_escaped(where)}</span>'
        )
        inner = _details(line)
        if line.cause.title not in shown and len(shown) < _FLAMES and flames.get(line.cause.title):
            shown.add(line.cause.title)
            inner += f'<div class="picture">{_flame(line.cause.title, flames[line.cause.title])}</div>'
        yield f"<details{' open' * (number == 0)}><summary>{summary}</summary>{inner}</details>"
    if account.idle:
        rows = ", ".join(f"{count} in {name} ({seconds(ns)})" for name, count, ns in account.idle)
        yield f"<p>Idle threads, not slow: {_escaped(rows)}</p>"


def _details(line: Line) -> str:
    rows = [(seconds(line.ns), f"{line.count:,} times, longest {duration(line.most)}" if line.count else "")]
    for who in line.by[:8]:
        rows.append((seconds(who.ns), f"{who.relation} {who.who}{', ' * bool(who.doing)}{who.doing}"))
        if who.stack:
            rows.append(("", f"its stack then: {' ← '.join(place.text for place in who.stack)}"))
    rows += [
        (seconds(step.ns), f"meanwhile: {step.place.text} {step.cause.title}{' → ' * bool(step.about)}{step.about}")
        for step in line.behind[:8]
    ]
    return f"<table>{''.join(f'<tr><td>{left}</td><td>{_escaped(right)}</td></tr>' for left, right in rows)}</table>"


def _by_cause(reading: Reading) -> dict[str, dict[Portable, int]]:
    found: dict[str, dict[Portable, int]] = defaultdict(lambda: defaultdict(int))
    for (kernel, user, cause, _), ns in reading.by_stack():
        found[cause][kernel, user] += ns // 1000
    return found


def _flame(title: str, entries: Mapping[Portable, int]) -> str:
    """The flame graph of a cause; none where nothing of its time has a stack, as of waits for a CPU."""
    members = (types.Stack(user=False), types.Stack(user=True))
    known = {key: us for key, us in entries.items() if us and _has_stack(key)}
    if not known:
        return ""
    data = MapData(
        f"@{title}", types.Tuple(members), types.Sum(), known, help="", key_names=("kernel", "user")
    )
    drawing = svg.Drawing(_WIDTH)
    (profile,) = profiles([data], Printers().portable_text)
    svg.draw_flames(drawing, profile, 0, _STYLE, amounts=Amounts("us"), titled=False)
    missing = sum(entries.values()) - sum(known.values())
    without = f"<p>{seconds(missing * 1000)} more, of which no stack was taken.</p>" if missing else ""
    return drawing.element() + without


def _has_stack(key: Portable) -> bool:
    assert isinstance(key, tuple)
    return any(isinstance(stack, StackTrace) and stack.frames for stack in key)


# ------------------------------------------------------------------------------------------------------------ timeline


class _Box(msgspec.Struct, frozen=True):
    """A stretch of a row: nanoseconds, its colour's name and what it is."""

    begin: int
    end: int
    kind: str
    text: str


def _timeline(account: Account, reading: Reading) -> Iterator[str]:
    threads = sorted(account.threads, key=lambda thread: (thread.idle >= 0.95 * thread.life, -thread.life))[:_THREADS]
    if not threads:
        return
    begin, end = min(thread.begin for thread in threads), max(thread.end for thread in threads)
    drawing = svg.Drawing(_WIDTH)
    scale = (_WIDTH - _NAMES - 10) / max(end - begin, 1)
    path = [_box_of(reading, segment) for segment in reading.path_segments]
    rows = [("critical path", path)] if path else []
    rows += [(f"{thread.name} ({thread.tid})", list(_boxes(reading, thread))) for thread in threads]
    for name, boxes in rows:
        y = drawing.height
        drawing.text(4, y + _ROW - 4, svg.fitted(name, _NAMES - 8))
        for box in _by_pixel(boxes, scale):
            x = _NAMES + (box.begin - begin) * scale
            drawing.box(x, y, max((box.end - box.begin) * scale, 0.5), _ROW - 2, _COLORS[box.kind], box.text)
        drawing.height += _ROW
    drawing.rule(_NAMES, drawing.height, _WIDTH - 10, drawing.height, "#888")
    drawing.height += 14
    drawing.text(_NAMES, drawing.height, "0")
    drawing.text(_WIDTH - 10, drawing.height, seconds(end - begin), anchor="end")
    keys = "".join(f'<span class="key" style="background:{color}"></span>{name}' for name, color in _COLORS.items())
    left = len(account.threads) - len(threads)
    yield "<h2>Threads over time</h2>"
    limit = _escaped(duration(account.limit))
    yield f"<p>{keys}</p><p>Waits below {limit} are in the colour of on CPU; a box says what it is.</p>"
    yield f'<div class="picture">{drawing.element()}</div>'
    if left:
        yield f"<p>{left} more threads, shorter ones, are not drawn.</p>"


def _box_of(reading: Reading, segment: Segment) -> _Box:
    state = segment.wait.state if segment.wait is not None else ON_CPU
    cause = reading.cause_of(state)
    place = reading.thread_place(segment.tid, state).text
    kind = _kind(cause.name)
    if kind == "idle":
        kind = "other"
    return _Box(segment.begin, segment.end, kind, f"{place}: {cause.title}, {duration(segment.end - segment.begin)}")


def _boxes(reading: Reading, thread: Thread) -> Iterator[_Box]:
    """A thread's life."""
    at, idle = thread.begin, thread.idle_in
    for wait in reading.timeline.waits.get(thread.tid, ()):
        if wait.begin > at:
            yield _Box(at, wait.begin, "on CPU", f"on CPU, {duration(wait.begin - at)}")
        cause = reading.cause_of(wait.state)
        kind = "idle" if idle and idle in (cause.idle, cause.about, cause.title) else _kind(cause.name)
        text = f"{reading.thread_place(thread.tid, wait.state).text}: {cause.title}, {duration(wait.end - wait.begin)}"
        if (waker := reading.waker_text(cause, wait.by)) and wait.by:
            text = f"{text}, {waker}"
        yield _Box(wait.begin, wait.end, kind, text)
        at = wait.end
    if at < thread.end:
        yield _Box(at, thread.end, "on CPU", f"on CPU, {duration(thread.end - at)}")


def _by_pixel(boxes: Sequence[_Box], scale: float) -> Iterable[_Box]:
    """Boxes that are as wide as a pixel; narrower neighbours are joined to one of the kind that most of them have."""
    narrow: list[_Box] = []
    for box in boxes:
        if narrow and (box.begin - narrow[0].begin) * scale >= 1:
            yield _joined(narrow)
            narrow = []
        if (box.end - box.begin) * scale >= 1:
            if narrow:
                yield _joined(narrow)
                narrow = []
            yield box
        else:
            narrow.append(box)
    if narrow:
        yield _joined(narrow)


def _joined(boxes: Sequence[_Box]) -> _Box:
    if len(boxes) == 1:
        return boxes[0]
    totals: dict[str, int] = defaultdict(int)
    for box in boxes:
        totals[box.kind] += box.end - box.begin
    kind = max(totals, key=lambda name: totals[name])
    return _Box(boxes[0].begin, boxes[-1].end, kind, f"{len(boxes)} states, most of the time {kind}")


# ------------------------------------------------------------------------------------------------------ who wakes whom


def _wakers(account: Account) -> Iterator[str]:
    rows = sorted(
        (
            (who.ns, line.parts[0].place.text if line.parts else "", line.cause.title, who.relation, who.who, who.doing)
            for line in account.lines for who in line.by
        ),
        reverse=True,
    )[:40]  # fmt: skip
    if not rows:
        return
    body = "".join(
        f"<tr><td>{seconds(ns)}</td>{''.join(f'<td>{_escaped(cell)}</td>' for cell in cells)}</tr>"
        for ns, *cells in rows
    )
    yield "<h2>Who wakes whom</h2>"
    names = "".join(f"<th>{name}</th>" for name in ("time", "waits", "for", "ended", "by", "who was"))
    yield f"<table><tr>{names}</tr>{body}</table>"
