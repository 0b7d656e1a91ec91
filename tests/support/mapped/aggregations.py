"""What aggregations hold after a list of values, and how it prints: from sections 18, 20 and 21 of the reference."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from tests.support.kinds import INT64, Int, Kind, number
from tests.support.numbers import divided, logarithmic

UNITS = ("", "K", "M", "G", "T", "P", "E")


@dataclass(frozen=True)
class Aggregation(Kind):
    """One aggregation; its values are tuples of the integers that went in."""

    call: str
    argument: Int
    """Kind of the integers."""
    bits: int = 0
    bounds: tuple[int, int, int] = (0, 0, 0)

    @property
    def numeric(self) -> bool:
        return True

    @property
    def zero(self) -> tuple[int, ...]:
        return ()

    @property
    def graph(self) -> bool:
        """Whether it prints as several lines."""
        return self.call in ("hist", "lhist")

    @property
    def readable(self) -> bool:
        """Whether scripts can have its value."""
        return self.call in ("count", "sum", "min", "max", "avg")

    @property
    def record(self) -> str:
        """The ``type`` of such maps in JSON."""
        return {"avg": "stats", "stats": "stats", "hist": "hist", "lhist": "hist"}.get(self.call, "map")

    @property
    def result(self) -> Int:
        """The 64-bit kind of what is read."""
        return INT64 if self.call == "count" else Int(8, self.argument.signed)

    def write(self, argument: str) -> str:
        """The call with that argument."""
        match self.call:
            case "count":
                return "count()"
            case "hist":
                return f"hist({argument}, {self.bits})" if self.bits else f"hist({argument})"
            case "lhist":
                return f"lhist({argument}, {', '.join(map(str, self.bounds))})"
        return f"{self.call}({argument})"

    def read(self, values: tuple[int, ...]) -> int:
        """The integer of it."""
        match self.call:
            case "count":
                return len(values)
            case "sum":
                return self.result.wrap(sum(values))
            case "min":
                return min(values, default=0)
            case "max":
                return max(values, default=0)
        return divided(self.result.wrap(sum(values)), len(values)) if values else 0

    def order(self, value: tuple[int, ...]) -> int:
        return len(value) if self.graph else self.read(value)

    def text(self, value: tuple[int, ...]) -> bytes:
        return self.divided_text(value, 1)

    def divided_text(self, value: tuple[int, ...], div: int) -> bytes:
        """As ``print(@m, 0, div)`` shows it; the lines of a histogram for those."""
        if self.graph:
            return b"".join(line + b"\n" for line in self._lines(value, div))
        if self.call == "stats":
            return b"{ .count = %d, .average = %d, .total = %d }" % self._stats(value)
        return b"%d" % divided(self.read(value), div)

    def json(self, value: tuple[int, ...]) -> str:
        return self.divided_json(value, 1)

    def divided_json(self, value: tuple[int, ...], div: int) -> str:
        """The same in JSON."""
        if self.graph:
            return "[" + ",".join(_bucket(bucket, count) for bucket, count in self._buckets(value, div)) + "]"
        if self.call == "stats":
            count, average, total = map(number, self._stats(value))
            return f'{{"count": {count}, "average": {average}, "total": {total}}}'
        return number(divided(self.read(value), div))

    def _stats(self, values: tuple[int, ...]) -> tuple[int, int, int]:
        return len(values), self.read(values), self.result.wrap(sum(values))

    # ------------------------------------------------------------------------------------------ histograms

    def bucket(self, value: int) -> int:
        """The number of the bucket of a value."""
        if self.call == "lhist":
            low, high, step = self.bounds
            return 0 if value < low else 1 + (high - low) // step if value > high else 1 + (value - low) // step
        return logarithmic(value, self.bits)

    def range_of(self, bucket: int) -> tuple[int | None, int | None]:
        """Least and greatest value of a bucket."""
        if self.call == "lhist":
            low, high, step = self.bounds
            last = 1 + (high - low) // step
            if not bucket:
                return None, low - 1
            first = low + (bucket - 1) * step
            return first, None if bucket == last else first + step - 1
        bits, at = self.bits, bucket - 1
        if not bucket:
            return None, -1
        if at < 1 << bits:
            return at, at
        power = (at >> bits) - 1
        low = ((1 << bits) + (at & ((1 << bits) - 1))) << power
        return low, low + (1 << power) - 1

    def _buckets(self, values: tuple[int, ...], div: int) -> list[tuple[tuple[int | None, int | None], int]]:
        counts = Counter(self.bucket(value) for value in values)
        if not counts:
            return []
        div = 1 if self.call == "lhist" else div
        return [(self.range_of(at), counts[at] // div) for at in range(min(counts), max(counts) + 1)]

    def _lines(self, values: tuple[int, ...], div: int) -> list[bytes]:
        buckets = self._buckets(values, div)
        most = max((count for _, count in buckets), default=0)
        found = []
        for (low, high), count in buckets:
            bar = "@" * (count * 52 // most if most else 0)
            found.append(f"{self._label(low, high):<16}{count:>8} |{bar:<52}|".encode())
        return found

    def _label(self, low: int | None, high: int | None) -> str:
        if low is None:
            assert high is not None
            return f"(..., {self._number(high + 1)})"
        if high is None:
            return f"[{self._number(low)}, ...)"
        return f"[{self._number(low)}]" if low == high else f"[{self._number(low)}, {self._number(high + 1)})"

    def _number(self, value: int) -> str:
        if self.call == "lhist":
            step = self.bounds[2]
            unit = 2 if step % (1 << 20) == 0 else 1 if step % 1024 == 0 else 0
            return f"{value >> (10 * unit)}{UNITS[unit]}" if value else "0"
        # The unit is that of the buckets that begin here, which are 2^bits to a power of two.
        unit = max(0, value.bit_length() - 1 - self.bits) // 10
        return f"{value >> (10 * unit)}{UNITS[unit]}"

    # ------------------------------------------------------------------------------------------ quantiles

    def quantile(self, values: tuple[int, ...], percent: Fraction) -> tuple[int | None, int | None]:
        """The bucket below whose end *percent* of the values are."""
        wanted = percent / 100 * len(values)
        counts, seen = Counter(self.bucket(value) for value in values), 0
        for at in sorted(counts):
            seen += counts[at]
            if seen >= wanted:
                break
        return self.range_of(at)


def _bucket(bounds: tuple[int | None, int | None], count: int) -> str:
    low, high = bounds
    parts = [f'"min": {number(low)}'] if low is not None else []
    parts += [f'"max": {number(high)}'] if high is not None else []
    return "{" + ", ".join([*parts, f'"count": {number(count)}']) + "}"


def middle(low: int, high: int) -> tuple[int, int]:
    """What a quantile in that bucket prints as: the middle and how far off it may be."""
    value = (low + high) // 2
    return value, max(value - low, high - value)
