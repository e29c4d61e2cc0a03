"""From CUDA source to a cubin and the facts about it, without a GPU."""
