"""Histograms by what they share: the same text as one at a time."""

from __future__ import annotations

import random
import struct

import pytest

from pytrace.core.types import Hist, LHist
from pytrace.render import histogram, json
from pytrace.render.large_maps import bucket_texts
from pytrace.render.large_maps.bucket_texts import BucketJson, BucketTexts, RememberedTexts


@pytest.mark.parametrize("div", [1, 3])
@pytest.mark.parametrize("kind", [Hist(), Hist(1), LHist(0, 50, 5)], ids=str)
def test_same_as_one_at_a_time(kind: Hist | LHist, div: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_texts, "_KEPT", 3)
    rng, shape = random.Random(1), histogram.shape(kind)
    texts, jsons = BucketTexts(shape, div), BucketJson(shape, div)
    for _ in range(200):
        counts = {rng.randrange(kind.buckets): rng.choice((0, 1, 2, 500)) for _ in range(rng.randrange(1, 5))}
        words = tuple(word for pair in counts.items() for word in pair)
        whole = histogram.all_buckets(kind, counts)
        assert texts.text(words) == histogram.text(shape, whole, div)
        assert jsons.text(words) == json.histogram_form(shape, whole, div)


def test_small_histograms_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_texts, "_KEPT", 3)
    texts = BucketTexts(histogram.shape(Hist()))
    found = RememberedTexts(texts)
    for _ in range(2):
        for words in ((3, 5), (4, 5, 6, 1), (1, 2, 3, 4, 5, 6), (7, 1), (8, 2)):
            assert found[struct.pack(f"={len(words)}Q", *words)] == texts.text(words)
            assert len(found) <= 3
    assert {len(pairs) for pairs in found} <= {16, 32}
