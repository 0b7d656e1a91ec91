"""JSON that pytrace wrote itself, read without the standard library's ``json``, whose import takes 2 ms with ``re``.

The scanner is that of CPython (``_json``), which does all the work there, too; without it the ``json`` module reads.
"""

from __future__ import annotations

from pytrace.base.fast_typing import Any

_make_scanner: Any = None
try:
    import _json

    _make_scanner = _json.make_scanner
except ImportError:
    pass


class _Options:
    """What ``json.JSONDecoder`` would tell the scanner."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}


def loads(data: bytes) -> Any:
    """The value of a JSON text in UTF-8 without white space around it.

    Raises:
        ValueError: it is not such a text.
    """
    if _make_scanner is None:
        import json

        return json.loads(data)
    text = data.decode()
    try:
        value, end = _make_scanner(_Options)(text, 0)
    except StopIteration:
        raise ValueError("no JSON value") from None
    if end != len(text):
        raise ValueError("more than one JSON value")
    return value
