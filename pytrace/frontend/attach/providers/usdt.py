"""usdt: static trace points of user programs."""

from __future__ import annotations

from pytrace.core.kernel_info import UsdtProbe
from pytrace.core.probes.targets import StaticProbeTarget
from pytrace.frontend.attach.points import contexts, usdt_arguments
from pytrace.frontend.attach.points.body_uses import Uses
from pytrace.frontend.attach.points.parts import Part, Point
from pytrace.frontend.attach.providers import binaries
from pytrace.frontend.attach.providers.base import BinaryProvider, Match, Scope, by_pattern, nearest
from pytrace.frontend.syntax.typed_program import ProbeContext


class Usdt(BinaryProvider):
    """``usdt:BINARY:[PROVIDER:]NAME``."""

    shape = "{0}:BINARY:NAME or {0}:BINARY:PROVIDER:NAME"
    counts = range(2, 4)

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        parts = point.parts
        if not 1 <= len(parts) <= 3 or not parts[-1].text or any(part.before == "@" for part in parts):
            return self.bad_shape(point, scope)
        target: Part | None = parts[0] if len(parts) > 1 else None
        name = parts[-1]
        provider = parts[1] if len(parts) == 3 and parts[1].text else None
        probes: list[UsdtProbe] = []
        paths = binaries.resolve(target, point.span, scope)
        for path in paths:
            probes.extend(scope.kernel.usdt_probes(path, provider.text if provider is not None else "*", name.text))
        if paths and not probes:
            self._missing(point, paths, provider, name, scope)
        if provider is None and not name.wild and not self._unique(point, probes, scope):
            return []
        wild = name.wild or (provider is not None and provider.wild) or len(paths) > 1
        matches = [self._match(point, item, wild=wild) for item in probes]
        return by_pattern(matches) if target is not None and binaries.is_glob(target.text) else matches

    def _unique(self, point: Point, probes: list[UsdtProbe], scope: Scope) -> bool:
        providers = sorted({item.provider for item in probes})
        if len(providers) < 2:
            return True
        name, path = point.parts[-1].text, probes[0].path
        hints = [f"write {' or '.join(f'usdt:{path}:{item}:{name}' for item in providers)}"]
        scope.error(f"probe {name!r} is in several providers: {', '.join(providers)}", point.span, hints)
        return False

    def _missing(self, point: Point, paths: list[str], provider: Part | None, name: Part, scope: Scope) -> None:
        known = [item for path in paths[:8] for item in scope.kernel.usdt_probes(path, "*", "*")]
        where = paths[0] if len(paths) == 1 else f"{len(paths)} files"
        wanted = f"{provider.text}:{name.text}" if provider is not None else name.text
        if provider is not None:
            hints = nearest(wanted, [f"{item.provider}:{item.name}" for item in known], f"usdt:{where}:{{}}")
        else:
            hints = nearest(wanted, [item.name for item in known], f"usdt:{where}:{{}}")
        if not known:
            hints = ["there are no USDT probes at all"]
        if provider is None and any(scope.kernel.user_symbols(path, name.text) for path in paths[:8]):
            hints.insert(0, f"functions are uprobe:{where if len(paths) == 1 else 'FILE'}:{name.text}")
        report = scope.unmatched if any(part.wild for part in point.parts) else scope.missing
        report(f"there is no USDT probe {wanted!r} in {where}", point.span, hints)

    def _match(self, point: Point, item: UsdtProbe, *, wild: bool) -> Match:
        place = StaticProbeTarget(
            item.path,
            item.offset,
            provider=item.provider,
            name=item.name,
            semaphore_offset=item.semaphore_offset,
        )
        name = f"{point.kind.name}:{item.path}:{item.provider}:{item.name}"
        return Match(point.kind, name, place, point.span, item, wild)

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        item = match.subject
        assert isinstance(item, UsdtProbe), item
        ctx = contexts.registers(scope.kernel) if "ctx" in uses else None
        if not uses.positional:
            return ProbeContext(ctx_type=ctx)
        try:
            places = usdt_arguments.locations(
                item.arguments,
                scope.kernel.arch,
                lambda name: scope.kernel.user_address(item.path, name),
                item.address,
                wanted=uses.positional,
            )
        except usdt_arguments.BadArgumentError as problem:
            scope.error(f"the arguments of {match.probe} cannot be read: {problem}", match.span)
            places = ()
        return ProbeContext(positional=places, ctx_type=ctx)
