"""The page of a report: one HTML file that needs no network.

What is known of the runs is plain HTML. The pictures are drawn by the viewer, a program in JavaScript that
``hatch_build.py`` bundles from ``web`` and the libraries of its lock file; their data are packed in a script element
that the browser does not run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.results.report.document import Document, shown
from pytrace.results.snapshot import Run

_VIEWER = ("web/dist/viewer.js", "web/dist/viewer.css", "web/dist/licences.txt")

_POLICY = "default-src 'none'; script-src {program}; style-src {style}; base-uri 'none'; form-action 'none'"
"""Content security policy of the page: it runs the viewer, by its digest, and loads nothing from anywhere."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>{header}</header>
<main id="report"><noscript><p class="warning">The pictures of this report are drawn by a script that it holds; \
this browser does not run it.</p></noscript></main>
<footer>{about}<details><summary>Licences</summary><pre>{licences}</pre></details></footer>
<script type="text/plain" id="data">{data}</script>
<script>{program}</script>
</body>
</html>
"""


MOST_RUNS = 8
"""Of more runs the list is folded."""


class Head(msgspec.Struct, frozen=True):
    """The runs of one snapshot, at the top of the page."""

    title: str
    """``Before`` and ``After`` of two, else empty."""
    runs: tuple[Run, ...]
    about: tuple[str, ...]
    """Lines about them, as ``--about`` prints them."""
    losses: tuple[str, ...]
    """Those that say what was lost."""
    unnamed: str = ""
    """A sentence on code without names, if there is much of it."""


def page(document: Document, title: str, heads: Sequence[Head], nothing: str = "No maps, no rows.") -> bytes:
    """The file.

    Args:
        document: what the viewer shows.
        title: of the page.
        heads: the runs of each snapshot.
        nothing: what is said where there is nothing to show.

    Raises:
        TraceError: the viewer was not bundled.
    """
    program, style, licences = viewer()
    program = program.replace("</script", "<\\/script")
    policy = _POLICY.format(program=_digest(program), style=_digest(style))
    header = f"<h1>{escaped(title)}</h1>" + "".join(map(_header, heads))
    about = "".join(map(_about, heads)) + _scripts(heads)
    if about:
        about = f'<details class="about"><summary>About this run</summary>{about}</details>'
    if not document.parts:
        header += f"<p>{escaped(nothing)}</p>"
    text = _PAGE.format(
        policy=policy, title=escaped(title), style=style, header=header, about=about,
        licences=escaped(licences), data=document.packed(), program=program,
    )  # fmt: skip
    return text.encode()


def folder() -> Path:
    """Where the viewer is."""
    return Path(str(resources.files(__package__)))


def viewer() -> list[str]:
    """The bundled viewer: its program, its style and the licences of its libraries. In a checkout it is bundled when it
    is missing.

    Raises:
        TraceError: it is missing and cannot be bundled.
    """
    bundler = folder().parents[2] / "hatch_build.py"
    if not (folder() / _VIEWER[0]).exists() and bundler.exists():
        with suppress(OSError):  # a run with a live view starts no program any more
            subprocess.run([sys.executable, str(bundler)], check=False, stdout=sys.stderr)
    try:
        return [(folder() / name).read_text(encoding="utf-8") for name in _VIEWER]
    except FileNotFoundError:
        hint = "scripts/build-viewer bundles it in a checkout, with what scripts/setup.sh installs; packages have it"
        raise TraceError("the viewer of HTML reports is missing", hints=(hint,)) from None


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def escaped(text: str) -> str:
    """Text of anybody as HTML that is nothing but that text."""
    return html.escape(shown(text))


def _header(head: Head) -> str:
    """When and how long, in a line; and what was lost."""
    line = _moment(head.runs)
    header = f'<p class="when">{escaped(f"{head.title}: {line}" if head.title else line)}</p>' if line else ""
    if head.unnamed:
        header += f'<p class="warning" role="note">{escaped(head.unnamed)}.</p>'
    if head.losses:
        items = "".join(f"<li>{escaped(line)}</li>" for line in head.losses)
        header += f'<div class="warning" role="note"><h2>Lost</h2><ul class="losses">{items}</ul></div>'
    return header


def _moment(runs: Sequence[Run]) -> str:
    if not runs:
        return ""
    start, end = min(run.start for run in runs), max(run.end for run in runs)
    hosts = len({run.host for run in runs})
    where = f"on {runs[0].host}" if hosts == 1 else f"on {hosts} machines"
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(start / 1e9))
    return f"{(end - start) / 1e9:.3g} s {where}, from {when}"


def _about(head: Head) -> str:
    """How it was run."""
    lines = [line.removeprefix("# ").rstrip("\n") for line in head.about if line.strip()]
    items = "".join(f"<li>{escaped(line)}</li>" for line in lines if line not in head.losses)
    runs = f'<ul class="runs">{items}</ul>'
    if len(head.runs) > MOST_RUNS:
        runs = f'<details class="runs"><summary>{len(head.runs)} runs</summary>{runs}</details>'
    return (f"<h2>{escaped(head.title)}</h2>" if head.title else "") + runs


def _scripts(heads: Sequence[Head]) -> str:
    """The text of each script, where snapshots have it."""
    texts = {run.text: "the script" if run.script == "-e" else run.script for head in heads for run in head.runs}
    return "".join(
        f'<details class="script"><summary>{escaped(name)}</summary><pre>{escaped(text)}</pre></details>'
        for text, name in texts.items()
        if text
    )
