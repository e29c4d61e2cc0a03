// Extent of a window with `radius` elements on each side.
#pragma once

__device__ constexpr int taps(int radius) { return 2 * radius + 1; }
