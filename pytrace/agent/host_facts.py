"""The facts about this host that an agent states, so that its controller can compile for it."""

from __future__ import annotations

from contextlib import closing

from pytrace.core import kernel_facts
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_facts import Question
from pytrace.remote.messages import Inquiry, Stated
from pytrace.remote.variants import packed
from pytrace.runtime.load import remote_kernel
from pytrace.runtime.load.live_kernel import LiveKernel


class HostFacts:
    """Facts, collected when they are needed."""

    def __init__(self, questions: tuple[Question, ...]) -> None:
        """*questions*: what they answer."""
        self._questions = questions
        self._encoded = b""

    def digest(self) -> str:
        """What they are known by; empty if this host does not say, so that it is of no kind."""
        try:
            return kernel_facts.digest(self._facts())
        except TraceError:
            return ""

    def matches(self) -> str:
        """Which probes the patterns of the script match (:func:`pytrace.runtime.load.remote_kernel.probe_digest`)."""
        with closing(LiveKernel()) as kernel:
            return remote_kernel.probe_digest(kernel, self._questions)

    def answer(self, inquiry: Inquiry) -> Stated:
        """What the controller wants of them.

        Raises:
            TraceError: this host does not say.
        """
        if new := set(inquiry.questions).difference(self._questions):
            self._questions += tuple(sorted(new))
            self._encoded = b""
        encoded = self._facts()
        data = packed(encoded) if inquiry.whole else b""
        return Stated(facts=kernel_facts.digest(encoded), data=data)

    def _facts(self) -> bytes:
        if not self._encoded:
            with closing(LiveKernel()) as kernel:
                self._encoded = remote_kernel.answer_questions(kernel, self._questions).encoded()
        return self._encoded
