"""Each tool has a page with the parts that a reader looks for, and a header of the form that the usage shows."""

from __future__ import annotations

import re
from pathlib import Path

from pytrace.cli import tools
from pytrace.cli.script_texts import header
from tests.support.rows import each_row

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ROOT / "docs" / "reference" / "tools"
NAMES = [name for _, name, _ in tools.rows()]
SCRIPTS = [name for name in NAMES if tools.path(name)]
PARTS = ["How to read it", "Options", "Overhead", "What next"]


def test_pages_are_those_of_tools() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} - {"README"} == set(NAMES)


@each_row("name", NAMES)
def test_parts_of_a_page(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text()
    assert re.match(rf"# {name}(:.*)?\n", text)
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert [title for title in PARTS if title not in titles] == []
    before = text.partition("## Overhead")[0]
    assert re.search(r"^(    |```)", before, re.MULTILINE), "no output is shown"
    links = re.findall(r"\]\(([\w-]+)\.md[)#]", text)
    assert [link for link in links if link not in NAMES] == []
    for section in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]:
        assert section.strip(), "a part is empty"


@each_row("name", SCRIPTS)
def test_header_of_a_script(name: str) -> None:
    script = Path(tools.path(name)).read_text()
    assert not script.startswith("#!"), "files of a package are not executable"
    lines = header(script).split("\n")
    assert re.fullmatch(rf"{name}: \S.*[^.]", lines[0])
    assert "Examples:" in lines
    examples = [line for line in lines[lines.index("Examples:") + 1 :] if line.strip()]
    command = re.compile(rf"  pytrace ({name}|{'|'.join(tools.ALIASES)})\b|    +\S")
    assert [line for line in examples if not command.match(line)] == []
    assert re.match(r"  pytrace ", examples[0])
