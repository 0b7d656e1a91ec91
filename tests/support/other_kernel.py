"""This machine's kernel as a compilation would see it if some things were otherwise: older functions, missing types."""

from __future__ import annotations

from fnmatch import fnmatchcase

from pytrace.core.kernel_info import FunctionPrototype, KernelFunction
from pytrace.core.types import Struct
from pytrace.runtime.load.live_kernel import LiveKernel


class OtherKernel(LiveKernel):
    """What is told of this machine but for what the arguments say.

    Args:
        having: features that it has.
        lacking: features that it has not.
        functions: all functions that kprobes and fentry find.
        without: structs that there are not.
        raw: raw tracepoints with other arguments than here.
    """

    def __init__(
        self,
        having: frozenset[str] = frozenset(),
        lacking: frozenset[str] = frozenset(),
        functions: tuple[str, ...] = (),
        without: frozenset[str] = frozenset(),
        raw: tuple[FunctionPrototype, ...] = (),
    ) -> None:
        super().__init__()
        self._raw = {item.name: item for item in raw}
        self._having, self._lacking, self._own_functions, self._absent = having, lacking, functions, without

    def feature(self, name: str) -> bool:
        return name in self._having or (name not in self._lacking and super().feature(name))

    def kernel_functions(self, pattern: str, module: str = "") -> list[KernelFunction]:
        return [KernelFunction(name) for name in self._own_functions if fnmatchcase(name, pattern)]

    def struct(self, kind: str, name: str) -> Struct | None:
        return None if name in self._absent else super().struct(kind, name)

    def untraceable_reason(self, name: str) -> str:
        return "" if name in self._own_functions else "missing"

    def raw_tracepoint_prototype(self, event: str) -> FunctionPrototype | None:
        return self._raw.get(event) or super().raw_tracepoint_prototype(event)
