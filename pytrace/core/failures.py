"""What is counted when something is lost: the words for each kind, in messages, descriptions of runs and reports."""

from __future__ import annotations

import msgspec

from pytrace.core.diagnostics import counted


class LossKind(msgspec.Struct, frozen=True):
    """A row for a kind of counter: its noun, and the kind of its subject (``program``, ``map``, ``site`` or nothing).

    *told* is how many of a kind at most were reported one by one while the script ran, by events with their places in
    the script (:data:`ALL`: all of them can be seen in the output); only more than that are reported as a sum while it
    runs.
    """

    one: str
    many: str
    subject: str
    told: int = 0


ALL = 1 << 64
_EACH = 64
"""Number of failures that a CPU reports one by one (``codegen.emit.events.REPORTED``)."""


FAILURES: dict[str, LossKind] = {
    "lost": LossKind("event lost", "events lost", "program"),
    "missed": LossKind("probe hit missed", "probe hits missed", "program"),
    "skipped": LossKind("probe hit skipped while pytrace did not run", "probe hits skipped while pytrace did not run",
                       "program", told=ALL),
    "recursion": LossKind("recursive probe hit skipped", "recursive probe hits skipped",
                         "program"),
    "limited": LossKind("hit over --max-rate dropped", "hits over --max-rate dropped", "program", told=ALL),
    "deep_return": LossKind("return not seen, as the kernel follows 64 nested calls of a task",
                           "returns not seen, as the kernel follows 64 nested calls of a task", "program"),
    "tail_call": LossKind("return left out, as the function jumps to another one whose value cannot be seen",
                         "returns left out, as the function jumps to another one whose value cannot be seen",
                         "program", told=ALL),
    "ignored": LossKind("event after exit() dropped", "events after exit() dropped",
                       "", told=ALL),
    "map_full": LossKind("map update dropped", "map updates dropped", "map", told=1),
    "kernel_stack": LossKind("kernel stack could not be unwound", "kernel stacks could not be unwound", "site",
                            told=_EACH),
    "user_stack": LossKind("user stack could not be unwound", "user stacks could not be unwound", "site",
                          told=_EACH),
    "collided": LossKind("update of min() or max() lost to concurrent updates",
                        "updates of min() or max() lost to concurrent updates", "program"),
    "stack_cut": LossKind("dw_ustack stack truncated where its unwind tables end",
                         "dw_ustack stacks truncated where their unwind tables end", "site", told=ALL),
    "truncated": LossKind("stack truncated after its innermost frames", "stacks truncated after their innermost frames",
                         "site", told=ALL),
    "chunks_full": LossKind("stack lost frames, as the map of chunks was full",
                           "stacks lost frames, as the map of chunks was full", "site", told=ALL),
    "python_cut": LossKind("pystack truncated where frames could not be read",
                          "pystacks truncated where frames could not be read", "site", told=ALL),
    "python_names": LossKind("Python function without its name", "Python functions without their names", "site",
                            told=ALL),
    "python_unknown": LossKind("call of Python in a process too new to be known",
                              "calls of Python in processes too new to be known", "program"),
    "unprinted": LossKind("event not printed because of the interrupt", "events not printed because of the interrupt",
                         ""),
    "unsorted": LossKind("row lost that had to wait for print_rows()", "rows lost that had to wait for print_rows()",
                        ""),
    "not_run": LossKind("system() command not run because of the interrupt",
                       "system() commands not run because of the interrupt", ""),
    "cut": LossKind("string truncated", "strings truncated", "program", told=ALL),
    "unfinished": LossKind("event lost whose system call had not returned",
                          "events lost whose system calls had not returned", "program"),
    "unreadable": LossKind("read of memory failed", "reads of memory failed", "site"),
    "unjoined": LossKind("list of strings truncated by join() after 16 strings",
                        "lists of strings truncated by join() after 16 strings", "program"),
    "unfollowed": LossKind("forked process could not be followed", "forked processes could not be followed", ""),
    "untraced": LossKind("child process was not traced: --follow traces it, too",
                        "child processes were not traced: --follow traces them, too", "", told=ALL),
    "helper": LossKind("helper call failed", "helper calls failed", "site", told=_EACH),
}  # fmt: skip

UNTRACED_CHILDREN = "processes that the command started were not traced"


class CallTotals(msgspec.Struct, frozen=True):
    """The calls of one ``call:`` probe: entered, *returned*, *under_way* at the end, *left* without a return, *lost*.

    *begun* returned that had begun before the run.
    """

    probe: str
    entered: int = 0
    returned: int = 0
    under_way: int = 0
    left: int = 0
    lost: int = 0
    begun: int = 0

    @property
    def rest(self) -> str:
        """What became of those that did not return."""
        parts = (
            (self.under_way, "under way at the end"), (self.left, "left without a return"), (self.lost, "lost"),
            (self.begun, "returned that had begun before"),
        )  # fmt: skip
        return ", ".join(f"{count} {text}" for count, text in parts if count)

    @property
    def warning(self) -> str:
        """That none of the calls returned, which nothing else shows; empty where one did."""
        if self.returned or not self.entered:
            return ""
        return f"{self.probe}: none of {counted(self.entered, 'call')} returned: {self.rest}"


LEAST_AGE = 100_000_000
"""Nanoseconds after which a call that has not returned is worth showing: others come and go between two pictures."""


class UnderWay(msgspec.Struct, frozen=True):
    """A call that has not returned, at one moment: its *age* in nanoseconds, and how many such calls it is in."""

    age: int
    tid: int
    """Of a goroutine the process."""
    thread: str
    """The name of the thread, or the goroutine."""
    call: str
    depth: int


def failure(kind: str) -> LossKind:
    """The row of a counter kind; one that has none counts under its own name."""
    return FAILURES.get(kind) or LossKind(kind, kind, "")
