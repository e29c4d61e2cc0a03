// The product, on the stream that is given.
// Expected: ok
// Defence: none is needed

#include "../exploits/honest.cuh"
#include "object.cuh"

OBJECT(stream)
