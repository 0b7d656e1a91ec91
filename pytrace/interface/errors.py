"""Exceptions and warnings of the Python interface."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from pytrace.core.diagnostics import Diagnostic, Diagnostics, Error, Severity, TraceError, render_all
from pytrace.core.diagnostics import ScriptError as FailedPass


class TraceWarning(UserWarning):
    """A warning of a script or a run."""


class LossWarning(TraceWarning):
    """Results are incomplete: events were lost, maps were full, or the like."""


class ScriptError(Error):
    """A script cannot be compiled.

    *diagnostics* are the errors and warnings, in order: each has a severity, a message, hints, and a span, whose
    ``source.name``, ``first`` and ``last`` (1-based line and column) are its location. ``str()`` is the output of the
    command.
    """

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__(render_all(diagnostics).rstrip("\n"))
        self.diagnostics = diagnostics

    @property
    def kernel(self) -> bool:
        """Whether all errors are about this kernel: another one may have what it lacks."""
        return bool(self._errors) and all(item.kernel for item in self._errors)

    @property
    def first(self) -> str:
        """The message of the first error."""
        return self._errors[0].message if self._errors else ""

    @property
    def _errors(self) -> list[Diagnostic]:
        return [item for item in self.diagnostics if item.severity is Severity.ERROR]


_HERE = os.path.dirname(__file__) + os.sep


def warn(text: str, category: type[Warning]) -> None:
    """Warn at the line of the calling program."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


@contextmanager
def placed(diagnostics: Diagnostics) -> Iterator[None]:
    """Raise :class:`ScriptError` with *diagnostics* if a pass fails."""
    try:
        yield
    except FailedPass:
        raise ScriptError(tuple(diagnostics.items)) from None


__all__ = ["Error", "LossWarning", "ScriptError", "TraceError", "TraceWarning", "placed"]
