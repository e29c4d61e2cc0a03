// The output of attention in fp8, of which the tensor cores sum Tiles tiles of keys before CUDA cores add the
// sum in fp32 (promotion.cuh says why); all tiles where that is 0. Where a maximum grows, the sum is scaled
// between two wgmma. The total in fp32 is scaled by the FFMA that adds the next sum, by all factors since the
// last one.
#pragma once

#include "epilogue/online_softmax.cuh"
#include "mma/attention_tiles.cuh"

template <int Tiles, int Registers>
struct PromotedOutput {
    static constexpr bool promotes = Tiles > 0;
    float sum[1][Registers], total[1][promotes ? Registers : 1] = {};
    float factor[2] = {1.0f, 1.0f};  // that the total lacks, for each row
    int tiles = 0;                   // in the sum

    // Starts sum += P @ V of a tile.
    template <class Weights, class Values>
    __device__ void start(const Weights& p, const Values& v) {
        wgmma_output(sum, p, v, tiles > 0);
    }

    // After the wait for it. `growth`: by what weights of the next tile are smaller, for each row.
    __device__ void take(const float (&growth)[2]) {
        ++tiles;
        if constexpr (promotes) {
            if (tiles == Tiles) {
                promote();
                factor[0] = growth[0];
                factor[1] = growth[1];
                tiles = 0;
                return;
            }
            factor[0] *= growth[0];
            factor[1] *= growth[1];
        }
        const bool grows = growth[0] != 1.0f || growth[1] != 1.0f;
        if (__any_sync(0xffffffffu, grows)) OnlineSoftmax::rescale(sum[0], growth);
    }

    __device__ void promote() {
#pragma unroll
        for (int i = 0; i < Registers; ++i) {
            total[0][i] = fmaf(total[0][i], factor[i / 2 % 2], sum[0][i]);
        }
    }

    // The sum of all tiles, after the wait for the last one.
    __device__ auto& finish() {
        if constexpr (promotes) {
            promote();
            return total;
        } else {
            return sum;
        }
    }
};
