"""Specifications of multi-purpose tools: types, expressions, targets, scopes, problems."""

from __future__ import annotations

import platform
import re

import pytest

from pytrace.core.builtins import BUILTINS, Mode
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import UsdtProbe, UserSymbol
from pytrace.multitools import functions
from pytrace.multitools.expressions import (
    NoTypeError,
    SpecText,
    Translator,
    is_text,
    is_type_word,
    is_user,
    script_type,
    signature,
    split,
)
from pytrace.multitools.targets import (
    KERNEL,
    OTHER,
    TRACEPOINT,
    USDT,
    USER,
    Attachment,
    ProbeText,
    Scope,
    TraceTarget,
    places,
)
from pytrace.multitools.trace import unknown_at_return
from tests.support.facts import FEATURES, RecordedKernel
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- c types
# .


@each_row(
    ("text", "type_"),
    [
        ("int", "int32"), ("unsigned", "uint32"), ("unsigned int", "uint32"), ("unsigned long long", "uint64"),
        ("long int", "int64"), ("short", "int16"), ("unsigned char", "uint8"), ("u32", "uint32"),
        ("__u64", "uint64"),
        ("size_t", "uint64"), ("struct sock *", "struct sock *"), ("const struct sock * const", "struct sock *"),
        ("char*", "int8 *"), ("const char __user *", "int8 *"), ("char **", "int8 **"),
        ("enum pid_type", "enum pid_type"),
        ("my_type_t", "my_type_t"), ("void *", "void *"),
    ],
)  # fmt: skip
def test_types(text: str, type_: str) -> None:
    assert script_type(text) == type_


@pytest.mark.parametrize("text", ["", "*", "struct", "struct a b", "int int2", "12", "a b", "char * x", "int;"])
def test_what_is_no_type(text: str) -> None:
    with pytest.raises(NoTypeError):
        script_type(text)


def test_texts_and_user_pointers() -> None:
    assert is_text("const char *")
    assert not is_text("char")
    assert not is_text("char **")
    assert not is_text("no type")
    assert is_user("struct x __user *")
    assert not is_user("struct x *")


def test_words_that_begin_types() -> None:
    assert all(map(is_type_word, ("unsigned", "struct", "u8", "size_t", "void", "const")))
    assert not any(map(is_type_word, ("size", "arg1", "sk")))


def test_parameters() -> None:
    sock, text, there, size = signature(
        SpecText.of("struct sock *sk, const char *name, struct iovec __user *vec, size_t size")
    )
    assert (sock.name, sock.type, sock.value("arg0")) == ("sk", "struct sock *", "(struct sock *)arg0")
    assert (text.text, text.value("arg1")) == (True, "arg1")
    assert there.value("arg2") == "uptr((struct iovec *)arg2)"
    assert (size.type, size.value("arg3")) == ("uint64", "arg3")
    assert (sock.value("args.sk"), there.value("args.vec")) == (
        "(struct sock *)args.sk",
        "uptr((struct iovec *)args.vec)",
    )


def test_user_text_and_arrays() -> None:
    name, values = signature(SpecText.of("const char __user *name, int values[4]"))
    assert name.value("arg0") == "uptr((int8 *)arg0)"
    assert values.type == "int32 *"


@pytest.mark.parametrize("text", ["", "void"])
def test_none(text: str) -> None:
    assert signature(SpecText.of(text)) == ()


@pytest.mark.parametrize(
    ("text", "message", "word"),
    [
        ("int a, size", "'size' is not a parameter", "size"),
        ("int a, , int b", "'' is not a parameter", ""),
        ("struct sock", "is not a parameter", "struct sock"),
        ("int a, int a", "two parameters 'a'", "int a"),
        ("in t a", "'in t' is not a C type", "in t"),
        ("int (*f)(int)", "is not a parameter", "int (*f)(int)"),
    ],
)
def test_mistakes(text: str, message: str, word: str) -> None:
    with pytest.raises(TraceError, match=r"parameter|type") as caught:
        signature(SpecText.of(text))
    first, line, mark = caught.value.message.split("\n")
    assert message in first
    assert line == text
    assert line[mark.index("~") : mark.index("~") + max(1, len(word))].startswith(word)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="registers are those of x86-64")
