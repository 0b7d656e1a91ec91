"""Runs a random script and compares what it printed with what it must print."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.support.mapped.output import difference
from tests.support.mapped.scripts import Script
from tests.support.server import Server

REPORTS = re.compile(rb'\{"type": "(helper_error|failures|losses)", ')
"""What a run tells beside its output, where keys find no room or strings of the traced command are cut."""
PLACE = re.compile(rb'^(\{"type": "(?:errorf|warnf)".*), "filename": .*\}$')


def wrong(server: Server, folder: Path, script: Script, form: str) -> str:
    """What is wrong with a run in the format ``text`` or ``json``; empty when nothing is."""
    path = folder / "random.bt"
    path.write_bytes(_bytes(script.text))
    command = ("-q", "--no-cache", "-f", form, *script.options, str(path), *script.arguments)
    result = server.run(command, timeout=60)
    if result.timed_out:
        return "it did not end in time"
    if result.status:
        return f"status {result.status}: {result.stderr[:500]}"
    out = _bytes(result.stdout)
    if form == "json":
        try:
            out = _output(out, reports="max_map_keys" in script.text or "args.argv" in script.text)
        except ValueError as error:
            return f"not JSON: {error}"
    return difference(script.records, script.final, out, _bytes(result.stderr), json=form == "json")


def _output(out: bytes, *, reports: bool) -> bytes:
    """The lines, which must all be JSON, without *reports* and places in the script."""
    kept = []
    for line in out.split(b"\n"):
        if line:
            json.loads(line)
        if not reports or not REPORTS.match(line):
            kept.append(PLACE.sub(rb"\1}", line))
    return b"\n".join(kept)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
