"""Hypothesis strategies that write programs of the language."""

from __future__ import annotations

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "comm", "pid", "nsecs", "x1", "_y", "beginner", "ending"])
VARIABLES = st.sampled_from(["$a", "$b", "$long_name"])
MAPS = st.sampled_from(["@", "@m", "@other_map"])
TYPES = st.sampled_from(
    ["int8", "uint64", "struct x *", "int8[4]", "uint8[]", "struct x**", "string[8]", "pid_t", "int32*[4]", "enum e"]
)
STRINGS = st.sampled_from(['""', '"text"', r'"\n\x41\101\"\\"', '"// no comment"', '"{ < > }"', '"é"'])
NUMBERS = st.sampled_from(["0", "1", "0x1F", "0777", "1e3", "1_000", "5us", "10ull", "18446744073709551615"])
BINARY = st.sampled_from(
    ["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "<", ">", "<=", ">=", "==", "!=", "&&", "||"]
)
ASSIGN = st.sampled_from(["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="])

_leaf = st.one_of(NAMES, VARIABLES, MAPS, STRINGS, NUMBERS, st.sampled_from(["true", "false", "$1", "$#", "()"]))


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(inner, BINARY, inner).map(lambda t: f"{t[0]} {t[1]} {t[2]}"),
        inner.map(lambda e: f"({e})"),
        inner.map(lambda e: f"-({e})"),
        inner.map(lambda e: f"!({e})"),
        VARIABLES.map(lambda v: f"&{v}"),
        VARIABLES.map(lambda v: f"{v}++"),
        MAPS.map(lambda v: f"--{v}"),
        pair.map(lambda t: f"({t[0]}, {t[1]})"),
        inner.map(lambda e: f"({e},)"),
        pair.map(lambda t: f"(k={t[0]}, v={t[1]})"),
        pair.map(lambda t: f"f({t[0]}, {t[1]})"),
        st.tuples(MAPS, inner, inner).map(lambda t: f"{t[0]}[{t[1]}, {t[2]}]"),
        st.tuples(TYPES, VARIABLES).map(lambda t: f"({t[0]}){t[1]}"),
        TYPES.map(lambda t: f"sizeof({t})"),
        VARIABLES.map(lambda v: f"{v}.field->next.0[1]"),
        st.tuples(inner, inner, inner).map(lambda t: f"(({t[0]}) ? {t[1]} : {t[2]})"),
        pair.map(lambda t: f"({t[0]} ?: {t[1]})"),
        st.tuples(inner, inner, inner)
        .map(lambda t: f"if ({t[0]}) {{ {t[1]} }} else {{ {t[2]} }}")
        .map(lambda e: f"({e})"),
        st.tuples(VARIABLES, inner).map(lambda t: f"{{ let {t[0]} = {t[1]}; {t[0]} }}").map(lambda e: f"({e})"),
    )


EXPRESSIONS = st.recursive(_leaf, _compound, max_leaves=6)
_TARGETS = st.one_of(VARIABLES, MAPS, st.tuples(MAPS, EXPRESSIONS).map(lambda t: f"{t[0]}[{t[1]}]"))
_CALLS = st.tuples(NAMES, EXPRESSIONS).map(lambda t: f"{t[0]}({t[1]})")
_SIMPLE = st.one_of(
    st.tuples(_TARGETS, ASSIGN, EXPRESSIONS).map(" ".join),
    _CALLS,
    st.tuples(VARIABLES, TYPES, EXPRESSIONS).map(lambda t: f"let {t[0]}: {t[1]} = {t[2]}"),
    VARIABLES.map(lambda v: f"let {v}"),
    EXPRESSIONS.map(lambda e: f"_ = {e}"),
    EXPRESSIONS.map(lambda e: f"return {e}"),
    st.sampled_from(["break", "continue", "return", "$a++", "++@m"]),
)
COMMENTS = st.sampled_from(["", "", "", " // a comment\n", " /* inline */ ", "\n/* own\n line */\n", "\n\n\n"])


def scattered(text: str, places: list[tuple[int, str]]) -> str:
    """*text* with comments put in at some of its blanks (blanks in strings included)."""
    words = text.split(" ")
    for place, comment in places:
        at = place % len(words)
        words[at] = f"{words[at]} {comment}"
    return " ".join(words)


