"""What the Python interface raises and warns of."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from pytrace.core.diagnostics import Diagnostic, Diagnostics, Error, TraceError, render_all
from pytrace.core.diagnostics import ScriptError as FailedPass


class TraceWarning(UserWarning):
    """Something that a script or a run wants its user to know."""


class LossWarning(TraceWarning):
    """Events were lost, maps were full, or the like: results are not complete."""


class ScriptError(Error):
    """A script cannot be compiled.

    *diagnostics* are the errors and warnings, in order: each has a severity, a message, hints, and a span, whose
    ``source.name``, ``first`` and ``last`` (1-based line and column) tell the place. ``str()`` is what the command
    prints.
    """

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__(render_all(diagnostics).rstrip("\n"))
        self.diagnostics = diagnostics


_HERE = os.path.dirname(__file__) + os.sep


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the line of the program that called this package."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


@contextmanager
def placed(diagnostics: Diagnostics) -> Iterator[None]:
    """Raise :class:`ScriptError` with what *diagnostics* collected when a pass failed."""
    try:
        yield
    except FailedPass:
        raise ScriptError(tuple(diagnostics.items)) from None


__all__ = ["Error", "LossWarning", "ScriptError", "TraceError", "TraceWarning", "placed"]
