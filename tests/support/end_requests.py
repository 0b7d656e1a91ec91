"""Requests to end a run, as users make them in tests."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.base.interruption import EndRequests


class ScriptedRequests(EndRequests):
    """Requests whose number *looks* returns each time that it is read."""

    def __init__(self, looks: Callable[[], int]) -> None:
        self._looks = looks
        super().__init__()

    @property
    def count(self) -> int:
        return self._looks()

    @count.setter
    def count(self, _value: int) -> None: ...


def asked(count: int = 1) -> EndRequests:
    """The user has asked for the end."""
    requests = EndRequests()
    requests.ending, requests.count = True, count
    return requests
