"""Aggregations: none is emitted as a value; ``codegen.lower.aggregates`` emits their assignment to a map."""

from __future__ import annotations

from pytrace.codegen.lower.builtins.families import Emission

EMIT: dict[str, Emission] = {}
