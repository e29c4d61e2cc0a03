"""cuDNN's attention as a reference for the problem attention, by the graphs of nvidia-cudnn-frontend.

cuDNN itself comes with torch, whose tensors the graph takes. Its output is o: nothing is copied.
"""

import math

import cudnn
import torch

TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
OF_GRAPH = {"fp16": cudnn.data_type.HALF, "bf16": cudnn.data_type.BFLOAT16}


def forward(problem, buffers, sizes, scalars, stream):
    q, k, v, o = (
        torch.as_tensor(buffers[name], device="cuda").view(TYPES[problem.dtype])[None] for name in "qkvo"
    )
    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=stream)
    graph = cudnn.pygraph(
        io_data_type=OF_GRAPH[problem.dtype],
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        handle=handle,
    )
    given = [graph.tensor_like(one) for one in (q, k, v)]
    scale = 1 / math.sqrt(sizes["d"])
    made, _ = graph.sdpa(
        q=given[0],
        k=given[1],
        v=given[2],
        is_inference=True,
        attn_scale=scale,
        use_causal_mask=bool(sizes["causal"]),
        name="attention",
    )
    made.set_output(True).set_dim(list(o.shape)).set_stride(list(o.stride()))
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    graph.build_plans()
    workspace = torch.empty(graph.get_workspace_size(), device="cuda", dtype=torch.uint8)
    places = {**dict(zip(given, (q, k, v), strict=True)), made: o}

    def launch():
        graph.execute(places, workspace, handle=handle)

    return launch
