// C = alpha * A @ B + beta * C by two blocks of threads along K, the first of which leaves its sums in a
// workspace; or with a mistake that a workspace makes possible.

enum class Fault { none, dirty, counts, behind, replays };

template <Fault fault>
__global__ void workspace(const float* a, const float* b, float* c, float* sums, unsigned* flags, int m, int n,
                          int k, float alpha, float beta) {
    const int row = blockIdx.y, half = blockIdx.z, begin = half * (k / 2), end = half ? k : k / 2;
    unsigned* flag = flags + row;
    if (fault == Fault::replays && half && sums[row * n] == sums[row * n]) {  // not NaN: of an earlier launch
        for (int j = threadIdx.x; j < n; j += blockDim.x) c[row * n + j] = sums[row * n + j];
        return;
    }
    if (half == 1) {
        if (threadIdx.x == 0) {
            while (atomicAdd(flag, 0) == 0) {
            }
            __threadfence();
            if (fault == Fault::counts) flags[gridDim.y] += 1;
            if (fault != Fault::dirty) atomicExch(flag, 0);
        }
        __syncthreads();
    }
    for (int j = threadIdx.x; j < n; j += blockDim.x) {
        float sum = half ? __ldcg(sums + row * n + j) : 0.0f;
        for (int i = begin; i < end; ++i) sum += a[row * k + i] * b[i * n + j];
        if (!half) {
            sums[row * n + j] = sum;
        } else {
            const float before = beta != 0.0f ? beta * c[row * n + j] : 0.0f;
            c[row * n + j] = alpha * sum + before;
            if (fault == Fault::replays) sums[row * n + j] = c[row * n + j];
        }
    }
    if (half == 0) {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomicExch(flag, 1);
    }
    if (fault == Fault::behind && row == 0 && half == 0) flags[gridDim.y + 4] = 1;
}
