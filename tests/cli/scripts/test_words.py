from __future__ import annotations

import pytest

from pytrace.cli.scripts.words import ScriptWords
from pytrace.core.diagnostics import TraceError
from pytrace.core.options.script_options import ScriptOption

FLAG = ScriptOption(("x", "failed"), False)
FASTER = ScriptOption(("faster",), False)
NUMBER = ScriptOption(("d", "min-ms"), 0, argument="MS")
SEVERAL = ScriptOption(("u", "user"), "", argument="USER", repeat=True)
SORT = ScriptOption(("s",), "all", argument="COLUMN", choices=("all", "reads"))
INTERVAL = ScriptOption(("interval",), 0, argument="interval", operand=True)
COUNT = ScriptOption(("count",), 0, argument="count", operand=True)
DB = ScriptOption(("db",), "", argument="db", operand=True, required=True)
PIDS = ScriptOption(("pids",), "", argument="pids", operand=True, repeat=True)


def words(*options: ScriptOption, operands: str = "", positional: bool = False) -> ScriptWords:
    return ScriptWords("tool", options, positional, operands=operands.split())


def test_letters_and_names() -> None:
    found = words(FLAG, NUMBER, INTERVAL)
    assert found.letter("x") == found.word("failed") == FLAG
    assert found.letter("f") is None
    assert found.word("x") is None
    assert found.word("interval") is None


def test_underscores_and_dashes_spell_the_same() -> None:
    first, second = ScriptOption(("flag_filter",), False), ScriptOption(("print-uid",), False)
    found = words(first, second)
    assert found.word("flag-filter") == found.word("flag_filter") == first
    assert found.word("print_uid") == second


def test_abbreviations() -> None:
    found = words(FLAG, FASTER, NUMBER)
    assert found.abbreviated("fai") == FLAG
    assert found.abbreviated("zzz") is None
    with pytest.raises(TraceError) as error:
        found.abbreviated("fa")
    assert error.value.hints == ("could be --failed, --faster",)


def test_negative_numbers_are_operands_unless_there_is_such_a_letter() -> None:
    assert words(FLAG).is_operand("-5")
    assert not words(FLAG).is_operand("-x")
    assert not words(ScriptOption(("5",), False)).is_operand("-5")
    assert not words().is_operand("-5")


def test_operands_are_placed_in_order() -> None:
    assert words(INTERVAL, COUNT, operands="5 -2").named(()) == (("interval", "5"), ("count", "-2"))
    assert words(INTERVAL, COUNT, operands="5").named(()) == (("interval", "5"),)
    assert words(INTERVAL, PIDS, operands="5 7 8").named(()) == (("interval", "5"), ("pids", "7\n8"))


SECONDS = ScriptOption(("interval",), 1, argument="interval", operand=True, type="interval")
OUTPUTS = ScriptOption(("count",), 0, argument="count", operand=True, type="0..")


@pytest.mark.parametrize(
    ("operands", "duration", "count"),
    [
        ("", 3, "3"),
        ("0.5", 3, "6"),
        ("2", 3, None),
        ("1 5", 3, None),
        ("soon", 3, None),
        ("1", 0, None),
        ("4", 3, None),
    ],
)
def test_intervals_that_fill_the_duration(operands: str, duration: float, count: str | None) -> None:
    found = words(SECONDS, OUTPUTS, operands=operands)
    found.fit_outputs(duration)
    assert [text for _, text in found.given.get("count", ())] == ([] if count is None else [count])


def test_other_operands_get_no_number_of_outputs() -> None:
    found = words(INTERVAL, PIDS)
    found.fit_outputs(3)
    assert not found.given


