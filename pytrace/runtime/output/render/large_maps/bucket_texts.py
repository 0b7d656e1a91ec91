"""The text and JSON of very many histograms: what they have in common is made once."""

from __future__ import annotations

from pytrace.runtime.output.render import histogram, json

_KEPT = 4096
"""Different greatest counts whose lines are remembered."""


class _Tails(dict[int, bytes]):
    """What follows the label in a line: by its count, for histograms with the same greatest count."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __missing__(self, count: int) -> bytes:
        found = self[count] = histogram.tail(count, self._most)
        return found


class BucketTexts:
    """The text of histograms of one shape, given their counts by bucket; *div* divides the counts."""

    def __init__(self, shape: histogram.Shape, div: int = 1) -> None:
        self._div = div if shape.divisible else 1
        self._labels = [histogram.label(shape, index) for index in range(shape.buckets)]
        self._tails: dict[int, _Tails] = {}

    def text(self, counts: dict[int, int]) -> bytes:
        """As :func:`histogram.text`."""
        used = [bucket for bucket, count in counts.items() if count]
        if not used:
            return b""
        if self._div > 1:
            div = self._div
            counts = {bucket: count // div for bucket, count in counts.items()}
        tails = self._tails_of(max(counts.values()) or 1)
        if len(used) == 1:
            return self._labels[used[0]] + tails[counts[used[0]]]
        labels, get = self._labels, counts.get
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

    def text(self, counts: dict[int, int]) -> bytes:
        """As :func:`json.histogram_form`."""
        used = [bucket for bucket, count in counts.items() if count]
        if not used:
            return b"[]"
        div, heads, get = self._div, self._heads, counts.get
        parts = [heads[at] + json.number(get(at, 0) // div) + b"}" for at in range(min(used), max(used) + 1)]
        return b"[%s]" % b",".join(parts)
