"""--metrics: a running script as a monitoring system sees it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from threading import Thread

import pytest

from tests.support import saved
from tests.support.patience import patience
from tests.support.scraped import Caller, Labels, classic_values, serving
from tests.support.waiting import until

PROBE = "tracepoint:syscalls:sys_enter_getppid /pid == $1/"


@pytest.fixture
def caller() -> Iterator[Caller]:
    made = Caller()
    yield made
    made.close()


def metrics(caller: Caller, body: str, *options: str, before: str = "") -> list[str]:
    """Arguments of a run that traces the calls."""
    return [*options, "-e", f"{before} {PROBE} {{ {body} }}", str(caller.pid)]


ALL = """
  /* Calls of getppid */
  @calls = count();
  @n++;
  @by[(parity=@n % 2, who=comm)] = count();
  @bytes = sum((uint64)10);
  @size = lhist(@n, 0, 10, 5);
  @wait_us = hist(@n);
  @mean = avg((uint64)@n);
  @most = max(@n);
"""


def test_counts_are_right_and_grow(caller: Caller) -> None:
    with serving(*metrics(caller, ALL)) as run:
        run.wait_for("Metrics at")
        caller.call(4)
        families = run.families()
        calls = families["pytrace_calls"]
        assert (calls.type, calls.documentation) == ("counter", "Calls of getppid")
        assert families["pytrace_wait_us"].type == "histogram"
        before = run.values()
        assert before["pytrace_calls_total", ()] == 4
        assert before["pytrace_by_total", (("parity", "0"), ("who", "python3"))] == 2
        assert before["pytrace_bytes_total", ()] == 40
        assert before["pytrace_n", ()] == before["pytrace_most", ()] == 4
        assert (before["pytrace_mean_sum", ()], before["pytrace_mean_count", ()]) == (10, 4)
        caller.call(8)
        after = run.values()
        counters = {key: value for key, value in before.items() if key[0].endswith(("_total", "_bucket"))}
        assert {key for key, value in counters.items() if after[key] < value} == set()
        assert after["pytrace_calls_total", ()] == 12
        # 1 to 12: what is less than 5 is 4 at most, and so on.
        linear = {le: after["pytrace_size_bucket", (("le", le),)] for le in ("4.0", "9.0", "+Inf")}
        assert linear == {"4.0": 4, "9.0": 9, "+Inf": 12}
        powers = {le: after["pytrace_wait_us_bucket", (("le", le),)] for le in ("1.0", "3.0", "7.0", "15.0", "+Inf")}
        assert powers == {"1.0": 1, "3.0": 3, "7.0": 7, "15.0": 12, "+Inf": 12}
        status, content_type, text = run.get("*/*")
        assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
        older = classic_values(text)
        assert (older["pytrace_calls_total", ()], older["pytrace_size_bucket", (("le", "+Inf"),)]) == (12, 12)
        _, content_type, text = run.get()
        assert content_type.startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
        assert text.endswith("# EOF\n")
        found: list[float] = []
        threads = [Thread(target=lambda: found.append(run.values()["pytrace_calls_total", ()])) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patience(30))
        assert found == [12] * 8
        assert run.end() == 0
    assert "@calls: 12\n" in run.out


def test_a_cap_on_series(caller: Caller) -> None:
    body = "@n++; @by[@n] = count(); @few[@n % 2] = count();"
    with serving(*metrics(caller, body, before="config = { max_metric_series = 5 }")) as run:
        run.wait_for("Metrics at")
        caller.call(12)
        first = run.values()
        assert sum(name == "pytrace_by_total" for name, _ in first) == 5
        assert first["pytrace_map_series_left_out", (("map", "@by"),)] == 7
        assert first["pytrace_map_series_left_out", (("map", "@few"),)] == 0
        caller.call(12)
        second = run.values()
        assert {key for key in first if key[0] == "pytrace_by_total"} <= set(second)
        assert second["pytrace_map_series_left_out", (("map", "@by"),)] == 19


def test_losses(caller: Caller) -> None:
    body = "@n++; @small[@n] = count();"
    with serving(*metrics(caller, body, before="config = { max_map_keys = 4 }")) as run:
        run.wait_for("Metrics at")
        caller.call(10)
        found = run.values()
        assert found["pytrace_lost_events_total", (("kind", "map_full"), ("subject", "@small"))] == 6


def skipped(values: dict[tuple[str, Labels], float]) -> float:
    """Hits that the kernel skipped, as another program ran on the CPU: other tests trace at the same time."""
    return sum(value for (name, labels), value in values.items() if ("kind", "recursion") in labels)


def test_a_counter_that_the_script_clears_begins_again(caller: Caller) -> None:
    body = "@calls = count(); @n++; if (@n == 5) { print(@calls); clear(@calls); }"
    with serving(*metrics(caller, body)) as run:
        run.wait_for("Metrics at")
        caller.call(4)
        first = run.values()
        assert first["pytrace_calls_total", ()] + skipped(first) == 4, (first, run.err)
        caller.call(6)
        until(lambda: any(line.startswith("@calls: ") for line in run.out))
        printed = next(int(line.split()[1]) for line in run.out if line.startswith("@calls: "))
        last = run.values()
        assert last.get(("pytrace_calls_total", ()), 0) + printed + skipped(last) == 10, (last, run.err)
        assert printed >= 5


def test_in_a_flood_scrapes_are_answered_and_hanging_clients_hold_nothing_up() -> None:
    # The child calls as fast as it can until it is told to stop.
    script = "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @calls = count(); printf(\"%d\\n\", pid); }"
    child = f"{sys.executable} -c 'import os\nwhile True: os.getppid()'"
    with serving("-e", script, "-c", child, "-o", "/dev/null") as run:
        where = run.url.split("/")[2].rpartition(":")
        with closing(socket.create_connection((where[0], int(where[2])))) as hanging:
            hanging.sendall(b"GET /metrics HT")
            until(lambda: ("pytrace_calls_total", ()) in run.values())
            counts = [run.values()["pytrace_calls_total", ()] for _ in range(5)]
            assert counts == sorted(counts)
            assert counts[-1] > counts[0] > 0
            assert run.end() == 0
    printed = next(line for line in run.out if line.startswith("@calls: ")) if run.out else ""
    assert not printed or int(printed.split()[1]) >= counts[-1]


def test_the_server_is_closed_at_the_end(caller: Caller) -> None:
    with serving(*metrics(caller, "@n++; if (@n == 3) { exit(); }")) as run:
        host, _, port = run.url.split("/")[2].rpartition(":")
        caller.call(3)
        assert run.over() == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))


@pytest.mark.parametrize(("address", "shown"), [("[::1]:0", "http://[::1]:"), (":0", "http://[::]:")])
def test_other_addresses(caller: Caller, address: str, shown: str) -> None:
    with serving(*metrics(caller, "@calls = count();"), address=address) as run:
        assert run.url.startswith(shown)
        caller.call(2)
        assert run.values()["pytrace_calls_total", ()] == 2


def failed(*arguments: str) -> str:
    """Standard error of a run that fails before it traces."""
    script = "begin { printf(\"traced\\n\"); exit(); }"
    child = saved.start(*arguments, "-e", script)
    out, err = child.communicate(timeout=patience(60))
    assert child.returncode == 1, err
    assert "traced" not in out
    assert "Attached" not in err
    return err


def test_a_port_in_use_is_an_error_before_anything_is_attached() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        err = failed("--metrics", f"127.0.0.1:{port}")
    assert err.startswith(f"ERROR: metrics cannot be served at 127.0.0.1:{port}: Address already in use\n")


def test_no_line_is_printed_more_with_json(caller: Caller) -> None:
    with serving(*metrics(caller, "@calls = count();", "-f", "json")) as run:
        run.wait_for("Metrics at")
        caller.call(1)
        assert run.values()["pytrace_calls_total", ()] == 1
        assert run.end() == 0
    assert all(line.startswith("{") for line in run.out if line.strip())
