"""The text and JSON of very many histograms: what they have in common is made once."""

from __future__ import annotations

from pytrace.render import histogram, json
from pytrace.render.large_maps.sorted_buckets import Words, words_of

_KEPT = 4096
"""Different greatest counts whose lines are remembered, and different histograms."""

_SMALL = 2 * 16
"""Bytes of two buckets: larger histograms are rarely the same."""


class _Tails(dict[int, bytes]):
    """What follows the label in a line: by its count, for histograms with the same greatest count."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __missing__(self, count: int) -> bytes:
        found = self[count] = histogram.tail(count, self._most)
        return found


class RememberedTexts(dict[bytes, bytes]):
    """The text of histograms by the bytes of their words: small ones are often the same."""

    def __init__(self, made: BucketTexts | BucketJson) -> None:
        super().__init__()
        self._made = made

    def __missing__(self, pairs: bytes) -> bytes:
        text = self._made.text(words_of(pairs))
        if len(pairs) <= _SMALL:
            if len(self) >= _KEPT:
                self.clear()
            self[pairs] = text
        return text


class BucketTexts:
    """The text of histograms of one shape; *div* divides the counts."""

    def __init__(self, shape: histogram.Shape, div: int = 1) -> None:
        self._div = div if shape.divisible else 1
        self._labels = [histogram.label(shape, index) for index in range(shape.buckets)]
        self._tails: dict[int, _Tails] = {}

    def text(self, words: Words) -> bytes:
        """As :func:`histogram.text`; *words* are numbers of buckets and their counts, in turn."""
        if len(words) == 2 and words[1]:
            count = words[1] // self._div
            return self._labels[words[0]] + self._tails_of(count or 1)[count]
        used = _used(words)
        if not used:
            return b""
        counts = used if self._div == 1 else {bucket: count // self._div for bucket, count in used.items()}
        tails, labels, get = self._tails_of(max(counts.values()) or 1), self._labels, counts.get
        return b"".join([labels[at] + tails[get(at, 0)] for at in range(min(used), max(used) + 1)])

    def _tails_of(self, most: int) -> _Tails:
        found = self._tails.get(most)
        if found is None:
            if len(self._tails) >= _KEPT:
                self._tails.clear()
            found = self._tails[most] = _Tails(most)
        return found


class BucketJson:
    """As :class:`BucketTexts`, in JSON."""

    def __init__(self, shape: histogram.Shape, div: int = 1) -> None:
        self._div = div
        self._heads = [json.bucket_head(*histogram.bounds(shape, index)) for index in range(shape.buckets)]

    def text(self, words: Words) -> bytes:
        """As :func:`json.histogram_form`."""
        used = _used(words)
        if not used:
            return b"[]"
        div, heads, get = self._div, self._heads, used.get
        parts = [heads[at] + json.number(get(at, 0) // div) + b"}" for at in range(min(used), max(used) + 1)]
        return b"[%s]" % b",".join(parts)


def _used(words: Words) -> dict[int, int]:
    counts = words[1::2]
    found = dict(zip(words[0::2], counts, strict=True))
    return {bucket: count for bucket, count in found.items() if count} if 0 in counts else found
