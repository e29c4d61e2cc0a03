// Tried, does not pay.
//
// output[0] = the sum of `elements` numbers: a ring of bulk copies, filled by a warp that does nothing else.
//
// What is under way does not depend on threads any more. One thread asks for a line of Stage bytes by one
// instruction, and the copy needs no registers (cp.async.bulk). Stages of them are under way or full, 96 KiB
// a block and two blocks a multiprocessor, which is over four times what Little's law asks for. The other
// warps wait until a line is there, add it up from shared memory and hand its place back.
//
// Sums of blocks are added up as in the file before.

#include "epilogue/grid_sum.cuh"
#include "ptx/bulk_copy.cuh"
#include "schedule/ring.cuh"
#include "simt/block_sum.cuh"
#include "types/element.cuh"
#include "types/index.cuh"
#include "types/vector.cuh"

// sums: room for one number a block. arrived: zero between launches. Block threads add up, one warp copies.
template <class T, int Block, int Stages, int Stage>
__global__ void __launch_bounds__(Block + 32)
sum_bulk_copies(const T* __restrict__ input, float* __restrict__ output, Index elements, float* sums,
                unsigned* arrived) {
    constexpr int width = 16 / sizeof(T), room = Stage / 16;  // numbers of a vector, vectors of a stage
    alignas(128) extern __shared__ unsigned char ring[];
    __shared__ RingBarriers<Stages> barriers;
    const int thread = threadIdx.x;
    if (thread == 0) barriers.init(Block / 32);  // each warp that adds up hands a stage back
    __syncthreads();                             // the barriers are there

    const Index vectors = elements / width;
    float own = 0.0f;
    // Numbers behind the last whole vector, one for each of the first threads.
    if (blockIdx.x == 0 && thread < elements % width) own = to_float(input[width * vectors + thread]);
    auto at = barriers.begin();
    for (Index first = Index(blockIdx.x) * room; first < vectors; first += Index(gridDim.x) * room) {
        auto* stage = reinterpret_cast<Vector<T, width>*>(ring + at.stage * Stage);
        const int count = first + room < vectors ? room : static_cast<int>(vectors - first);
        if (thread == Block) {
            barriers.wait_until_empty(at);
            mbarrier_arrive_expect(barriers.full[at.stage], 16 * count);
            bulk_load(stage, input + width * first, 16 * count, barriers.full[at.stage]);
        } else if (thread < Block) {
            mbarrier_wait(barriers.full[at.stage], at.parity);
#pragma unroll
            for (int i = thread; i < room; i += Block) own += i < count ? sum_of(stage[i]) : 0.0f;
            __syncwarp();  // all lanes have read it
            if (thread % 32 == 0) mbarrier_arrive(barriers.empty[at.stage]);
        }
        at.advance();
    }

    const float sum = block_sum<Block + 32>(own);
    if (thread == 0) sums[blockIdx.x] = sum;
    if (!is_last_slice(arrived, gridDim.x)) return;

    float all = 0.0f;
    for (int block = thread; block < gridDim.x; block += Block + 32) all += sums[block];
    all = block_sum<Block + 32>(all);
    if (thread == 0) output[0] = all;
}
