// Enqueues on the default stream of its thread, as code does that was written for itself.
// Expected: incorrect or stateful
// Defence: the check follows at once; device timestamps name the stream of all that runs while a launcher is timed

#include "../exploits/honest.cuh"
#include "object.cuh"

OBJECT(cudaStreamPerThread)
