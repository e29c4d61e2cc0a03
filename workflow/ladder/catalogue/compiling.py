"""What the compiler is asked for a sweep, and the document its answers make."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.build.nvrtc import Request
from ladder.build.variants import request_of, variant_facts
from ladder.model.kernel import Variant
from ladder.model.sweep import Sweep
from ladder.problems.registry import harness_request


@dataclass(frozen=True)
class Wanted:
    """Requests for the harness of a sweep's problem and for each variant."""

    harness: Request
    variants: Mapping[Variant, Request]

    @property
    def requests(self) -> list[Request]:
        return [self.harness, *self.variants.values()]

    def document(self, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """What compiled.json says, from the facts `found` by key."""
        harness = {**found[self.harness.key], "cubin": self.harness.key}
        own = {one.id: variant_facts(one, asked, found[asked.key]) for one, asked in self.variants.items()}
        return {"harness": harness, "variants": own}


def wanted(sweep: Sweep, include: Path, arch: str, options: Sequence[str]) -> Wanted:
    """What a sweep needs compiled, kernels of references included. Raises LadderError for a header that is missing."""
    requests = {variant: request_of(variant, include, arch, options) for variant in sweep.variants}
    return Wanted(harness_request(sweep.problem.name, arch), requests)
