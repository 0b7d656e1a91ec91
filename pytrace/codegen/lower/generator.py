"""The code generator: lowers a checked program to LLVM IR and compiles it."""

from __future__ import annotations

import msgspec

from pytrace.codegen.emit import load_time, loops, map_uses
from pytrace.codegen.emit.bodies import (
    all_variables,
    called_functions,
    deciding_strings,
    late_body,
    shared_variables,
    split_plan,
)
from pytrace.codegen.emit.emitter import Emitter
from pytrace.codegen.emit.program import SESSION, Ahead, Layout, Program, Scratch, Script
from pytrace.codegen.ir import target
from pytrace.codegen.ir.module import SHARED_SECTION, Module
from pytrace.codegen.ir.values import CONTEXT, FRAME, Operand
from pytrace.codegen.lower import map_access
from pytrace.codegen.lower.map_access import bucketed, keys_symbol, padded_key, sizes, symbol
from pytrace.codegen.lower.statements import ScriptEmitter
from pytrace.codegen.walkers import (
    memory_images,
    program_filters,
    python_calls,
    service_programs,
    unwinding,
)
from pytrace.codegen.walkers.program_filters import Filters, FunctionExits, Gates, Watchdog
from pytrace.codegen.walkers.python_calls import PythonCalls
from pytrace.codegen.walkers.service_programs import PART
from pytrace.core.builtins import IN_SCOPE, Builtin
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.manifest import (
    DIGEST,
    CompiledScript,
    Manifest,
    MapSpec,
    MapType,
    ProgramSpec,
    RateLimits,
    StackDepth,
)
from pytrace.core.options import CompileOptions
from pytrace.core.probe_kinds import PYTHON_KINDS, URETPROBE, Context
from pytrace.core.types import CHUNK_MAP, Void
from pytrace.frontend.syntax.typed_program import (
    KPROBE_SESSION,
    SESSION_IS_RETURN,
    CheckedProgram,
    FunctionInfo,
    GoroutineNumber,
    MapInfo,
    ProbeUnit,
    VariableInfo,
    location,
)

_FIRST_OBJECT = 8
"""Offset of the object pointer in every ``struct bpf_iter__TYPE``, after the pointer to ``struct bpf_iter_meta``."""


def _declare(module: Module, layout: Layout, info: MapInfo) -> None:
    """Define a keyed map in the ELF file; unkeyed maps are slots of a data section.

    A double-buffered map is an array of one inner map, which the runtime swaps with the other one.
    """
    if info.key is None:
        return
    twice, digested = info.name in layout.generations, info.name in layout.digested
    map_type, key_size, value_size = (MapType.ARRAY_OF_MAPS, 4, 4) if twice else sizes(info, digested)
    module.map(
        symbol(info.name),
        {
            "type": map_type,
            "key_size": key_size,
            "value_size": value_size,
            "max_entries": 1 if twice else info.max_entries,
        },
    )
    if digested:
        full_size = padded_key(info) if bucketed(info.value) else info.key.size
        # Full keys are kept when the map is cleared, until half of these entries may be in use.
        entries = info.max_entries * (2 if info.name in layout.emptied else 1)
        attributes = {"type": MapType.HASH, "key_size": DIGEST, "value_size": full_size, "max_entries": entries}
        module.map(keys_symbol(info.name), attributes)


def generate(
    checked: CheckedProgram,
    kernel: KernelInfo,
    options: CompileOptions,
    *,
    sparing: bool = False,
    resets: bool = True,
) -> tuple[str, Manifest]:
    """LLVM IR text and manifest of a script.

    *sparing* generates code that uses less of the stack. With ``--live`` the user may empty any map, unless *resets* is
    False.
    """
    source = checked.sources[0] if checked.sources else None
    module = Module(source, checked.config.license, atomics=kernel.feature("atomic_fetch"))
    digested = map_uses.digested_maps(checked) if checked.maps else frozenset()
    layout = Layout.plan(checked, kernel.possible_cpus, options.shape.size, digested, resets=resets and options.live)
    for info in checked.maps.values():
        _declare(module, layout, info)
    # With -k, each read of a missing element is reported.
    elements = map_uses.element_maps(checked) if checked.maps and options.checks < 2 else frozenset()
    script = Script(
        checked,
        kernel,
        options,
        module,
        layout,
        checked.config.on_stack_limit,
        {name: number for number, name in enumerate(checked.maps)},
        ahead=Ahead(kernel) if options.ahead else None,
        sparing=sparing,
        element_maps=elements,
        inserted=map_uses.inserted_maps(checked, elements) if elements else {},
        deciding=deciding_strings(checked),
    )
    program_filters.declare(script)
    returns = any(unit.kind.name == URETPROBE for unit in checked.units)
    if returns:
        program_filters.declare_exits(script)
    services: tuple[ProgramSpec, ...] = ()
    # A program of the script checks for followed processes, or the run waits for one.
    follows = bool(options.filters.exec_wait) or (options.follow and _decides(checked))
    follows = follows or any(unit.follow for unit in checked.units)
    if follows:
        service_programs.declare_following(module)
        python = any(unit.kind.name in PYTHON_KINDS for unit in checked.units)
        services = service_programs.following_services(script, python=python)
    for number, unit in enumerate(checked.units):
        _program(script, unit, number)
    for unit in checked.units:
        if unit.part_of and unit.multi == KPROBE_SESSION:
            _session(script, unit)
    if any(unit.calls for unit in checked.units):
        service_programs.call_programs(script)
    if script.returning:
        services += (service_programs.return_service(script),)
    if returns:
        services += service_programs.exit_services(script)
    if script.images:
        services += memory_images.services(script)
    script.layout.finish(module)
    if script.ahead is not None:
        load_time.collect(checked, script.ahead)
        module.load_time = script.ahead.data
    text = module.text(script.layout.total, script.layout.shared)
    return text, _manifest(script, services, follows=follows)


