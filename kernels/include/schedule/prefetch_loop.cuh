// The loop over K of a tiled GEMM whose tiles pass through registers on their way into shared memory: the
// next tile is fetched from global memory while this one is multiplied, and stored to shared memory
// (deposited) after it.
//   Stages == 1  one pair of tiles: a barrier before the deposit (all threads have read) and one after it
//                (complete).
//   Stages == 2  two pairs, of which one is read and the other written: a single barrier per tile.
//   Buffers == 2  the next step's fragments load before this step is multiplied; with two stages across
//                 tiles, too.
// `copies` and `warp` are those of staged_loop.cuh, with `fetch` and `deposit` in place of `start`.
#pragma once

// Whether a tile's fetch is issued before the FFMAs of a tile or after them; deposits come after the FFMAs,
// or are spread over the last of them.
enum class FetchOrder { prefetch_first, compute_first };
enum class DepositPlace { behind, between };

template <int Stages, int Buffers, FetchOrder Fetch, DepositPlace Deposits, class Copies, class Warp>
__device__ inline void prefetch_loop(Copies& copies, Warp& warp, char* shared, int tiles) {
    constexpr int steps = Warp::steps;
    static_assert(Stages <= 2 && (Stages == 2 || Deposits == DepositPlace::behind),
                  "a single pair of tiles is read to the end");
    static_assert(Buffers == 1 || steps % 2 == 0, "buffers alternate over the steps");
    const auto fetch = [&] {
        copies.fetch();
        copies.advance();
    };
    fetch();
    int reading = 0;
    if constexpr (Stages == 2) {
        copies.deposit(shared, 0, 1);
        __syncthreads();
        if (Buffers == 2) warp.load(0, 0, 0);
    }
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        const int writing = Stages == 2 ? Copies::bytes - reading : 0;
        if constexpr (Stages == 1) {
            if (tile > 0) __syncthreads();  // wait until all threads have read the previous tiles
            copies.deposit(shared, 0, 1);
            __syncthreads();  // wait until the tiles are complete
            if (Buffers == 2) warp.load(0, 0, 0);
        }
        if (Fetch == FetchOrder::prefetch_first) fetch();
#pragma unroll
        for (int step = 0; step < steps; ++step) {
            const int next = step + 1, ahead = Buffers - 1;
            if (Stages == 2 && Buffers == 2 && next == steps) break;
            if (step + ahead < steps) warp.load(reading, step + ahead, (step + ahead) % Buffers);
            warp.multiply(step % Buffers);
            // The last steps but one carry a quarter of the deposits each.
            const int part = step - (steps - 5);
            if (Deposits == DepositPlace::between && part >= 0 && part < 4) {
                copies.deposit(shared + writing, part, 4);
            }
        }
        if (Fetch == FetchOrder::compute_first) fetch();
        if constexpr (Stages == 2) {
            if (Deposits == DepositPlace::behind) copies.deposit(shared + writing, 0, 1);
            __syncthreads();  // the next tiles are complete, and all threads have read these
            reading = writing;
            if constexpr (Buffers == 2) {
                warp.load(reading, 0, 0);
                warp.multiply(1);
            }
        }
    }
}
