"""Tables of constants in global memory: those that code only reads are told from those that it can change."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from ladder.build.cubin import disassemble, persistent_symbols
from ladder.build.nvrtc import Compiled, compile_source
from ladder.build.ptx import tables

HEAD = "constexpr float lut[4] = {1, 2, 3, 4};\n"
KERNEL = "__global__ void k(const float* in, float* out, int n) "
I2OPI, SINE = "__cudart_i2opi_f", "*out = sinf(*in);"
TRIG = ["__cudart_i2opi_d", "__cudart_sin_cos_coeffs"]
ARCHITECTURES = ("sm_75", "sm_90a", "sm_120a")


def compiled(
    source: str, arch: str = "sm_90a", options: tuple[str, ...] = ()
) -> Compiled:
    return compile_source(source, "k.cu", ["k"], [], arch, options)


def lasting(
    sources: Mapping[str, str], arch: str = "sm_90a"
) -> dict[str, tuple[list[str], list[str]]]:
    """Of each source its tables, and what else outlives a launch."""
    made = {name: compiled(source, arch) for name, source in sources.items()}
    codes = disassemble([one.cubin for one in made.values()], arch)
    found = {}
    for (name, one), code in zip(made.items(), codes, strict=True):
        known = tables(one.ptx)
        assert {*known} <= {*persistent_symbols(one.cubin, code)}, (
            "it lies in memory that can be written"
        )
        found[name] = known, persistent_symbols(one.cubin, code, known)
    return found


HONEST: Mapping[str, tuple[str, list[str]]] = {
    "constexpr": (f"{HEAD}{KERNEL}{{ *out = lut[n & 3]; }}", ["lut"]),
    "static const": (
        f"{KERNEL}{{ static const float lut[4] = {{1, 2, 3, 4}}; *out = lut[n & 3]; }}",
        ["_ZZ1kPKfPfiE3lut"],
    ),
    "never written": (
        f"__device__ int t[4] = {{1, 2}}; {KERNEL}{{ *out = t[n & 3]; }}",
        ["t"],
    ),
    "rows": (
        f"constexpr double t[2][3] = {{{{1, 2, -3}}, {{4, 5, 6}}}}; {KERNEL}"
        "{ for (int i = 0; i < n; ++i) out[i] = t[i % 2][i % 3]; }",
        ["t"],
    ),
    "structures": (
        f"struct S {{ int a; float b; double c; }}; constexpr S t[2] = {{{{1, 2, 3}}, {{4, 5, 6}}}}; {KERNEL}"
        "{ auto s = t[n]; *out = s.a + s.b + s.c; }",
        ["t"],
    ),
    "vectors": (
        f"__device__ const float4 t[2] = {{{{1, 2, 3, 4}}, {{5, 6, 7, 8}}}}; {KERNEL}"
        "{ float4 s = t[n]; *out = s.x + s.y + s.z + s.w; }",
        ["t"],
    ),
    "one of two": (
        f"{HEAD}constexpr float other[4] = {{5, 6, 7, 8}}; {KERNEL}"
        "{ const float* p = n > 9 ? lut : other; *out = p[n & 3]; }",
        ["lut", "other"],
    ),
    "text": (f'{KERNEL}{{ *out = "hello"[n]; }}', ["$str"]),
    "a sine": (f"{KERNEL}{{ {SINE} }}", [I2OPI]),
    "a sine in fp64": (f"{KERNEL}{{ *out = sin(double(*in)); }}", TRIG),
    "a table beside inline PTX": (
        f'{HEAD}{KERNEL}{{ float x; asm("{{ .reg .f32 t; add.f32 t, %1, %1; mov.f32 %0, t; }}" : "=f"(x) : '
        '"f"(lut[n & 3])); *out = x; }',
        ["lut"],
    ),
}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_table_that_is_only_read_is_no_state(arch: str) -> None:
    found = lasting({name: source for name, (source, _) in HONEST.items()}, arch)
    assert found == {name: (names, []) for name, (_, names) in HONEST.items()}


def inline(
    text: str, *operands: str, head: str = HEAD, body: str = "*out = lut[n & 3];"
) -> str:
    """A kernel with a statement of inline PTX."""
    statement = f'asm volatile("{text}" {" ".join(operands)});'
    return (
        f"{head}{KERNEL}{{ unsigned long long p = 0; {statement} {body} out[1] = p; }}"
    )


OUT, IN = ': "=l"(p)', ': : "l"(lut)'
BOTH = f'{OUT}: "l"(lut)'
LEAK = "{ .reg .pred q; setp.gt.u64 q, %1, 4096; selp.u64 %0, 1, 0, q; }"
HOSTILE: Mapping[str, str] = {
    "constness that is cast away": f"{HEAD}{KERNEL}{{ float* p = const_cast<float*>(lut); asm volatile("
    '"" : "+l"(p)); p[n & 3] = *in; *out = p[1]; }',
    "a counter": f"__device__ int lut[4]; {KERNEL}{{ *out = lut[n & 3]++; }}",
    "a table of sinf by its name": inline(
        f"mov.u64 %0, {I2OPI};", OUT, head="", body=f"{SINE} *(float*)p = 1;"
    ),
    "a table of one's own with the compiler's name": f"__device__ unsigned {I2OPI}[6] = {{1}}; {KERNEL}"
    f"{{ {SINE} {I2OPI}[n]++; }}",
    "a store by name": inline("st.global.u32 [lut], 5;"),
    "a store by name and offset": inline("st.global.u32 [lut+4], 5;"),
    "an atomic": inline("atom.global.add.u64 %0, [%1], 1;", BOTH),
    "a reduction": inline("red.global.add.u32 [%0], 1;", IN),
    "a discard": inline("discard.global.L2 [%0], 128;", IN),
    "a bulk copy": inline(
        "{ .reg .u32 t; mov.u32 t, 0; cp.async.bulk.global.shared::cta.bulk_group [%0], [t], 16; }",
        IN,
    ),
    "an address that is stored": f"{HEAD}{KERNEL}{{ *(const float**)out = lut + n; *out += lut[n & 3]; }}",
    "an address in a predicate": inline(LEAK, BOTH),
    "an address in a carry": inline(
        "{ .reg .u64 t; add.cc.u64 t, %1, %1; addc.u64 %0, 0, 0; }", OUT, ': "l"(lut)'
    ),
    "an address in two halves": inline(
        "{ .reg .b32 l, h; mov.b64 {l, h}, %1; mov.b64 %0, {l, h}; }", OUT, ': "l"(lut)'
    ),
    "an address that is shifted": inline("shr.u64 %0, %1, 1;", BOTH),
    "an address that is multiplied": inline("mad.lo.u64 %0, %1, 1, 0;", BOTH),
    "an address for a function": f"{HEAD}__device__ __noinline__ void f(float* p) {{ *p += 1; }} {KERNEL}"
    "{ f(n > 9 ? out : const_cast<float*>(lut)); *out = lut[n & 3]; }",
    "an address in constant memory": f"{HEAD}__constant__ const float* where = lut; {KERNEL}"
    "{ *const_cast<float*>(where) = n; *out = lut[n & 3]; }",
    "a table of addresses": f"__device__ int seen; __device__ int* const t[2] = {{&seen, 0}}; {KERNEL}"
    "{ *out = ++*t[n]; }",
    "a register by another name": inline(
        "{ .reg .u64 t; mov.u64 t, %0; st.global.u32 [t], 5; }", IN
    ),
    "a variable of the block": inline(
        "{ .global .u32 lut; atom.global.add.u32 %0, [lut], 1; }".replace(
            "%0", "t"
        ).replace("{ ", "{ .reg .u32 t; ")
    ),
    "a comment that does not end": inline("/* */ st.global.u32 [lut], 5; /* */"),
    "text with a comment": inline(
        '.pragma \\"/*\\"; st.global.u32 [lut], 5; .pragma \\"*/\\";'
    ),
    "text that looks like code": inline(
        '.pragma \\"a\\"; st.global.u32 [lut], 5; .pragma \\"b\\";'
    ),
    "a comment in front": inline("// nothing\\n st.global.u32 [lut], 5;"),
    "a line number in front": inline(".loc 1 1 1\\n st.global.u32 [lut], 5;"),
    "a label in front": inline("here: st.global.u32 [lut], 5;"),
}


def test_a_table_that_can_be_written_is_state() -> None:
    """By an architecture whose compiler keeps a store to what is constant."""
    found = lasting(HOSTILE)
    assert [name for name, (_, others) in found.items() if not others] == []
    # Which leaves the compiler's own table, by another name.
    named = [name for name, (known, _) in found.items() if known]
    assert named == ["a table of one's own with the compiler's name"]


PTX = """
.version 9.0
.target sm_90a
.address_size 64
.global .align 4 .b8 lut[16] = {0, 0, 128, 63};
.visible .entry k(.param .u64 out)
{
	.reg .b64 	%rd<9>;
	ld.param.u64 	%rd1, [out];
	mov.u64 	%rd2, lut;
	ld.global.nc.f32 	%f1, [%rd2+4];
	st.global.f32 	[%rd1], %f1;
	ret;
}
"""


@pytest.mark.parametrize(
    "line",
    [
        "// a comment that ends at \r st.global.f32 [lut], %f1;",
        "/* */ st.global.f32 [lut], %f1;",
        '.pragma "a\\" "; st.global.f32 [lut], %f1; .pragma "b\\" ";',
        '.pragma "a\n"; st.global.f32 [lut], %f1; .pragma "\nb";',
        "#define lut2 lut",
        "st.global.f32\n[lut], %f1;",
        "@%p1 st.global.f32 [lut], %f1;",
        "mov.u64 %rd3, lut; st.global.f32 [%rd3], %f1;",
        "mov.u64 %rd4, %rd3; mov.u64 %rd3, lut; st.global.f32 [%rd4], %f1;",
        "add.s64 %rd3, %rd2, 4; { st.global.f32 [%rd3], %f1; }",
        "cvta.global.u64 %rd3, %rd2; st.f32 [%rd3], %f1;",
        "selp.b64 %rd3, %rd2, %rd1, %p1; st.global.f32 [%rd3], %f1;",
        "sub.cc.u64 %rd3, %rd2, 4; subc.u64 %rd4, 0, 0;",
        "st.global.u64 [%rd1], %rd2;",
        "ld.global.f32 %f2, [%rd1], %rd2;",
        "call.uni (retval), f, (%rd2);",
    ],
)
def test_whatever_else_is_done_with_an_address_it_is_none_of_a_table(line: str) -> None:
    assert tables(PTX) == ["lut"]
    assert tables(PTX.replace("\tret;", f"\t{line}\n\tret;")) == []


def test_registers_of_other_functions_are_others() -> None:
    other = ".func f(.param .u64 p)\n{\n\tld.param.u64 %rd2, [p];\n\tst.global.f32 [%rd2], 0f00000000;\n\tret;\n}\n"
    assert tables(PTX + other) == ["lut"]
    assert tables(PTX + other.replace("[p]", "[p]; mov.u64 %rd2, lut")) == []
