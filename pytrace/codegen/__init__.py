"""The code generator: a checked program becomes BPF code (through LLVM) and a manifest."""

from pytrace.codegen.generator import LlvmTexts, compile_program, llvm_texts

__all__ = ["LlvmTexts", "compile_program", "llvm_texts"]
