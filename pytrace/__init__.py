"""pytrace: compile awk-like tracing scripts to BPF and run them in the Linux kernel.

The command starts from here too, so nothing is imported before a Python program asks for it:
docs/reference/python-interface.md.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pytrace.core.diagnostics import Error as Error
    from pytrace.core.diagnostics import TraceError as TraceError
    from pytrace.interface.compiled import CompiledScript as CompiledScript
    from pytrace.interface.compiled import compile as compile  # noqa: A004
    from pytrace.interface.errors import LossWarning as LossWarning
    from pytrace.interface.errors import ScriptError as ScriptError
    from pytrace.interface.errors import TraceWarning as TraceWarning
    from pytrace.interface.events import Event as Event
    from pytrace.interface.listing import Probe as Probe
    from pytrace.interface.listing import features as features
    from pytrace.interface.listing import probes as probes
    from pytrace.interface.snapshots import Snapshot as Snapshot
    from pytrace.interface.snapshots import merge as merge
    from pytrace.interface.tracing import Trace as Trace
    from pytrace.interface.tracing import open as open  # noqa: A004
    from pytrace.interface.tracing import open_async as open_async
    from pytrace.interface.tracing import run as run
    from pytrace.interface.why import why as why
    from pytrace.remote.fleet import Fleet as Fleet
    from pytrace.remote.fleet import HostReport as HostReport
    from pytrace.remote.fleet import fleet as fleet
    from pytrace.remote.pods import Cluster as Cluster
    from pytrace.render.aggregations import Average as Average
    from pytrace.render.aggregations import Stats as Stats
    from pytrace.render.histogram import Bucket as Bucket
    from pytrace.render.histogram import Histogram as Histogram
    from pytrace.render.tseries import Series as Series
    from pytrace.results.snapshot import Frame as Frame
    from pytrace.results.snapshot import StackTrace as StackTrace

__version__ = "0.1.0"

_PUBLIC = {
    "Average": "render.aggregations",
    "Bucket": "render.histogram",
    "Cluster": "remote.pods",
    "CompiledScript": "interface.compiled",
    "Error": "interface.errors",
    "Event": "interface.events",
    "Fleet": "remote.fleet",
    "Frame": "results.snapshot",
    "Histogram": "render.histogram",
    "HostReport": "remote.fleet",
    "LossWarning": "interface.errors",
    "Probe": "interface.listing",
    "ScriptError": "interface.errors",
    "Series": "render.tseries",
    "Snapshot": "interface.snapshots",
    "StackTrace": "results.snapshot",
    "Stats": "render.aggregations",
    "Trace": "interface.tracing",
    "TraceError": "interface.errors",
    "TraceWarning": "interface.errors",
    "compile": "interface.compiled",
    "features": "interface.listing",
    "fleet": "remote.fleet",
    "merge": "interface.snapshots",
    "open": "interface.tracing",
    "open_async": "interface.tracing",
    "probes": "interface.listing",
    "run": "interface.tracing",
    "why": "interface.why",
}
"""Public names and the modules that have them."""

__all__ = [*_PUBLIC, "__version__"]  # noqa: PLE0604  (all are strings)


def __getattr__(name: str) -> object:
    # %load_ext pytrace asks for this name.
    module = "interface.notebook" if name == "load_ipython_extension" else _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'pytrace' has no attribute {name!r}")
    import importlib

    found: object = getattr(importlib.import_module(f"pytrace.{module}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
