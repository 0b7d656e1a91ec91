"""``pytrace calls``: from the command line to the options of a recording."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pytrace.calls.run import Options, run_calls
from pytrace.cli.commands import COMMANDS
from pytrace.core.diagnostics import TraceError
from pytrace.live import terminal
from pytrace.runtime.session import child
from pytrace.runtime.session.confinement import confine_view


def run(words: Sequence[str]) -> int:
    """Run ``pytrace calls`` with the *words* after it. Returns the exit status.

    Raises:
        TraceError: an option is invalid, or a process or call does not exist.
    """
    if not words:
        sys.stderr.write(COMMANDS["calls"].help_text())
        return 1
    line = COMMANDS["calls"].read(words)
    pids, command = line.arguments("pid", tuple), line.text("command")
    if pids and command is not None:
        raise TraceError("pytrace calls takes -p or -c, not both")
    depth = line.argument("depth", int)
    if depth and (line.text("slow") or line.flag("failed") or line.flag("summary")):
        raise TraceError("--depth is for the tree of functions, which --slow, --failed and --summary do not show")
    form, output = line.argument("format", str) or "text", line.text("output")
    spans = form not in ("text", "json")
    if spans and line.flag("summary"):
        raise TraceError(f"--summary is a table: -f {form} shows calls one by one")
    if spans and output in (None, "-") and sys.stdout.isatty():
        raise TraceError(f"-f {form} is not for terminals", hints=("-o FILE writes it to a file",))
    live = line.flag("live")
    if live and line.flag("summary"):
        raise TraceError("--summary is a table at the end: --live shows calls as they are made")
    if live and form == "json" and output in (None, "-"):
        raise TraceError(
            "--live has the terminal, to which -f json would print",
            hints=("-o FILE writes json to a file while the view is shown",),
        )
    if live:
        terminal.check()
        terminal.check_application()
    size = line.argument("string_size", int)
    options = Options(
        targets=tuple(line.operands) or ("syscall:*",),
        pids=tuple(pid for part in pids for pid in part),
        command=() if command is None else tuple(child.words_of(command)),
        follow=line.flag("follow"), failed=line.flag("failed"), slow=line.argument("slow", int) or 0, depth=depth,
        summary=line.flag("summary"), longest=32 if size is None else min(size, 65536),
        stamp="time" if line.flag("time") else "relative" if line.flag("relative") else "",
        names=not line.flag("no_names"), format=form, output=output,
        duration=line.argument("duration", float),
    )  # fmt: skip
    return run_calls(options, confine_view if live else None)