def test_floating_point_parameters_take_registers_of_their_own() -> None:
    mixed = signature(SpecText.of("int a, double b, long l, float *p, float g, int e, int h, int i, int k"))
    assert places(mixed) == [0, None, 1, 2, None, 3, 4, 5, 6]
    # The ninth one is on the stack, before the seventh integer.
    words = [*(f"double d{n}" for n in range(9)), *(f"int {name}" for name in "abcdefg")]
    many = signature(SpecText.of(", ".join(words)))
    assert places(many)[9:] == [0, 1, 2, 3, 4, 5, 7]


# ---------------------------------------------------------------------------------------------- expressions
# .


SCOPE = Scope(parameters=signature(SpecText.of("struct sock *sk, char *name, size_t size")))


def translated(text: str) -> str:
    return Translator(SpecText.of(text), SCOPE.names()).whole()


@each_row(
    ("text", "script"),
    [
        ("size>100&&size<200", "$size > 100 && $size < 200"),
        ("arg1 == 0", "arg0 == 0"),
        ("arg2&0xFFul | 7", "arg1 & 0xFFul | 7"),
        ("sk->__sk_common.skc_family == AF_INET", "$sk->__sk_common.skc_family == AF_INET"),
        ("(int)arg1 < 0", "(int32)arg0 < 0"),
        ("(struct task_struct *)arg1", "(struct task_struct *)arg0"),
        ("(size)", "($size)"),
        ("!(size == 1) || -1 == ~arg1", "!($size == 1) || -1 == ~arg0"),
        ("size > 1 ? 2 : size ? 3 : 4", "$size > 1 ? 2 : $size ? 3 : 4"),
        ("'a' == *name", "97 == *$name"),
        (r"'\n' == '\''", "10 == 39"),
        ("sizeof(struct sock) + sizeof(size)", "sizeof(struct sock) + sizeof($size)"),
        ('STRCMP("abc", name)', '(str($name) == "abc")'),
        ('!STRCMP(name, "a,b)")', '!(str($name) == "a,b)")'),
        ("ntohs(arg1)", "bswap((uint16)arg0)"),
        ("arg1@user", "uptr(arg0)"),
        ("name[2]", "$name[2]"),
        ("$pid == 1 && $tgid != 2 && $uid", "tid == 1 && pid != 2 && uid"),
        ("$task->pid", "curtask->pid"),
        ("arg1 << 2 >> 1", "arg0 << 2 >> 1"),
        ("NULL != arg1", "0 != arg0"),
        ("strlen(str(name)) % 3", "strlen(str($name)) % 3"),
        ("+size", "$size"),
        ("(unsigned long)size * 2", "(uint64)$size * 2"),
    ],
)
def test_expressions(text: str, script: str) -> None:
    assert translated(text) == script


@each_row(
    ("text", "message", "column"),
    [
        ("", "a value is expected, the end found", 0),
        ("size >", "a value is expected, the end found", 6),
        ("siz > 1", "unknown name 'siz'", 0),
        ("size = 1", "an assignment is not possible", 5),
        ("size size", "an operator or the end is expected, 'size' found", 5),
        ("(size", "')' is expected, the end found", 5),
        ("size)", "')' found", 4),
        ("a ? 1", "unknown name 'a'", 0),
        ("size ? 1", "':' is expected", 8),
        ('"abc', "this text has no end", 0),
        (r'n == "a\q"', r"unknown escape '\q'", 7),
        (r'n == "\\\x1g\477"', r"unknown escape '\4'", 12),
        (r'n == "\x"', r"unknown escape '\x'", 6),
        ("size # 1", "'#' is not expected here", 5),
        ("nosuch(1)", "unknown function 'nosuch'", 0),
        ("sk->", "the name of a member is expected after ->", 4),
        ("arg0", "unknown name 'arg0'", 0),
        ("STRCMP(name)", "STRCMP takes a text", 0),
        ("STRCMP(name, name)", "STRCMP takes a text", 0),
        ("retval", "unknown name 'retval'", 0),
        ("ntohs()", "ntohs takes one value", 0),
        ("arg1@here", "'user' or 'kernel' is expected", 5),
        ("size++", "a value is expected", 6),
        ("name[1", "']' is expected", 6),
        ("system(1)", "unknown function", 0),
    ],
)
def test_mistakes_are_underlined(text: str, message: str, column: int) -> None:
    with pytest.raises(TraceError) as caught:
        translated(text)
    first, line, mark = caught.value.message.split("\n")
    assert message in first
    assert (line, mark.index("~")) == (text, column)


