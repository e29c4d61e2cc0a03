// How to launch hopper_gemm from a program of your own, as the sweeps launch it: tensor maps, grid, cluster
// and shared memory follow from the template parameters. docs/use-a-kernel.md has a program.
//
//   nvcc -std=c++17 -gencode arch=compute_90a,code=sm_90a -I kernels/include -I kernels/gemm/hopper a.cu
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include <cuda.h>
#include <cuda_runtime.h>

#include "hopper_gemm.cu"

namespace ladder {

template <class Element>
constexpr CUtensorMapDataType map_type = CU_TENSOR_MAP_DATA_TYPE_UINT8;  // fp8
template <>
inline constexpr CUtensorMapDataType map_type<__nv_bfloat16> = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
template <>
inline constexpr CUtensorMapDataType map_type<__half> = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
template <>
inline constexpr CUtensorMapDataType map_type<Tf32> = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
template <>
inline constexpr CUtensorMapDataType map_type<float> = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;

// The driver's function that makes tensor maps: asked for here, so that no program must link the driver.
inline auto tensor_map_encoder() {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
}

// A row-major matrix as TMA copies it, in boxes whose rows the swizzle spans. False where the driver refuses:
// rows must be multiples of 16 bytes, and the matrix must begin at one.
template <class Element>
bool encode(CUtensorMap* map, const void* matrix, int rows, int columns, int box_rows, int box_columns,
            CUtensorMapL2promotion promotion) {
    const cuuint64_t extents[] = {cuuint64_t(columns), cuuint64_t(rows)};
    const cuuint64_t row_bytes[] = {cuuint64_t(columns) * sizeof(Element)};
    const cuuint32_t box[] = {cuuint32_t(box_columns), cuuint32_t(box_rows)}, steps[] = {1, 1};
    static const auto encode_tiled = tensor_map_encoder();
    if (encode_tiled == nullptr) return false;
    return encode_tiled(map, map_type<Element>, 2, const_cast<void*>(matrix), extents, row_bytes, box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promotion,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// C = alpha * A @ B + beta * C, enqueued on a stream. A is m x k, C is m x n; B is n x k for Major::k (TN),
// and k x n for Major::mn (NN; 16-bit elements alone). All lie row by row in device memory.
//
// Element is __nv_bfloat16, __half, Tf32 (A, B and C hold float) or E4m3 (C holds __nv_bfloat16). `blocks`
// stay and take tile after tile; with 0 there is one for each tile. `promotion` is the parameter `fetch`.
//
// cudaErrorInvalidValue: a matrix that TMA cannot copy, such as an n or k whose rows are no multiple of 16
// bytes. Other errors are those of the launch.
template <class Element, Major MajorB, class Tile, class Stages, class Order, class Store>
cudaError_t hopper_gemm(const void* a, const void* b, ElementOfC<Element>* c, int m, int n, int k,
                        float alpha, float beta, int blocks = 132, cudaStream_t stream = 0,
                        CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE) {
    using Cluster = typename Order::Cluster;
    using Result = ElementOfC<Element>;
    constexpr int depth = 128 / sizeof(Element);
    constexpr int rows_a = Tile::rows / Cluster::columns, share_b = Tile::columns / Cluster::rows;
    constexpr int rows_b = MajorB == Major::mn ? 64 : share_b <= 256 ? share_b : Tile::columns / 2;
    constexpr int columns_c = std::gcd(int(Tile::consumer_columns), int(128 / sizeof(Result)));
    const bool along_n = MajorB == Major::mn;
    CUtensorMap map_a, map_b, map_c;
    if (!encode<Element>(&map_a, a, m, k, rows_a, depth, promotion) ||
        !encode<Element>(&map_b, b, along_n ? k : n, along_n ? n : k, rows_b, depth, promotion) ||
        !encode<Result>(&map_c, c, m, n, 64, columns_c, CU_TENSOR_MAP_L2_PROMOTION_NONE))
        return cudaErrorInvalidValue;

    const auto kernel = ::hopper_gemm<Element, MajorB, Tile, Stages, Order, Store>;
    constexpr int shared_bytes = (Tile::rows + Tile::columns) * 128 * Stages::stages +
                                 Tile::consumers * Store::buffers * 8192 + 1024;
    const cudaError_t fits =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (fits != cudaSuccess) return fits;

    const int64_t height = Tile::rows * Cluster::rows, width = Tile::columns * Cluster::columns;
    int64_t clusters = ((m + height - 1) / height) * ((n + width - 1) / width);
    if (blocks > 0) clusters = std::min<int64_t>(clusters, blocks / Cluster::size);
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {Cluster::size, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(clusters * Cluster::size);
    config.blockDim = dim3((Tile::consumers + 1) * warpgroup_threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    const auto passed = [](const CUtensorMap& map) { return reinterpret_cast<const TensorMap&>(map); };
    return cudaLaunchKernelEx(&config, kernel, passed(map_a), passed(map_b), passed(map_c), c, m, n, k, alpha,
                              beta);
}

}  // namespace ladder
