"""Requests for metrics, and the session that answers them."""

from __future__ import annotations

import select
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from pytrace.core.config import Config
from pytrace.core.diagnostics import TraceError
from pytrace.core.options.run_options import Address
from pytrace.results.snapshot import SnapshotData
from pytrace.runtime.session import metrics as module
from pytrace.runtime.session.metrics import Metrics
from tests.support import snapshots
from tests.support.patience import patience
from tests.support.waiting import until


class Run:
    """Stands for a session with one map."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.count = 0
        self.metrics = Metrics(Address("127.0.0.1", 0), Config(max_metric_series=2), self.take, self.told.append)
        self.metrics.begin()
        self.url = self.told[0].split()[-1]

    def take(self) -> SnapshotData:
        self.count += 1
        entries = {(f"k{number}"): self.count for number in range(3)}
        return snapshots.snapshot(snapshots.map_data("@x", snapshots.STRING, snapshots.COUNT, entries))

    def work(self) -> None:
        """As the session does."""
        (descriptor,) = self.metrics.descriptors
        select.select([descriptor], [], [], self.metrics.pause(0.05))
        self.metrics.work(0)


class Get(threading.Thread):
    """A request."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.status, self.text = 0, ""
        self.start()

    def run(self) -> None:
        try:
            with urllib.request.urlopen(self._url, timeout=patience(20)) as answer:
                self.status, self.text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                self.status, self.text = error.code, error.read().decode()

    def over(self) -> bool:
        return not self.is_alive()


@pytest.fixture
def run() -> Iterator[Run]:
    made = Run()
    yield made
    made.metrics.close()


def test_a_scrape(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRESH", 0.0)
    for number in (1, 2):
        got = Get(run.url)
        until(lambda got=got: run.work() or got.over())  # type: ignore[misc]
        assert got.status == 200
        assert f'pytrace_x_total{{key="k0"}} {number}\n' in got.text
        assert 'pytrace_map_series_left_out{map="@x"} 1\n' in got.text
    assert run.count == 2


def test_scrapes_within_a_second_get_the_same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRESH", 60.0)
    texts = set()
    for _ in range(3):
        got = Get(run.url)
        until(lambda got=got: run.work() or got.over())  # type: ignore[misc]
        texts.add(got.text)
    assert run.count == 1
    assert len(texts) == 1
    assert len(run.metrics._exposition._texts) == 1
    monkeypatch.setattr(module, "FRESH", 0.0)
    got = Get(run.url)
    until(lambda: run.work() or got.over())
    assert run.count == 2


def test_scrapes_at_once_share_a_snapshot(run: Run) -> None:
    gets = [Get(run.url) for _ in range(10)]
    until(lambda: len(run.metrics._server._open) == 10)
    until(lambda: run.work() or all(got.over() for got in gets))
    assert {got.status for got in gets} == {200}
    assert run.count < 10


def test_other_paths_cost_no_snapshot(run: Run) -> None:
    for path, status in (("/", 200), ("/other", 404)):
        got = Get(run.url.replace("/metrics", path))
        until(got.over)
        assert got.status == status
        assert "/metrics" in got.text
    assert run.count == 0


def test_a_session_that_does_not_come_to_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    got = Get(run.url)
    until(got.over)
    assert (got.status, got.text) == (503, "no snapshot was taken within 0.05 seconds\n")


def test_a_request_that_waits_at_the_end_is_told(run: Run) -> None:
    got = Get(run.url)
    until(lambda: run.metrics._exchange._wanted is not None)
    run.metrics.close()
    until(got.over)
    assert (got.status, got.text) == (503, "the run is over\n")


def test_what_goes_wrong_is_told_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("bad label")

    monkeypatch.setattr(module.Exposition, "of", fail)
    for _ in range(2):
        got = Get(run.url)
        until(lambda got=got: run.work() or got.over())  # type: ignore[misc]
        assert got.status == 500
        assert "bad label" in got.text
        run.work()
    assert run.told[1:] == ["WARNING: metrics could not be served: ValueError: bad label\n"]


def test_a_map_that_has_no_metrics_is_a_message(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TraceError("negative counts")

    monkeypatch.setattr(module.Exposition, "of", fail)
    got = Get(run.url)
    until(lambda: run.work() or got.over())
    assert (got.status, got.text) == (500, "negative counts\n")
