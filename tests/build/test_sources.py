"""Every file that the compiler opens is in the digest of a kernel, or the kernel is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ladder.build import nvrtc
from ladder.build.nvrtc import Request
from ladder.build.sources import include_closure, source_digest
from ladder.build.variants import variant_facts
from ladder.catalogue.kernels import load_kernel
from ladder.model.errors import LadderError
from ladder.model.kernel import Variant

KERNEL = 'extern "C" __global__ void kernel(int* out) { *out = X; }\n'
SECRET = "a secret of this host"


class Workshop:
    """A project's kernels and headers, and a file that is nobody's."""

    def __init__(self, root: Path) -> None:
        self.include, self.source = (
            root / "project/include",
            root / "project/own/kernel.cu",
        )
        self.secret, self.header = root / "secret.txt", self.include / "scale/x.cuh"
        for path in (self.header, self.source):
            path.parent.mkdir(parents=True)
        self.header.write_text("#define X 5\n")
        self.secret.write_text(f"{SECRET}\n")
        self.number = 0

    def request(
        self, text: str, options: tuple[str, ...] = (), entry: str = "kernel"
    ) -> Request:
        self.number += 1
        source = self.source.with_name(f"kernel{self.number}.cu")
        source.write_text(text)
        digest = source_digest(source, self.include)
        return Request(source, digest, (self.include,), (entry,), "sm_90a", options)

    def compile(
        self, text: str, options: tuple[str, ...] = (), entry: str = "kernel"
    ) -> dict[str, Any]:
        return self.request(text, options, entry).compile()[1]


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.mark.parametrize(
    "include",
    [
        '#include "scale/x.cuh"',
        "#include <scale/x.cuh>",
        '  #  include "../include/scale/x.cuh"',
    ],
)
def test_a_header_in_quotes_or_brackets_is_in_the_digest(
    include: str, workshop: Workshop
) -> None:
    before = workshop.request(f"{include}\n{KERNEL}")
    assert before.compile()[1]["status"] == "ok"
    workshop.header.write_text("#define X 6\n")
    assert source_digest(before.source, workshop.include) != before.source_sha256


def test_a_digest_follows_the_includes_that_there_are_now(workshop: Workshop) -> None:
    """In one process, and also where nothing but what is included changes."""
    source = workshop.request("#define X 5\n" + KERNEL).source
    for text in ('#include "scale/x.cuh"\n' + KERNEL, "#define X 5\n" + KERNEL):
        source.write_text(text)
        includes_it = workshop.header in include_closure(source, workshop.include)
        assert includes_it == ("#include" in text)


HIDDEN = {
    "a macro": '#define H "scale/x.cuh"\n#include H\n',
    "a macro with brackets": "#define H <scale/x.cuh>\n#include H\n",
    "a continuation": '#include \\\n"scale/x.cuh"\n',
    "a continued word": '#inc\\\nlude "scale/x.cuh"\n',
    "a digraph": '%:include "scale/x.cuh"\n',
    "a vertical tab": '\v#include "scale/x.cuh"\n',
    "a form feed": '#\finclude "scale/x.cuh"\n',
    "a quote as a character": 'constexpr char quote = \'"\';\n#include "scale/x.cuh" // "/*"\n',
    "a raw string": 'constexpr const char* text = R"(\n#if 0\n)";\n#include "scale/x.cuh"\n',
    "a comment in a raw string": 'constexpr const char* text = R"x(/*)x";\n#include "scale/x.cuh"\n',
    "a comment between": '#/**/include "scale/x.cuh"\n',
}


FOLLOWED = (
    "a quote as a character",
    "a raw string",
    "a comment in a raw string",
    "a comment between",
)
"""Those by which the digest sees the header."""


@pytest.mark.parametrize("way", HIDDEN)
def test_a_header_that_no_digest_holds_is_refused_however_it_is_included(
    way: str, workshop: Workshop
) -> None:
    """In the digest or refused: never compiled without being in it."""
    request = workshop.request(HIDDEN[way] + KERNEL)
    facts = request.compile()[1]
    followed = workshop.header in include_closure(request.source, workshop.include)
    assert followed is (way in FOLLOWED)
    if followed:
        assert facts["status"] == "ok"
    else:
        assert facts["status"] == "compile_error"
        why = "x.cuh, by an include that its digest does not follow; accepted: #include"
        assert why in facts["reason"]


@pytest.mark.parametrize("option", ["-include={}", "--pre-include={}"])
def test_a_header_of_an_option_is_refused(option: str, workshop: Workshop) -> None:
    facts = workshop.compile(KERNEL, (option.format(workshop.header),))
    assert facts["status"] == "compile_error"
    assert "by an include that its digest does not follow" in facts["reason"]


def test_a_file_whose_name_looks_like_a_message_of_the_assembler_is_refused(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler looks in the working folder, too, and names such a file without a folder."""
    monkeypatch.chdir(workshop.secret.parent)
    Path("ptxas fatal : x").write_text("#define X 7\n")
    facts = workshop.compile(f'#define H "ptxas fatal : x"\n#include H\n{KERNEL}')
    assert facts["status"] == "compile_error"
    assert facts["reason"].startswith(
        "the compiler opens ptxas fatal : x, which is not accepted"
    )


