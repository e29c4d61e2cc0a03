// Copies of a pair of tiles where one half of the block copies A and the other half B (text 002, kernel 3.4). CopyA and CopyB
// are shares of half a block; the interface is TilePair's (staged_loop.cuh).
#pragma once

template <class CopyA, class CopyB>
struct SplitPair {
    static constexpr int bytes = CopyA::bytes + CopyB::bytes;
    CopyA a;
    CopyB b;
    bool first_half = 2 * threadIdx.x < blockDim.x;

    __device__ void fetch() {
        if (first_half) {
            a.fetch();
        } else {
            b.fetch();
        }
    }
    __device__ void deposit(char* stage, int part, int parts) const {
        if (first_half) {
            a.deposit(stage, part, parts);
        } else {
            b.deposit(stage + CopyA::bytes, part, parts);
        }
    }
    __device__ void copy(char* stage) {
        fetch();
        deposit(stage, 0, 1);
    }
    __device__ void advance() {
        a.advance_right();
        b.advance_down();
    }
};
