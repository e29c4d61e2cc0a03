"""The problems that kernels solve, a folder each; `registry` finds them."""
