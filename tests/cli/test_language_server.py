"""The language server as an editor uses it: a client of the protocol over standard input and output."""

from __future__ import annotations

import asyncio
import random
import re
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

lsp = pytest.importorskip("lsprotocol.types", reason="the package pygls is not here")
from pygls.exceptions import JsonRpcException  # noqa: E402 - after the check that it is here
from pygls.lsp.client import LanguageClient  # noqa: E402 - after the check that it is here

from pytrace.cli import main  # noqa: E402
from pytrace.cli.language_server import Text  # noqa: E402
from tests.cli.test_script_analysis import SCRIPT  # noqa: E402
from tests.support.patience import patience  # noqa: E402
from tests.support.running import ROOT  # noqa: E402

T = TypeVar("T")


class Editor:
    """An editor with one server, whose requests are answered before the call returns."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.client = LanguageClient("test", "1")
        self.told: dict[str, list[Any]] = {}
        self._news = threading.Condition()
        published = self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        published(lambda params: self._published(params))  # noqa: PLW0108 - pygls marks the function
        self.wait(self.client.start_io(sys.executable, "-m", "pytrace", "lsp", "--stdio"))
        answer = self.wait(self.client.initialize_async(lsp.InitializeParams(capabilities=lsp.ClientCapabilities())))
        self.abilities = answer.capabilities
        self.client.initialized(lsp.InitializedParams())
        self.versions: dict[str, int] = {}

    def _published(self, params: Any) -> None:
        with self._news:
            self.told.setdefault(params.uri, []).append(params)
            self._news.notify_all()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(patience(30))

    def call(self, function: Any, params: Any) -> None:
        """Send a notification from the client's thread."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (function(params), done.set()))
        assert done.wait(patience(30))

    def open(self, uri: str, text: str) -> list[Any]:
        """Open a text. Returns the messages about it."""
        self.versions[uri] = 1
        self.told.pop(uri, None)
        document = lsp.TextDocumentItem(uri, "bpftrace", 1, text)
        self.call(self.client.text_document_did_open, lsp.DidOpenTextDocumentParams(document))
        return self.messages(uri, 1)

    def change(self, uri: str, range_: Any, text: str) -> None:
        self.versions[uri] += 1
        document = lsp.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        change = lsp.TextDocumentContentChangePartial(range_, text)
        self.call(self.client.text_document_did_change, lsp.DidChangeTextDocumentParams(document, [change]))

    def messages(self, uri: str, version: int) -> list[Any]:
        with self._news:
            assert self._news.wait_for(
                lambda: any((item.version or 0) >= version for item in self.told.get(uri, ())), patience(30)
            )
            return list(self.told[uri][-1].diagnostics)

    def close(self) -> None:
        self.wait(self.client.shutdown_async(None))
        self.call(self.client.exit, None)
        self.wait(self.client.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    editor = Editor()
    yield editor
    editor.close()


def place(text: str, mark: str) -> Any:
    """The position of ``¦`` in *mark*, where that stands in a text."""
    return Text(text).position(text.index(mark.replace("¦", "")) + mark.index("¦"))


def test_what_an_editor_asks(editor: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "a.bt").as_uri()
    client, document = editor.client, lsp.TextDocumentIdentifier(uri)
    assert editor.open(uri, SCRIPT) == []
    hover = editor.wait(client.text_document_hover_async(lsp.HoverParams(document, place(SCRIPT, "$parent.co¦mm"))))
    assert "comm: string[16]" in hover.contents.value
    found = editor.wait(
        client.text_document_definition_async(lsp.DefinitionParams(document, place(SCRIPT, "dou¦ble(3)")))
    )
    assert (found.uri, found.range.start) == (uri, place(SCRIPT, "macro ¦double"))
    answer = editor.wait(
        client.text_document_completion_async(lsp.CompletionParams(document, place(SCRIPT, "args.file¦name")))
    )
    assert [item.label for item in answer.items] == ["filename"]
    renamed = editor.wait(
        client.text_document_rename_async(lsp.RenameParams(document, place(SCRIPT, "@op¦ens[comm"), "files"))
    )
    assert [edit.new_text for edit in renamed.changes[uri]] == ["@files", "@files"]
    with pytest.raises(JsonRpcException, match=r"^'\$files' is no name of a map$"):
        editor.wait(
            client.text_document_rename_async(lsp.RenameParams(document, place(SCRIPT, "@op¦ens[comm"), "$files"))
        )
    hints = editor.wait(
        client.text_document_inlay_hint_async(
            lsp.InlayHintParams(document, lsp.Range(lsp.Position(0, 0), lsp.Position(99, 0)))
        )
    )
    assert [item.label for item in hints] == [": string[1024]", ": struct task_struct *"]
    outline = editor.wait(client.text_document_document_symbol_async(lsp.DocumentSymbolParams(document)))
    assert [item.name for item in outline] == ["double", "add", "tracepoint:syscalls:sys_enter_openat", "end"]


def test_probes_are_completed_and_an_unknown_name_is_no_rename(editor: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "p.bt").as_uri()
    text = "tracepoint:syscalls:sys_enter_ope"
    editor.open(uri, text)
    document = lsp.TextDocumentIdentifier(uri)
    answer = editor.wait(
        editor.client.text_document_completion_async(lsp.CompletionParams(document, lsp.Position(0, len(text))))
    )
    assert "tracepoint:syscalls:sys_enter_openat" in [item.label for item in answer.items]
    assert answer.items[0].text_edit.range == lsp.Range(lsp.Position(0, 0), lsp.Position(0, len(text)))
    assert editor.wait(
        editor.client.text_document_rename_async(lsp.RenameParams(document, lsp.Position(0, 3), "other"))
    ) is None  # fmt: skip


@pytest.mark.parametrize(
    "text", ['begin { print("𝒳"); $x = nothing(); }', "begin { @a = 1; @a = comm; }", "uprobe:/none:f { }"]
)
def test_messages_stand_where_the_command_says(
    editor: Editor, text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Text, hints and place are those of ``pytrace --dry-run``; columns of the protocol count UTF-16 units."""
    path = tmp_path / "m.bt"
    path.write_text(text)
    told = editor.open(path.as_uri(), text)
    assert main.main(["--dry-run", str(path)]) == 1
    printed = capfd.readouterr().err
    assert told
    for item in told:
        column = Text(text).offset(item.range.start) + 1
        message, *hints = item.message.split("\n")
        assert f"m.bt:1:{column}" in printed
        assert message in printed
        assert all(hint in printed for hint in hints)


def test_formatting_is_that_of_fmt(editor: Editor, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.bt"
    path.write_text("begin{@a=1;print(@a)}")
    uri = path.as_uri()
    editor.open(uri, path.read_text())
    options = lsp.FormattingOptions(4, True)
    (edit,) = editor.wait(
        editor.client.text_document_formatting_async(
            lsp.DocumentFormattingParams(lsp.TextDocumentIdentifier(uri), options)
        )
    )
    assert main.main(["--fmt", str(path)]) == 0
    assert edit.new_text == capfd.readouterr().out


def test_any_typing_ends_with_the_messages_of_the_text(editor: Editor, tmp_path: Path) -> None:
    """Edits at random places, with requests between; a server that opens the final text says the same."""
    path = ROOT / "pytrace/tools/files/opensnoop.bt"
    text, uri = path.read_text(), (tmp_path / "o.bt").as_uri()
    document, chance = lsp.TextDocumentIdentifier(uri), random.Random(39)
    text = text.replace('import "../lib', f'import "{path.parent.parent}/lib')
    editor.open(uri, text)
    for number in range(120):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice((0, 0, 0, 1, 3)))
        piece = chance.choice(("x", "$", "@", "{", "}", '"', "\n", "args.", " /* ", "𝒳", ""))
        editor.change(uri, Text(text).range(start, end), piece)
        text = text[:start] + piece + text[end:]
        if number % 10 == 0:
            position = Text(text).position(start)
            editor.wait(editor.client.text_document_completion_async(lsp.CompletionParams(document, position)))
            editor.wait(editor.client.text_document_hover_async(lsp.HoverParams(document, position)))
    told = editor.messages(uri, editor.versions[uri])
    again = editor.open((tmp_path / "again.bt").as_uri(), text)
    assert [(item.message, item.range) for item in told] == [(item.message, item.range) for item in again]


@pytest.mark.soak
def test_five_thousand_edits(editor: Editor, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Edits at random places of 500 lines, each with a request: answers are quick, and memory stays."""
    tools = sorted((ROOT / "pytrace/tools/files").glob("*.bt"))
    probes = [line for path in tools for line in path.read_text().splitlines() if not line.startswith(("import", "#!"))]
    original = "\n".join(probes[:500])
    text, uri = original, (tmp_path / "long.bt").as_uri()
    document, chance = lsp.TextDocumentIdentifier(uri), random.Random(39)
    editor.open(uri, text)
    server = editor.client._server
    seconds, sizes = [], []
    for number in range(5000):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice((0, 0, 0, 1, 3)))
        piece = chance.choice(("x", "$", "@", "{", "}", '"', "\n", "args.", " /* ", "𝒳", "", "kprobe:", "strlen("))
        if number % 50 == 49:  # somebody who takes all of it back: texts that compile occur, too
            start, end, piece = 0, len(text), original
        editor.change(uri, Text(text).range(start, end), piece)
        text = text[:start] + piece + text[end:]
        position = Text(text).position(min(start + len(piece), len(text)))
        asked = time.monotonic()
        if number % 2:
            editor.wait(editor.client.text_document_completion_async(lsp.CompletionParams(document, position)))
        else:
            editor.wait(editor.client.text_document_hover_async(lsp.HoverParams(document, position)))
        seconds.append(time.monotonic() - asked)
        if number % 50 > 47:  # damaged, and as it was
            editor.messages(uri, editor.versions[uri])
        if number % 1000 == 999:
            sizes.append(int(re.findall(r"VmRSS:\s*(\d+)", Path(f"/proc/{server.pid}/status").read_text())[0]) >> 10)
    editor.messages(uri, editor.versions[uri])
    seconds.sort()
    with capsys.disabled():
        print(f"\nmedian {seconds[2500] * 1e3:.0f} ms, 95 % {seconds[4750] * 1e3:.0f} ms")
        print(f"MiB after each 1,000: {sizes}")
    assert sizes[-1] < sizes[0] * 1.25 + 20, sizes
