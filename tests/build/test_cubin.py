"""Counting instructions: in listings written by hand, and in cubins of known content."""

from __future__ import annotations

import pytest
from compiling import compile_text, listings, opcodes
from ladder.build.cubin import (
    disassemble,
    instruction_counts,
    kernel_names,
    persistent_symbols,
)
from ladder.build.nvrtc import CompileError, compile_source
from ladder.model.errors import LadderError

LISTING = """
LDC R1, c[0x0][0x28]
S2R R9, SR_TID.X
LDG.E.128.CONSTANT R4, desc[UR6][R2.64]
STS.128 [R0], R4
BAR.SYNC.DEFER_BLOCKING 0x0
@!P0 LDS R5, [R0]
@P1 LDS.64 R6, [R0+0x10]
@PT LDS.U.128 R8, [R0+0x20]
LDS.U8 R12, [R0+0x40]
@!UPT UIADD3 UR4, URZ, URZ, URZ
@UP0 UBLKCP [UR4], [UR6], UR8
FFMA R5, R4, R5, R6
@!P6 FFMA.FTZ R5, R4, R5, R6
FADD R5, R5, -FFMA
HMMA.16816.F32 R4, R8, R12, R4
HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], RZ, !UPT
QGMMA.64x128x32.F32.E4M3.E4M3 R24, gdesc[UR4], R24, gsb0
LDSM.16.M88.4 R4, [R0]
LDGSTS.E.BYPASS.128 [R0], desc[UR6][R2.64]
UTMALDG.2D [UR8], [UR4]
SHFL.DOWN PT, R4, R5, 0x1, 0x1f
LDL R4, [R1]
STL.64 [R1], R4
STG.E desc[UR6][R2.64], R5
@P0 BRA `(.L_x_1)
EXIT
BRA `(.L_x_0)
NOP
NOP
""".strip().splitlines()

SOURCE = """
extern "C" __global__ void widths(const float4* in, float4* out, int n) {
  __shared__ float4 tile[128];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  const float* words = reinterpret_cast<const float*>(tile);
  const float one = words[threadIdx.x * 7 + 1];
  const float2 two = reinterpret_cast<const float2*>(tile)[threadIdx.x * 3 + 1];
  const float4 four = tile[threadIdx.x ^ 5];
  float sum = one;
  sum = fmaf(two.x, two.y, sum);
  sum = fmaf(four.x, four.y, sum);
  sum = fmaf(four.z, four.w, sum);
  if (static_cast<int>(threadIdx.x) < n) out[threadIdx.x] = make_float4(sum, one, two.x, four.x);
}
"""

LOOPS = """
extern "C" __global__ void one(float* out, int n) {
  for (int i = threadIdx.x; i < n; i += 32) out[i] = out[i] * 2.0f + 1.0f;
}
extern "C" __global__ void other(int* out) { if (out[threadIdx.x] > 3) out[threadIdx.x] /= 7; }
"""


@pytest.fixture(scope="module")
def compiled() -> dict[str, bytes]:
    """The source's cubins by architecture."""
    return {
        arch: compile_source(SOURCE, "widths.cu", ["widths"], [], arch)[0]
        for arch in ("sm_80", "sm_90a")
    }


def test_a_listing_is_counted_by_opcode() -> None:
    counts = instruction_counts(LISTING)
    assert counts == {
        "instructions": 27,
        "lds_32": 2,
        "lds_64": 1,
        "lds_128": 1,
        "ffma": 2,
        "hmma": 1,
        "hgmma": 2,
        "ldsm": 1,
        "sts": 1,
        "ldg": 1,
        "stg": 1,
        "ldgsts": 1,
        "utmaldg": 1,
        "shfl": 1,
        "bar": 1,
        "ldl": 1,
        "stl": 1,
    }


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_loads_of_each_width_and_every_multiply_add_are_found(
    compiled: dict[str, bytes], arch: str
) -> None:
    (listing,) = disassemble([compiled[arch]], arch)
    counts = instruction_counts(listing)
    widths = [
        counts[name]
        for name in ("lds_32", "lds_64", "lds_128", "ffma", "sts", "ldg", "stg", "bar")
    ]
    assert widths == [1, 1, 1, 3, 1, 1, 1, 1]
    assert counts["instructions"] > sum(widths)
    assert counts["hmma"] == counts["hgmma"] == counts["ldl"] == counts["stl"] == 0


def test_many_cubins_are_told_apart(compiled: dict[str, bytes]) -> None:
    other = compile_source(LOOPS, "loops.cu", ["one", "other"], [], "sm_90a")[0]
    alone = [opcodes(cubin, "sm_90a") for cubin in (compiled["sm_90a"], other)]
    together = disassemble([compiled["sm_90a"], other, compiled["sm_90a"]], "sm_90a")
    assert [instruction_counts(one) for one in together] == [
        instruction_counts(alone[i]) for i in (0, 1, 0)
    ]
    assert alone[0] != alone[1]


