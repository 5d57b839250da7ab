"""Torch tensors over Dask's comms: every dtype, bit-exact, without a copy where none is needed.

Stock distributed goes through ``Tensor.numpy()``, which knows neither bfloat16 nor float8, and
its error leaves a transfer between workers hanging. Here a tensor travels as its bytes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["register_serializers"]


@cache
def register_serializers() -> None:
    """Teach this process to send and receive any torch tensor, and Dask to know its size.

    Clients and engine workers call it; a scheduler passes frames on unread. Calling it again
    does nothing.

    Notes
    -----
    Tensors arrive on the CPU, contiguous, without their gradient graph; ``requires_grad`` of
    a leaf is kept. A tensor that arrives may be read-only memory of the comm: clone it before
    writing into it.
    """
    import torch
    from dask.sizeof import sizeof
    from distributed.protocol import torch as stock  # registers its own first: ours must be last
    from distributed.protocol.serialize import dask_deserialize, dask_serialize

    del stock
    for kind in (torch.Tensor, torch.nn.Parameter):
        dask_serialize.register(kind)(_dump)
        dask_deserialize.register(kind)(_load)
        sizeof.register(kind)(_nbytes)


def _dump(tensor: torch.Tensor) -> tuple[dict[str, Any], list[memoryview]]:
    import torch

    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    header = {
        "dtype": str(plain.dtype).removeprefix("torch."),
        "shape": tuple(plain.shape),
        "requires_grad": tensor.requires_grad,
        "parameter": isinstance(tensor, torch.nn.Parameter),
    }
    if plain.numel() == 0:
        return header, []
    # Not reshape: a single element counts as contiguous at any stride, and keeps it.
    flat = plain.as_strided((plain.numel(),), (1,))
    return header, [flat.view(torch.uint8).numpy().data]


def _load(header: dict[str, Any], frames: list[Any]) -> torch.Tensor:
    import torch

    dtype = getattr(torch, header["dtype"])
    if not isinstance(dtype, torch.dtype):  # a name from the wire is not to reach anything else
        raise TypeError(f"{header['dtype']!r} is no type of tensors")
    flat = _borrow(frames[0]).view(dtype) if frames else torch.empty(0, dtype=dtype)
    tensor = flat.reshape(header["shape"])
    if header["parameter"]:
        return torch.nn.Parameter(tensor, requires_grad=header["requires_grad"])
    return tensor.requires_grad_(header["requires_grad"])


def _borrow(buffer: Any) -> torch.Tensor:
    """The bytes of `buffer` as a uint8 tensor that shares its memory, copied if misaligned."""
    import warnings

    import torch

    with warnings.catch_warnings():
        # Read-only comm memory is documented above; torch would warn of it once per process.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        flat = torch.frombuffer(buffer, dtype=torch.uint8)
    return flat if flat.data_ptr() % _ALIGNMENT == 0 else flat.clone()


_ALIGNMENT = 16
"""Largest element size of any torch dtype, bytes: complex128."""


def _nbytes(tensor: torch.Tensor) -> int:
    return int(tensor.nelement() * tensor.element_size())
