"""The example scripts that come with pytrace: their directory, and the list of ``--examples``."""

from __future__ import annotations

import os

_INSTALLED = "example_scripts"
"""Their directory in the installed package (``force-include`` in pyproject.toml)."""


def folder() -> str:
    """Directory of the scripts: in the package, or ``docs/examples`` of the checkout; empty if neither exists."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    places = (os.path.join(package, _INSTALLED), os.path.join(os.path.dirname(package), "docs", "examples"))
    return next((place for place in places if os.path.isdir(place)), "")


def listing() -> str:
    """The text of ``--examples``: the directory, then each script with the question that it answers."""
    place = folder()
    if not place:
        return "This copy of pytrace has no example scripts.\n"
    names = sorted(name for name in os.listdir(place) if name.endswith(".bt"))
    width = max(map(len, names), default=0)
    rows = [f"  {name:<{width}}  {_question(os.path.join(place, name))}".rstrip() for name in names]
    return "\n".join([place, *rows, "", "The comment at the top of each script shows its usage.", ""])


def _question(path: str) -> str:
    """The first line of the comment at the top of a script."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            text = line.strip(" */\n")
            if text and not line.startswith("#!"):
                return text
    return ""
