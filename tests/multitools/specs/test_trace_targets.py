from __future__ import annotations

import re

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import UsdtProbe, UserSymbol
from pytrace.multitools.specs import trace_targets
from pytrace.multitools.specs.problems import SpecText
from pytrace.multitools.specs.trace_targets import KERNEL, OTHER, TRACEPOINT, USDT, USER, Attachment
from tests.support.facts import FEATURES, RecordedKernel
from tests.support.rows import each_row


def parsed(text: str) -> trace_targets.TraceTarget:
    return trace_targets.parse(SpecText.of(text))


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
def test_mistakes(text: str, message: str) -> None:
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
    found = trace_targets.attach(parsed(text), kernel(*features))
    assert found.entry == entry
    assert found.leave == entry.replace("fentry", "fexit").replace("kprobe", "kretprobe")


def test_fentry_has_names_of_arguments() -> None:
    assert trace_targets.attach(parsed("vfs_read"), kernel("fentry")).arguments == ("file", "count")


def test_a_kernel_without_both() -> None:
    with pytest.raises(TraceError, match=r"neither kprobes.* nor fentry") as caught:
        trace_targets.attach(parsed("p::vfs_read"), kernel())
    assert "tracepoints" in caught.value.hints[0]
    assert "*vfs_read*" in caught.value.hints[1]


def test_binaries() -> None:
    facts = RecordedKernel(files={"libc": ["/lib/libc.so.6"], "libpthread": ["/lib/p.so"], "many*": ["/a", "/b"]})
    assert trace_targets.attach(parsed("c:malloc"), facts) == Attachment(
        "uprobe:libc:malloc", "uretprobe:libc:malloc", prefix=len("uprobe:/lib/libc.so.6:")
    )
    assert trace_targets.attach(parsed("pthread:pthread_create"), facts).entry == "uprobe:libpthread:pthread_create"
    assert trace_targets.attach(parsed("many*:f"), facts).prefix == len("uprobe:")
    assert trace_targets.attach(parsed("unknown:f"), facts).entry == "uprobe:unknown:f"
    assert trace_targets.attach(parsed("c:zoo::Animal::walk"), facts).entry == 'uprobe:libc:cpp:"zoo::Animal::walk"'
    assert trace_targets.attach(parsed("c:_ZN3zoo*"), facts).entry == "uprobe:libc:cpp:_ZN3zoo*"
    assert trace_targets.attach(parsed("c:_ZN3zoo1fEv+4"), facts).entry == "uprobe:libc:_ZN3zoo1fEv+4"
    assert trace_targets.attach(parsed("r:c:cpp:twice"), facts).leave == "uretprobe:libc:cpp:twice"
    assert trace_targets.attach(parsed("u:c:setjmp"), facts).entry == "usdt:libc:setjmp"
    assert trace_targets.attach(parsed('/opt/my app:a,b'), facts).entry == 'uprobe:"/opt/my app":"a,b"'


def test_the_letter_u_is_what_the_file_has() -> None:
    probe = UsdtProbe("/bin/app", "own", "both", 0, 0, 0, "")
    symbols = {"/bin/app": (UserSymbol("work", 0x100, 0x100, 16), UserSymbol("both", 0x200, 0x200, 16))}
    facts = RecordedKernel(files={"/bin/app": ["/bin/app"]}, usdt=(probe,), symbols=symbols)

    def found(text: str) -> tuple[str, str]:
        resolved = trace_targets.resolve(parsed(text), facts)
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
            trace_targets.resolve(parsed(text), facts)
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
    found, expression = trace_targets.by_regexp(trace_targets.parse(SpecText.of(pattern), regexp=True))
    assert found.name == "*"
    known = ["vfs_read", "vfs_write", "vfs_open", "do_exit"]
    assert [name for name in known if re.search(expression, f"kprobe:{name}")] == names
    assert re.search(expression, "interval:s:1")
    assert re.search(expression, "tracepoint:sched:sched_process_exit")


def test_a_wrong_regular_expression() -> None:
    with pytest.raises(TraceError, match=r"'\(vfs' is not a regular expression"):
        trace_targets.by_regexp(trace_targets.parse(SpecText.of("c:(vfs"), regexp=True))