def _decides(checked: CheckedProgram) -> bool:
    """Whether the script uses ``in_scope``."""
    return any(isinstance(row, Builtin) and row.name == IN_SCOPE for row in checked.calls.values())


def _copy_function(program: Program, function: FunctionInfo) -> None:
    """Emit the program's own copy of a user function, which uses the program's scratch area and counters."""
    module = program.script.module
    name = f"{program.unit.symbol}__{function.symbol}"
    program.functions[function] = name
    result = function.result

    def leave(e: Emitter, value: Operand | None) -> None:
        if value is None or isinstance(result, Void):
            e.b.ret(0)
        elif result.scalar:
            e.b.ret(e.memory.number(e.memory.convert(value, result)))
        else:
            e.memory.write(value, e.area(program.results[function]), result)
            e.b.ret(0)

    b = module.function(name, ("*frame",), function.span)
    e = ScriptEmitter(program, b, function.span, 1, FRAME, leave=leave, result_type=result)
    # A function may be called from the body of a loop over a map.
    e.atomic = True
    for parameter in function.parameters:
        # Parameters are live from the start, so the function's temporaries must not overlap them.
        e.variable(parameter)
    if not result.scalar and not isinstance(result, Void):
        program.results[function] = program.scratch.allocate(result.size)
    value = e.run_block(function.body, result)
    if not e.b.closed:
        e.leave(value)


def _program(script: Script, unit: ProbeUnit, number: int) -> None:
    program, functions = _planned(script, unit, number)
    if script.sampling is not None:
        program_filters.prepare_gates(program, script.sampling)
    # A body may run at the return of its call, where nothing counts its hits or stores a weight.
    uncounted = script.ahead is None and script.sampling is None and not script.checked.objects
    if uncounted and not program.plan.long and script.kernel.feature("call_return"):
        program.late = late_body(script.checked, unit)
    for function in functions:
        _copy_function(program, function)
        # A function's memory is not shared: it may be called while any other memory is in use.
        program.scratch = Scratch(program.scratch.size)
    _entry(program)
    script.layout.area(program.area, program.scratch.size)
    if program.sleeps:
        script.sleepable.add(unit.symbol)
    if program.late_function:
        _late(program)


def _planned(script: Script, unit: ProbeUnit, number: int) -> tuple[Program, list[FunctionInfo]]:
    """A program before its code, and the user functions that it calls."""
    checked = script.checked
    functions = called_functions(checked, unit.body)
    bodies = (unit.body, *(function.body for function in functions))
    cut = split_plan(checked, bodies)
    away = all_variables if script.sparing else shared_variables
    shared: set[VariableInfo] = set()
    if checked.variables:
        for body in bodies:
            shared.update(away(checked, body, cut))
        for function in functions:
            shared.update(function.parameters)
    program = Program(script, unit, number, frozenset(shared), cut)
    if script.element_maps:
        program.inserted = script.inserted[unit.body]
        program.repeated = {
            read: earlier
            for body in bodies
            for read, earlier in map_uses.repeated_reads(checked, body, script.element_maps).items()
        }
        program.read_again = frozenset(program.repeated.values())
    if cut.iterates:
        limit = checked.config.max_loop_iterations
        loops.refuse_unbounded(checked, unit.body, limit)
        if loops.most_iterations(checked, unit.body) > limit and script.kernel.feature("bpf_loop"):
            program.loop_budget = program.scratch.allocate(loops.BUDGET)
    return program, functions


