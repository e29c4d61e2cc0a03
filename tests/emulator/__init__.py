"""What tests run kernels with that need no GPU: PTX on the CPU, and the Hopper kernels' code and static assertions."""
