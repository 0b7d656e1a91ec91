"""The text of attach points: ``provider:part:part``, with ``"…"`` around text that contains colons.

The front end, which also resolves parameters, options and ``@``, reads the same tokens
(:mod:`pytrace.frontend.probes.providers`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytrace.core.probes.kinds import probe_kind

if TYPE_CHECKING:
    from pytrace.core.probes.kinds import ProbeKind

TOKEN = re.compile(
    r"""(?P<quoted>"(?:[^"\\]|\\.)*")
    | \$(?P<parameter>[0-9]+)
    | \$(?P<option>[A-Za-z_][A-Za-z0-9_-]*)
    | (?P<bad>["$])
    | (?P<separator>[:@])
    | (?P<plain>[^"$:@]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def unquoted(text: str) -> str:
    """The text between quotes, with ``\\`` before a quote or backslash removed."""
    return _ESCAPED.sub(r"\1", text[1:-1])


def split(text: str) -> list[str]:
    """The parts of an attach point, the provider first: split at colons outside quotes, without the quotes."""
    parts = [""]
    for token in TOKEN.finditer(text):
        if token.group() == ":":
            parts.append("")
        else:
            parts[-1] += unquoted(token.group()) if token["quoted"] else token.group()
    return parts


def kind_of(text: str) -> ProbeKind | None:
    """The kind of an attach point; None for a pattern, a parameter, and a name that is no provider."""
    return probe_kind(split(text)[0].strip())