def test_near_names_are_told() -> None:
    with pytest.raises(TraceError) as caught:
        translated("siez > 1")
    assert caught.value.hints[0] == "did you mean 'size'?"
    assert "sk, name, size" in caught.value.hints[1]


def test_lists() -> None:
    assert Translator(SpecText.of('arg1, "a,b", size'), SCOPE.names()).every() == ["arg0", '"a,b"', "$size"]
    with pytest.raises(TraceError, match="a value is expected"):
        Translator(SpecText.of("arg1,"), SCOPE.names()).every()


@pytest.mark.parametrize(
    ("text", "separator", "parts"),
    [
        ("a:b:c", ":", ["a", "b", "c"]),
        ("f(a:b):c", ":", ["f(a:b)", "c"]),
        ("x ? 1 : 2 : y", ":", ["x ? 1 : 2", "y"]),
        ('"a:b":c', ":", ['"a:b"', "c"]),
        (r"':':'\'':c", ":", ["':'", r"'\''", "c"]),
        ("", ",", [""]),
        ("a,,b", ",", ["a", "", "b"]),
        ("a[1,2],b", ",", ["a[1,2]", "b"]),
    ],
)
def test_split(text: str, separator: str, parts: list[str]) -> None:
    assert [part.text for part in split(SpecText.of(text), separator)] == parts


# ---------------------------------------------------------------------------------------------- trace targets
# .


def parsed(text: str) -> TraceTarget:
    return TraceTarget.parse(SpecText.of(text))


@each_row(
    ("text", "family", "target", "name", "returns"),
    [
        ("vfs_*", KERNEL, "", "vfs_*", False),
        ("p::vfs_read", KERNEL, "", "vfs_read", False),
        ("p:vfs_read", KERNEL, "", "vfs_read", False),
        ("r::vfs_read", KERNEL, "", "vfs_read", True),
        ("c:malloc", USER, "libc", "malloc", False),
        ("p:c:malloc", USER, "libc", "malloc", False),
        ("r:c:malloc", USER, "libc", "malloc", True),
        ("/bin/app:work+4", USER, "/bin/app", "work+4", False),
        ("t:sched:sched_*", TRACEPOINT, "sched", "sched_*", False),
        ("u:/bin/app:probe", USDT, "/bin/app", "probe", False),
        ("u:/bin/app:own:probe", USDT, "/bin/app", "own:probe", False),
        ("kprobe:vfs_read", KERNEL, "", "vfs_read", False),
        ("kr:vfs_read", KERNEL, "", "vfs_read", True),
        ("kprobe:mod_a:helper", KERNEL, "mod_a", "helper", False),
        ("fexit:vfs_read", KERNEL, "", "vfs_read", True),
        ("uprobe:libc:free", USER, "libc", "free", False),
        ("uretprobe:libc:free", USER, "libc", "free", True),
        ("usdt:/bin/app:own:probe", USDT, "/bin/app", "own:probe", False),
        ("tracepoint:sched:sched_switch", TRACEPOINT, "sched", "sched_switch", False),
        ("software:page-faults:100", OTHER, "software", "page-faults:100", False),
    ],
)
def test_places(text: str, family: str, target: str, name: str, returns: bool) -> None:
    found = parsed(text)
    assert (found.family, found.container, found.name, found.returns) == (family, target, name, returns)