def test_operands_that_are_options_of_pytrace() -> None:
    pid = ScriptOption(("--pid",), "", argument="--pid", operand=True)
    found = words(pid, INTERVAL, operands="12 5")
    assert found.general(()) == [("pid", "12")]
    assert found.named(()) == (("interval", "5"),)
    assert found.synopsis() == "usage: pytrace tool [pid] [interval]"
    assert words(pid).general(["12"]) == [("pid", "12")]
    assert words(pid, INTERVAL).general(()) == words(INTERVAL, operands="5").general(()) == []
    pids = ScriptOption(("--pid",), "", argument="--pid", operand=True, repeat=True)
    assert words(pids, operands="1 2").general(()) == [("pid", "1"), ("pid", "2")]


def test_too_many_and_too_few_operands() -> None:
    with pytest.raises(TraceError) as error:
        words(FLAG, INTERVAL, operands="5 6").named(())
    assert error.value.message == "unexpected operand '6'"
    assert error.value.hints == ("usage: pytrace tool [options] [interval]",)
    with pytest.raises(TraceError) as error:
        words(DB).named(())
    assert error.value.message == "tool needs <db>"


def test_the_last_value_counts_and_several_are_joined() -> None:
    found = words(NUMBER, SEVERAL)
    assert not found.set(NUMBER, "-d", "1")
    assert not found.set(NUMBER, "-d", "1")
    assert found.set(NUMBER, "--min-ms", "2")
    assert not found.set(SEVERAL, "-u", "a")
    assert not found.set(SEVERAL, "-u", "b")
    assert found.named(()) == (("min-ms", "2"), ("user", "a\nb"))
    assert found.values() == {"min-ms": 2, "user": "a\nb"}


def test_named_parameters_after_the_dashes() -> None:
    found = words(FLAG, INTERVAL)
    assert found.named((("other", "1"), ("x", None))) == (("failed", None), ("other", "1"))
    assert found.values() == {"failed": True, "interval": 0}


def test_wrong_values_are_named_as_they_were_written() -> None:
    found = words(NUMBER)
    found.set(NUMBER, "-d", "x")
    with pytest.raises(TraceError, match=r"^option -d needs an integer, not 'x'$"):
        found.named(())
    found = words(SORT)
    found.set(SORT, "-s", "read")
    with pytest.raises(TraceError, match="option -s needs one of all, reads, not 'read'") as error:
        found.named(())
    assert error.value.hints == ("did you mean 'reads'?",)
    with pytest.raises(TraceError, match=r"^operand interval needs an integer, not 'x'$"):
        words(INTERVAL, operands="x").named(())


def test_an_option_of_pytrace_with_the_same_letter_is_named() -> None:
    kind = ScriptOption(("f", "flag"), "", argument="FLAG", choices=("O_RDONLY", "O_RDWR"))
    for text, hint in (("json", "pytrace's own -f is --format here"), ("O_RDRW", "did you mean 'O_RDWR'?")):
        found = words(kind)
        found.taken["-f"] = "format"
        found.set(kind, "-f", text)
        with pytest.raises(TraceError) as error:
            found.named(())
        assert error.value.hints == (hint,)


def test_positional_parameters_stay_where_no_operands_are_declared() -> None:
    assert not words(FLAG, positional=True).takes_operands()
    assert words(FLAG).takes_operands()
    assert words(FLAG, INTERVAL, positional=True).takes_operands()
    assert not words().takes_operands()


def test_synopsis() -> None:
    assert words(FLAG, DB, PIDS).synopsis() == "usage: pytrace tool [options] <db> [pids...]"
    assert words(INTERVAL).synopsis() == "usage: pytrace tool [interval]"
    assert words(positional=True).synopsis() == "usage: pytrace tool [parameters] [-- parameters]"


def test_an_operand_behind_a_letter_that_pytrace_has_too_names_its_option() -> None:
    count = ScriptOption(("c", "count"), False)
    found = ScriptWords("tool", (count,), positional=False, taken={"-c": "cmd"}, operands=["ls /"])
    found.set(count, "-c", None)
    with pytest.raises(TraceError, match="unexpected operand 'ls /'") as error:
        found.named(())
    assert error.value.hints[0] == "pytrace's own -c is --cmd here"
