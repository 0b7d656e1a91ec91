"""``pytrace --complete SHELL LINE``, called by the shells' completion functions (``share/completions``)."""

from __future__ import annotations

from pytrace.cli import request, subcommands
from pytrace.cli.completion.candidates import CommandTables, Option, answer
from pytrace.cli.options import OPTIONS
from pytrace.core.kernel_info import FEATURES


def tables() -> CommandTables:
    """The option tables of the command line, for completion."""
    rows = tuple(Option(row.key, row.short, row.long, row.argument, row.help) for row in OPTIONS if not row.hidden)
    values = {
        "buffering": ("none", "line", "full"),
        "mode": request.MODES,
        "debug": tuple(request.STAGES),
        "no_feature": tuple(FEATURES),
    }
    return CommandTables(rows, values, subcommands.help_text)


def text(shell: str, line: str) -> str:
    """The candidates for *line*, which ends at the cursor, one per line."""
    return answer(shell, line, tables())