@each_row(
    ("text", "message"),
    [
        ("", "names nothing to trace"), ("c:", "names nothing"), ("p::", "names nothing"), ("t:sched", "no tracepoint"),
        ("t:sched:", "no tracepoint"), ("t::x", "no tracepoint"), ("a:b:c", "too many parts"),
        ("p:a:b:c", "too many parts"), ("u:/bin/app:", "names nothing"), ("uprobe::x", "names nothing"),
        ("u::probe", "names nothing"), ("kprobe:", "names nothing"),
    ],
)  # fmt: skip
def test_trace_targets_mistakes(text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        parsed(text)


def kernel(*features: str) -> RecordedKernel:
    return RecordedKernel(features=(FEATURES - {"kprobe", "fentry"}) | set(features))


@pytest.mark.parametrize(
    ("text", "features", "entry"),
    [
        ("vfs_read", ("kprobe", "fentry"), "fentry:vfs_read"),
        ("vfs_read", ("kprobe",), "kprobe:vfs_read"),
        ("vfs_*", ("kprobe", "fentry"), "kprobe:vfs_*"),
        ("vfs_*", ("fentry",), "fentry:vfs_*"),
        ("vfs_read+4", ("kprobe", "fentry"), "kprobe:vfs_read+4"),
        ("untyped", ("kprobe", "fentry"), "kprobe:untyped"),
        ("fentry:vfs_*", ("kprobe", "fentry"), "fentry:vfs_*"),
        ("kprobe:vfs_read", ("kprobe", "fentry"), "kprobe:vfs_read"),
    ],
)
def test_kernel_functions_take_what_is_cheapest(text: str, features: tuple[str, ...], entry: str) -> None:
    found = parsed(text).attach(kernel(*features))
    assert found.entry == entry
    assert found.leave == entry.replace("fentry", "fexit").replace("kprobe", "kretprobe")


def test_a_kernel_without_both() -> None:
    with pytest.raises(TraceError, match=r"neither kprobes.* nor fentry") as caught:
        parsed("p::vfs_read").attach(kernel())
    assert "tracepoints" in caught.value.hints[0]
    assert "*vfs_read*" in caught.value.hints[1]


def test_binaries() -> None:
    facts = RecordedKernel(files={"libc": ["/lib/libc.so.6"], "libpthread": ["/lib/p.so"], "many*": ["/a", "/b"]})
    assert parsed("c:malloc").attach(facts) == Attachment(
        "uprobe:libc:malloc", "uretprobe:libc:malloc", prefix=len("uprobe:/lib/libc.so.6:")
    )
    assert parsed("pthread:pthread_create").attach(facts).entry == "uprobe:libpthread:pthread_create"
    assert parsed("many*:f").attach(facts).prefix == len("uprobe:")
    assert parsed("unknown:f").attach(facts).entry == "uprobe:unknown:f"
    assert parsed("c:zoo::Animal::walk").attach(facts).entry == 'uprobe:libc:cpp:"zoo::Animal::walk"'
    assert parsed("c:_ZN3zoo*").attach(facts).entry == "uprobe:libc:cpp:_ZN3zoo*"
    assert parsed("c:_ZN3zoo1fEv+4").attach(facts).entry == "uprobe:libc:_ZN3zoo1fEv+4"
    assert parsed("r:c:cpp:twice").attach(facts).leave == "uretprobe:libc:cpp:twice"
    assert parsed("u:c:setjmp").attach(facts).entry == "usdt:libc:setjmp"
    assert parsed("/opt/my app:a,b").attach(facts).entry == 'uprobe:"/opt/my app":"a,b"'


@pytest.mark.parametrize("name", ["shop::Cart::add", "shop::Cart::add(int)"])
def test_a_name_in_quotes_is_no_format(name: str) -> None:
    facts = RecordedKernel(files={"libc": ["/lib/libc.so.6"]})
    found = ProbeText.parse(SpecText.of(f'c:cpp:"{name}" "%d", arg2'), facts, None, stop=' "')
    assert (found.point, found.rest.text) == (f'uprobe:libc:cpp:"{name}"', '"%d", arg2')


def test_the_letter_u_is_what_the_file_has() -> None:
    probe = UsdtProbe("/bin/app", "own", "both", 0, 0, 0, "")
    symbols = {"/bin/app": (UserSymbol("work", 0x100, 0x100, 16), UserSymbol("both", 0x200, 0x200, 16))}
    facts = RecordedKernel(files={"/bin/app": ["/bin/app"]}, usdt=(probe,), symbols=symbols)

    def found(text: str) -> tuple[str, str]:
        resolved = parsed(text).resolve(facts)
        return resolved.family, resolved.name

    assert found("u:/bin/app:both") == (USDT, "both")
    assert found("u:/bin/app:own:both") == (USDT, "own:both")
    assert found("u:/bin/app:work") == (USER, "work")
    assert found("u:/bin/app:wor*") == (USER, "wor*")
    assert found("u:/bin/app:*") == (USDT, "*")
    assert found("u:/bin/none:work") == (USDT, "work"), "the front end reports the file"
    assert found("usdt:/bin/app:own:nosuch") == (USDT, "own:nosuch")
    assert found("/bin/app:nosuch") == (USER, "nosuch")
    for text in ("u:/bin/app:nosuch", "u:/bin/app:own:work"):
        with pytest.raises(TraceError, match="neither a USDT probe nor a function") as error:
            parsed(text).resolve(facts)
        assert "usdt:/bin/app:PROVIDER:PROBE" in error.value.hints[0]
        assert "uprobe:/bin/app:FUNCTION" in error.value.hints[0]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("^vfs_(read|write)$", ["vfs_read", "vfs_write"]),
        ("vfs_.*", ["vfs_read", "vfs_write", "vfs_open"]),
        ("^vfs_r|^do", ["vfs_read", "do_exit"]),
        ("[^v].*", ["do_exit"]),
        (r"vfs\_o", ["vfs_open"]),
    ],
)
def test_regular_expressions(pattern: str, names: list[str]) -> None:
    found, expression = functions.by_regexp(TraceTarget.parse(SpecText.of(pattern), regexp=True))
    assert found.name == "*"
    known = ["vfs_read", "vfs_write", "vfs_open", "do_exit"]
    assert [name for name in known if re.search(expression, f"kprobe:{name}")] == names
    assert re.search(expression, "interval:s:1")
    assert re.search(expression, "tracepoint:sched:sched_process_exit")


