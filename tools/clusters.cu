// Which parts of the chip clusters of blocks fit into, for docs/trust.md and results/unseen/DEVICE/clusters.csv.
//
//   nvcc -gencode arch=compute_90a,code=sm_90a -o clusters tools/clusters.cu && ./clusters
//
// Blocks of a cluster run in one part of the chip, a GPC. Each block here takes a multiprocessor alone and
// says which: multiprocessors that ever shared a cluster are of one part.
#include <cstdio>
#include <map>
#include <numeric>
#include <vector>

#include <cuda_runtime.h>

constexpr int shared_bytes = 200 * 1024, blocks_at_least = 4 * 132, launches = 20;

__global__ void where(int* out) {
    unsigned multiprocessor, cluster;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(cluster));
    if (threadIdx.x != 0) return;
    out[2 * blockIdx.x] = cluster;
    out[2 * blockIdx.x + 1] = multiprocessor;
    const long long begin = clock64();
    while (clock64() - begin < 20000) {
    }
}

int main() {
    cudaDeviceProp device;
    cudaGetDeviceProperties(&device, 0);
    cudaFuncSetAttribute(where, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    cudaFuncSetAttribute(where, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    int* out;
    cudaMalloc(&out, 8 * blocks_at_least * sizeof(int));
    std::vector<int> part(device.multiProcessorCount);
    std::iota(part.begin(), part.end(), 0);
    for (int size : {2, 4, 8, 12, 14, 16}) {
        cudaLaunchAttribute cluster;
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim = {unsigned(size), 1, 1};
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3((blocks_at_least + size - 1) / size * size);
        config.blockDim = dim3(32);
        config.dynamicSmemBytes = shared_bytes;
        config.attrs = &cluster;
        config.numAttrs = 1;
        int active = 0;
        cudaOccupancyMaxActiveClusters(&active, where, &config);
        std::printf("clusters of %d: %d at a time\n", size, active);
        std::vector<int> found(2 * config.gridDim.x);
        for (int launch = 0; launch < launches; ++launch) {
            cudaLaunchKernelEx(&config, where, out);
            cudaMemcpy(found.data(), out, found.size() * sizeof(int), cudaMemcpyDeviceToHost);
            std::map<int, int> first;
            for (size_t i = 0; i < found.size(); i += 2) {
                const auto [at, is_new] = first.emplace(found[i], found[i + 1]);
                if (is_new) continue;
                const int from = part[found[i + 1]], to = part[at->second];
                for (int& each : part)
                    if (each == from) each = to;
            }
        }
    }
    std::map<int, int> sizes;
    for (int each : part) ++sizes[each];
    std::printf("parts:");
    for (const auto& [_, multiprocessors] : sizes) std::printf(" %d", multiprocessors);
    std::printf("\n%s\n", cudaGetErrorString(cudaGetLastError()));
}
