"""iter: BPF iterators over kernel objects."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from pytrace.core.probes.targets import BPF_FILE_SYSTEM, ITERATORS_OF_ONE_OBJECT, IteratorTarget
from pytrace.frontend.attach.points import contexts
from pytrace.frontend.attach.providers.base import Match, Provider, Scope, nearest

if TYPE_CHECKING:
    from pytrace.frontend.ast.probe_context import ProbeContext
    from pytrace.frontend.attach.points.body_uses import Uses
    from pytrace.frontend.attach.points.parts import Point


class Iterator(Provider):
    """``iter:TYPE[:PIN]``; a pin is a path, relative ones below ``/sys/fs/bpf``."""

    single = True
    shape = "{0}:TYPE or {0}:TYPE:PIN"

    def fit(self, point: Point) -> bool:
        return 1 <= len(point.parts) <= 2

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        if not 1 <= len(point.parts) <= 2 or not point.parts[0].text:
            return self.bad_shape(point, scope)
        name = point.parts[0]
        if name.text in ITERATORS_OF_ONE_OBJECT:
            scope.missing(f"iter:{name.text} iterates over one map or cgroup, which a probe cannot name", name.span)
            return []
        known = [iterator for iterator in scope.kernel.iterators() if iterator not in ITERATORS_OF_ONE_OBJECT]
        if name.wild:
            scope.error("iter takes no pattern", name.span, [f"iterators are {', '.join(sorted(known))}"])
            return []
        if not known:
            scope.missing("this kernel has no BPF iterators (they need BTF)", point.span)
            return []
        if name.text not in known:
            hints = nearest(name.text, known, "iter:{}") or [f"iterators are {', '.join(sorted(known))}"]
            scope.missing(f"there is no iterator {name.text!r}", name.span, hints)
            return []
        pin = point.parts[1].text if len(point.parts) == 2 else ""
        suffix = f":{pin}" if pin else ""
        place = IteratorTarget(name.text, posixpath.join(BPF_FILE_SYSTEM, pin) if pin else "")
        return [Match(point.kind, f"{point.kind.name}:{name.text}{suffix}", place, point.span)]

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        del uses
        assert isinstance(match.place, IteratorTarget), match.place
        return contexts.iterator(scope.kernel.iterators()[match.place.iterator])
