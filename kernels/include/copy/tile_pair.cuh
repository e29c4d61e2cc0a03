// A thread's share of copying a pair of tiles, B behind A in shared memory, that walk along K: A to the
// right, B down. CopyA and CopyB are the shares of one tile (tile_copy.cuh, chunk_copy.cuh).
//   TilePair   every thread copies of both tiles.
//   SplitPair  one half of the block copies A through its registers, the other half B (hip-gemm, kernel 3.4):
//              the shares are those of half a block.
#pragma once

template <class CopyA, class CopyB>
struct TilePair {
    static constexpr int bytes = CopyA::bytes + CopyB::bytes;
    CopyA a;
    CopyB b;

    __device__ void start(unsigned stage, int part, int parts) const {
        a.start(stage, part, parts);
        b.start(stage + CopyA::bytes, part, parts);
    }
    __device__ void copy(char* stage) {
        a.copy(stage);
        b.copy(stage + CopyA::bytes);
    }
    __device__ void fetch() {
        a.fetch();
        b.fetch();
    }
    __device__ void deposit(char* stage, int part, int parts) const {
        a.deposit(stage, part, parts);
        b.deposit(stage + CopyA::bytes, part, parts);
    }
    __device__ void advance() {
        a.advance_right();
        b.advance_down();
    }
};

template <class CopyA, class CopyB>
struct SplitPair : TilePair<CopyA, CopyB> {
    bool first_half = 2 * threadIdx.x < blockDim.x;

    __device__ void start(unsigned stage, int part, int parts) const = delete;
    __device__ void copy(char* stage) {
        fetch();
        deposit(stage, 0, 1);
    }
    __device__ void fetch() {
        if (first_half) {
            this->a.fetch();
        } else {
            this->b.fetch();
        }
    }
    __device__ void deposit(char* stage, int part, int parts) const {
        if (first_half) {
            this->a.deposit(stage, part, parts);
        } else {
            this->b.deposit(stage + CopyA::bytes, part, parts);
        }
    }
};
