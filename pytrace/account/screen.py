"""The account as text: fits a terminal of 80 columns and 24 rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytrace.account.account import Account, Line, RequestPart, Requests, Step, Who
from pytrace.core.diagnostics import counted
from pytrace.core.failures import failure

WIDTH = 80
ROWS, LINES = 24, 6
"""Rows and causes of the first screen."""
_REQUEST_ROWS = 6
_PATH = 12
"""Steps of the critical path in the list."""
_INDENT = " " * 8
_BUSY = 0.05
"""Where less of the threads' time is not idle, shares of that would mislead without a word."""
_LEAST = 0.005
"""Shares below it are one line of their own, unless everything is asked for."""


def screen(account: Account, *, everything: bool = False) -> Iterator[str]:
    """Lines of text: a screen of them, or *everything*."""
    if account.requests is not None:
        yield from _requests(account, account.requests, everything=everything)
        if not everything:
            return
        yield ""
    head = list(heading(account, everything=everything))
    tail = [*_path(account, everything=everything), *_idle(account, everything=everything)]
    tail += [*_tasks(account, everything=everything), *_runtimes(account), *_losses(account)]
    again = "pytrace why --goroutines --all" if account.goroutines else "pytrace why --all"
    if account.threads:
        tail.append(f"next: {_command(again, account.options, WIDTH - 6)}")
    else:
        tail.append("next: ps -eLo pid,tid,comm,cgroup (names of threads have at most 15 bytes)")
    room = ROWS - len(head) - len(tail) - 1
    shown: list[Line] = []
    rows: list[str] = []
    for line in account.lines:
        block = list(_line(account, line, everything=everything))
        if not everything and (line.share < _LEAST or len(shown) == LINES or len(rows) + len(block) > room):
            break
        shown.append(line)
        rows += block
    yield from head
    yield from rows
    if rest := account.lines[len(shown) :]:
        share = sum(line.share for line in rest)
        names = ", ".join(dict.fromkeys(line.cause.title for line in rest))
        yield cut(f" {percent(share)}  other causes (--all): {names}")
    yield from tail


def heading(account: Account, *, everything: bool = True) -> Iterator[str]:
    """What was traced, for how long, and how much of the threads' time is accounted for."""
    count = len(account.threads)
    complete = _whole(account.accounted)
    threads = f"{count} thread{'s' * (count != 1)}"
    units = account.goroutines
    if not count:
        # A share of no time, and how much of it is accounted for, would look like an answer.
        tail = ": no such thread was there"
    elif units is not None:
        threads = f"{units.count:,} goroutine{'s' * (units.count != 1)} on {threads}"
        tail = f": {seconds(account.wall)}, {threads}, {seconds(units.ns)} of goroutine time"
    else:
        tail = f": {seconds(account.wall)}, {threads}, {seconds(account.thread_time)} of thread time, {complete}"
    # Directories of the command's words and of cgroups say little here.
    target = account.target
    if not account.options.startswith("--comm "):
        target = " ".join(word.rpartition("/")[2] or word for word in target.split(" "))
    room = WIDTH - len(tail)
    if len(target) > room:
        target = f"{target[: max(room - 1, 12)]}…"
    yield f"{target}{tail}"
    if not count:
        return
    if units is not None:
        yield (
            f"  (goroutines: {units.share(units.running)} running, {units.share(units.runnable)} runnable,"
            f" {units.share(units.waiting)} waiting; {_whole(units.accounted)})"
        )
    busy = sum(line.ns for line in account.lines)
    if 0 < busy < _BUSY * account.thread_time:
        yield f"  (shares are of {duration(busy)}: the threads were idle the rest of the time)"
    if everything or account.kernel_difference >= 0.001:
        yield f"  (time on and for a CPU differs from the kernel's schedstat by {account.kernel_difference:.2%} of it)"
    if account.stolen and (everything or account.stolen >= 0.01 * account.wall):
        yield f"  (the hypervisor took {seconds(account.stolen)} of the CPUs: seen as on or waiting for a CPU)"


def _whole(share: float) -> str:
    return "all accounted for" if abs(1 - share) < 0.001 else f"{share:.1%} accounted for"


def _line(account: Account, line: Line, *, everything: bool) -> Iterator[str]:
    title = line.cause.title
    where = ", ".join(_part(line, number) for number in range(min(len(line.parts), 3)))
    if line.about:
        where = f"{where} → {line.about}" if where else line.about
    if line.cause.name == "run-queue":
        where = f"{line.threads} thread{'s' * (line.threads != 1)}: {line.about}"
    yield cut(f" {percent(line.share)}  {title:24} {where}".rstrip())
    details = _details(line)
    if details:
        yield cut(f"{_INDENT}{details}")
    if everything and (then := next((who.stack for who in line.by if who.stack), ())):
        yield cut(f"{_INDENT}the holder's stack then: {' ← '.join(place.text for place in then)}")
    if line.behind and (behind := _behind(line)):
        yield cut(f"{_INDENT}meanwhile: {behind}")
    yield _INDENT + _command(f"pytrace {line.cause.tool}", _options(line, account), WIDTH - len(_INDENT))


