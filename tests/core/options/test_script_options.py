"""Names of options of scripts."""

from __future__ import annotations

from pytrace.core.options.script_options import ScriptOption, plain_integer


def test_the_name_is_the_first_word_else_the_letter() -> None:
    """A script asks for an option by its word; one that has only a letter, by that."""
    assert ScriptOption(("x", "failed", "fails"), False).name == "failed"
    assert ScriptOption(("T",), False).name == "T"


def test_letters_and_words() -> None:
    """Names of one letter take one dash, others two."""
    option = ScriptOption(("x", "failed", "X"), False)
    assert (option.letters, option.words) == (("x", "X"), ("failed",))


def test_plain_integers() -> None:
    assert [plain_integer(text) for text in ("0", "42", "-7")] == [0, 42, -7]
    assert [plain_integer(text) for text in ("", "-", "007", "0x1", "1ms", "9" * 20, "²")] == [None] * 7
