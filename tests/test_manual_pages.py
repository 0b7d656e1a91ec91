"""The manual pages in ``share/man``, which ``scripts/generate-docs`` writes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

PAGES = sorted((Path(__file__).parent.parent / "share" / "man").glob("man*/*.[1-8]"))


def test_pages_have_letters_that_every_terminal_has() -> None:
    assert len(PAGES) > 90
    assert not [page.name for page in PAGES if not page.read_text(encoding="utf-8").isascii()]


def test_troff_has_nothing_to_warn_of() -> None:
    if shutil.which("groff") is None:
        return
    for device in ("ascii", "utf8"):
        words = ["groff", "-man", "-ww", "-z", f"-T{device}", *map(str, PAGES)]
        result = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert (result.returncode, result.stderr) == (0, "")