def test_a_kernel_has_a_section_of_arguments_and_a_function_of_the_device_has_none() -> (
    None
):
    source = """
    __device__ __noinline__ int twice(int x) { return 2 * x; }
    __global__ void one(int* p) { *p = twice(*p); }
    __global__ void none() {}
    """
    for options in (
        (),
        ("--device-debug",),
    ):  # with which functions have sections of their own
        cubin, symbols, *_ = compile_source(
            source, "k.cu", ["one", "none"], [], "sm_90a", options
        )
        assert sorted(kernel_names(cubin)) == sorted(symbols.values())
        assert (b".text._Z5twicei" in cubin) is bool(options)


def test_what_the_disassembler_cannot_read_is_refused(
    compiled: dict[str, bytes],
) -> None:
    with pytest.raises(LadderError, match="nvdisasm failed: "):
        disassemble([compiled["sm_90a"]], "sm_1")


LASTING = {
    "a counter": (
        "__device__ int seen; __global__ void k(int* p) { p[0] = seen++; }",
        ["seen"],
    ),
    "a static variable": (
        "__global__ void k(int* p) { static int seen = 3; p[0] = seen++; }",
        ["_ZZ1kPiE4seen"],
    ),
    "managed memory": (
        "__managed__ int seen; __global__ void k(int* p) { p[0] = seen++; }",
        ["seen"],
    ),
    "one of two": (
        "__device__ int a, b[9]; __global__ void k(int* p) { p[0] = b[3] + 0 * sizeof(a); }",
        ["b"],
    ),
    "an index beside a constant place": (
        "__device__ int a[9], b; __global__ void k(int* p) { b = 1; a[p[1]] = 2; }",
        ["a", "b"],
    ),
    "an index": (
        "__device__ int b[9]; __global__ void k(int* p) { p[0] = b[p[1]]; b[p[2]] = 1; }",
        ["b"],
    ),
    "the heap": ("__global__ void k(int** p) { p[0] = new int[4]; }", ["malloc"]),
    "free": ("__global__ void k(int** p) { free(p[0]); }", ["free"]),
    "printing": (
        'extern "C" __device__ int printf(const char*, ...); __global__ void k(int* p) { printf("%d", p[0]); }',
        ["vprintf"],
    ),
    "assert": (
        'extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);'
        ' __global__ void k(int* p) { if (*p) __assertfail("a", "b", 1, "c", 1); }',
        ["__assertfail"],
    ),
    "a launch": (
        'extern "C" __device__ int cudaDeviceSynchronize();'
        " __global__ void k(int* p) { *p = 1; cudaDeviceSynchronize(); }",
        ["cudaDeviceSynchronize"],
    ),
    "a constant pointer": (
        "__device__ int seen; __constant__ int* where = &seen; __global__ void k(int* p) { p[0] = ++*where; }",
        ["seen"],
    ),
    "constant memory": (
        "__constant__ int t[4]; __global__ void k(int* p) { int* q = p[1] ? p : const_cast<int*>(t);"
        " q[p[2]] = 1; }",
        ["constant memory by its address"],
    ),
    "its own code": (
        'extern "C" __global__ void k(int** p) { asm("mov.u64 %0, k;" : "=l"(p[0])); }',
        ["k"],
    ),
    "a virtual table": (
        "struct S { __device__ virtual int f(int x) { return x; } };"
        " struct D : S { __device__ int f(int x) override { return 2 * x; } };"
        " __global__ void k(int* p) { S s; D d; S* q = p[1] ? &s : &d; p[0] = q->f(p[0]); }",
        ["_ZTV1D", "_ZTV1S"],
    ),
    "nothing": ("__global__ void k(int* p) { p[0] = 1; }", []),
    "function pointers": (
        "typedef int (*F)(int); __device__ __noinline__ int f(int x) { return 2 * x; }"
        " __device__ __noinline__ int g(int x) { return x + 1; } __constant__ F t[2] = {f, g};"
        " __global__ void k(int* p) { F local[2] = {f, g}; p[0] = t[p[1]](local[p[2]](p[3])); }",
        [],
    ),
    "a virtual call that is resolved": (
        "struct S { __device__ virtual int f(int x) { return x; } };"
        " struct D : S { __device__ int f(int x) override { return 2 * x; } };"
        " __global__ void k(int* p) { D d; S& s = d; p[0] = s.f(p[0]); }",
        [],
    ),
    "constants": (
        "__constant__ int t[4] = {1, 2}; __global__ void k(int* p) { p[0] = t[p[1]]; }",
        [],
    ),
    "a folded table": (
        "__device__ const int t[4] = {1, 2}; __global__ void k(int* p) { p[0] = t[1]; }",
        [],
    ),
    "a trap": ("__global__ void k(int* p) { if (p[0]) __trap(); }", []),
    "the stack": (
        "__global__ void k(int* p) { int a[99]; for (int& x : a) x = *p++; *p = a[p[1]]; }",
        [],
    ),
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_what_outlives_a_launch_is_named(arch: str) -> None:
    cubins = {}
    for what, (source, _) in LASTING.items():
        try:
            cubins[what] = compile_text(source, ["k"], [], arch)
        except CompileError:
            assert what == "a launch", "NVRTC links no device runtime"
    codes = zip(cubins.values(), listings([*cubins.values()], arch), strict=True)
    named = {
        what: persistent_symbols(*code)
        for what, code in zip(cubins, codes, strict=True)
    }
    assert named == {what: LASTING[what][1] for what in cubins}
    assert len(named) >= len(LASTING) - 1
