"""Quack's softmax as a reference for the problem softmax. It compiles at the first call, which comes before any that is timed."""

import torch
from quack.softmax import _softmax_fwd

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def along_rows(problem, buffers, sizes, scalars, stream):
    given, made = (
        torch.as_tensor(buffers[name], device="cuda").view(TYPES[problem.dtype]) for name in ("input", "output")
    )
    queue = torch.cuda.ExternalStream(stream)
    _softmax_fwd(given, torch.empty_like(made))
    torch.cuda.synchronize()

    def launch():
        with torch.cuda.stream(queue):
            _softmax_fwd(given, made)

    return launch