@pytest.mark.parametrize("text", ['#include "x\0.cuh"\n' + KERNEL, KERNEL + "// \0\n"])
def test_a_source_with_nul_is_refused_with_its_line(
    text: str, workshop: Workshop
) -> None:
    """No file has such a name, and NVRTC would read no further."""
    line = 1 + text.index("\0") // len(KERNEL)
    with pytest.raises(
        LadderError,
        match=rf"kernel1.cu: line {line}: a NUL character; accepted: text without one",
    ):
        workshop.request(text)


@pytest.mark.parametrize("include", ["#include <{}>", '#define H "{}"\n#include H'])
def test_no_text_of_another_file_ends_in_a_message(
    include: str, workshop: Workshop
) -> None:
    facts = workshop.compile(include.format(workshop.secret) + "\n" + KERNEL)
    assert facts["status"] == "compile_error"
    assert facts["reason"].startswith(
        f"the compiler opens {workshop.secret}, which is not accepted"
    )
    assert SECRET not in str(facts)


def test_a_kernel_outside_of_the_project_reaches_its_own_folder_only(
    workshop: Workshop,
) -> None:
    """The two have no more than the root of the file system in common."""
    for name in (str(workshop.secret), "../../secret.txt"):
        with pytest.raises(LadderError, match="not found in"):
            workshop.request(f'#include "{name}"\n{KERNEL}')
    (workshop.source.parent / "link.cuh").symlink_to(workshop.secret)
    _, facts = workshop.request(f'#include "link.cuh"\n{KERNEL}').compile()
    assert facts["status"] == "compile_error"
    assert SECRET not in str(facts)


DESCRIPTION = """
summary: A kernel with headers of others.
problem: stencil
origin: [own]
entry: kernel
dtypes: {{fp32: {{}}}}
min_arch: sm_70
include: [{include}]
parameters: {{radius: {{values: [2], default: 2, description: unused}}}}
launch: {{grid: [1], block: [1]}}
arguments: [{{pointer: input}}, {{pointer: output}}]
"""


def with_more_headers(workshop: Workshop, include: str) -> Path:
    """The description of a kernel that includes others' headers by the folder that they lie in."""
    path = workshop.source.with_name("others.yaml")
    path.write_text(DESCRIPTION.format(include=include))
    path.with_suffix(".cu").write_text('#include "lib/y.cuh"\n' + KERNEL)
    return path


@pytest.mark.parametrize("include", ["third_party", "../headers"])
def test_a_description_names_folders_of_more_headers(
    include: str, workshop: Workshop
) -> None:
    """In its own folder or beside it; what they include of one another is found there, too."""
    folder = workshop.source.parent / include / "lib"
    folder.mkdir(parents=True)
    (folder / "y.cuh").write_text("#include <lib/z.cuh>\n")
    (folder / "z.cuh").write_text("#define X 5\n")
    kernel = load_kernel(with_more_headers(workshop, include))
    includes = (workshop.include, *kernel.includes)

    def request() -> Request:
        digest = source_digest(kernel.source, *includes)
        return Request(kernel.source, digest, includes, (kernel.entry,), "sm_90a")

    before = request()
    assert before.compile()[1]["status"] == "ok"
    (folder / "z.cuh").write_text("#define X 6\n")
    assert request().source_sha256 != before.source_sha256
    (folder / "y.cuh").unlink()
    assert request().compile()[1]["status"] == "compile_error"


@pytest.mark.parametrize("include", ["nowhere", "../..", "/etc", "link"])
def test_no_folder_of_the_host_is_one_of_headers(
    include: str, workshop: Workshop
) -> None:
    (workshop.source.parent / "link").symlink_to("/etc")
    path = with_more_headers(workshop, include)
    expected = rf"others.yaml: include\[0\]: '{include}' is not accepted; accepted: a folder in .*own or beside it"
    with pytest.raises(LadderError, match=expected):
        load_kernel(path)


