// Which tiles of C a persistent cluster computes, one after the other. The tiles of all clusters of one wave
// lie next to each other on the raster, so that they share rows of A and columns of B in the L2. A grid of
// one cluster per tile is the same loop with one wave.
#pragma once

#include "ptx/cluster.cuh"
#include "schedule/raster.cuh"
#include "types/index.cuh"

constexpr int hilbert = -1;  // a raster; other values are the width of a threadblock swizzle

template <int Raster>
__host__ __device__ constexpr TilePosition raster_position(int tile, int rows, int columns) {
    if constexpr (Raster == hilbert) {
        return hilbert_position(tile, rows, columns);
    } else {
        return tile_position<Raster>(tile, rows, columns);
    }
}

// What a persistent block has to do: tiles `cluster`, `cluster + clusters` and so on, as block `rank` of its
// cluster, in `steps` steps of K each.
struct BlockWork {
    int cluster, clusters, rank, steps;
};

// Tiles of BM x BN, those of a cluster side by side. A tile outside of C has a number as well: its block
// takes part in the loads of its cluster and stores nothing.
template <int BM, int BN, class Cluster, int Raster>
struct TileScheduler {
    int rows, columns;  // of clusters of tiles

    // The number of clusters matters to EvenTiles only.
    __host__ __device__ constexpr TileScheduler(int m, int n, int = 0)
        : rows(ceil_div(m, BM * Cluster::rows)), columns(ceil_div(n, BN * Cluster::columns)) {}

    __host__ __device__ constexpr int tiles() const { return rows * columns; }

    // The first row and column of C that block `rank` of the cluster computes.
    __host__ __device__ constexpr TilePosition origin(int tile, int rank) const {
        const TilePosition at = raster_position<Raster>(tile, rows, columns);
        return {(at.row * Cluster::rows + Cluster::row(rank)) * BM,
                (at.column * Cluster::columns + Cluster::column(rank)) * BN};
    }
};
