"""A claim of what was written about fp8 with scales by block: DeepSeek-V3's report."""

from ladder.claims.primitives import Parts, decide_part
from ladder.results.run_data import RunData

_MINIMAL = 0.03
"""A cost of so small a share of the speed counts as minimal."""


def scales_cost_little(data: RunData) -> Parts:
    """Scales by block, multiplied on CUDA cores as partial sums are promoted, cost little.

    Source: deepseek-v3 (3.3.2).
    """
    speeds = data.speeds(data.timed("scaled_price")).best("m")
    whole = yield decide_part(
        "speed of the fastest with over without scales (little: 3 % at most)",
        speeds,
        least=1 - _MINIMAL,
        per="m",
    )
    return f"Fold the scales into the promotion's additions, and expect {whole.span} the speed."
