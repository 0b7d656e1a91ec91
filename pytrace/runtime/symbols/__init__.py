"""Addresses to functions: of the kernel, its modules and BPF programs, and of user processes, also exited ones."""

from pytrace.runtime.symbols.frame import Frame
from pytrace.runtime.symbols.symbolizer import Symbolizer

__all__ = ["Frame", "Symbolizer"]
