"""How many random examples a property is tried with: few in each run, many with ``--hypothesis-profile soak``."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

MOST = 100
"""In a run of all tests."""


def register() -> None:
    """The profiles ``pytrace``, which is loaded, and ``soak``.

    Both measure no time, which a busy machine takes more of. Hypothesis would read the source of each module that is
    imported, 623 of them, for constants to try; what is tried would change with every edit of any of them.
    """
    slow = [HealthCheck.too_slow]
    settings.register_profile("pytrace", max_examples=MOST, deadline=None, suppress_health_check=slow)
    settings.register_profile("soak", max_examples=50 * MOST, deadline=None, suppress_health_check=slow)
    settings.load_profile("pytrace")
    providers._get_local_constants = lambda: providers._local_constants


def examples(count: int) -> settings:
    """Settings of a test that needs less than :data:`MOST` examples: *count* of them, in proportion more to soak."""
    return settings(max_examples=count * settings().max_examples // MOST)
