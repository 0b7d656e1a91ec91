"""What the tests of attach points share: from script text to units, on recorded facts."""

from __future__ import annotations

from typing import Any

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.options import CompileOptions, Config
from pytrace.core.source import Source
from pytrace.frontend.probes import attach_points
from pytrace.frontend.syntax import parser
from pytrace.frontend.syntax.typed_program import ProbeUnit
from tests.support.facts import RecordedKernel


class Expanded:
    """The units of a script and the messages about it."""

    def __init__(
        self, text: str, kernel: RecordedKernel | None = None, config: Config | None = None, **options: Any
    ) -> None:
        self.kernel = kernel if kernel is not None else RecordedKernel()
        self.diagnostics = Diagnostics()
        program = parser.parse(Source("stdin", text), self.diagnostics)
        self.diagnostics.check()
        self.units: list[ProbeUnit] = attach_points.expand(
            program,
            CompileOptions(**options),
            self.kernel,
            config if config is not None else Config(),
            self.diagnostics,
        )

    @property
    def unit(self) -> ProbeUnit:
        """The only unit of a script without errors."""
        assert not self.diagnostics.failed, self.errors
        (unit,) = self.units
        return unit

    @property
    def names(self) -> list[str]:
        """Full names of all targets."""
        return [target.probe for unit in self.units for target in unit.targets]

    @property
    def errors(self) -> list[str]:
        return [item.message for item in self.diagnostics.errors]

    @property
    def warnings(self) -> list[str]:
        return [item.message for item in self.diagnostics.warnings]

    @property
    def hints(self) -> list[str]:
        return [hint for item in self.diagnostics.items for hint in item.hints]

    @property
    def places(self) -> list[str]:
        """The texts that the errors point at."""
        return [item.span.text for item in self.diagnostics.errors]
