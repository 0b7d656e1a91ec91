"""Command lines that are still being typed."""

from __future__ import annotations

import pytest

from pytrace.cli.completion.shell_words import split


@pytest.mark.parametrize(
    ("line", "words", "current", "quote"),
    [
        ("pytrace ", ("pytrace",), "", ""),
        ("pytrace run", ("pytrace",), "run", ""),
        ("pytrace -e 'k:vfs_read { @a", ("pytrace", "-e"), "k:vfs_read { @a", "'"),
        ("pytrace -e 'a b' -", ("pytrace", "-e", "a b"), "-", ""),
        ('pytrace -e "say \\"x', ("pytrace", "-e"), 'say "x', '"'),
        ("pytrace a\\ b", ("pytrace",), "a b", ""),
        ("pytrace ''", ("pytrace",), "", ""),
        ("pytrace '' x", ("pytrace", ""), "x", ""),
    ],
)
def test_words_are_those_of_a_shell(line: str, words: tuple[str, ...], current: str, quote: str) -> None:
    found = split(line)
    assert (found.words, found.current, found.quote) == (words, current, quote)


def test_bash_replaces_what_follows_a_break_outside_of_quotes() -> None:
    assert split("pytrace -l t:sched:s").after_break() == len("t:sched:")
    assert split("pytrace -e 't:sched:s").after_break() == 0
    assert split("pytrace run").after_break() == 0