def _command(words: str, options: str, width: int) -> str:
    """A command with the options that select the same processes; one that is too long is left out."""
    text = f"{words} {options}".rstrip()
    if len(text) <= width or options.startswith("-p "):
        return text
    return f"{words} {options.partition(' ')[0]} …"


def _options(line: Line, account: Account) -> str:
    """Options that select the same processes: tools of bcc take ``-c`` for something else."""
    options = account.options
    if options.startswith("-c ") and not line.cause.tool.startswith(("flame", "why")):
        return f"--cmd {options[3:]}"
    return options


def _part(line: Line, number: int) -> str:
    part = line.parts[number]
    if len(line.parts) == 1:
        return part.place.text
    share = line.share * part.ns / line.ns if line.ns else 0.0
    text = part.place.text if number == 0 else part.place.function
    return f"{text} {share:.0%}"


def _details(line: Line) -> str:
    parts = []
    if line.samples:
        user = line.user_ns / line.ns if line.ns else 0.0
        parts.append(f"user {line.share * user:.0%}, kernel {line.share * (1 - user):.0%}")
        parts.append(f"{counted(line.samples, 'sample')}, ±{2 * line.error * line.share:.0%}")
        return "; ".join(parts)
    if line.loop:
        parts.append(f"blocks the event loop of {line.loop}" + f", in {line.task}" * bool(line.task))
    if line.by:
        parts.append(" and ".join(_who(who) for who in _main(line)))
    if line.count:
        parts.append(f"{line.count:,}×, longest {duration(line.most)}, p99 {duration(line.p99)}" if line.p99
                     else f"{line.count:,}×, longest {duration(line.most)}")  # fmt: skip
    return "; ".join(parts)


def _main(line: Line) -> tuple[Who, ...]:
    """Who is named: the holder where known, else who ended most of the time; a timer only where nobody else ended a
    tenth of it, as that of a wait with a limit of time does.
    """
    holders = [who for who in line.by if who.relation == "held by"]
    others = [who for who in line.by if who.who != "a timer" and who.ns >= 0.1 * line.ns]
    return tuple(holders[:1] or others[:1] or line.by[:1])


def _behind(line: Line) -> str:
    """What those did meanwhile who ended the waits; nothing where most of that is not known."""
    if sum(step.ns for step in line.behind) < line.ns / 10:
        return ""
    return _ends(line.behind, line.ns)


def _ends(steps: Sequence[Step], whole: int) -> str:
    """The largest ends of chains, whoever waits for them."""
    totals: dict[tuple[str, str, str], int] = {}
    names: dict[tuple[str, str, str], str] = {}
    for step in steps:
        key = (step.cause.name, step.place.function, step.about)
        names.setdefault(key, f"{_where(step)} {step.cause.title}")
        totals[key] = totals.get(key, 0) + step.ns
    largest = sorted(totals, key=lambda key: -totals[key])[:3]
    return ", ".join(f"{names[key]} {totals[key] / whole:.0%}" for key in largest if totals[key] >= 0.03 * whole)


def _where(step: Step | RequestPart) -> str:
    return f"{step.place.text} → {step.about}" if step.about else step.place.text


def _path(account: Account, *, everything: bool) -> Iterator[str]:
    """The critical path: one line, or the list."""
    whole = sum(step.ns for step in account.path)
    if not whole:
        return
    if not everything:
        yield cut(f"critical path: {_ends(account.path, whole)}")
    else:
        yield from text_of_path(account)


def text_of_path(account: Account) -> Iterator[str]:
    """The critical path as a list."""
    whole = sum(step.ns for step in account.path)
    yield f"critical path, {seconds(whole)} (waits of {duration(account.limit)} and more followed to who ended them):"
    for step in account.path[:_PATH]:
        yield cut(f" {percent(step.ns / whole)}  {step.cause.title:24} {_where(step)}")
        if step.chain:
            hops = (f"{hop.place.function} {hop.cause}" for hop in reversed(step.chain))
            yield cut(f"{_INDENT}← {' ← '.join(hops)}")
    if rest := account.path[_PATH:]:
        yield f" {percent(sum(step.ns for step in rest) / whole)}  {len(rest)} others"
    if account.left_out:
        yield f"{_INDENT}{seconds(account.left_out)} of chains were not followed: too many waits (--min 10ms)"


