"""LLVM through llvmlite's Python package: for releases whose C functions pytrace does not know."""

from __future__ import annotations

import llvmlite.binding as llvm

from pytrace.base.fast_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytrace.codegen.ir.llvm_library import Machine, Module


class Package:
    """The same as :class:`pytrace.codegen.ir.llvm_library.Library`."""

    def __init__(self) -> None:
        self.version = ".".join(str(part) for part in llvm.llvm_version_info)

    def set_option(self, option: str) -> None:
        """Set an option of LLVM's command line for this process."""
        llvm.set_option("pytrace", option)

    def machine(self, triple: str, cpu: str) -> Machine:
        """The machine of a target, for -O2."""
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        return _Machine(llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=2, codemodel="default"))

    def parse(self, text: str) -> Module:
        """The module of IR *text*."""
        module: Module = llvm.parse_assembly(text)
        return module


class _Machine:
    def __init__(self, machine: llvm.TargetMachine) -> None:
        self.machine = machine

    def optimise(self, module: Module) -> None:
        """Run the -O2 pipeline."""
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = False
        options.slp_vectorization = False
        builder = llvm.create_pass_builder(self.machine, options)
        builder.getModulePassManager().run(module, builder)

    def emit_object(self, module: Module) -> bytes:
        """The ELF object."""
        return bytes(self.machine.emit_object(module))

    def emit_assembly(self, module: Module) -> str:
        """The assembly text."""
        return str(self.machine.emit_assembly(module))
