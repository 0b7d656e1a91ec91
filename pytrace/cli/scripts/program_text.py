"""Completion inside the text of a program: attach points, builtins, maps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from pytrace.core.builtins import BUILTINS
from pytrace.core.probes import kinds
from pytrace.core.probes.kinds import BEGIN, END, INTERVAL, PROBE_KINDS, PROFILE, probe_kind

MOST = 2000
"""Maximum number of names that are offered."""

Listing = Callable[[str], Iterable[str]]
"""Returns the probes that match a pattern, as ``pytrace -l`` prints them."""

_SEPARATORS = re.compile(r"[\s{}()<>,;/=!&|+]")

_PREDICATE = re.compile(r"\s/[^/]*$")
"""The start of a predicate: its slash follows white space, unlike those of paths."""


def candidates(text: str, listing: Listing) -> list[str]:
    """Completions of *text*, which ends at the cursor."""
    last = max((match.end() for match in _SEPARATORS.finditer(text)), default=0)
    # The path of a binary contains separators itself.
    point = re.search(r"(?:^|[\s,}>])(\w+:/[^\s,{<]*)$", text)
    if point is not None:
        last = point.start(1)
    before, token = text[:last], text[last:]
    if before.count("{") > before.count("}") or _PREDICATE.search(before.rpartition("}")[2]):
        completions: Iterable[str] = _inside(before, token)
    else:
        completions = attach_points(token, listing)
    return [before + item for item in completions]


def _inside(before: str, token: str) -> Iterator[str]:
    if token.startswith("@"):
        yield from sorted({name for name in re.findall(r"@\w*", before) if name.startswith(token) and name != token})
        return
    for row in BUILTINS:
        if row.name.startswith(token) and token:
            yield row.name if row.value else f"{row.name}("


def attach_points(token: str, listing: Listing) -> list[str]:
    """Completions of the attach point *token* by one more part."""
    provider, *parts = kinds.split_attach_point(token)
    if not parts:
        return sorted(_providers(provider))
    kind = probe_kind(provider)
    if kind is None:
        return []
    if kind.name in (PROFILE, INTERVAL, BEGIN, END):
        return [f"{provider}:{word}:" for word in ("hz", "s", "ms", "us") if word.startswith(":".join(parts))]
    completions: dict[str, None] = {}
    for name in listing(f"{token}*"):
        for form in _forms(name, provider):
            if form.startswith(token):
                head, more, _ = form[len(token) :].partition(":")
                completions[token + head + more] = None
                break
        if len(completions) >= MOST:
            break
    return list(completions)


def _providers(start: str) -> Iterator[str]:
    for row in PROBE_KINDS:
        # Short names only where they have been typed already.
        for name in (row.name, *row.aliases):
            if name.startswith(start) and (len(name) > 2 or name == start) and not name.isupper():
                yield name if row.special else f"{name}:"


def _forms(name: str, provider: str) -> Iterator[str]:
    """The forms of a listed probe that users may write: with the provider's short name, without the kernel's module."""
    _, _, rest = name.partition(":")
    yield f"{provider}:{rest}"
    owner, colon, function = rest.partition(":")
    if colon and owner and not owner.startswith("/"):
        yield f"{provider}:{function}"