def test_a_wrong_regular_expression() -> None:
    with pytest.raises(TraceError, match=r"'\(vfs' is not a regular expression"):
        functions.by_regexp(TraceTarget.parse(SpecText.of("c:(vfs"), regexp=True))


# ---------------------------------------------------------------------------------------------- scope
# .


PARAMETERS = signature(SpecText.of("struct file *file, char *to, size_t count"))


def test_typed_arguments_have_names() -> None:
    scope = Scope(arguments=("file", "buf"), parameters=PARAMETERS)
    assert (scope.resolve("arg2"), scope.resolve("arg3")) == ("args.buf", None)
    assert scope.resolve("file") == "$file"
    assert scope.resolve("count") is None
    assert scope.variables("$file->f_flags") == ["$file = (struct file *)args.file;"]


def test_results_and_fields() -> None:
    assert Scope(returns=True).resolve("$retval") == "retval"
    assert Scope().resolve("retval") is None
    assert Scope(fields=False).resolve("args") is None
    assert "retval" in Scope(returns=True).known


def test_texts() -> None:
    scope = Scope(size=32)
    assert scope.string("arg0") == "str(arg0, 32)"
    assert [scope.string(text) for text in ("comm", '"abc"', "usym(arg0)")] == ["comm", '"abc"', "usym(arg0)"]


