"""All fuzz targets by name. A module of parsers is imported when one of its targets is asked for: it takes as long."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from tests.fuzz.target import Target

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
"""From where pytest imports what tests take from the scripts, of which parsers take some."""
if str(SCRIPTS) not in sys.path:
    sys.path.append(str(SCRIPTS))

MODULES = {
    "scripts": (
        "script", "checker", "compiler", "ahead", "c_definitions", "parameters",
    ),
    "command_lines": (
        "options", "script_words", "tool_specs", "environment", "metrics_address", "python_arguments",
    ),
    "binaries": (
        "elf", "debug_info", "hostile_files", "hostile_files_here", "package_index", "unwind_table", "numbers", "notes",
        "arguments", "mangled_names", "archive", "btf", "btf_module",
    ),
    "kernel_texts": (
        "tracepoint_format", "available_events", "kallsyms", "functions", "modules", "maps", "status", "mounts",
        "cgroup_of_process", "map_file", "jit_file", "hostile_processes",
    ),
    "saved_results": (
        "snapshot_file", "snapshot_document", "compiled_file", "compiled_manifest", "cache_entry",
    ),
    "fleet_messages": (
        "agent_request", "agent_message", "lying_hosts", "facts_of_hosts",
    ),
    "traced_data": (
        "events", "ring", "names", "python_record", "python_lines", "request",
    ),
}  # fmt: skip
"""The targets of each module of :mod:`tests.fuzz.parsers`."""

NAMES = tuple(name for names in MODULES.values() for name in names)


def find(name: str) -> Target:
    """The target of a name.

    Raises:
        KeyError: there is none.
    """
    for module, names in MODULES.items():
        if name in names:
            target: Target = importlib.import_module(f"tests.fuzz.parsers.{module}").TARGETS[name]
            return target
    raise KeyError(name)
