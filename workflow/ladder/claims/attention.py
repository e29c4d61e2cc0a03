"""Claims of what was written about attention: FlashAttention-2 and 3.

The ablation of FlashAttention-3 took 4 batches of 16 heads, 8448 keys, 128 elements in a row, fp16, without a mask: 661
TFLOP/s, 582 without an overlap inside a warpgroup, 570 without warp specialisation. Here a rung is held against the one
that it changes, in bf16 at 8192 keys: warp specialisation comes ahead of the overlaps.
"""

from ladder.claims.primitives import Parts, decide_part, is_faster, rung_over
from ladder.results.run_data import RunData, Values

_LONG = (4096, 8192, 16384)
"""Keys from which on nearly half of the tiles of a causal attention are masked."""


def _gains(data: RunData, rung: str, below: str, **wanted: object) -> Values:
    return rung_over(data, "attention", rung, below, "sequence", **wanted)


def scores_on_chip(data: RunData) -> Parts:
    """Attention whose scores stay on the chip is 3 to 10 times as fast as with scores in memory.

    Source: flash-attention-2 (4; over PyTorch on an A100).
    """
    gains = _gains(data, "2 fused", "1 scores in memory")
    label = "speed of fused over scores in memory"
    faster = yield decide_part(
        label, gains, least=3, most=10, more=True, per="sequence"
    )
    return f"Fuse both products and the softmax: {faster.span} the speed."


def masked_tiles_are_skipped(data: RunData) -> Parts:
    """Causal attention over many keys without the tiles that are masked as a whole is 1.7 to 1.8 times as fast.

    Source: flash-attention-2 (3.1).
    """
    gains = _gains(data, "7 causal", "6b causal, all tiles", sequence=_LONG)
    label = "speed of skipped over masked tiles"
    faster = yield decide_part(
        label, gains, least=1.7, most=1.8, more=True, per="sequence"
    )
    return f"Leave out tiles that are masked, the longest rows first: {faster.span} the speed."


def warp_specialisation_of_attention(data: RunData) -> Parts:
    """A warpgroup that copies for others makes attention 1.16 times as fast at 8448 keys (the source on an H100).

    Source: flash-attention-3 (ablation).
    """
    gains = _gains(data, "3 two consumers", "2 fused")
    label = "speed with a copying warpgroup over one without"
    faster = yield is_faster(label, gains, "sequence")
    yield decide_part(f"{label}, 8192 keys", gains.only(sequence=8192), least=1.16)
    return f"Let one warpgroup copy for two that multiply: {faster.span} the speed."


def overlap_in_a_warpgroup(data: RunData) -> Parts:
    """A warpgroup that exponentiates during its own product makes attention 1.136 times as fast at 8448 keys (the
    source on an H100).

    Source: flash-attention-3 (ablation).
    """
    gains = _gains(data, "6 overlap", "5 ping-pong")
    label = "speed with over without an overlap inside a warpgroup"
    faster = yield is_faster(label, gains, "sequence")
    yield decide_part(f"{label}, 8192 keys", gains.only(sequence=8192), least=1.136)
    return f"Start the next scores ahead of this softmax: {faster.span} the speed."