def _blocks(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(EXPRESSIONS, inner).map(lambda t: f"if ({t[0]}) {t[1]}"),
        st.tuples(EXPRESSIONS, inner, inner).map(lambda t: f"if ({t[0]}) {t[1]} else {t[2]}"),
        st.tuples(EXPRESSIONS, inner, inner).map(lambda t: f"if ({t[0]}) {t[1]} else if (a) {t[2]} else {t[1]}"),
        st.tuples(VARIABLES, MAPS, inner).map(lambda t: f"for ({t[0]} : {t[1]}) {t[2]}"),
        st.tuples(VARIABLES, inner).map(lambda t: f"for {t[0]} : 0..10 {t[1]}"),
        st.tuples(EXPRESSIONS, inner).map(lambda t: f"while ({t[0]}) {t[1]}"),
        inner.map(lambda body: f"unroll(3) {body}"),
        inner,
    )


def _body(statements: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """A block in braces or angle brackets; simple statements have semicolons, but for the last one at times."""
    lines = st.lists(st.tuples(COMMENTS, statements), max_size=3)
    last = st.one_of(st.just(""), _SIMPLE)

    def write(parts: tuple[list[tuple[str, str]], str, bool]) -> str:
        found, final, angle = parts
        opener, closer = ("<", ">") if angle else ("{", "}")
        if angle and final:
            final += ";"
        return f"{opener} {' '.join(''.join(line) for line in found)} {final} {closer}"

    return st.tuples(lines, last, st.booleans()).map(write)


_FLAT = _SIMPLE.map(lambda text: text + ";")
BODIES = st.recursive(_body(_FLAT), lambda inner: _body(st.one_of(_FLAT, _blocks(inner))), max_leaves=4)
POINTS = st.sampled_from(
    ["begin", "END", "k:f", "kprobe:vfs_*", "uprobe:/bin/bash:readline", 'uprobe:"/my path/x":"f(int, char)"',
     "interval:s:1", "tracepoint:a:b", "n=kprobe:x+8", "usdt:./a/b:p:n", "uprobe:/x@a/f.c:12", "*:foo"]
)  # fmt: skip
_PROBES = st.tuples(
    st.lists(POINTS, min_size=1, max_size=3).map(", ".join),
    st.one_of(st.just(""), EXPRESSIONS.map(lambda e: f"/{e}/")),
    BODIES,
).map(" ".join)
_FLAT_ITEMS = st.one_of(
    _PROBES,
    BODIES.map(lambda b: f"macro m($v, @m, x) {b}"),
    st.tuples(TYPES, BODIES).map(lambda t: f"fn f($a : {t[0]}, $b : int8) : {t[0]} {t[1]}"),
    st.just("let @m = lruhash(10);"),
    st.tuples(STRINGS, EXPRESSIONS).map(lambda t: f"fail({t[0]}, {t[1]});"),
)


def _root_conditions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    items = st.lists(st.tuples(COMMENTS, inner, COMMENTS).map("".join), max_size=2).map("\n".join)
    return st.one_of(
        st.tuples(EXPRESSIONS, COMMENTS, items).map(lambda t: f"if comptime ({t[0]}) {t[1]}{{ {t[2]} }}"),
        st.tuples(EXPRESSIONS, items, COMMENTS, items).map(
            lambda t: f"if comptime ({t[0]}) {{ {t[1]} }} {t[2]} else {{ {t[3]} }}"
        ),
        st.tuples(EXPRESSIONS, COMMENTS, items, items).map(
            lambda t: f"if comptime ({t[0]}) {{ {t[2]} }} else {t[1]}if comptime 1 {{ {t[3]} }} else {{ {t[2]} }}"
        ),
    )


_ITEMS = st.recursive(_FLAT_ITEMS, _root_conditions, max_leaves=3)
_PREAMBLE = st.sampled_from(
    ["", "#!/usr/bin/env pytrace\n", "#include <a.h>\n#define X \\\n 5\nstruct a { int x; } __attribute__((packed));\n",
     'config = { max_strlen = 8; license = "GPL" }\n', 'import "x.bt";\n', "// first\n\nenum e { A, B = 2 };\n"]
)  # fmt: skip
PROGRAMS = st.tuples(_PREAMBLE, st.lists(st.tuples(_ITEMS, COMMENTS), min_size=1, max_size=3)).map(
    lambda t: t[0] + "\n".join("".join(item) for item in t[1])
)
_MARKS = (
    "{ } < > ( ) [ ] ; , . .. -> = == + ++ - -- * / % & && | || ! ~ ? : << >> <= >= @ @m $a $1 $# $ # ' \" \\ // /* */ "
    "if else for while unroll let macro fn import config struct comptime sizeof offsetof typeof begin kprobe:f /pid/ 1 "
    "0x 1.5 name 08 9z é \x00 #define #!"
)
PIECES = st.sampled_from([*_MARKS.split(" "), "\n", "\t", '"s"', 'import "x";'])
