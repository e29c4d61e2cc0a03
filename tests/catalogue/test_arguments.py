"""Arguments of a kernel: scalars that are expressions, and what a description of a GEMM may leave out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import loaded
from conftest import GEMMS, ROOT, assert_says
from factory import axis, kernel_document
from ladder.catalogue.kernels import load_kernel
from ladder.catalogue.plans import plan_edges, plan_sweep
from ladder.catalogue.sweeps import make_sweep
from ladder.model.errors import LadderError
from ladder.model.kernel import Kernel
from ladder.model.plan import Plan

BUFFERS = [{"pointer": name} for name in "abc"]
WEIGHTS = [{"scalar": name, "type": "float32"} for name in ("alpha", "beta")]
DOCUMENT = kernel_document("gemm", ["fp32"], {"rows": axis(4, 8)}, entry="product")


def kernel(
    folder: Path, arguments: list[dict[str, Any]], name: str = "product", **fields: Any
) -> Kernel:
    (folder / f"{name}.cu").write_text("__global__ void product() {}")
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT | {"arguments": arguments} | fields))
    return load_kernel(path)


def planned(kernel: Kernel, size: dict[str, int] | None = None) -> Plan:
    """The plan of a sweep of a kernel at one size, against cuBLAS."""
    document = GEMMS | {
        "sizes": [size or {"m": 64, "n": 96, "k": 32}],
        "variants": [{"kernel": kernel.name}],
    }
    sweep = make_sweep(Path("here"), document, {kernel.name: kernel}, ROOT)
    plan = plan_sweep(sweep, loaded().config, "sm_90a")
    return replace(plan, edges=plan_edges(sweep, "sm_90a"))


SCALARS: dict[Any, tuple[str, Any]] = {
    "m": ("int32", 64),
    "rows": ("int64", 4),
    "m * n": ("int64", 64 * 96),
    "ceil_div(k, rows) - 1": ("int32", 7),
    1: ("int32", 1),
    0: ("int64", 0),
    -1: ("int32", -1),
    0.5: ("float32", 0.5),
    2: ("float32", 2.0),
    "1 / k": ("float32", 1 / 32),
    "m ** -0.5": ("float32", 0.125),
    "element_bytes": ("int32", 4),
}


def test_a_scalar_is_an_expression_over_size_parameters_and_numbers(
    tmp_path: Path,
) -> None:
    own = [{"scalar": scalar, "type": kind} for scalar, (kind, _) in SCALARS.items()]
    (task,) = planned(kernel(tmp_path, [*BUFFERS, *own, *WEIGHTS])).tasks
    assert task.launch is not None
    given = task.launch.arguments[3:-2]
    assert [(one["value"], one["type"]) for one in given] == [
        (value, kind) for kind, value in SCALARS.values()
    ]
    assert [type(one["value"]) for one in given] == [
        type(value) for _, value in SCALARS.values()
    ]
    assert list(task.launch.arguments[-2:]) == WEIGHTS, (
        "they differ from launch to launch"
    )


@pytest.mark.parametrize(
    ("scalar", "kind", "size", "says"),
    [
        (
            "m * n",
            "int32",
            2**16,
            ("expression 'm * n'", "gave 4294967296, an int32 is needed"),
        ),
        (
            "m * n * k",
            "int64",
            2**21,
            ("gave 9223372036854775808, an int64 is needed",),
        ),
        ("1e30 * m * m", "float32", 2**20, ("e+42, a float32 is needed",)),
        ("m == n", "float32", 128, ("gave True, a float32 is needed",)),
    ],
)
def test_what_its_type_does_not_hold_is_refused_at_the_size(
    scalar: str, kind: str, size: int, says: tuple[str, ...], tmp_path: Path
) -> None:
    arguments = [*BUFFERS, {"scalar": scalar, "type": kind}, *WEIGHTS]
    with pytest.raises(LadderError) as raised:
        planned(kernel(tmp_path, arguments), size=dict.fromkeys("mnk", size))
    assert_says(str(raised.value), ("product.yaml: arguments[3].scalar", *says))


@pytest.mark.parametrize(
    ("arguments", "fields", "says"),
    [
        (
            BUFFERS,
            {},
            (
                "alpha, beta of gemm",
                "{scalar: alpha, type: float32}, {scalar: beta",
                "`weights: none`",
            ),
        ),
        (
            [*BUFFERS[:2], WEIGHTS[0]],
            {},
            ("c, beta of gemm", "add {pointer: c}, {scalar: beta, type: float32}"),
        ),
        (
            BUFFERS[:2],
            {"weights": "none"},
            ("c of gemm", "add {pointer: c}, to the parameters of product.cu as well"),
        ),
        (
            [*BUFFERS, WEIGHTS[0]],
            {"weights": "none"},
            ("weights: 'none'", "the arguments have alpha", "arguments without"),
        ),
        (
            [*BUFFERS, *WEIGHTS],
            {"weights": "all"},
            ("weights: 'all' is not accepted", "none"),
        ),
        (
            [*BUFFERS, {"scalar": "alpha", "type": "int32"}, WEIGHTS[1]],
            {},
            (
                "arguments[3].type: 'int32'",
                "alpha is a number of fp32",
                "accepted: float32",
            ),
        ),
        (
            [*BUFFERS, {"scalar": "alpha * 2", "type": "float32"}, *WEIGHTS],
            {},
            ("arguments[3].scalar", "'alpha' is not accepted", "it is not defined"),
        ),
        (
            [*BUFFERS, {"scalar": "alhpa", "type": "float32"}, WEIGHTS[1]],
            {},
            ("arguments: alpha of gemm", "add {scalar: alpha, type: float32}"),
        ),
        (
            [*BUFFERS, *WEIGHTS],
            {
                "parameters": {
                    "alpha": {"values": [1], "default": 1, "description": "no weight"}
                }
            },
            ("parameters: 'alpha' is not accepted", "without another meaning"),
        ),
    ],
)
def test_what_a_description_of_a_gemm_leaves_out_is_named_with_what_to_add(
    arguments: list[dict[str, Any]],
    fields: dict[str, Any],
    says: tuple[str, ...],
    tmp_path: Path,
) -> None:
    with pytest.raises(LadderError) as raised:
        kernel(tmp_path, arguments, **fields)
    assert_says(str(raised.value), ("product.yaml: ", *says))


def test_a_tensor_map_names_a_buffer_as_a_pointer_does(tmp_path: Path) -> None:
    maps = [{"tensor_map": "a", "box": [8, 8], "swizzle": "none"}]
    assert kernel(tmp_path, [*maps, *BUFFERS[1:], *WEIGHTS]).weights is None


def test_a_kernel_without_weights_is_launched_without_them(tmp_path: Path) -> None:
    plan = planned(kernel(tmp_path, BUFFERS, weights="none"))
    launches = [one.launch for edges in plan.edges.values() for one in edges]
    assert launches
    for launch in launches:
        assert list(launch.arguments) == BUFFERS
