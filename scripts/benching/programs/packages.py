"""The floor of a start: Python, and what pytrace imports of its library and of packages, without pytrace.

With ``compiled`` also PLY, llvmlite, and LLVM for one function of one instruction.
"""

import contextlib  # noqa: F401
import ctypes
import enum  # noqa: F401
import functools  # noqa: F401
import hashlib  # noqa: F401
import json  # noqa: F401
import re  # noqa: F401
import signal  # noqa: F401
import sys
import threading  # noqa: F401
import typing  # noqa: F401

import msgspec  # noqa: F401

ctypes.CDLL("libbpf.so.1")

if "compiled" in sys.argv:
    from llvmlite import binding as llvm
    from ply import lex, yacc  # noqa: F401

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("bpfel").create_target_machine(cpu="v3", opt=2, codemodel="default")
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    with llvm.parse_assembly("define i64 @program(ptr %context) {\n  ret i64 0\n}\n") as module:
        passes.getModulePassManager().run(module, passes)
        machine.emit_object(module)
