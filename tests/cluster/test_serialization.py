from __future__ import annotations

from typing import Any

import pytest
import torch
from dask.sizeof import sizeof
from distributed.protocol import deserialize_bytes, serialize_bytelist
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.cluster import serialization
from elastic_dit.cluster.serialization import register_serializers

register_serializers()

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    torch.complex64, torch.complex128,
]  # fmt: skip
VIEWS: dict[str, Any] = {
    "whole": lambda t: t,
    "transposed": lambda t: t.T if t.ndim == 2 else t,
    "every second": lambda t: t[::2] if t.ndim else t,
    "expanded": lambda t: t.expand(3, *t.shape),
}


def there_and_back(value: Any) -> Any:
    return deserialize_bytes(b"".join(serialize_bytelist(value)))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    def bits(t: torch.Tensor) -> torch.Tensor:
        plain = t.detach().contiguous()
        return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)

    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 5), max_size=3),
    st.sampled_from(list(VIEWS)),
    st.integers(0, 2**31),
)
def test_any_tensor_arrives_bit_for_bit(
    dtype: torch.dtype, shape: list[int], view: str, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    size = torch.empty(shape, dtype=dtype).nbytes
    raw = torch.randint(0, 2 if dtype is torch.bool else 256, (size,), generator=generator)
    tensor = raw.to(torch.uint8).view(dtype).reshape(shape) if size else torch.empty(
        shape, dtype=dtype
    )  # fmt: skip
    sent = VIEWS[view](tensor)
    assert same_bits(there_and_back(sent), sent)


def test_a_single_element_arrives_whatever_its_stride() -> None:
    sent = torch.arange(4, dtype=torch.float64)[1::3]
    assert sent.is_contiguous()
    assert sent.stride() == (3,)
    assert there_and_back(sent).tolist() == [1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_flags_and_parameters_travel(dtype: torch.dtype) -> None:
    leaf = torch.ones(3, dtype=dtype, requires_grad=True)
    assert there_and_back(leaf).requires_grad
    parameter = there_and_back(torch.nn.Parameter(torch.ones(3, dtype=dtype), requires_grad=False))
    assert isinstance(parameter, torch.nn.Parameter)
    assert not parameter.requires_grad


def test_conjugated_tensors_travel() -> None:
    sent = torch.tensor([1 + 2j]).conj()
    assert torch.equal(there_and_back(sent), sent.resolve_conj())


def test_a_view_sends_no_more_than_itself() -> None:
    big = torch.zeros(1_000_000)
    assert sum(len(frame) for frame in serialize_bytelist(big[:10])) < 2_000


def test_dask_knows_the_size() -> None:
    assert sizeof(torch.zeros(10, dtype=torch.bfloat16)) == 20
    assert sizeof(torch.nn.Parameter(torch.zeros(4))) == 16


@pytest.mark.parametrize("name", ["load", "jit", "no_such_type"])
def test_a_name_from_the_wire_reaches_types_alone(name: str) -> None:
    header = {"dtype": name, "shape": (0,), "requires_grad": False, "parameter": False}
    with pytest.raises((TypeError, AttributeError)):
        serialization._load(header, [])


def test_registering_again_changes_nothing() -> None:
    register_serializers()
    assert same_bits(there_and_back(torch.ones(2)), torch.ones(2))
