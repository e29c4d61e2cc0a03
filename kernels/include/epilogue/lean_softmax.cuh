// A softmax whose maximum is replaced where that more than halves the exponentials.
#pragma once

#include "epilogue/bounded_softmax.cuh"

struct LeanSoftmax : BoundedSoftmax<1, 0> {
    using BoundedSoftmax::BoundedSoftmax;
};
