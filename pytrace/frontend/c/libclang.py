"""Protocols for the parts of libclang's Python binding (``clang.cindex``) in use; it has no type annotations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


class Kind(Protocol):
    """A kind of declaration (``CursorKind``) or of type (``TypeKind``)."""

    name: str


class Location(Protocol):
    """A position in a file; *file* is None for predefined names."""

    file: object | None
    line: int
    column: int
    offset: int
    is_in_system_header: bool


class Extent(Protocol):
    """A source range."""

    start: Location
    end: Location


class Token(Protocol):
    """A token."""

    spelling: str
    extent: Extent


class CType(Protocol):
    """A C type (``clang.cindex.Type``); sizes are bytes."""

    kind: Kind
    element_type: CType
    element_count: int

    def get_size(self) -> int: ...
    def get_align(self) -> int: ...
    def get_declaration(self) -> Cursor: ...
    def get_canonical(self) -> CType: ...
    def get_pointee(self) -> CType: ...
    def get_fields(self) -> Iterator[Cursor]: ...


class Cursor(Protocol):
    """A declaration or an expression."""

    kind: Kind
    spelling: str
    location: Location
    extent: Extent
    type: CType
    underlying_typedef_type: CType
    enum_type: CType
    enum_value: int

    def get_children(self) -> Iterator[Cursor]: ...
    def get_tokens(self) -> Iterator[Token]: ...
    def get_definition(self) -> Cursor | None: ...
    def get_usr(self) -> str: ...
    def get_field_offsetof(self) -> int: ...
    def get_bitfield_width(self) -> int: ...
    def is_definition(self) -> bool: ...
    def is_anonymous(self) -> bool: ...
    def is_bitfield(self) -> bool: ...


class Problem(Protocol):
    """A compiler diagnostic (``clang.cindex.Diagnostic``)."""

    severity: int
    spelling: str
    location: Location


class Inclusion(Protocol):
    """An include: the file that is included, and where."""

    include: object
    location: Location


class TranslationUnit(Protocol):
    """A parsed file with everything that it includes."""

    cursor: Cursor
    diagnostics: Sequence[Problem]

    def get_includes(self) -> Iterator[Inclusion]: ...


class Index(Protocol):
    """An index, which parses files."""

    def parse(
        self, _path: str, _arguments: Sequence[str], _files: Sequence[tuple[str, str]], _options: int, /
    ) -> TranslationUnit:
        """The translation unit of *path*; *files* are names and contents that replace files on disk."""
