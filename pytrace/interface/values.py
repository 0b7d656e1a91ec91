"""Classes of the keys and values of maps and events, for Python programs."""

from pytrace.render.aggregations import Average, Stats
from pytrace.render.histogram import Bucket, Histogram
from pytrace.render.tseries import Series
from pytrace.results.snapshot import Frame, StackTrace

__all__ = ["Average", "Bucket", "Frame", "Histogram", "Series", "StackTrace", "Stats"]
