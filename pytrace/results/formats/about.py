"""What is known of the runs of a snapshot: hosts, times, losses."""

from __future__ import annotations

import time

from pytrace.results.formats.portable_forms import encoded
from pytrace.results.snapshot import Run, SnapshotData
from pytrace.runtime.output.render import json


def text(snapshot: SnapshotData) -> str:
    """A paragraph for each run, one for losses, and an empty line."""
    lines = [line for run in snapshot.runs for line in _run(run)]
    for kind, subjects in sorted(snapshot.losses.items()):
        lines += [f"# {kind}: {count} ({subject})" if subject else f"# {kind}: {count}"
                  for subject, count in sorted(subjects.items())]  # fmt: skip
    return "".join(f"{line}\n" for line in lines) + "\n"


def _run(run: Run) -> list[str]:
    parameters = "".join(f" {parameter}" for parameter in run.parameters)
    seconds = (run.end - run.start) / 1e9
    return [
        f"# {run.script}{parameters} (SHA-256 {run.script_hash[:12]}) on {run.host}, Linux {run.kernel} {run.machine}",
        f"# {moment(run.start)} to {moment(run.end)} ({seconds:.3f} s), run {run.identity}, pytrace {run.version}",
    ]


def moment(nanoseconds: int) -> str:
    """A wall time, in UTC and to the millisecond."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds)) + f".{rest // 1_000_000:03} UTC"


def json_line(snapshot: SnapshotData) -> bytes:
    """One line of JSON with the runs and what was lost; times are nanoseconds since 1970, and as texts."""
    runs = [json.mapping(_members(run)) for run in snapshot.runs]
    losses = [(encoded(kind), _numbers(found)) for kind, found in sorted(snapshot.losses.items())]
    data = json.mapping([(b"runs", b"[%s]" % b", ".join(runs)), (b"losses", json.mapping(losses))])
    return json.line("snapshot", data)


def _numbers(counts: dict[str, int]) -> bytes:
    return json.mapping([(encoded(subject), json.number(count)) for subject, count in sorted(counts.items())])


def _members(run: Run) -> list[tuple[bytes, bytes]]:
    texts = {
        "identity": run.identity, "host": run.host, "kernel": run.kernel, "machine": run.machine,
        "script": run.script, "script_hash": run.script_hash, "version": run.version,
    }  # fmt: skip
    times = {
        "start": run.start, "end": run.end,
        "start_monotonic": run.start_monotonic, "end_monotonic": run.end_monotonic,
    }  # fmt: skip
    return [
        *((name.encode(), json.quoted(encoded(value))) for name, value in texts.items()),
        (b"parameters", b"[%s]" % b", ".join(json.quoted(encoded(item)) for item in run.parameters)),
        *((name.encode(), json.number(value)) for name, value in times.items()),
        (b"start_time", json.quoted(moment(run.start).encode())),
        (b"end_time", json.quoted(moment(run.end).encode())),
    ]
