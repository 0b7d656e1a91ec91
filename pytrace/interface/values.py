"""Classes of the keys and values of maps and events, for Python programs."""

from pytrace.render.python_values import Average, Bucket, Histogram, Series, Stats
from pytrace.results.values import Frame, StackTrace

__all__ = ["Average", "Bucket", "Frame", "Histogram", "Series", "StackTrace", "Stats"]
