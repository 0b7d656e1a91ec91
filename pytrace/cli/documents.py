"""``pytrace help TOPIC``: the documents of this version in the terminal, and where they and the examples are."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path, PurePath

from pytrace.cli import tools
from pytrace.cli.options import SHORTCUTS, SUBCOMMANDS
from pytrace.core.diagnostics import TraceError, similar

_INSTALLED = "documents"
"""The folder in the installed package (``force-include`` in pyproject.toml)."""
_FOLDERS = {
    "start": "To begin with", "guides": "By subject", "reference": "Reference", "operate": "On production machines",
    "develop": "Inside",
}  # fmt: skip
_HEADING = re.compile(r"^(#{1,4}) (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]*)\)")
_SHOWN = 20
"""Places of a word that are listed at most."""


def folder() -> Path | None:
    """The documents: in the package, or ``docs`` of the checkout; None in a copy that has none."""
    package = Path(__file__).resolve().parents[1]
    return next((place for place in (package / _INSTALLED, package.parent / "docs") if place.is_dir()), None)


def topics() -> str:
    """The pages with what each is about."""
    known = pages()
    width = max(map(len, known), default=0)
    lines = ["usage: pytrace help TOPIC    a page, a tool, a command, or a word of the reference", ""]
    for name, heading in _FOLDERS.items():
        rows = [
            f"  {stem:<{width}}  {title(path)}"
            for stem, path in known.items()
            if path.parent.name == name
        ]
        if rows:
            lines += [f"{heading}:", *rows, ""]
    return "\n".join([*lines, "Tools: pytrace --tools. Examples: pytrace --examples."]) + "\n"


def page(topic: str) -> str:
    """What is to be read about *topic*: a page, that of a tool, or the sections that a heading names.

    Raises:
        TraceError: there is nothing about it, or this copy has no documents.
    """
    known = pages()
    word = topic.strip().lower().removesuffix(".md")
    stem = PurePath(word).name.replace(" ", "-").replace("_", "-")
    if stem in known:
        return _readable(known[stem].read_text(encoding="utf-8"))
    tool = tools.resolve(word)[0] if tools.is_name(word) else ""
    place = folder()
    if tool and place is not None and (path := place / "reference" / "tools" / f"{tool}.md").is_file():
        return _readable(path.read_text(encoding="utf-8"))
    sections = list(_sections(known, word))
    if not sections and (mentions := _mentions(known, word)):
        rows = [f"  {name}, {heading}:\n    {line}\n" for name, heading, line in mentions[:_SHOWN]]
        more = f"  … and {len(mentions) - _SHOWN} more\n" if len(mentions) > _SHOWN else ""
        return f"What the pages say of {topic!r} (pytrace help PAGE):\n{''.join(rows)}{more}"
    if not sections:
        names = [*known, *tools.names(), *SUBCOMMANDS, *SHORTCUTS]
        near = ", ".join(similar(word, names))
        hints = (f"did you mean {near}?" if near else "pytrace help lists the pages; pytrace --tools WORD finds tools",)
        raise TraceError(f"no document is about {topic!r}", hints=hints)
    if len(sections) == 1 or len({text for _, _, text in sections}) == 1:
        return _readable(sections[0][2])
    exact = [text for _, heading, text in sections if _plain(heading).lower().removesuffix("()") == word]
    if len(exact) == 1:
        return _readable(exact[0])
    rows = [f"  {name}: {_plain(heading)}\n" for name, heading, _ in sections[:_SHOWN]]
    more = f"  … and {len(sections) - _SHOWN} more\n" if len(sections) > _SHOWN else ""
    return f"Sections about {topic!r}, by page (pytrace help PAGE):\n{''.join(rows)}{more}"


def pages() -> dict[str, Path]:
    """The pages by the names that people type, in reading order.

    Raises:
        TraceError: this copy has no documents.
    """
    place = folder()
    if place is None:
        raise TraceError("this copy of pytrace has no documents", hints=("pytrace -h, and pytrace --tools NAME -h",))
    return {path.stem: path for name in _FOLDERS for path in sorted((place / name).glob("*.md"))}


def _sections(pages: dict[str, Path], word: str) -> Iterator[tuple[str, str, str]]:
    """Page, heading and text of each section whose heading has the word."""
    wanted = re.compile(rf"(?<![\w]){re.escape(word)}(?![\w])", re.IGNORECASE)
    for name, path in pages.items():
        text = path.read_text(encoding="utf-8")
        headings = list(_HEADING.finditer(text))
        for index, heading in enumerate(headings):
            if wanted.search(_plain(heading[2])):
                level = len(heading[1])
                ends = (later.start() for later in headings[index + 1 :] if len(later[1]) <= level)
                yield name, heading[2], text[heading.start() : next(ends, len(text))]


def _mentions(pages: dict[str, Path], word: str) -> list[tuple[str, str, str]]:
    """Page, heading and a line of each section for users that has the word: first rows of tables that begin with it."""
    wanted = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])", re.IGNORECASE)
    row = re.compile(rf"\|\s*`?(--)?{re.escape(word)}(?![\w-])", re.IGNORECASE)
    ranked: list[tuple[tuple[bool, bool, int], tuple[str, str, str]]] = []
    for name, path in pages.items():
        if path.parent.name == "develop":
            continue
        text = path.read_text(encoding="utf-8")
        starts = [heading.start() for heading in _HEADING.finditer(text)]
        for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
            heading, *lines = text[start:end].splitlines()
            found = [line for line in lines if wanted.search(line)]
            if found or any(map(row.match, lines)):
                subject = next(filter(row.match, lines), None)
                order = (subject is None, path.parent.name != "reference", len(ranked))
                ranked.append((order, (name, _plain(heading.lstrip("#")), _row(subject or found[0]))))
    return [mention for _, mention in sorted(ranked)]


def _row(line: str) -> str:
    """A line of a page, or of a table: its cells in order."""
    cells = [cell for cell in line.replace("`", "").strip("| ").split(" | ") if cell]
    return textwrap.shorten("  ".join(cells), 200, placeholder=" …")


def title(path: Path) -> str:
    """The heading of a page."""
    match = _HEADING.search(path.read_text(encoding="utf-8"))
    return _plain(match[2]) if match is not None else ""


def _plain(heading: str) -> str:
    return _LINK.sub(r"\1", heading).replace("`", "").replace("\\", "").strip()


def _readable(text: str) -> str:
    """Markdown as text: without marks of the generator, links as their words and the names of their pages."""

    def link(match: re.Match[str]) -> str:
        target = PurePath(match[2].partition("#")[0])
        known = target.suffix == ".md" and target.stem not in match[1].lower().replace(" ", "-")
        return f"{match[1]} ({target.stem})" if known else match[1]

    return re.sub(r"^<!-- .* -->\n", "", _LINK.sub(link, text), flags=re.MULTILINE).strip() + "\n"
