"""Counting instructions: in listings written by hand, and in cubins of known content from both disassemblers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cuda.pathfinder import find_nvidia_binary_utility
from ladder.build import cubin
from ladder.build.cubin import COUNTED, instruction_counts, sass
from ladder.build.nvrtc import compile_source
from ladder.model.errors import LadderError

LISTING = """
	.target	sm_90a

//--------------------- .text.kernel --------------------------
        .global         kernel
        .type           kernel,@function
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   S2R R9, SR_TID.X ;
        /*0020*/                   LDG.E.128.CONSTANT R4, desc[UR6][R2.64] ;
        /*0030*/                   STS.128 [R0], R4 ;
        /*0040*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
.L_x_1:
        /*0050*/              @!P0 LDS R5, [R0] ;
        /*0060*/               @P1 LDS.64 R6, [R0+0x10] ;
        /*0070*/               @PT LDS.U.128 R8, [R0+0x20] ;
        /*0080*/                   LDS.U8 R12, [R0+0x40] ;
        /*0090*/             @!UPT UIADD3 UR4, URZ, URZ, URZ ;
        /*00a0*/              @UP0 UBLKCP [UR4], [UR6], UR8 ;
        /*00b0*/                   FFMA R5, R4, R5, R6 ;
        /*00c0*/              @!P6 FFMA.FTZ R5, R4, R5, R6 ;
        /*00d0*/                   FADD R5, R5, -FFMA ;
        /*00e0*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        /*00f0*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], RZ, !UPT ;
        /*0100*/                   QGMMA.64x128x32.F32.E4M3.E4M3 R24, gdesc[UR4], R24, gsb0 ;
        /*0110*/                   LDSM.16.M88.4 R4, [R0] ;
        /*0120*/                   LDGSTS.E.BYPASS.128 [R0], desc[UR6][R2.64] ;
        /*0130*/                   UTMALDG.2D [UR8], [UR4] ;
        /*0140*/                   SHFL.DOWN PT, R4, R5, 0x1, 0x1f ;
        /*0150*/                   LDL R4, [R1] ;
        /*0160*/                   STL.64 [R1], R4 ;
        /*0170*/                   STG.E desc[UR6][R2.64], R5 ;
        /*0180*/               @P0 BRA `(.L_x_1) ;
        /*0190*/                   EXIT ;
.L_x_0:
        /*01a0*/                   BRA `(.L_x_0);
        /*01b0*/                   NOP;
        /*01c0*/                   NOP;
"""

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


@pytest.fixture(scope="module")
def compiled() -> dict[str, bytes]:
    """The source's cubins by architecture."""
    return {
        arch: compile_source(SOURCE, "widths.cu", ["widths"], [], arch)[0] for arch in ("sm_80", "sm_90a")
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


def test_predicated_instructions_count_like_others() -> None:
    bare = LISTING
    for predicate in ("@!P0 ", "@P1 ", "@PT ", "@!UPT ", "@UP0 ", "@!P6 ", "@P0 "):
        assert predicate in bare
        bare = bare.replace(predicate, " " * len(predicate))
    assert instruction_counts(bare) == instruction_counts(LISTING)


def test_an_empty_listing_has_every_column_at_zero() -> None:
    counts = instruction_counts("")
    assert set(counts) == {"instructions", "lds_32", "lds_64", "lds_128", *COUNTED}
    assert set(counts.values()) == {0}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_loads_of_each_width_and_every_multiply_add_are_found(compiled: dict[str, bytes], arch: str) -> None:
    counts = instruction_counts(sass(compiled[arch]))
    widths = [counts[name] for name in ("lds_32", "lds_64", "lds_128", "ffma", "sts", "ldg", "stg", "bar")]
    assert widths == [1, 1, 1, 3, 1, 1, 1, 1]
    assert counts["instructions"] > sum(widths)
    assert counts["hmma"] == counts["hgmma"] == counts["ldl"] == counts["stl"] == 0


def test_both_disassemblers_give_the_same_counts(compiled: dict[str, bytes], tmp_path: Path) -> None:
    """Where nvdisasm is missing cuobjdump stands in; its headings and encodings are no instructions."""
    path = tmp_path / "widths.cubin"
    path.write_bytes(compiled["sm_90a"])
    cuobjdump = find_nvidia_binary_utility("cuobjdump")
    assert cuobjdump is not None, "a dependency of this project"
    listing = subprocess.run(
        [cuobjdump, "--dump-sass", str(path)], capture_output=True, text=True, check=True
    ).stdout
    assert "Function : widths" in listing
    assert instruction_counts(listing) == instruction_counts(sass(compiled["sm_90a"]))


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(LadderError, match="failed: "):
        sass(b"no cubin")


def test_without_a_disassembler_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladder.build.cubin.find_nvidia_binary_utility", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    cubin._disassembler.cache_clear()
    with pytest.raises(LadderError, match="install nvidia-cuda-nvdisasm"):
        sass(b"")
    cubin._disassembler.cache_clear()
