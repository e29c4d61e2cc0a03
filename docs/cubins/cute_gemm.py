"""A naive product, compiled to a cubin by CuTe DSL: see docs/cubins.md."""

import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass.cute.runtime import make_ptr


@cute.kernel
def gemm(
    a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, m: Int32, n: Int32, k: Int32
):
    x, y, _ = cute.arch.thread_idx()
    column, row, _ = cute.arch.block_idx()
    i, j = row * 16 + y, column * 16 + x
    A = cute.make_tensor(a, cute.make_layout((m, k), stride=(k, 1)))
    B = cute.make_tensor(b, cute.make_layout((k, n), stride=(n, 1)))
    C = cute.make_tensor(c, cute.make_layout((m, n), stride=(n, 1)))
    if i < m and j < n:
        total = Float32(0.0)
        for p in range(k):
            total += A[i, p] * B[p, j]
        C[i, j] = total


@cute.jit
def launch(
    a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, m: Int32, n: Int32, k: Int32
):
    blocks = ((n + 15) // 16, (m + 15) // 16, 1)
    gemm(a, b, c, m, n, k).launch(grid=blocks, block=(16, 16, 1))


pointers = [make_ptr(Float32, 0, cute.AddressSpace.gmem, assumed_align=16)] * 3
options = "--gpu-arch sm_90a --keep-cubin --dump-dir ."
cute.compile(launch, *pointers, Int32(16), Int32(16), Int32(16), options=options)