def test_the_return_is_explained() -> None:
    error = unknown_at_return(TraceError("unknown name 'arg1'", hints=("known here",)))
    assert error.hints[0] == "known here"
    assert "$entry(NAME)" in error.hints[1]
    with pytest.raises(TraceError, match="unknown name"):
        raise error


def test_the_declared_type_replaces_the_kernels() -> None:
    declared = signature(SpecText.of("struct sock *sk, struct sockaddr_in *a, char *text, int n"))
    scope = Scope(arguments=("sk", "uaddr", "buf", "addr_len"), parameters=declared)
    assert scope.variables("$a->sin_port", "$text", "$n") == [
        "$a = (struct sockaddr_in *)args.uaddr;",
        "$text = args.buf;",
        "$n = (int32)args.addr_len;",
    ]


def test_functions_and_values_are_those_of_the_builtin_table() -> None:
    """A new builtin is known without a list by hand; what is no value of its arguments is not."""
    names = Scope().names()
    assert {"str", "ntop", "path", "strftime", "one_of", "ifname", "kaddr", "cgroup_path"} <= names.functions
    assert names.functions.isdisjoint({"printf", "exit", "count", "hist", "delete", "system", "signal", "override"})
    for row in BUILTINS:
        if row.call and row.most != 0 and not row.unsafe and row.mode is Mode.KERNEL:
            assert (row.name in names.functions) == (row.family not in ("aggregate", "map")), row.name
        if row.value and row.probes is None and row.mode is Mode.KERNEL:
            assert names.resolve(row.name) is not None, row.name
    assert (names.resolve("ppid"), names.resolve("cgroup"), names.resolve("no_such")) == ("ppid", "cgroup", None)


# ---------------------------------------------------------------------------------------------- probe text
# .


PROBE_TEXT_KERNEL = RecordedKernel()


def probe_text_parsed(text: str) -> ProbeText:
    return ProbeText.parse(SpecText.of(text), PROBE_TEXT_KERNEL, None, stop=' "')


def test_names_of_events() -> None:
    assert probe_text_parsed("/bin/app:work").event_name() == "func"
    assert probe_text_parsed("t:sched:sched_switch").event_name() == '"sched_switch"'
    assert probe_text_parsed("t:sched:sched_*").event_name() == "probe"


def test_fields_that_are_text() -> None:
    event = probe_text_parsed("t:sched:sched_switch")
    assert event.array_field("args->prev_comm", PROBE_TEXT_KERNEL)
    assert not event.array_field("args->nosuch", PROBE_TEXT_KERNEL)
    assert not event.array_field("comm", PROBE_TEXT_KERNEL)
    assert not probe_text_parsed("t:syscalls:sys_enter_open").array_field("args->filename", PROBE_TEXT_KERNEL)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a probe is expected"), ("(int a)", "a probe is expected"), ("/bin/app:work(int a", "has no end"),
        ("t:sched:sched_switch(int a)", "tracepoints have no signature"),
    ],
)  # fmt: skip
def test_probe_text_mistakes(text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        probe_text_parsed(text)


# ---------------------------------------------------------------------------------------------- problems
# .


def test_the_word_is_underlined() -> None:
    spec = SpecText.of("p::f(int a):u32:size")
    piece = spec.part(16, 20)
    assert piece.text == "size"
    message = piece.error("unknown").message.split("\n")
    assert message == ["unknown", "p::f(int a):u32:size", " " * 16 + "~~~~"]


def test_white_space_around_a_part_is_left_out() -> None:
    piece = SpecText.of("a,  bc ,d").part(2, 7)
    assert (piece.text, piece.start) == ("bc", 4)
    assert piece.error("x", at=1).message.endswith("\n     ~")


def test_only_the_line_is_shown() -> None:
    spec = SpecText.of("one\ntwo three\nfour")
    assert spec.part(8, 13).error("x").message == "x\ntwo three\n    ~~~~~"


def test_an_empty_piece_has_a_mark() -> None:
    assert SpecText.of("").error("x").message == "x\n\n~"
