from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastic_dit.engine.payload import digest, map_tensors, pack, payload_nbytes, plain, unpack
from elastic_dit.errors import TransferError

INTEGERS = ["uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
FLOAT8 = ["e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu"]
DENSE = [
    getattr(torch, name)
    for name in ["bool", *INTEGERS, *FLOATS, *(f"float8_{kind}" for kind in FLOAT8)]
    if hasattr(torch, name)
]


def sent(payload: Any, *, writable: bool = False) -> Any:
    """Through the wire and back, over frames that share nothing with the sender."""
    header, frames = pack(payload)
    copies = [bytearray(frame) if writable else bytes(frame) for frame in frames]
    return unpack(header, copies)


def raw(tensor: torch.Tensor) -> bytes:
    host = tensor.detach().contiguous()
    return host.as_strided((host.numel(),), (1,)).view(torch.uint8).numpy().tobytes()


def same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, torch.Tensor):
        return (left.dtype, left.shape, raw(left)) == (right.dtype, right.shape, raw(right))
    if isinstance(left, (np.ndarray, np.generic)):
        return (left.dtype, left.shape, left.tobytes()) == (
            right.dtype,
            right.shape,
            right.tobytes(),
        )
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    if isinstance(left, torch.Generator):
        return torch.equal(left.get_state(), right.get_state())
    return bool(left == right)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Any bit pattern of any dtype, 0 to 3 dimensions, also transposed, sliced or empty."""
    dtype = draw(st.sampled_from(DENSE))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    count = math.prod(shape) * dtype.itemsize
    data = bytearray(draw(st.binary(min_size=count, max_size=count)))
    if dtype is torch.bool:
        data = bytearray(byte & 1 for byte in data)
    if not count:
        return torch.empty(shape, dtype=dtype)
    tensor = torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(shape)
    if len(shape) >= 2 and draw(st.booleans()):
        tensor = tensor.transpose(0, -1)
    return tensor[::2] if shape and draw(st.booleans()) else tensor


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    dtype = draw(st.sampled_from("?bBhHiIlLefdFDSU"))
    kind = np.dtype(dtype + ("3" if dtype in "SU" else ""))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    if kind.kind in "SU":
        return np.full(shape, "añ"[: 1 if kind.kind == "S" else 2], kind)
    count = math.prod(shape) * kind.itemsize
    data = draw(st.binary(min_size=count, max_size=count))
    array = np.frombuffer(data, kind).reshape(shape)
    return array.T if draw(st.booleans()) else array


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=True),
    st.text(st.characters(codec=None)),
    st.binary(),
    st.sampled_from([*DENSE, torch.device("cpu"), torch.device("cuda:3")]),
    st.sampled_from([np.float64(0.1), np.int8(-3), np.bool_(True), np.complex64(1j)]),
    tensors(),
    arrays(),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(TREES, st.booleans())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_everything_arrives_bit_by_bit(tree: Any, writable: bool) -> None:
    assert same(sent(tree, writable=writable), tree)


@given(TREES)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_digest_depends_on_content_alone(tree: Any) -> None:
    assert digest(*pack(tree)) == digest(*pack(sent(tree)))


@pytest.mark.parametrize("dtype", DENSE, ids=str)
def test_nan_payloads_and_every_byte_survive(dtype: torch.dtype) -> None:
    data = bytes(range(256)) if dtype is not torch.bool else bytes([0, 1] * 128)
    tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype)
    assert same(sent(tensor), tensor)


def test_a_flipped_bit_changes_the_digest() -> None:
    header, frames = pack({"latents": torch.zeros(1000)})
    damaged = bytearray(frames[0])
    damaged[1234] ^= 1
    assert digest(header, frames) != digest(header, [damaged])


def test_contiguous_host_memory_is_not_copied_on_either_side() -> None:
    tensor = torch.zeros(8)
    header, frames = pack([tensor])
    tensor[3] = 5.0
    assert memoryview(frames[0]).cast("B").cast("f")[3] == 5.0
    buffer = bytearray(frames[0])
    received = unpack(header, [buffer])[0]
    buffer[0:4] = struct.pack("f", 7.0)
    assert received[0] == 7.0


def test_what_is_shared_is_sent_once_and_stays_shared() -> None:
    tensor, generator = torch.randn(100), torch.Generator().manual_seed(3)
    payload = {"a": tensor, "b": [tensor, tensor[:50]], "g": (generator, generator)}
    _, frames = pack(payload)
    assert [frame.nbytes for frame in frames] == [400, 200]
    received = sent(payload)
    assert received["a"] is received["b"][0]
    assert received["g"][0] is received["g"][1]
    assert payload_nbytes(payload) == 600


def test_a_generator_continues_where_it_was() -> None:
    generator = torch.Generator().manual_seed(11)
    torch.randn(7, generator=generator)
    twin = sent({"generator": generator})["generator"]
    assert torch.equal(torch.randn(9, generator=twin), torch.randn(9, generator=generator))


def test_views_that_only_pretend_arrive_as_they_look() -> None:
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    assert torch.equal(sent(tensor.conj()), tensor.conj().resolve_conj())
    assert torch.equal(sent(tensor.conj().imag), tensor.conj().imag.clone())
    weight = torch.nn.Parameter(torch.ones(2))
    assert not sent(weight).requires_grad


def test_memory_that_is_not_aligned_is_taken_too() -> None:
    header, frames = pack(torch.arange(4.0))
    shifted = memoryview(bytearray(b"x" + bytes(frames[0])))[1:]
    assert torch.equal(unpack(header, [shifted]), torch.arange(4.0))


class _Code:
    def __reduce__(self) -> tuple[Any, ...]:
        raise AssertionError("nobody may pickle this")


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        ({"a": [1, {"model": torch.nn.Linear(1, 1)}]}, r"payload\.a\[1\]\.model"),
        ({"f": print}, r"payload\.f"),
        ((_Code(),), r"payload\[0\]"),
        ({1: "x"}, "key 1"),
        (np.array([object()]), "ndarray"),
        ({"m": torch.empty(1, device="meta")}, r"payload\.m: only dense"),
        (torch.zeros(2, 2).to_sparse(), "only dense"),
        ({1, 2}, "set"),
    ],
)
def test_nothing_else_travels(payload: Any, where: str) -> None:
    with pytest.raises(TransferError, match=where):
        pack(payload)


def test_damaged_packets_are_an_error_of_ours() -> None:
    header, frames = pack({"a": torch.zeros(4), "b": np.zeros(3)})
    for broken in (header[:-3], b"", b"\xc1", header + b"\x01"):
        with pytest.raises(TransferError, match="cannot be decoded"):
            unpack(broken, frames)
    with pytest.raises(TransferError, match="cannot be decoded"):
        unpack(header, frames[:1])
    with pytest.raises(TransferError, match="cannot be decoded"):
        unpack(header, [b"123", *frames[1:]])


def test_plain_keeps_data_and_leaves_the_rest() -> None:
    tensor = torch.zeros(1)
    state = {
        "latents": tensor,
        "history": [None, tensor],
        "model": torch.nn.Linear(1, 1),
        "pair": (tensor, print),
        "nested": {"fn": print, "step": 3},
        7: "not a name",
    }
    kept = plain(state)
    assert set(kept) == {"latents", "history", "nested"}
    assert kept["nested"] == {"step": 3}
    assert kept["latents"] is tensor
    assert plain(print) is None
    pack(kept)


def test_map_tensors_visits_each_leaf_once() -> None:
    tensor = torch.ones(2)
    seen: list[Any] = []
    doubled = map_tensors(lambda t: (seen.append(t), t * 2)[1], {"a": tensor, "b": (tensor, 3)})
    assert len(seen) == 1
    assert doubled["a"] is doubled["b"][0]
    assert doubled["a"].sum() == 4
