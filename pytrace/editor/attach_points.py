"""What a half-typed attach point may become, for shells and editors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pytrace.core.probe_kinds import (
    BEGIN,
    CALL,
    CALL_FAMILIES,
    END,
    INTERVAL,
    PROBE_KINDS,
    PROFILE,
    SYSCALL,
    is_call,
    probe_kind,
    split_attach_point,
)

MOST_NAMES = 2000
"""Maximum number of names that are offered."""

Listing = Callable[[str], Iterable[str]]
"""Returns the probes that match a pattern, as ``pytrace -l`` prints them."""


def attach_points(token: str, listing: Listing) -> list[str]:
    """Completions of the attach point *token* by one more part."""
    provider, *parts = split_attach_point(token)
    if not parts:
        return sorted(_providers(provider))
    kind = probe_kind(provider)
    if kind is None and not is_call(token):
        return []
    families = [name for name in CALL_FAMILIES if provider == CALL and name.startswith(parts[0])]
    if families and len(parts) == 1:
        return [f"{CALL}:{name}:" for name in families]
    if kind is not None and kind.name in (PROFILE, INTERVAL, BEGIN, END):
        return [f"{provider}:{word}:" for word in ("hz", "s", "ms", "us") if word.startswith(":".join(parts))]
    completions: dict[str, None] = {}
    for name in listing(f"{token}*"):
        for form in _forms(name, provider):
            if form.startswith(token):
                head, more, _ = form[len(token) :].partition(":")
                completions[token + head + more] = None
                break
        if len(completions) >= MOST_NAMES:
            break
    return list(completions)


def _providers(start: str) -> Iterator[str]:
    for row in PROBE_KINDS:
        # Short names only where they have been typed already.
        for name in (row.name, *row.aliases):
            if name.startswith(start) and (len(name) > 2 or name == start) and not name.isupper():
                yield name if row.special else f"{name}:"
    yield from (f"{name}:" for name in (CALL, SYSCALL) if name.startswith(start))


def _forms(name: str, provider: str) -> Iterator[str]:
    """The forms of a listed probe that users may write: with the provider's short name, without the kernel's module."""
    _, _, rest = name.partition(":")
    yield f"{provider}:{rest}"
    owner, colon, function = rest.partition(":")
    if colon and owner and not owner.startswith("/"):
        yield f"{provider}:{function}"
