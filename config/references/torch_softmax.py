"""torch.softmax as a reference for the problem softmax: of bf16 numbers too, which it adds up in fp32."""

import torch

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def along_rows(problem, buffers, sizes, scalars, stream):
    rows, output = (
        torch.as_tensor(buffers[name], device="cuda").view(TYPES[problem.dtype])
        for name in ("input", "output")
    )
    queue = torch.cuda.ExternalStream(stream)

    def launch():
        with torch.cuda.stream(queue):
            torch.softmax(rows, dim=1, out=output)

    return launch
