"""Packages that only some uses of pytrace need, and how they are installed."""

from __future__ import annotations

import re
import shlex
import sys

DISTRIBUTION = "pytrace-bpf"
"""pytrace among Python packages; ``pytrace`` on PyPI is a project of others."""

_ENTRY = re.compile(r"(?P<package>[^;]+?)\s*;.*\bextra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")
"""A requirement in the metadata of a distribution that belongs to an extra (PEP 508)."""


def hint(extra: str) -> str:
    """The command that installs what *extra* of ``pyproject.toml`` names, into the Python that runs.

    It names the packages themselves, so that it also holds for a copy that came from a checkout or a wheel.
    """
    from importlib import metadata  # for messages only

    try:
        entries = [_ENTRY.match(entry) for entry in metadata.requires(DISTRIBUTION) or ()]
    except metadata.PackageNotFoundError:
        entries = []
    packages = [entry["package"] for entry in entries if entry is not None and entry["extra"] == extra]
    if not packages:
        return f"install the packages of the extra {extra!r} in pytrace's pyproject.toml"
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])
