"""Compile-time builtins are constants before code is generated."""

from __future__ import annotations

from pytrace.codegen.builtins import Emission

EMIT: dict[str, Emission] = {}
