# The parts of ply.yacc in use; PLY has no type annotations.

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

class YaccSymbol:
    type: str

class YaccProduction:
    lexer: Any
    parser: LRParser

    def __getitem__(self, n: int) -> Any: ...
    def __setitem__(self, n: int, v: object) -> None: ...
    def __len__(self) -> int: ...

class Production:
    name: str
    len: int

class LRTable:
    def read_table(self, module: ModuleType) -> str: ...
    def bind_callables(self, pdict: dict[str, Any]) -> None: ...

class LRParser:
    errorfunc: Callable[[Any], Any]
    action: dict[int, dict[str, int]]
    goto: dict[int, dict[str, int]]
    productions: Sequence[Production]
    symstack: Sequence[YaccSymbol]
    statestack: Sequence[int]

    def __init__(self, lrtab: LRTable, errorf: Callable[[Any], Any]) -> None: ...
    def errok(self) -> None: ...
    def parse(self, *, lexer: object) -> Any: ...

# What scripts/generate-tables uses of the generator of tables.
def __getattr__(name: str) -> Any: ...
