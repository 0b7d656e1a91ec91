"""``pytrace lsp``: a language server on standard input and output (Language Server Protocol 3.17).

Texts are analysed in one thread, shortly after the last key; requests are answered from the newest analysis that is
done, so that typing never waits for the compiler. It needs no root: what this user cannot see of the kernel is missing.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from lsprotocol import types as lsp
from msgspec.structs import replace
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

import pytrace
from pytrace.base import private_files, whole_files
from pytrace.cli.completion import attach_points
from pytrace.cli.script_analysis import Analysis, Symbol, attach_point
from pytrace.core.diagnostics import Diagnostic, Diagnostics, InternalError, Severity, TraceError
from pytrace.core.source import Source, Span
from pytrace.frontend.syntax import formatter, nodes
from pytrace.runtime.load import listing
from pytrace.runtime.load.live_kernel import LiveKernel

_WORD = re.compile(r"[@$]?[A-Za-z_]\w*|@")
PAUSE = 0.15
"""Seconds without a key after which a text is analysed."""
_SEVERITIES = {
    Severity.ERROR: lsp.DiagnosticSeverity.Error, Severity.WARNING: lsp.DiagnosticSeverity.Warning,
    Severity.NOTE: lsp.DiagnosticSeverity.Information,
}  # fmt: skip
_KINDS = {
    "variable": lsp.CompletionItemKind.Variable, "map": lsp.CompletionItemKind.Field,
    "builtin": lsp.CompletionItemKind.Function, "function": lsp.CompletionItemKind.Function,
    "macro": lsp.CompletionItemKind.Snippet, "member": lsp.CompletionItemKind.Property,
    "constant": lsp.CompletionItemKind.Constant, "type": lsp.CompletionItemKind.Struct,
    "probe": lsp.CompletionItemKind.Event, "setting": lsp.CompletionItemKind.Property,
    "keyword": lsp.CompletionItemKind.Keyword,
}  # fmt: skip
_NAMES = {"variable": re.compile(r"\$[A-Za-z_]\w*"), "map": re.compile(r"@\w*")}
"""What may be renamed, and to what."""


class Text:
    """Positions of the protocol (lines, UTF-16 units) and offsets in characters of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", text))]

    def offset(self, position: lsp.Position) -> int:
        """The offset of a position; that of the end of its line, if the line is shorter."""
        if position.line >= len(self._starts):
            return len(self.text)
        start = self._starts[position.line]
        end = self._starts[position.line + 1] if position.line + 1 < len(self._starts) else len(self.text)
        units = 0
        for index, char in enumerate(self.text[start:end].rstrip("\r\n")):
            if units >= position.character:
                return start + index
            units += 2 if ord(char) > 0xFFFF else 1
        return start + len(self.text[start:end].rstrip("\r\n"))

    def position(self, offset: int) -> lsp.Position:
        """The position of an offset."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._starts, offset) - 1
        part = self.text[self._starts[line] : offset]
        return lsp.Position(line, len(part) + sum(ord(char) > 0xFFFF for char in part))

    def range(self, start: int, end: int) -> lsp.Range:
        """The range of the protocol between two offsets."""
        return lsp.Range(self.position(start), self.position(end))


class Document(msgspec.Struct):
    """An open text, and the newest analysis of it."""

    analysis: Analysis | None = None
    analysed: str | None = None
    """The text that the analysis is of."""
    waiting: asyncio.TimerHandle | None = None


class Server(LanguageServer):
    """The server: open documents, and the thread that compiles them."""

    def __init__(self) -> None:
        super().__init__("pytrace", pytrace.__version__)
        self.documents: dict[str, Document] = {}
        self.compiler = ThreadPoolExecutor(1, thread_name_prefix="compiler")
        self.kernel = LiveKernel()
        self._listed: dict[str, list[str]] = {}

    def text(self, uri: str) -> Text:
        """The text of a document as the editor shows it."""
        return Text(self.workspace.get_text_document(uri).source)

    def schedule(self, uri: str, pause: float = PAUSE) -> None:
        """Analyse a document after a pause, which each key begins again."""
        document = self.documents.setdefault(uri, Document())
        if document.waiting is not None:
            document.waiting.cancel()
        loop = asyncio.get_running_loop()
        document.waiting = loop.call_later(pause, lambda: loop.create_task(self.analyse(uri)))

    async def analyse(self, uri: str) -> Analysis | None:
        """Analyse a document unless its text is that of the last analysis, and publish the messages."""
        document = self.documents.get(uri)
        if document is None:
            return None
        opened = self.workspace.get_text_document(uri)
        source, version = opened.source, opened.version
        if document.analysed == source and document.analysis is not None:
            return document.analysis
        loop = asyncio.get_running_loop()
        analysis = await loop.run_in_executor(self.compiler, self._analysis, source, _path(uri))
        if self.documents.get(uri) is document and analysis is not None:
            document.analysis, document.analysed = analysis, source
            if self.workspace.get_text_document(uri).source == source:
                self.publish(uri, analysis, version)
        return analysis

    def _analysis(self, text: str, path: str | None) -> Analysis | None:
        try:
            return Analysis(text, path, self.kernel)
        except (InternalError, RecursionError) as error:
            sys.stderr.write(f"pytrace lsp: {type(error).__name__}: {error}\n")
            return None

    def publish(self, uri: str, analysis: Analysis, version: int | None) -> None:
        """Send the messages about a document."""
        text = Text(analysis.source.text)
        items = [_diagnostic(item, analysis, text) for item in analysis.diagnostics.items]
        if analysis.failure is not None:
            message = str(analysis.failure)
            items.append(lsp.Diagnostic(text.range(0, 0), message, lsp.DiagnosticSeverity.Warning, source="pytrace"))
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, items, version))

    async def newest(self, uri: str) -> Analysis | None:
        """The newest analysis that is done; the first one is waited for."""
        document = self.documents.get(uri)
        if document is None:
            return None
        return document.analysis or await self.analyse(uri)

    def points(self, typed: str) -> list[str]:
        """Attach points that begin with what was typed."""
        if typed not in self._listed:
            if len(self._listed) > 64:
                self._listed.clear()
            try:
                names = attach_points(typed, lambda pattern: listing.listing(self.kernel, pattern).split())
            except (TraceError, OSError):
                names = []
            self._listed[typed] = names
        return self._listed[typed]


SERVER = Server()


def _path(uri: str) -> str | None:
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else None


def _uri(span: Span) -> str | None:
    path = span.source.path
    if path is None and span.source.name.startswith("stdlib/"):
        path = os.path.join(os.path.dirname(pytrace.__file__), span.source.name)
    return f"file://{os.path.abspath(path)}" if path else None


def _location(span: Span, uri: str, analysis: Analysis) -> lsp.Location | None:
    if span.source is analysis.source:
        return lsp.Location(uri, Text(analysis.source.text).range(span.start, span.end))
    place = _uri(span)
    return lsp.Location(place, Text(span.source.text).range(span.start, span.end)) if place is not None else None


def _diagnostic(item: Diagnostic, analysis: Analysis, text: Text) -> lsp.Diagnostic:
    """A message as the command prints it: text and hints, at its place or at the import of the file that it is in."""
    span = item.span
    if span.source is not analysis.source:
        here = next((note.span for note in item.notes if note.span.source is analysis.source), None)
        place = text.range(here.start, here.end) if here is not None else text.range(0, 0)
        message = f"{span}: {item.message}"
    else:
        place, message = text.range(span.start, span.end), item.message
    related = [
        lsp.DiagnosticRelatedInformation(location, note.message)
        for note in item.notes
        if (location := _location(note.span, f"file://{analysis.source.path}", analysis)) is not None
    ]
    hints = "".join(f"\nHINT: {hint}" for hint in item.hints)
    severity = _SEVERITIES[item.severity]
    if analysis.written is not None and analysis.written.items and not analysis.written.probes:
        severity = max(severity, lsp.DiagnosticSeverity.Information)  # a file of macros, for others to import
    return lsp.Diagnostic(place, message + hints, severity, source="pytrace", related_information=related or None)


async def _symbol(params: Any) -> tuple[Analysis, Text, Symbol] | None:
    """The name at a position; where the text has changed since it was analysed, the nearest of that name."""
    analysis = await SERVER.newest(params.text_document.uri)
    if analysis is None:
        return None
    text = SERVER.text(params.text_document.uri)
    offset = text.offset(params.position)
    if text.text == analysis.source.text:
        symbol = analysis.symbol(offset)
        return (analysis, text, symbol) if symbol is not None else None
    word = next((match for match in _WORD.finditer(text.text) if match.start() <= offset <= match.end()), None)
    same = [item for item in analysis.symbols if word is not None and item.name == word[0]]
    if word is None or not same:
        return None
    nearest = min(same, key=lambda item: abs(item.span.start - word.start()))
    return analysis, text, replace(nearest, span=Span(analysis.source, word.start(), word.end()))


# ---------------------------------------------------------------------------------------------- documents


@SERVER.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
def _opened(server: Server, params: lsp.DidOpenTextDocumentParams) -> None:
    server.schedule(params.text_document.uri, 0)


@SERVER.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
def _changed(server: Server, params: lsp.DidChangeTextDocumentParams) -> None:
    server.schedule(params.text_document.uri)


@SERVER.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
def _saved(server: Server, _params: lsp.DidSaveTextDocumentParams) -> None:
    """What one file says changes what another means that imports it."""
    for uri, document in server.documents.items():
        document.analysed = None
        server.schedule(uri, 0)


@SERVER.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
def _closed(server: Server, params: lsp.DidCloseTextDocumentParams) -> None:
    document = server.documents.pop(params.text_document.uri, None)
    if document is not None and document.waiting is not None:
        document.waiting.cancel()
    server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(params.text_document.uri, []))


# ---------------------------------------------------------------------------------------------- questions


@SERVER.feature(
    lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["@", "$", ".", ">", ":"])
)
async def _complete(server: Server, params: lsp.CompletionParams) -> lsp.CompletionList:
    uri = params.text_document.uri
    analysis = await server.newest(uri)
    if analysis is None:
        return lsp.CompletionList(False, [])
    text = server.text(uri)
    offset = text.offset(params.position)
    typed = attach_point(text.text, offset)
    points: list[str] | None = None
    if typed is not None:
        points = await asyncio.get_running_loop().run_in_executor(None, server.points, typed)
    found = analysis.candidates(text.text, offset, points)
    start = _typed_start(text.text, offset, typed)
    place = text.range(start, offset)
    items = [
        lsp.CompletionItem(
            item.name, kind=_KINDS[item.kind], detail=item.detail or None, filter_text=item.name,
            documentation=lsp.MarkupContent(lsp.MarkupKind.Markdown, item.document) if item.document else None,
            text_edit=lsp.TextEdit(place, item.name),
        )
        for item in found
    ]  # fmt: skip
    return lsp.CompletionList(typed is not None, items)


def _typed_start(text: str, offset: int, point: str | None) -> int:
    """Where the word begins that a completion replaces."""
    if point is not None:
        return offset - len(point)
    match = re.search(r"[@$]?\w*\Z", text[max(0, offset - 200) : offset])
    return offset - len(match[0]) if match is not None else offset


@SERVER.feature(lsp.TEXT_DOCUMENT_HOVER)
async def _hover(_server: Server, params: lsp.HoverParams) -> lsp.Hover | None:
    found = await _symbol(params)
    if found is None:
        return None
    _, text, symbol = found
    parts = []
    if symbol.kind in ("variable", "member", "constant") and symbol.type:
        parts.append(f"```\n{symbol.name}: {symbol.type}\n```")
    elif symbol.type:
        parts.append(f"```\n{symbol.type}\n```")
    parts += [symbol.document] if symbol.document else []
    if not parts:
        return None
    content = lsp.MarkupContent(lsp.MarkupKind.Markdown, "\n\n".join(parts))
    return lsp.Hover(content, text.range(symbol.span.start, symbol.span.end))


@SERVER.feature(lsp.TEXT_DOCUMENT_DEFINITION)
async def _definition(server: Server, params: lsp.DefinitionParams) -> lsp.Location | None:
    found = await _symbol(params)
    if found is None:
        return None
    analysis, _, symbol = found
    if symbol.definition is not None:
        return _location(symbol.definition, params.text_document.uri, analysis)
    if symbol.kind == "type" and symbol.document:
        return await asyncio.get_running_loop().run_in_executor(server.compiler, _kernel_type, server, symbol.name)
    return None


def _kernel_type(server: Server, name: str) -> lsp.Location | None:
    """A file with the definition of a type of the kernel, as ``-lv`` prints it."""
    try:
        text = listing.listing(server.kernel, name, verbose=True)
    except TraceError:
        return None
    if not text.strip():
        return None
    folder = private_files.directory("editor")
    path = os.path.join(folder, f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}.h")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with whole_files.replacing(path) as file:
            file.write(text.encode())
    except OSError:
        return None
    return lsp.Location(f"file://{path}", Text(text).range(0, 0))


@SERVER.feature(lsp.TEXT_DOCUMENT_REFERENCES)
async def _references(_server: Server, params: lsp.ReferenceParams) -> list[lsp.Location] | None:
    found = await _symbol(params)
    if found is None:
        return None
    analysis, text, symbol = found
    uri = params.text_document.uri
    return [lsp.Location(uri, text.range(span.start, span.end)) for span in analysis.uses(symbol)]


@SERVER.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
async def _prepare_rename(_server: Server, params: lsp.PrepareRenameParams) -> lsp.Range | None:
    found = await _symbol(params)
    if found is None or found[2].kind not in _NAMES:
        return None
    return found[1].range(found[2].span.start, found[2].span.end)


@SERVER.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
async def _rename(server: Server, params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
    analysis = await server.analyse(params.text_document.uri)
    text = server.text(params.text_document.uri)
    symbol = analysis.symbol(text.offset(params.position)) if analysis is not None else None
    if analysis is None or symbol is None or symbol.kind not in _NAMES:
        return None
    name = params.new_name
    if name[:1] not in ("@", "$"):
        name = symbol.name[0] + name
    if not _NAMES[symbol.kind].fullmatch(name):
        raise JsonRpcInvalidParams(f"{params.new_name!r} is no name of a {symbol.kind}")
    if any(item.kind == symbol.kind and item.name == name and item.identity != symbol.identity
           for item in analysis.symbols):  # fmt: skip
        raise JsonRpcInvalidParams(f"there is a {symbol.kind} {name} already")
    edits = [lsp.TextEdit(text.range(span.start, span.end), name) for span in analysis.uses(symbol)]
    return lsp.WorkspaceEdit(changes={params.text_document.uri: edits})


@SERVER.feature(lsp.TEXT_DOCUMENT_FORMATTING)
async def _format(server: Server, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
    text = server.text(params.text_document.uri)
    source = Source("stdin", text.text)
    loop = asyncio.get_running_loop()
    formatted = await loop.run_in_executor(server.compiler, formatter.format_source, source, Diagnostics())
    if formatted == text.text:
        return None
    return [lsp.TextEdit(text.range(0, len(text.text)), formatted)]


@SERVER.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
async def _inlay_hints(server: Server, params: lsp.InlayHintParams) -> list[lsp.InlayHint] | None:
    analysis = await server.newest(params.text_document.uri)
    text = server.text(params.text_document.uri)
    if analysis is None or analysis.source.text != text.text:
        return None
    first, last = text.offset(params.range.start), text.offset(params.range.end)
    return [
        lsp.InlayHint(text.position(offset), label, lsp.InlayHintKind.Type)
        for offset, label in analysis.hints()
        if first <= offset <= last
    ]


@SERVER.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
async def _outline(server: Server, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol] | None:
    analysis = await server.newest(params.text_document.uri)
    if analysis is None or analysis.parsed is None:
        return None
    return list(_outline_items(analysis))


def _outline_items(analysis: Analysis) -> Iterator[lsp.DocumentSymbol]:
    """Probes, functions, macros and declared maps, in order."""
    text = Text(analysis.source.text)
    for item in analysis.parsed.items if analysis.parsed is not None else ():
        if isinstance(item, nodes.Probe):
            name, kind, head = ", ".join(point.text for point in item.attach_points), lsp.SymbolKind.Event, item.head
        elif isinstance(item, nodes.Function | nodes.Macro):
            name, kind, head = item.name, lsp.SymbolKind.Function, item.head
        elif isinstance(item, nodes.MapDecl):
            name, kind, head = item.map.name, lsp.SymbolKind.Field, item.map.span
        else:
            continue
        whole = text.range(item.span.start, item.span.end)
        yield lsp.DocumentSymbol(name or "?", kind, whole, text.range(head.start, head.end))


def run() -> int:
    """Serve the editor at standard input and output until it closes them. Returns the exit status."""
    # Requests wait for the compiler's thread no longer than this.
    sys.setswitchinterval(0.001)
    SERVER.start_io()
    return 0