def _late(earlier: Program) -> None:
    """The function that runs the body of a hit that was kept, and the one that has the body."""
    script, unit = earlier.script, earlier.unit
    program, _ = _planned(script, unit, earlier.index)
    program.postponed = True
    name = f"{earlier.late_function}_body"
    b = script.module.function(name, ("*map", "*key", "*value"), unit.span)
    e = ScriptEmitter(program, b, unit.span, 0, None, leave=_leave)
    e.completing = True
    with b.at_prologue():
        e.kept = e.deferred.kept_context()
    body = e.statements.after_predicates(unit.body)
    _zero_shared(e)
    value = e.run_block(body)
    if not e.b.closed:
        _leave(e, value)
    e.finish()
    script.layout.area(program.area, program.scratch.size)
    b = script.module.function(earlier.late_function, ("*map", "*key", "*value"), unit.span)
    Emitter(program, b, unit.span, 0, None).deferred.run_kept(name, earlier.index)
    b.ret(0)


def _entry(program: Program) -> None:
    unit = program.unit
    module = program.script.module
    if not unit.combined:
        b = module.function(unit.symbol, ("*ctx",), unit.span, entry=True)
    else:
        alone = service_programs.alone(program.script, unit)
        b = module.function(f"{unit.symbol}{PART}", ("*ctx",), unit.span, inlined=alone)
    e = ScriptEmitter(program, b, unit.span, 0, None, leave=_leave, early_result=_result(unit))
    Filters(e).check(unit)
    if unit.kind.name == URETPROBE:
        FunctionExits(e).only_returns()
    Watchdog(e).check()
    if unit.kind.name in PYTHON_KINDS:
        PythonCalls(e).begin()
    if unit.kind.context is Context.ITERATOR:
        # The object is null in the final call of an iterator (Documentation/bpf/bpf_iterators.rst).
        e.end_early(e.b.truth(e.launder(e.b.load(e.b.offset(e.context, _FIRST_OBJECT)))))
    Gates(e).sample()
    if program.late is not None and program.late.ahead:
        e.deferred.read_ahead(
            [(e.number(address), e.type(node).size) for node, address in program.late.ahead]
        )
    body = e.statements.after_predicates(unit.body)
    Gates(e).limit()
    if program.shared:
        _zero_shared(e)
    if program.loop_budget is not None:
        e.b.store(program.script.checked.config.max_loop_iterations, e.area(program.loop_budget))
        e.b.store(0, e.area(program.loop_budget + loops.SPENT))
    value = e.run_block(body)
    if not e.b.closed:
        _leave(e, value)
    e.finish()


def _session(script: Script, returns: ProbeUnit) -> None:
    """The program of a kprobe session: calls the code of the entry or of the return."""
    module, symbol = script.module, returns.part_of
    b = module.function(symbol, ("*ctx",), returns.span, entry=True)
    prototype = script.kernel.function(SESSION_IS_RETURN)
    # Later kernels (7.3 does) want the context.
    passed = [CONTEXT] if prototype is not None and prototype.parameters else []
    module.kernel_function(SESSION_IS_RETURN, ("void *",) * len(passed), "int")
    # The kfunc returns a bool: only the low bits are defined.
    left = b.kernel_call(SESSION_IS_RETURN, passed)
    leaving, entering = b.block(), b.block()
    b.branch(b.truth(b.op("and", left, 1)), leaving, entering)
    for block, part in ((leaving, returns.symbol), (entering, symbol)):
        b.start(block)
        # 0 from the entry makes the return handler run as well.
        b.ret(b.call(f"{part}{PART}", [CONTEXT]))


def _zero_shared(e: Emitter) -> None:
    """Initialise variables to zero; those in scratch memory have the values of an earlier run."""
    functions = {info for function in e.program.functions for info in function.parameters}
    # Variables of a macro's expansions have the same name and span: the checker's order distinguishes them.
    first = {info: number for number, info in enumerate(dict.fromkeys(e.checked.variables.values()))}
    order = sorted(e.program.shared - functions, key=lambda info: (info.name, info.span.start, first[info]))
    for info in order:
        if info.type.size <= 8:
            e.b.store(0, e.variable_pointer(info))


def _result(unit: ProbeUnit) -> int:
    """The result of a program if the script does not set one.

    0 from a tracepoint program would hide the event from other users of the tracepoint, and fentry and fexit programs
    must return 0.
    """
    return 1 if unit.kind.context is Context.TRACEPOINT else 0


