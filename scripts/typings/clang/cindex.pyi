# The parts of clang.cindex in use; libclang's Python binding has no type annotations.

from collections.abc import Iterator, Sequence

class CursorKind:
    name: str
    ENUM_CONSTANT_DECL: CursorKind
    ENUM_DECL: CursorKind
    MACRO_DEFINITION: CursorKind
    STRUCT_DECL: CursorKind
    TYPEDEF_DECL: CursorKind
    UNION_DECL: CursorKind

class TypeKind:
    name: str
    BOOL: TypeKind
    CHAR_S: TypeKind
    CHAR_U: TypeKind
    CONSTANTARRAY: TypeKind
    DOUBLE: TypeKind
    ENUM: TypeKind
    FLOAT: TypeKind
    FUNCTIONNOPROTO: TypeKind
    FUNCTIONPROTO: TypeKind
    INCOMPLETEARRAY: TypeKind
    INT: TypeKind
    INT128: TypeKind
    LONG: TypeKind
    LONGLONG: TypeKind
    POINTER: TypeKind
    RECORD: TypeKind
    SCHAR: TypeKind
    SHORT: TypeKind
    UCHAR: TypeKind
    UINT: TypeKind
    UINT128: TypeKind
    ULONG: TypeKind
    ULONGLONG: TypeKind
    USHORT: TypeKind
    VOID: TypeKind

class File: ...

class SourceLocation:
    file: File | None
    line: int
    column: int
    offset: int
    is_in_system_header: bool

class SourceRange:
    start: SourceLocation
    end: SourceLocation

class Token:
    spelling: str
    extent: SourceRange

class Type:
    kind: TypeKind
    element_type: Type
    element_count: int

    def get_size(self) -> int: ...
    def get_align(self) -> int: ...
    def get_declaration(self) -> Cursor: ...
    def get_canonical(self) -> Type: ...
    def get_pointee(self) -> Type: ...
    def get_fields(self) -> Iterator[Cursor]: ...

class Cursor:
    kind: CursorKind
    spelling: str
    location: SourceLocation
    extent: SourceRange
    type: Type
    underlying_typedef_type: Type
    enum_type: Type
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

class Diagnostic:
    severity: int
    spelling: str
    location: SourceLocation

class FileInclusion:
    include: File
    location: SourceLocation

class TranslationUnit:
    PARSE_DETAILED_PROCESSING_RECORD: int
    PARSE_SKIP_FUNCTION_BODIES: int
    cursor: Cursor
    diagnostics: Sequence[Diagnostic]

    def get_includes(self) -> Iterator[FileInclusion]: ...

class Index:
    @staticmethod
    def create() -> Index: ...
    def parse(
        self, path: str, args: Sequence[str], unsaved_files: Sequence[tuple[str, str]], options: int
    ) -> TranslationUnit: ...
