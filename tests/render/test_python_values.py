from __future__ import annotations

from datetime import UTC, datetime

from pytrace.core import types
from pytrace.render.forms import as_python
from pytrace.render.python_values import Average, Bucket, Histogram, Series, Stats


def test_averages_are_the_integers_that_print() -> None:
    average = as_python(types.Avg())((-7, 2))
    assert isinstance(average, Average)
    assert (average, average.total, average.count, average.mean) == (-3, -7, 2, -3.5)
    assert Average(0, 0).mean == 0.0


def test_stats() -> None:
    assert as_python(types.Stats())((10, 4)) == Stats(count=4, average=2, total=10)


def test_plain_values_stay_as_they_are() -> None:
    for kind, value in ((types.Count(), 3), (types.String(4), "x"), (types.Tuple((types.INT64,)), (1,))):
        assert as_python(kind)(value) is value


def test_a_linear_histogram() -> None:
    histogram = Histogram(types.LHist(0, 10, 2), {1: 3, 3: 1})
    assert list(histogram) == [Bucket(0, 2, 3), Bucket(2, 4, 0), Bucket(4, 6, 1)]
    assert (histogram.count, len(histogram), histogram[0].count) == (4, 3, 3)
    assert 0 <= (histogram.quantile(0.5) or 0) < 2 <= 4 <= (histogram.quantile(1.0) or 0) < 6
    assert "[4, 6)" in str(histogram)
    assert repr(histogram) == "<Histogram of 4 values>"


def test_open_ends_have_no_bound() -> None:
    histogram = Histogram(types.LHist(0, 10, 5), {0: 1, 3: 1})
    assert [(bucket.low, bucket.high) for bucket in histogram] == [(None, 0), (0, 5), (5, 10), (10, None)]
    assert histogram.quantile(1.0) is None


def test_an_empty_histogram() -> None:
    histogram = Histogram(types.LHist(0, 10, 2), {})
    assert (list(histogram), histogram.count, histogram.quantile(0.5)) == ([], 0, None)


def test_histograms_compare_by_kind_and_counts() -> None:
    first, other = Histogram(types.LHist(0, 10, 2), {1: 3}), Histogram(types.LHist(0, 10, 5), {1: 3})
    assert first == Histogram(types.LHist(0, 10, 2), {1: 3})
    assert first != other
    assert len({first, Histogram(types.LHist(0, 10, 2), {1: 3}), other}) == 2


def test_a_series_has_points_in_time() -> None:
    second = 1_000_000_000
    series = Series.of(types.TSeries(second, 3), {100: (5, 1), 102: (7, 1)})
    assert series.interval == second
    assert [(point.nanoseconds // second, point.value) for point in series] == [(100, 5), (101, None), (102, 7)]
    assert series[0].start == datetime.fromtimestamp(100, UTC)
