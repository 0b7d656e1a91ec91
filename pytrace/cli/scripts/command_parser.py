"""Options of commands that are no runs of a script by themselves: ``pytrace merge``, ``flame`` …"""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import NoReturn

from pytrace.core.diagnostics import TraceError


class CommandParser(ArgumentParser):
    """The parser of ``pytrace NAME``; it reports errors in the form of the other commands."""

    def __init__(self, name: str, description: str, epilog: str, usage: str | None = None) -> None:
        super().__init__(
            prog=f"pytrace {name}", usage=usage, description=description, epilog=epilog,
            formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False,
        )  # fmt: skip

    def error(self, message: str) -> NoReturn:
        """Raise the error *message*, with where to read about the command."""
        raise TraceError(f"{self.prog}: {message}", hints=(f"{self.prog} --help describes it",))
