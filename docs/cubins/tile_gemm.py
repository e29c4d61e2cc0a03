"""A product of TileLang, whose CUDA nvcc compiles to a cubin: see docs/cubins.md."""

import subprocess
from pathlib import Path

import tilelang
import tilelang.language as T
from tilelang import tvm
from tilelang.env import CUTLASS_INCLUDE_DIR, TILELANG_TEMPLATE_PATH

m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")


@T.prim_func
def gemm(
    A: T.Tensor((m, k), "bfloat16"),
    B: T.Tensor((k, n), "bfloat16"),
    C: T.Tensor((m, n), "bfloat16"),
):
    with T.Kernel(T.ceildiv(n, 128), T.ceildiv(m, 128), threads=128) as (column, row):
        a = T.alloc_shared((128, 32), "bfloat16")
        b = T.alloc_shared((32, 128), "bfloat16")
        c = T.alloc_fragment((128, 128), "float32")
        T.clear(c)
        for step in T.serial(T.ceildiv(k, 32)):
            T.copy(A[row * 128, step * 32], a)
            T.copy(B[step * 32, column * 128], b)
            T.gemm(a, b, c)
        T.copy(c, C[row * 128, column * 128])


target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
without = {"tl.disable_tma_lower": True, "tl.disable_warp_specialized": True}
with target, tvm.transform.PassContext(config=without):
    Path("tile_gemm.cu").write_text(tilelang.lower(gemm, target=target).kernel_source)
options = ["-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "-cubin"]
includes = [f"-I{TILELANG_TEMPLATE_PATH}", f"-I{CUTLASS_INCLUDE_DIR}"]
subprocess.run(["nvcc", *options, *includes, "tile_gemm.cu"], check=True)
