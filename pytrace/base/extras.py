"""Packages that only some uses of pytrace need, and how they are installed."""

from __future__ import annotations

import re
import shlex
import sys

_DISTRIBUTION = "pytrace-bpf"
"""pytrace among Python packages; ``pytrace`` on PyPI is a project of others."""

_DEBIAN = {
    "c": "python3-clang",
    "live": "python3-textual",
    "fleet": "python3-clustershell",
    "kubernetes": "python3-kubernetes",
    "arrow": "python3-pyarrow",
    "pandas": "python3-pandas",
}
"""Debian's packages of extras; those of the others are not there, or too old (pygls)."""

_ENTRY = re.compile(r"(?P<package>[^;]+?)\s*;.*\bextra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")
"""A requirement in the metadata of a distribution that belongs to an extra (PEP 508)."""


_LIBRARIES = {name: name for name in ("ply", "llvmlite", "pyroute2", "zstandard")} | {"elftools": "pyelftools"}
"""Packages that a light installation leaves out (``pytrace help install``), by the names of their modules."""


def left_out(error: ImportError) -> tuple[str, str] | None:
    """The message and the hint for a package that this installation was made without; None for other errors."""
    package = _LIBRARIES.get((error.name or "").partition(".")[0])
    if package is None:
        return None
    command = shlex.join([sys.executable, "-m", "pip", "install", package])
    if package in ("ply", "llvmlite"):
        what = f"this installation has no compiler (the Python package {package} is not here)"
        return f"{what}: it runs files of --aot, and answers pytrace fleet", command.replace(package, "ply llvmlite")
    return f"this needs the Python package {package}, which is not installed", command


def hint(extra: str) -> str:
    """The command that installs what *extra* of ``pyproject.toml`` names, into the Python that runs.

    It names the packages themselves, so that it also holds for a copy that came from a checkout or a wheel.
    """
    if _is_debians():
        if extra in _DEBIAN:
            return f"apt install {_DEBIAN[extra]}"
        return "Debian has no such package: install pytrace by pipx (pytrace help install)"
    from importlib import metadata  # for messages only

    try:
        entries = [_ENTRY.match(entry) for entry in metadata.requires(_DISTRIBUTION) or ()]
    except metadata.PackageNotFoundError:
        entries = []
    packages = [entry["package"] for entry in entries if entry is not None and entry["extra"] == extra]
    if not packages:
        return f"install the packages of the extra {extra!r} in pytrace's pyproject.toml"
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])


def _is_debians() -> bool:
    """True if this is Debian's package of pytrace: pip may not install anything beside it (PEP 668)."""
    return __file__.startswith("/usr/lib/python3/dist-packages/")