def _leave(e: Emitter, value: Operand | None) -> None:
    """End the program. Programs that the tracer runs return the script's result; for others the kernel defines it."""
    unit = e.program.unit
    e.b.store(e.memory.number(value) if unit.kind.special and value is not None else _result(unit), e.result)
    e.b.jump(e.exit)


def _manifest(script: Script, services: tuple[ProgramSpec, ...], *, follows: bool) -> Manifest:
    checked = script.checked
    programs = tuple(
        ProgramSpec(
            unit.symbol,
            unit.kind.name,
            unit.index,
            unit.targets,
            location(unit.span),
            unit.multi,
            unit.part_of,
            sleepable=unit.symbol in script.sleepable,
        )
        for unit in checked.units
    )
    maps: list[MapSpec] = []
    call_maps: list[MapSpec] = []
    for info in checked.maps.values():
        digested = info.name in script.layout.digested
        swapped = info.key is not None and info.name in script.layout.generations
        spec = MapSpec(
            info.name,
            "" if info.key is None else map_access.symbol(info.name),
            info.kind,
            info.key,
            info.value,
            info.max_entries,
            script.layout.slot(info),
            location(info.span),
            map_access.sizes(info, digested) if swapped else None,
            info.help,
            map_access.keys_symbol(info.name) if digested else "",
            info.name in script.layout.resettable and not info.value.aggregate,
            info.key_names,
            info.private,
        )
        (call_maps if info.hidden else maps).append(spec)
    return Manifest(
        programs=programs + services,
        maps=tuple(maps),
        call_maps=tuple(call_maps),
        calls_named=script.options.live,
        goroutine_numbers=tuple(
            sorted({fact.offset for fact in checked.facts.values() if isinstance(fact, GoroutineNumber)})
        ),
        events=tuple(checked.event_list),
        strings=tuple(checked.strings),
        config=checked.config,
        counters=script.layout.manifest_counters(),
        session=SESSION if script.uses_session else None,
        unwind=unwinding.unwind_maps(selected=script.unwinds, asks=script.asks)
        if script.unwinds or script.asks
        else None,
        python=python_calls.maps(script) if script.walks_python else None,
        images=memory_images.MAPS if script.images else None,
        follow_map=program_filters.FOLLOWED if follows else "",
        objects=tuple(checked.objects),
        ahead=None if script.ahead is None else script.ahead.section(script.layout.copies),
        output_format=checked.output_format,
        stack_layout=checked.stack_layout,
        sampling=None if script.sampling is None else program_filters.sampling_spec(script, script.sampling),
        limits=None if script.layout.rates is None else RateLimits(SHARED_SECTION, script.layout.rates),
        random_words=script.layout.random_words(),
        stack_depths=tuple(
            [StackDepth(SHARED_SECTION, offset, limit) for limit, offset in script.layout.stack_depths.items()]
        ),
        stack_chunks=CHUNK_MAP if script.chunks_stacks else "",
    )


def compile_program(checked: CheckedProgram, kernel: KernelInfo, options: CompileOptions) -> CompiledScript:
    """Compile a checked program.

    Args:
        checked: the typed program, without errors.
        kernel: facts about the machine that the code depends on.
        options: the options that it was checked with.

    Returns:
        ELF bytes and manifest, without the warnings and facts, which the pipeline adds.

    Raises:
        InternalError: the generator emitted invalid code.
        TraceError: the machine lacks a feature that the script needs.
    """
    size = 0
    # A program has the address of each double-buffered map, and with --live all are: those are given up last.
    ways = [(sparing, resets) for resets in ((True, False) if options.live else (False,)) for sparing in (False, True)]
    for sparing, resets in ways:
        text, manifest = generate(checked, kernel, options, sparing=sparing, resets=resets)
        elf = target.compiled(text)
        size = target.stack_needed(elf, text)
        if size <= target.STACK_LIMIT:
            return CompiledScript(elf, manifest)
    raise TraceError(
        f"a program of the script needs {size} bytes of stack, and the kernel has {target.STACK_LIMIT}",
        hints=("keep fewer values at the same time, or split the block into several probes",),
    )


class LlvmTexts(msgspec.Struct, frozen=True):
    """Output of the compiler's stages as text: generated IR, optimised IR, BPF assembly."""

    original: str
    optimized: str
    assembly: str


def llvm_texts(
    checked: CheckedProgram, kernel: KernelInfo, options: CompileOptions, *, verify: bool = False
) -> LlvmTexts:
    """The texts of all stages; *verify* has LLVM check the IR first."""
    text, _ = generate(checked, kernel, options)
    with target.parsed(text, verify=verify) as module:
        target.optimise(module)
        return LlvmTexts(text, str(module), target.assembly(module))
