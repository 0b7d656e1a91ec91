"""A reader of JSON that pytrace wrote, without the standard library's ``json``, whose import takes 2 ms with ``re``.

It uses the C scanner of CPython (``_json``), as ``json`` does; without that, it falls back to ``json``.
"""

from __future__ import annotations

from pytrace.base.fast_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytrace.base.fast_typing import Any

_make_scanner: Any = None
try:
    import _json

    _make_scanner = _json.make_scanner
except ImportError:
    pass


class _Options:
    """The options that ``json.JSONDecoder`` passes to the scanner."""

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
        ValueError: it is not valid JSON.
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
