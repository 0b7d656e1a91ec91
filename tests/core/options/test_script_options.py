"""Names of options of scripts."""

from __future__ import annotations

from pytrace.core.options.script_options import ScriptOption


def test_the_name_is_the_first_word_else_the_letter() -> None:
    """A script asks for an option by its word; one that has only a letter, by that."""
    assert ScriptOption(("x", "failed", "fails"), False).name == "failed"
    assert ScriptOption(("T",), False).name == "T"


def test_letters_and_words() -> None:
    """Names of one letter take one dash, others two."""
    option = ScriptOption(("x", "failed", "X"), False)
    assert (option.letters, option.words) == (("x", "X"), ("failed",))