def _requests(account: Account, requests: Requests, *, everything: bool) -> Iterator[str]:
    """Where the time of requests goes, and what the slowest do differently."""
    slow, name = requests.slow_count, requests.target.removeprefix("call:")
    if not requests.count:
        yield f"{name}: no request began and ended while it was traced"
        yield f"next: {_command('pytrace why', account.options, WIDTH - 6)}"
        return
    yield cut(
        f"{name}: {requests.count:,} request{'s' * (requests.count != 1)}, median {duration(requests.median)},"
        f" p99 {duration(requests.p99)}, longest {duration(requests.most)}"
    )
    yield (
        f"the slowest{' 1 %' * (slow > 1)} ({slow}, {duration(requests.slow)}{' on average' * (slow > 1)}) beside the"
        f" median ({duration(requests.typical)}):"
    )
    rows = [part for part in requests.parts if everything or abs(part.more) >= 0.02 * (requests.slow or 1)]
    for part in rows if everything else rows[:_REQUEST_ROWS]:
        sign = "+" if part.more >= 0 else "-"
        change = f"{sign}{duration(abs(part.more))}"
        amounts = f"{duration(part.typical)} → {duration(part.slow)}"
        yield cut(f" {change:>8}  {part.cause.title:24} {_where(part)}  {amounts}")
        if part.behind and part.more > 0 and (behind := _ends(part.behind, sum(step.ns for step in part.behind))):
            yield cut(f"{_INDENT}   meanwhile: {behind}")
    yield "all requests:"
    by_share = sorted(requests.parts, key=lambda part: -part.share)
    for part in by_share if everything else by_share[:_REQUEST_ROWS]:
        if everything or part.share >= _LEAST:
            yield cut(f" {percent(part.share)}   {part.cause.title:24} {_where(part)}")
    yield from _losses(account)
    yield f"next: {_command(f'pytrace why --all --request {name}', account.options, WIDTH - 6)}"


def _who(who: Who) -> str:
    return f"{who.relation} {who.who}" + (f", {who.doing}" if who.doing else "")


def _idle(account: Account, *, everything: bool) -> Iterator[str]:
    if not account.idle:
        return
    parts = [f"{count} in {name}" for name, count, _ in account.idle]
    yield cut(f"idle threads (not slow), {seconds(account.idle_time)}: {', '.join(parts)}")
    if account.idle_by:
        whole = sum(who.ns for who in account.idle_by)
        names = (f"{who.who} {who.ns / whole:.0%}" for who in account.idle_by[:3] if who.ns >= 0.01 * whole)
        # A server that waits for another one is not slow itself, but its requests are.
        yield cut(f"{_INDENT}events came from {', '.join(names)}")
    if everything:
        for thread in sorted(account.threads, key=lambda item: -item.idle):
            if thread.idle:
                yield cut(f"{_INDENT}{thread.name} ({thread.tid}) {seconds(thread.idle)} in {thread.idle_in}")


def _runtimes(account: Account) -> Iterator[str]:
    """What the account cannot see: work that waits inside a runtime."""
    names = [f"{name} ({seconds(ns)})" for name, ns in account.runtimes if ns >= 0.05 * account.wall]
    if names:
        units = "goroutines, tasks" if len(names) > 1 else "goroutines" if names[0].startswith("Go") else "tasks"
        seen = " (why --goroutines)" if "goroutines" in units else " unseen"
        yield cut(f"idle inside a runtime, where {units} may wait{seen}: {', '.join(names)}")


def _tasks(account: Account, *, everything: bool) -> Iterator[str]:
    """Tasks of asyncio by how long they held the loop."""
    rows = [task for task in account.tasks if everything or task.cpu + task.blocked >= _LEAST * account.wall]
    if everything and rows:
        yield "tasks of asyncio, by their turns on the loop's thread:"
        for task in rows:
            held = f"{seconds(task.cpu + task.blocked)}, of it {seconds(task.blocked)} blocked"
            yield cut(f"{_INDENT}{task.place.text:32} {held}")
    elif rows:
        yield cut(f"tasks: {', '.join(f'{task.place.text} {seconds(task.cpu + task.blocked)}' for task in rows[:3])}")


def _losses(account: Account) -> Iterator[str]:
    if account.unknown:
        share = account.unknown / account.thread_time if account.thread_time else 0.0
        yield f"lost: the causes of {share:.1%} of the time, as maps were full"
    for name, count in account.losses.items():
        kind, _, subject = name.partition(" ")
        row = failure(kind)
        words = row.one if count == 1 else row.many
        yield cut(f"lost: {count:,} {words}{f' ({subject})' if subject else ''}")


def cut(text: str) -> str:
    """The text, truncated to a line of the terminal."""
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def percent(share: float) -> str:
    """A share of 0 to 1 with its unit, aligned."""
    return f"{share * 100:4.0f} %" if share >= 0.01 else " < 1 %"


def seconds(ns: int) -> str:
    """Nanoseconds as seconds with three digits."""
    value = ns / 1e9
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"


def duration(ns: int) -> str:
    """Nanoseconds in a unit that suits them."""
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000)):
        if ns >= size:
            value = ns / size
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
    return f"{ns} ns"
