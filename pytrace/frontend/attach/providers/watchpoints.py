"""watchpoint: hardware breakpoints on memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.numbers import parse_integer
from pytrace.core.probes.targets import WatchpointTarget
from pytrace.frontend.attach.providers.base import Match, SampledProvider, Scope, number_of

if TYPE_CHECKING:
    from pytrace.frontend.attach.points.parts import Part, Point

LENGTHS = (1, 2, 4, 8)
MODES = {"x86_64": ("w", "rw", "x")}
"""Modes by machine; other machines accept all sensible combinations of ``r``, ``w`` and ``x``."""
ANY_MODES = ("r", "w", "rw", "x")


class Watchpoint(SampledProvider):
    """``watchpoint:ADDRESS:LENGTH:MODE``."""

    shape = "{0}:ADDRESS:LENGTH:MODE"

    def fit(self, point: Point) -> bool:
        return len(point.parts) == 3

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        parts = point.parts
        if len(parts) != 3 or not all(part.text for part in parts):
            return self.bad_shape(point, scope)
        if not parts[0].number:
            hints = (
                ["a uprobe on the function can read the address that its argument holds"]
                if "+" in parts[0].text
                else []
            )
            scope.error(f"a watchpoint needs an address, not {parts[0].text!r}", parts[0].span, hints)
            return []
        address = number_of(parts[0], scope, "the address", parse_integer)
        length = number_of(parts[1], scope, "the length", parse_integer)
        mode = self._mode(parts[2], scope)
        if address is None or length is None or mode is None:
            return []
        if not 0 < address < 2**64:
            scope.error("the address must not be 0 and must fit 64 bits", parts[0].span)
            return []
        if length not in LENGTHS:
            scope.error(f"a watchpoint has a length of 1, 2, 4 or 8 bytes, not {length}", parts[1].span)
            return []
        if scope.attaching and not scope.feature("watchpoint"):
            scope.missing("watchpoint is not possible: this machine has no hardware breakpoints for perf", point.span)
            return []
        place = WatchpointTarget(address, length, mode)
        return [Match(point.kind, f"{point.kind.name}:{address}:{length}:{mode}", place, point.span)]

    def _mode(self, part: Part, scope: Scope) -> str | None:
        letters = part.text
        strange = sorted(set(letters) - set("rwx"))
        if strange:
            scope.error(f"a watchpoint mode is made of r, w and x, not {strange[0]!r}", part.span)
            return None
        if len(set(letters)) < len(letters):
            scope.error(f"a letter is repeated in watchpoint mode {letters!r}", part.span)
            return None
        mode = "".join(sorted(letters))
        allowed = MODES.get(scope.kernel.arch, ANY_MODES)
        if mode not in allowed:
            hints = ["the CPU cannot watch reads only; rw watches both"] if mode == "r" else []
            scope.error(
                f"watchpoint mode {letters!r} is not possible on {scope.kernel.arch}; {', '.join(allowed)} are",
                part.span,
                hints,
            )
            return None
        return mode
