"""Aggregations have no value of their own: assigning one to a map is emitted by ``codegen.aggregates``."""

from __future__ import annotations

from pytrace.codegen.builtins import Emission

EMIT: dict[str, Emission] = {}
