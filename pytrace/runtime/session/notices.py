"""Messages of a run to its user, as far as options ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytrace.core.options.run_options import RunOptions
    from pytrace.runtime.output.streams import Output


class Notices:
    """Notices and warnings on standard error, after the output before them."""

    def __init__(self, output: Output, options: RunOptions) -> None:
        self._output = output
        self._quiet = options.quiet
        self._warnings = options.warnings

    def tell(self, text: str) -> None:
        """Print a notice, which ends its line itself, unless ``-q`` was given."""
        if not self._quiet:
            self._output.message(text)

    def warn(self, text: str, hints: tuple[str, ...] = ()) -> None:
        """Print a warning, unless ``--no-warnings`` was given."""
        if self._warnings:
            self._output.message(f"WARNING: {text}\n" + "".join(f"HINT: {hint}\n" for hint in hints))
