"""Checks of type information that did not come from the running kernel: files, which may be damaged.

The kernel checks what it shows in ``/sys/kernel/btf``, and what programs load, by the same rules (``btf_parse`` of
``kernel/bpf/btf.c``), on which the readers rely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.btf.reader import Kind

if TYPE_CHECKING:
    from pytrace.runtime.btf.reader import Btf

DEEPEST = 32
"""Types that a type may lead to without a struct in between (``MAX_RESOLVE_DEPTH``)."""

_ONE = (Kind.PTR, Kind.TYPEDEF, Kind.VOLATILE, Kind.CONST, Kind.RESTRICT, Kind.FUNC, Kind.VAR, Kind.DECL_TAG,
        Kind.TYPE_TAG)  # fmt: skip
"""Kinds whose third word is another type."""
_REFERENCES = (Kind.TYPEDEF, Kind.VOLATILE, Kind.CONST, Kind.RESTRICT, Kind.TYPE_TAG, Kind.VAR)
_NO_VALUES = frozenset((Kind.DATASEC, Kind.DECL_TAG))
"""Kinds that no type leads to."""
_INT_SIZES = (1, 2, 4, 8, 16)
_ENUM_SIZES = (1, 2, 4, 8)


class _Damaged(Exception):  # noqa: N818 - caught below
    """A rule that does not hold."""


def check(btf: Btf) -> None:
    """Refuse damaged type information.

    Raises:
        TraceError: a type or name is outside of the data, or a type contains itself.
    """
    try:
        _check_strings(btf)
        for type_id in range(btf.first_id, btf.end_id):
            _check_type(btf, type_id)
        _check_depth(btf, _leads_to)
        _check_depth(btf, _contains, deepest=btf.end_id)
        for type_id in range(btf.first_id, btf.end_id):
            _check_bitfields(btf, type_id)
    except _Damaged as error:
        raise TraceError(f"type information of {btf.name} is damaged: {error}") from None


def _check_strings(btf: Btf) -> None:
    if btf.base is None and btf.text(0):
        raise _Damaged("its first name is not empty")
    if not btf.terminated:
        raise _Damaged("its last name does not end")


def _check_type(btf: Btf, type_id: int) -> None:
    words, at, kind = btf.words, btf.start(type_id), btf.kind(type_id)
    _check_name(btf, type_id, words[at])
    for offset in _member_names(btf, type_id):
        _check_name(btf, type_id, offset)
    for other in _all_others(btf, type_id):
        if other >= btf.end_id:
            raise _Damaged(f"type {type_id} leads to type {other}, and there are {btf.end_id}")
        if btf.kind(other) in _NO_VALUES:
            raise _Damaged(f"type {type_id} leads to type {other}, which is none of a value")
    if kind == Kind.VOID:
        raise _Damaged(f"type {type_id} is void, which only type 0 is")
    size = words[at + 2]
    if (kind == Kind.INT and size not in _INT_SIZES) or (kind in (Kind.ENUM, Kind.ENUM64) and size not in _ENUM_SIZES):
        raise _Damaged(f"type {type_id} has {size} bytes")
    if kind == Kind.FUNC and btf.kind(words[at + 2]) != Kind.FUNC_PROTO:
        raise _Damaged(f"function {type_id} has no prototype")


def _check_bitfields(btf: Btf, type_id: int) -> None:
    """Only integers and enumerations have a part of their bits; this follows types, so after their depth is known."""
    words, at, kind = btf.words, btf.start(type_id), btf.kind(type_id)
    if kind not in (Kind.STRUCT, Kind.UNION) or not words[at + 1] >> 31:
        return
    for place in range(at + 3, at + 3 + 3 * (words[at + 1] & 0xFFFF), 3):
        if words[place + 2] >> 24:
            member = words[place + 1]
            while btf.kind(member) in _REFERENCES:
                owner = btf.owner(member)
                member = owner.words[owner.start(member) + 2]
            if btf.kind(member) not in (Kind.INT, Kind.ENUM, Kind.ENUM64):
                raise _Damaged(f"a bitfield of type {type_id} is no integer")


def _check_name(btf: Btf, type_id: int, offset: int) -> None:
    if offset >= btf.end_string:
        raise _Damaged(f"the name of type {type_id} or of a member is outside of its names")


def _member_names(btf: Btf, type_id: int) -> Iterator[int]:
    words, at, kind = btf.words, btf.start(type_id), btf.kind(type_id)
    step = {Kind.STRUCT: 3, Kind.UNION: 3, Kind.ENUM: 2, Kind.ENUM64: 3, Kind.FUNC_PROTO: 2}.get(Kind(kind))
    if step is not None:
        count = words[at + 1] & 0xFFFF
        yield from (words[place] for place in range(at + 3, at + 3 + step * count, step))


def _all_others(btf: Btf, type_id: int) -> Iterator[int]:
    yield from _leads_to(btf, type_id)
    words, at, kind = btf.words, btf.start(type_id), btf.kind(type_id)
    count = words[at + 1] & 0xFFFF
    if kind in (Kind.STRUCT, Kind.UNION):
        yield from (words[place + 1] for place in range(at + 3, at + 3 + 3 * count, 3))
    elif kind == Kind.DATASEC:
        yield from (words[place] for place in range(at + 3, at + 3 + 3 * count, 3))


def _leads_to(btf: Btf, type_id: int) -> Iterator[int]:
    """The types that are read together with a type; members of structs are read later."""
    words, at, kind = btf.words, btf.start(type_id), btf.kind(type_id)
    if kind in _ONE:
        yield words[at + 2]
    elif kind == Kind.ARRAY:
        yield words[at + 3]
        yield words[at + 4]
    elif kind == Kind.FUNC_PROTO:
        yield words[at + 2]
        yield from (words[place + 1] for place in range(at + 3, at + 3 + 2 * (words[at + 1] & 0xFFFF), 2))


def _contains(btf: Btf, type_id: int) -> Iterator[int]:
    """The types whose values are part of a type's."""
    if btf.kind(type_id) in (Kind.STRUCT, Kind.UNION):
        yield from _all_others(btf, type_id)
    elif btf.kind(type_id) not in (Kind.PTR, Kind.FUNC_PROTO):
        yield from _leads_to(btf, type_id)


def _check_depth(btf: Btf, others: Callable[[Btf, int], Iterator[int]], deepest: int = DEEPEST) -> None:
    """Refuse a type that leads to itself, or to more than *deepest* types one after the other."""
    depths: dict[int, int] = {}
    for first in range(btf.first_id, btf.end_id):
        path = [(first, list(others(btf, first)))] if first not in depths else []
        on_path = {first}
        while path:
            type_id, left = path[-1]
            other = left.pop() if left else 0
            if other in on_path:
                raise _Damaged(f"type {other} contains itself")
            if other >= btf.first_id and other not in depths:
                path.append((other, list(others(btf, other))))
                on_path.add(other)
            elif not left:
                depths[type_id] = 1 + max((depths.get(inner, 0) for inner in others(btf, type_id)), default=0)
                if depths[type_id] > deepest:
                    raise _Damaged(f"type {type_id} leads to more than {deepest} types")
                path.pop()
                on_path.discard(type_id)
