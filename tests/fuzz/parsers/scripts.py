"""Scripts: their text, formatted and compiled; C definitions; parameters."""

from __future__ import annotations

from collections.abc import Iterator

from pytrace import pipeline
from pytrace.core import script_files
from pytrace.core.builtins import BUILTINS
from pytrace.core.diagnostics import Diagnostics, render_all
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions, Config
from pytrace.core.probe_kinds import PROBE_KINDS
from pytrace.core.source import Source
from pytrace.frontend.syntax import formatter, nodes, parser, tokens
from tests.fuzz.target import Target, parts
from tests.support import cases
from tests.support.facts import RecordedKernel
from tests.support.recorded import Facts


def words() -> Iterator[str]:
    """Words of the language."""
    yield from tokens.KEYWORDS
    yield from tokens.OPERATORS
    yield from tokens.TYPE_NAMES
    yield from (row.name for row in BUILTINS)
    yield from (name for row in PROBE_KINDS for name in (row.name, *row.aliases))
    yield from (f"{name} = " for name in Config.__struct_fields__)
    yield from ("/* ", "*/", "//", "#define ", "#include ", "$1", "$#", "@x[", "0x", "1e3", "'", '"', "\\x")
    yield "config = {"


def seeds() -> Iterator[bytes]:
    """Short scripts of the cases, and the library: long ones take long, and most of what is in them is in others."""
    programs = dict.fromkeys(case.program for case in cases.load_all() if case.program and len(case.program) < LONGEST)
    yield from (text.encode("utf-8", "surrogateescape") for text in list(programs)[::EACH])
    yield from (path.read_bytes() for path in sorted((cases.CASES.parents[1] / "pytrace" / "stdlib").glob("*.bt")))


LONGEST, EACH = 200, 6
"""The longest script of a case, in characters, and which of them are used."""


def _source(data: bytes) -> Source:
    """A script as it is read from a file; a compiled one is the subject of another target."""
    return script_files.from_bytes("fuzz", data)[0]


def script(data: bytes) -> None:
    """Parsed, and formatted; what is formatted means the same and stays as it is.

    The formatter itself compares the trees (:class:`InternalError`).
    """
    source, found = _source(data), Diagnostics()
    parser.parse(source, found)
    render_all(found.items)
    if found.failed:
        return
    once = formatter.format_source(source, Diagnostics())
    assert formatter.format_source(Source("fuzz", once), Diagnostics()) == once, "formatting twice changes it"
    again = Diagnostics()
    assert nodes.same(parser.parse(Source("fuzz", once), again), parser.parse(source, Diagnostics()))
    assert not again.failed, render_all(again.items)


def _compile(source: Source, options: CompileOptions) -> None:
    """All passes with the facts of a made-up machine; the messages are rendered. A compiled script can be read back."""
    found = Diagnostics()
    try:
        compiled = pipeline.compile_script(source, options, Facts(), found)
    finally:
        render_all(found.items)
    assert CompiledScript.from_bytes(compiled.to_bytes()).to_bytes() == compiled.to_bytes()


def checker(data: bytes) -> None:
    """All passes of the front end."""
    found = Diagnostics()
    try:
        pipeline.front_end(pipeline.Compilation(_source(data), CompileOptions(unsafe=True), Facts(), found))
    finally:
        render_all(found.items)


def compiler(data: bytes) -> None:
    """All passes, with LLVM."""
    _compile(_source(data), CompileOptions(unsafe=True))


def ahead(data: bytes) -> None:
    """As :func:`compiler`, for ahead-of-time files, with other facts."""
    found = Diagnostics()
    options = CompileOptions(unsafe=True, ahead=True, positional=("7", "text"))
    pipeline.compile_script(_source(data), options, RecordedKernel(), found)


def c_definitions(data: bytes) -> None:
    """The C part of a script, up to what libclang says about it; nothing outside of the input is included."""
    text = data.decode("utf-8", "surrogateescape")
    if "include" in text or "import" in text or "_Pragma" in text or "embed" in text:
        return
    checker(f"{text}\nbegin {{ $x = (struct fuzz *)0; print($x->a); print(A); }}".encode("utf-8", "surrogateescape"))


C_WORDS = (
    "struct fuzz { ", "union ", "enum ", "typedef ", "#define A ", "int a;", "char b[", "long long ", "unsigned ",
    ":3;", "__attribute__((packed))", "static inline ", "const ", "void (*f)(int);", "__int128 ", "_Bool ", "float ",
    "sizeof(", "#if ", "#ifdef ", "#endif", "#undef ", "##", "...", "__VA_ARGS__", "\\\n", "alignas(",
    "_Static_assert(", "};\n",
)  # fmt: skip

PARAMETERS = """
begin {
    $n = getopt("number", 5, "help"); $f = getopt("flag"); $t = getopt("text", "none");
    printf("%d %s %d %d %s %s\\n", $1, str($2), $#, $n, $t, str($1 + 3));
    if ($f) { print($3); }
}
"""


def parameters(data: bytes) -> None:
    """Positional and named parameters of a script (``-- --name=value``)."""
    named, positional = [], []
    for word in parts(data):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            named.append((name, value if equals else None))
        else:
            positional.append(word)
    options = CompileOptions(positional=tuple(positional), named=tuple(named))
    _compile(Source("fuzz", PARAMETERS), options)


PARAMETER_WORDS = ("--number=", "--flag", "--text=", "\0", "0x10", "-5", "1e3", "9223372036854775808", "true", "'")


TARGETS = {
    "script": Target("text of scripts, and --fmt", script, words=words, seeds=seeds),
    "checker": Target("all passes of the front end", checker, words=words, seeds=seeds),
    "compiler": Target("all passes, with LLVM", compiler, words=words, seeds=seeds),
    "ahead": Target("compilation for another machine", ahead, words=words, seeds=seeds),
    "c_definitions": Target("the C part of scripts", c_definitions, words=lambda: C_WORDS),
    "parameters": Target("positional and named parameters", parameters, words=lambda: PARAMETER_WORDS),
}  # fmt: skip