def test_a_file_of_the_working_directory_does_not_stand_in_for_a_header(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler looks there first for what the source itself includes."""
    (tmp_path / "scale").mkdir()
    (tmp_path / "scale/x.cuh").write_text("#define X 7\n")
    monkeypatch.chdir(tmp_path)
    assert (
        "scale/x.cuh, which is not accepted"
        in workshop.compile('#include "scale/x.cuh"\n' + KERNEL)["reason"]
    )


def test_cudas_headers_need_no_digest(workshop: Workshop) -> None:
    text = (
        "#include <cuda_fp16.h>\n#include <cuda/std/limits>\n#define X int(sizeof(__half))\n"
        + KERNEL
    )
    assert workshop.compile(text)["status"] == "ok"


def test_without_the_compilers_list_nothing_compiles(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "_LIST_FILES", "--use_fast_math")
    with pytest.raises(LadderError, match="does not list the files that it opens"):
        workshop.compile("#define X 5\n" + KERNEL)


TEXT = 'constexpr const char* text = "'
UNSTABLE = {
    "__TIME__": "constexpr char X = __TIME__[7];\n",
    "__DATE__": "constexpr char X = __DATE__[1];\n",
    "__TIMESTAMP__": "constexpr char X = __TIMESTAMP__[1];\n",
    "__has_include": '#if __has_include("/etc/hostname")\n#define X 1\n#endif\n',
    "__has_include_next": "#if __has_include_next(<x>)\n#endif\n#define X 1\n",
}
BEHIND = {
    "nothing": "",
    "a text": TEXT + '/*";\n',
    "an escape": TEXT + '\\"//"; ',
    "a character": 'constexpr char quote = \'"\', *text = "//"; ',
    "a number": "constexpr int many = 1'000 + '\"', *text = \"//\"; ",
    "a raw text": 'constexpr const char* text = R"x(\n" /* )" )x";\n',
}


@pytest.mark.parametrize("word", UNSTABLE)
def test_what_depends_on_the_time_or_on_files_of_the_host_is_refused(
    word: str, workshop: Workshop
) -> None:
    """In the source or a header; else one key would have two machine codes."""
    for text in (UNSTABLE[word] + KERNEL, '#include "scale/x.cuh"\n' + KERNEL):
        facts = workshop.compile(text)
        assert facts["status"] == "compile_error"
        assert re.search(
            rf"(kernel\d|x).cuh?: {word}: its machine code would follow .* a constant, or a plain #include",
            facts["reason"],
        )
        workshop.header.write_text(UNSTABLE[word])


@pytest.mark.parametrize("before", BEHIND)
def test_such_a_word_is_seen_behind_what_looks_like_a_comment(
    before: str, workshop: Workshop
) -> None:
    facts = workshop.compile(BEHIND[before] + UNSTABLE["__TIME__"] + KERNEL)
    assert "kernel1.cu: __TIME__: its machine code" in facts["reason"]


def test_such_a_word_in_a_comment_is_none(workshop: Workshop) -> None:
    text = "#define X 1 // not __TIME__\n/* __has_include,\n __DATE__ */\n"
    assert workshop.compile(text + KERNEL)["status"] == "ok"


# One kernel a cubin.

TWO = """
extern "C" __global__ void aaa_small(float* out) { *out = 1; }
extern "C" __global__ void kernel(float* out) { *out = 2; }
"""
DEVICE_FUNCTION = """
__device__ __noinline__ float slow(const float* in, int n) {
  float live[40];
  for (int i = 0; i < 40; ++i) live[i] = in[i];
  return live[n % 40];
}
extern "C" __global__ void kernel(float* out) { __shared__ float x[100]; x[threadIdx.x] = *out; __syncthreads();
  *out = slow(out, threadIdx.x) + x[99 - threadIdx.x]; }
"""


def test_a_second_kernel_in_a_file_is_refused(workshop: Workshop) -> None:
    facts = workshop.compile(TWO)
    assert facts["status"] == "compile_error"
    assert (
        "has other kernels, aaa_small: kernel is the kernel that is described"
        in facts["reason"]
    )


def test_facts_are_those_of_the_kernel_whatever_a_warning_says(
    workshop: Workshop,
) -> None:
    lie = "#warning ptxas info    : Used 1 registers, used 0 barriers, 8 bytes smem\n"
    facts = workshop.compile(lie + DEVICE_FUNCTION)
    assert facts["status"] == "ok"
    assert facts["registers"] > 10
    assert facts["shared_bytes_static"] == 400
    assert facts["local_bytes"] >= 160


def test_a_symbol_of_the_harness_is_refused(workshop: Workshop) -> None:
    text = 'extern "C" __global__ void _Z7nothingv(int*, int* out) { *out = 5; }\n'
    request = workshop.request(text, entry="_Z7nothingv")
    found = request.compile()[1]
    assert found["status"] == "ok"
    variant = described(request)
    assert variant_facts(variant, request, found)["status"] == "ok"
    facts = variant_facts(variant, request, found, ["_Z4gatePViix", "_Z7nothingv"])
    assert facts["status"] == "compile_error"
    assert facts["reason"].startswith(
        "the symbol _Z7nothingv is that of a kernel of the harness"
    )


def described(request: Request) -> Variant:
    path = request.source.with_suffix(".yaml")
    path.write_text(
        """{summary: s, problem: stencil, origin: [own], entry: _Z7nothingv, dtypes: {int32: {}}, min_arch: sm_80,
        parameters: {radius: {values: [2], default: 2, description: unused}}, launch: {grid: [1], block: [32]},
        arguments: [{pointer: input}, {pointer: output}]}"""
    )
    return load_kernel(path).variant({}, "int32")
