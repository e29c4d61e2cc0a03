// What a thread of an fp32 GEMM does with a pair of tiles in shared memory: load its fragments of one K step,
// multiply each value of A's column by each value of B's row, and add to its TM x TN accumulators.
#pragma once


//   column   the column of A is in registers before it is multiplied.
//   element  one value of A at a time is, multiplied with the whole row of B.
enum class FragmentShape { column, element };

//   rows     row after row, each from left to right.
//   snake    every other row from right to left: from one FFMA to the next only one of the two operands
//            changes, and the other one is in the register reuse cache. An FFMA that reads three registers
//            takes a second cycle, and so does one that reads two registers of the same register bank.
//   columns  the same down and up the columns.
//   searched columns in the order that was fastest of 302 in gemm_tma, where these reached from 0.99 to 1.06
//            of cuBLAS' speed (H200, NVRTC 13.0, M = N = K = 4096). The compiler allocates other registers
//            for each order, so another compiler may favour another. Orders are slower the more FFMAs write
//            to another register than the one they add to (correlation 0.86 over 110 orders); we do not
//            know why. An order chosen by register banks alone (predicted: 3 % faster) was 0.6 % slower.
enum class FfmaOrder { rows, snake, columns, searched };

// Row and column of a thread's FFMA number i.
struct Place {
    int y, x;
};

template <FfmaOrder Ffmas, int TM, int TN>
__host__ __device__ constexpr Place place_of(int i) {
    if (Ffmas == FfmaOrder::columns || Ffmas == FfmaOrder::searched) {
        static_assert(Ffmas != FfmaOrder::searched || TN == 16, "this order has 16 columns");
        // As found: it has no pattern.
        constexpr int order[] = {3, 2, 1, 0, 13, 14, 15, 12, 7, 6, 5, 4, 11, 10, 9, 8};
        const int x = i / TM;
        return {x % 2 == 0 ? i % TM : TM - 1 - i % TM, Ffmas == FfmaOrder::searched ? order[x] : x};
    }
    const int y = i / TN;
    return {y, Ffmas == FfmaOrder::snake && y % 2 == 1 ? TN - 1 - i % TN : i % TN};
}

// Shared memory -> registers: the values of one K step that a thread multiplies. `Along` is the thread's
// Edge. Along a row of the tile, in accesses as wide as the layout's alignment allows: up to LDS.128.
// `origin`: where the thread's first value of row 0 lies.
template <class Layout, class Along, int Count>
__device__ inline void load_along_row(float (&fragment)[Count], const float* tile, const float* origin,
                                      int row, int thread) {
    constexpr int width = const_min(Layout::alignment, Along::group);
    const float* first =
        Layout::rows_alike ? origin + row * Layout::pitch : Layout::at(tile, row, Along::first(thread));
#pragma unroll
    for (int i = 0; i < Count; i += width) {
        const Vector<float, width> read = load_vector<width>(first + Layout::step_words(Along::step(i)));
#pragma unroll
        for (int w = 0; w < width; ++w) fragment[i + w] = read.value[w];
    }
}

// Down a column: the values lie a row apart, so one LDS.32 each. Volatile, because the compiler would
// otherwise load four K steps of each row by one LDS.128, which takes four columns of registers.
template <class Layout, class Along, int Count>
__device__ inline void load_down_column(float (&fragment)[Count], const float* tile, int column, int thread) {
    const volatile float* words = tile;
#pragma unroll
    for (int i = 0; i < Count; ++i) fragment[i] = *Layout::at(words, Along::position(thread, i), column);
}

// Tile, Fragments: policies of gemm_staged. SharedTiles: of its policy Copy (policies.cuh). Rows: of the
// thread's outputs, the first ones of TM; it loads all TM values of A.
template <class Tile, class SharedTiles, class Fragments, FfmaOrder Ffmas, int Rows = Tile::tm>
struct ThreadTile {
    using Outputs = typename Fragments::template Outputs<Tile>;
    using AlongA = typename Outputs::AlongA;
    using AlongB = typename Outputs::AlongB;
    using LayoutA = typename SharedTiles::LayoutA;
    using LayoutB = typename SharedTiles::LayoutB;
    static constexpr int TM = Rows, TN = Tile::tn, steps = Tile::bk;
    static constexpr int group = AlongB::group;  // of accumulators side by side in C
    static constexpr FragmentShape shape_a = Fragments::shape_a;
    float accumulator[TM][TN] = {};

    // `shared`: where the first stage lies. row, column: the thread's place in the grid of threads.
    __device__ ThreadTile(const char* shared, int row, int column)
        : tile_a(shared), tile_b(shared + SharedTiles::CopyA::bytes), row(row), column(column) {
        origin_a = tile_a + 4 * LayoutA::index(0, AlongA::first(row));
        origin_b = tile_b + 4 * LayoutB::index(0, AlongB::first(column));
    }

    // Fragments of a step of the stage that begins `stage` bytes behind the first one.
    __device__ void load(int stage, int step, int buffer) {
        load_a(stage, step, buffer);
        load_b(stage, step, buffer);
        if (Fragments::fenced) __syncwarp();  // without it the compiler moves the loads next to their use
    }

    __device__ void load_a(int stage, int step, int buffer) {
        const float* from = words_at(tile_a + stage);
        if constexpr (shape_a == FragmentShape::element) {
            element = LayoutA::at(from, 0, step);
        } else if constexpr (SharedTiles::transpose_a) {
            load_along_row<LayoutA, AlongA>(a[buffer], from, words_at(origin_a + stage), step, row);
        } else {
            load_down_column<LayoutA, AlongA>(a[buffer], from, step, row);
        }
    }

    __device__ void load_b(int stage, int step, int buffer) {
        load_along_row<LayoutB, AlongB>(b[buffer], words_at(tile_b + stage), words_at(origin_b + stage), step,
                                        column);
    }

    __device__ void multiply(int buffer) {
#pragma unroll
        for (int i = 0; i < TM * TN; ++i) {
            const Place at = place_of<Ffmas, TM, TN>(i);
            if (shape_a == FragmentShape::element && i % TN == 0) {
                a[buffer][at.y] =
                    *LayoutA::at(static_cast<const volatile float*>(element), AlongA::position(row, at.y), 0);
            }
            accumulator[at.y][at.x] += a[buffer][at.y] * b[buffer][at.x];
        }
    }

    // act(row, column, accumulators) for each Group accumulators side by side. row, column: their place in
    // the block tile.
    template <int Group, class Act>
    __device__ void for_each_group(Act act) const {
#pragma unroll
        for (int y = 0; y < TM; ++y) {
#pragma unroll
            for (int x = 0; x < TN; x += Group) {
                act(AlongA::position(row, y), AlongB::position(column, x), accumulator[y] + x);
            }
        }
    }

  private:
    __device__ static const float* words_at(const char* bytes) {
        return reinterpret_cast<const float*>(bytes);
    }

    const char *tile_a, *tile_b, *origin_a, *origin_b;
    const float* element;
    int row, column;
    float a[Fragments::buffers][Tile::tm], b[Fragments::buffers][TN];
};
