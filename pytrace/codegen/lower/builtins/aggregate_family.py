"""Aggregations: none is emitted as a value; ``codegen.lower.aggregates`` emits their assignment to a map."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytrace.codegen.lower.builtins.families import Emission

EMIT: dict[str, Emission] = {}
