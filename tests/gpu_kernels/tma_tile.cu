// C = alpha*A@B + beta*C on 16x16 tiles that TMA brings into shared memory: tests tensor-map arguments.

struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};

constexpr int tile = 16, depth = 32;

__device__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ void copy_tile(void* to, const TensorMap& from, int column, int row, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared_address(to)),
      "l"(&from), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

__global__ void tma_tile(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* c, int m,
                         int n, int k, float alpha, float beta) {
  __shared__ alignas(128) float a_tile[tile][depth];
  __shared__ alignas(128) float b_tile[depth][tile];
  __shared__ alignas(8) unsigned long long arrived;
  const unsigned barrier = shared_address(&arrived);
  const bool leader = threadIdx.x == 0;
  if (leader) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  const int row = threadIdx.x / tile, column = threadIdx.x % tile;
  float sum = 0.0f;
  unsigned phase = 0;
  for (int start = 0; start < k; start += depth, phase ^= 1) {
    if (leader) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                   "r"(2 * tile * depth * 4)
                   : "memory");
      copy_tile(a_tile, a, start, blockIdx.y * tile, barrier);
      copy_tile(b_tile, b, blockIdx.x * tile, start, barrier);
    }
    asm volatile(
        "{\n.reg .pred done;\nwait:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra wait;\n}" ::"r"(
            barrier),
        "r"(phase)
        : "memory");
    for (int i = 0; i < depth; ++i) sum += a_tile[row][i] * b_tile[i][column];
    __syncthreads();
  }
  const int i = blockIdx.y * tile + row, j = blockIdx.x * tile + column;
  if (i >= m || j >= n) return;
  float& out = c[static_cast<long long>(i) * n + j];
  out = (alpha == 0.0f ? 0.0f : alpha * sum) + (beta != 0.0f ? beta * out : 0.0f);
}
