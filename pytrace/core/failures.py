"""What is counted when something is lost: the words for each kind, in messages, descriptions of runs and reports."""

from __future__ import annotations

import msgspec


class Failure(msgspec.Struct, frozen=True):
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


FAILURES: dict[str, Failure] = {
    "lost": Failure("event lost", "events lost", "program"),
    "missed": Failure("probe hit missed", "probe hits missed", "program"),
    "skipped": Failure("probe hit skipped while pytrace did not run", "probe hits skipped while pytrace did not run",
                       "program", told=ALL),
    "recursion": Failure("recursive probe hit skipped", "recursive probe hits skipped",
                         "program"),
    "limited": Failure("hit over --max-rate dropped", "hits over --max-rate dropped", "program", told=ALL),
    "deep_return": Failure("return not seen, as the kernel follows 64 nested calls of a task",
                           "returns not seen, as the kernel follows 64 nested calls of a task", "program"),
    "tail_call": Failure("return left out, as the function jumps to another one whose value cannot be seen",
                         "returns left out, as the function jumps to another one whose value cannot be seen",
                         "program", told=ALL),
    "ignored": Failure("event after exit() dropped", "events after exit() dropped",
                       "", told=ALL),
    "map_full": Failure("map update dropped", "map updates dropped", "map", told=1),
    "kernel_stack": Failure("kernel stack could not be unwound", "kernel stacks could not be unwound", "site",
                            told=_EACH),
    "user_stack": Failure("user stack could not be unwound", "user stacks could not be unwound", "site",
                          told=_EACH),
    "collided": Failure("update of min() or max() lost to concurrent updates",
                        "updates of min() or max() lost to concurrent updates", "program"),
    "stack_cut": Failure("dw_ustack stack truncated where its unwind tables end",
                         "dw_ustack stacks truncated where their unwind tables end", "site", told=ALL),
    "truncated": Failure("stack truncated after its innermost frames", "stacks truncated after their innermost frames",
                         "site", told=ALL),
    "chunks_full": Failure("stack lost frames, as the map of chunks was full",
                           "stacks lost frames, as the map of chunks was full", "site", told=ALL),
    "python_cut": Failure("pystack truncated where frames could not be read",
                          "pystacks truncated where frames could not be read", "site", told=ALL),
    "python_names": Failure("Python function without its name", "Python functions without their names", "site",
                            told=ALL),
    "unprinted": Failure("event not printed because of the interrupt", "events not printed because of the interrupt",
                         ""),
    "unsorted": Failure("row lost that had to wait for print_rows()", "rows lost that had to wait for print_rows()",
                        ""),
    "not_run": Failure("system() command not run because of the interrupt",
                       "system() commands not run because of the interrupt", ""),
    "cut": Failure("string truncated", "strings truncated", "program", told=ALL),
    "unfinished": Failure("event lost whose system call had not returned",
                          "events lost whose system calls had not returned", "program"),
    "unreadable": Failure("read of memory failed", "reads of memory failed", "site"),
    "unjoined": Failure("list of strings truncated by join() after 16 strings",
                        "lists of strings truncated by join() after 16 strings", "program"),
    "unfollowed": Failure("forked process could not be followed", "forked processes could not be followed", ""),
    "untraced": Failure("child process was not traced: --follow traces it, too",
                        "child processes were not traced: --follow traces them, too", "", told=ALL),
    "helper": Failure("helper call failed", "helper calls failed", "site", told=_EACH),
}  # fmt: skip


def failure(kind: str) -> Failure:
    """The row of a counter kind; one that has none counts under its own name."""
    return FAILURES.get(kind) or Failure(kind, kind, "")
