"""Payloads on the wire: a tree of plain data with tensors as a header and raw frames.

A *payload* is built from None, bool, int, float, str, bytes, list, tuple, dict with str keys,
numpy arrays and scalars, ``torch.Tensor`` of every dense dtype (bfloat16 and float8 included),
``torch.dtype``, ``torch.device`` and ``torch.Generator`` (as its state). Nothing else travels:
there is no pickle on either side, so a payload can hold no code and no module.

The header is msgpack; everything msgpack has no word for is an extension type whose body is
msgpack again. Tensor memory goes out as frames without a copy where it is contiguous and on the
CPU. Torch is imported only by processes that have tensors.

Notes
-----
Distributed's own serializer refuses or hangs on bfloat16, which every large model uses; this
one sends the bytes and names the dtype.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
import xxhash

from elastic_dit.errors import TransferError

__all__ = ["digest", "map_tensors", "pack", "payload_nbytes", "plain", "unpack"]

Frame = memoryview | bytes | bytearray

_TUPLE, _TENSOR, _ARRAY, _SCALAR, _DTYPE, _DEVICE, _GENERATOR, _BIGINT = range(8)
_ARRAY_KINDS = frozenset("biufcSUmM")
_INT64 = range(-(2**63), 2**64)


def pack(payload: Any) -> tuple[bytes, list[memoryview]]:
    """Encode `payload`.

    Parameters
    ----------
    payload : tree of plain data
        See the module's list. Tensors on a GPU are copied to the host; a tensor that occurs
        twice is sent once and arrives as one.

    Returns
    -------
    header : bytes
        Structure, dtypes and shapes.
    frames : list of memoryview
        Memory of each tensor and array, flat; views of the payload's own memory where possible.

    Raises
    ------
    TransferError
        Where the payload holds anything else; the message says where.

    Examples
    --------
    >>> header, frames = pack({"step": 3, "latents": np.ones((2, 2), np.float32)})
    >>> [frame.nbytes for frame in frames]
    [16]
    >>> unpack(header, frames)["latents"].sum()
    np.float32(4.0)
    >>> pack({"model": object()})
    Traceback (most recent call last):
    elastic_dit.errors.TransferError: payload.model: a builtins.object cannot travel
    """
    encoder = _Encoder()
    return _packb(encoder.node(payload, "payload")), encoder.frames


def unpack(header: bytes, frames: Sequence[Frame]) -> Any:
    """Inverse of `pack`; tensors arrive on the CPU.

    Parameters
    ----------
    header : bytes
    frames : sequence of buffers
        Writable ones are used in place, others are copied.

    Raises
    ------
    TransferError
        Where header and frames are not what `pack` made.
    """
    try:
        return _Decoder(frames).node(bytes(header))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RuntimeError) as error:
        raise TransferError(f"the payload cannot be decoded: {error}") from error


def digest(header: bytes, frames: Sequence[Frame]) -> str:
    """Checksum of a packed payload: 128-bit XXH3, hexadecimal.

    >>> digest(*pack({"a": 1})) == digest(*pack({"a": 2}))
    False
    """
    state = xxhash.xxh3_128(header)
    for frame in frames:
        state.update(frame)
    return state.hexdigest()


def payload_nbytes(payload: Any) -> int:
    """Bytes of all tensors and arrays in `payload`, each counted once.

    >>> payload_nbytes({"frames": np.zeros((2, 4, 4, 3), np.uint8)})
    96
    """
    sizes: dict[int, int] = {}

    def note(leaf: Any) -> Any:
        sizes[id(leaf)] = int(leaf.nbytes)
        return leaf

    map_tensors(note, payload)
    return sum(sizes.values())


def map_tensors(function: Callable[[Any], Any], payload: Any) -> Any:
    """Same tree with `function` applied to every tensor and array; shared ones stay shared."""
    done: dict[int, tuple[Any, Any]] = {}

    def visit(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: visit(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(visit(item) for item in value)
        if _is_tensor(value) or isinstance(value, np.ndarray):
            if id(value) not in done:
                done[id(value)] = value, function(value)  # the first keeps the id from reuse
            return done[id(value)][1]
        return value

    return visit(payload)


class _Dropped:
    """Marks what `plain` leaves out."""


def plain(value: Any) -> Any:
    """Only what may travel of `value`; the rest of a mapping is left out.

    A sampler's or pipeline's state also refers to modules and functions, which a snapshot must
    not hold. A list or tuple with one such item is left out whole.

    >>> plain({"step": 3, "model": object(), "pair": [1, print]})
    {'step': 3}
    """
    kept = _plain(value)
    return None if kept is _Dropped else kept


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        items = ((key, _plain(item)) for key, item in value.items() if isinstance(key, str))
        return {key: item for key, item in items if item is not _Dropped}
    if type(value) in (list, tuple):
        items_kept = [_plain(item) for item in value]
        return _Dropped if _Dropped in items_kept else type(value)(items_kept)
    return value if _is_leaf(value) else _Dropped


def _is_leaf(value: Any) -> bool:
    if value is None or type(value) in (bool, int, float, str, bytes):
        return True
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in _ARRAY_KINDS
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return isinstance(value, (torch.Tensor, torch.dtype, torch.device, torch.Generator))


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _ext(code: int, *body: Any) -> msgpack.ExtType:
    return msgpack.ExtType(code, _packb(body))


def _packb(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, unicode_errors="surrogatepass")
    return packed


class _Encoder:
    """Turns a tree into msgpack's own types and collects frames."""

    def __init__(self) -> None:
        self.frames: list[memoryview] = []
        self._sent: dict[Any, msgpack.ExtType] = {}

    def node(self, value: Any, path: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, float, str, bytes):
            return value
        if kind is int:
            return value if value in _INT64 else _ext(_BIGINT, hex(value))
        if kind is list:
            return [self.node(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if kind is tuple:
            return _ext(_TUPLE, *(self.node(item, f"{path}[{i}]") for i, item in enumerate(value)))
        if isinstance(value, Mapping):
            return {self._key(key, path): self.node(v, f"{path}.{key}") for key, v in value.items()}
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in _ARRAY_KINDS:
            return self._array(value)
        return self._torch(value, path)

    @staticmethod
    def _key(key: Any, path: str) -> str:
        if type(key) is not str:
            raise TransferError(f"{path}: the key {key!r} is no str")
        return key

    def _array(self, value: Any) -> msgpack.ExtType:
        if isinstance(value, np.generic):
            return _ext(_SCALAR, value.dtype.str, value.tobytes())
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return _ext(_ARRAY, value.dtype.str, list(value.shape), self._frame(flat))

    def _torch(self, value: Any, path: str) -> msgpack.ExtType:
        if (torch := sys.modules.get("torch")) is not None:
            if isinstance(value, torch.Tensor):
                return self._tensor(value, path)
            if isinstance(value, torch.dtype):
                return _ext(_DTYPE, str(value).removeprefix("torch."))
            if isinstance(value, torch.device):
                return _ext(_DEVICE, str(value))
            if isinstance(value, torch.Generator):
                state = value.get_state().numpy().tobytes()
                return self._once(
                    ("generator", id(value)), lambda: (_GENERATOR, str(value.device), state)
                )
        kind = type(value)
        raise TransferError(f"{path}: a {kind.__module__}.{kind.__qualname__} cannot travel")

    def _tensor(self, tensor: Any, path: str) -> msgpack.ExtType:
        import torch

        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
            raise TransferError(f"{path}: only dense tensors with data can travel")
        key = (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride())
        view = tensor.is_conj() or tensor.is_neg()
        return self._once(
            id(tensor) if view or not tensor.numel() else key, lambda: self._memory(tensor)
        )

    def _memory(self, tensor: Any) -> tuple[Any, ...]:
        import torch

        host = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        flat = host.as_strided((host.numel(),), (1,)).view(torch.uint8)
        name = str(tensor.dtype).removeprefix("torch.")
        return _TENSOR, name, list(tensor.shape), self._frame(flat.numpy())

    def _frame(self, memory: Any) -> int:
        self.frames.append(memoryview(memory))
        return len(self.frames) - 1

    def _once(self, key: Any, make: Callable[[], tuple[Any, ...]]) -> msgpack.ExtType:
        """Encode what occurs several times as the same words, so that it arrives as one."""
        if key not in self._sent:
            code, *body = make()
            self._sent[key] = _ext(code, len(self._sent), *body)
        return self._sent[key]


class _Decoder:
    """Rebuilds a tree from msgpack and frames."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.frames = frames
        self._received: dict[int, Any] = {}

    def node(self, packed: bytes) -> Any:
        return msgpack.unpackb(packed, ext_hook=self._ext, unicode_errors="surrogatepass")

    def _ext(self, code: int, packed: bytes) -> Any:
        body = self.node(packed)
        if code == _TUPLE:
            return tuple(body)
        if code == _BIGINT:
            return int(body[0], 16)
        if code == _SCALAR:
            return np.frombuffer(body[1], np.dtype(body[0]))[0]
        if code == _ARRAY:
            return self._array(*body)
        if code in (_DTYPE, _DEVICE):
            import torch

            return torch.device(body[0]) if code == _DEVICE else _dtype(body[0])
        serial, *rest = body
        if serial not in self._received:
            make = self._tensor if code == _TENSOR else _generator
            self._received[serial] = make(*rest)
        return self._received[serial]

    def _array(self, dtype: str, shape: list[int], index: int) -> Any:
        kind = np.dtype(dtype)
        if kind.kind not in _ARRAY_KINDS:
            raise ValueError(f"arrays of {kind} are not accepted")
        return np.frombuffer(_writable(self.frames[index]), np.uint8).view(kind).reshape(shape)

    def _tensor(self, dtype: str, shape: list[int], index: int) -> Any:
        import torch

        kind, memory = _dtype(dtype), _writable(self.frames[index])
        if not memory.nbytes:
            return torch.empty(shape, dtype=kind)
        flat = torch.frombuffer(memory, dtype=torch.uint8)
        if flat.data_ptr() % kind.itemsize:
            flat = flat.clone()
        return flat.view(kind).reshape(shape)


def _writable(frame: Frame) -> memoryview:
    memory = memoryview(frame).cast("B")
    return memoryview(bytearray(memory)) if memory.readonly else memory


def _dtype(name: str) -> Any:
    import torch

    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch.{name} is no dtype")
    return dtype


def _generator(device: str, state: bytes) -> Any:
    import torch

    generator = torch.Generator(torch.device(device))
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator
