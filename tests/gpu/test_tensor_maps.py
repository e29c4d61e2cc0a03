"""Tensor maps: what the driver is given, without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from factory import axis, kernel_document
from ladder.catalogue.kernels import load_kernel
from ladder.gpu.launching import tensor_map
from ladder.gpu.tensor import Tensor
from ladder.model.errors import LadderError


class View:
    """Stands in for a buffer on a GPU, and keeps what it is given."""

    given: dict[str, Any]

    @classmethod
    def from_buffer(cls, buffer: Any, shape: tuple[int, ...], **_: Any) -> View:
        assert len(shape) in (2, 3)
        return cls()

    def as_tensor_map(self, box: tuple[int, ...], **given: Any) -> dict[str, Any]:
        return {"box": box} | {name: value.name for name, value in given.items()}


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladder.gpu.launching.StridedMemoryView", View)


def described(
    dtype: str,
    box: list[int],
    swizzle: str = "rows",
    l2_promotion: str = "none",
    shape: tuple[int, ...] = (256, 256),
) -> dict[str, Any]:
    buffer: Any = None
    found: dict[str, Any] = tensor_map(
        Tensor(buffer, shape, dtype, buffer, buffer), box, swizzle, l2_promotion
    )
    return found


@pytest.mark.parametrize(
    ("dtype", "columns", "swizzle"),
    [
        ("bf16", 64, "SWIZZLE_128B"),
        ("fp16", 32, "SWIZZLE_64B"),
        ("fp16", 16, "SWIZZLE_32B"),
        ("tf32", 32, "SWIZZLE_128B"),
        ("fp32", 16, "SWIZZLE_64B"),
        ("fp8", 128, "SWIZZLE_128B"),
    ],
)
def test_the_swizzle_is_as_wide_as_the_rows_of_the_box(
    dtype: str, columns: int, swizzle: str
) -> None:
    found = described(dtype, [64, columns])
    assert (found["box"], found["swizzle"]) == ((64, columns), swizzle)


def test_a_named_swizzle_stays_and_the_l2_fetches_what_it_is_told() -> None:
    found = described("bf16", [64, 64], "none", "256B")
    assert (found["swizzle"], found["l2_promotion"]) == ("NONE", "L2_256B")
    assert described("bf16", [64, 64])["l2_promotion"] == "NONE"


@pytest.mark.parametrize(
    ("dtype", "columns", "bytes_"),
    [("bf16", 48, 96), ("fp32", 64, 256), ("fp8", 16, 16)],
)
def test_rows_as_wide_as_no_swizzle_are_refused(
    dtype: str, columns: int, bytes_: int
) -> None:
    with pytest.raises(
        LadderError,
        match=rf"no swizzle is {bytes_}B wide.*\[64, {columns}\].*32B, 64B and 128B",
    ):
        described(dtype, [64, columns])


def test_a_box_may_be_of_one_of_many_matrices() -> None:
    found = described("bf16", [1, 128, 64], shape=(16, 1000, 128))
    assert (found["box"], found["swizzle"]) == ((1, 128, 64), "SWIZZLE_128B")


def test_a_box_has_as_many_extents_as_the_tensor() -> None:
    with pytest.raises(LadderError, match="1 extents for a tensor of 2"):
        described("bf16", [64])


# L2 promotion by parameter.


def promoted(tmp_path: Path, promotion: str, values: list[str]) -> Path:
    about = {"box": [64, 64], "swizzle": "rows", "l2_promotion": promotion}
    arguments = [{"pointer": "c"}, {"pointer": "b"}, {"tensor_map": "a", **about}]
    parameters = {"fetch": axis(*values)}
    more = {"arguments": arguments, "weights": "none", "min_arch": "sm_90a"}
    document = kernel_document("gemm", ["bf16"], parameters, **more)
    path = tmp_path / "promoted.yaml"
    path.write_text(yaml.safe_dump(document))
    path.with_suffix(".cu").write_text("// the tests compile nothing\n")
    return path


def test_l2_promotion_is_a_word_or_a_parameter_of_such_words(tmp_path: Path) -> None:
    for promotion, values in (
        ("256B", ["x"]),
        ("none", ["x"]),
        ("fetch", ["none", "64B", "128B", "256B"]),
    ):
        kernel = load_kernel(promoted(tmp_path, promotion, values))
        assert kernel.arguments[2].l2_promotion == promotion


@pytest.mark.parametrize(
    ("promotion", "values", "value", "hint"),
    [
        ("512B", ["none"], "'512B'", ""),
        ("fetsh", ["none"], "'fetsh'", " (did you mean 'fetch'?)"),
        ("fetch", ["none", "512B"], "'512B'", ""),
    ],
)
def test_a_wrong_l2_promotion_is_refused(
    tmp_path: Path, promotion: str, values: list[str], value: str, hint: str
) -> None:
    path = promoted(tmp_path, promotion, values)
    with pytest.raises(LadderError) as error:
        load_kernel(path)
    said = str(error.value)
    assert said.startswith(
        f"{path}: arguments[2].l2_promotion: {value} is not accepted"
    )
    assert hint in said
    assert said.endswith("accepted: none, 64B, 128B, 256B, fetch")
