"""Aggregations have no value of their own: assigning one to a map is emitted by ``codegen.lower.aggregates``."""

from __future__ import annotations

from pytrace.codegen.lower.builtins.families import Emission

EMIT: dict[str, Emission] = {}
