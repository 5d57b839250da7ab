"""Who is who: worker names and addresses on Dask's side, GPU numbers on ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elastic_dit.catalog import ModelCard
from elastic_dit.errors import ClusterError
from elastic_dit.events import EngineJoined
from elastic_dit.request import Stage
from elastic_dit.state import GpuId

__all__ = ["Directory", "Hello", "Member"]


class Hello(BaseModel):
    """What an engine's worker says of itself when it joins."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    """Name of the Dask worker, kept over restarts of its process."""
    node: str
    """Name of the machine."""
    index: int = Field(ge=0)
    """Number of the GPU on its machine."""
    kind: str
    """GPU kind, such as ``NVIDIA H200`` or ``virtual``."""
    device: str = ""
    """Torch device, such as ``cuda:0``."""
    memory_bytes: int = Field(ge=0)
    """Memory of the GPU, bytes."""
    software: str = ""
    """What runs stages there, see `elastic_dit.rib.software_version`."""
    models: tuple[ModelCard, ...] = ()
    """Cards of the models it can load."""
    resident: frozenset[tuple[str, Stage]] = frozenset()
    """Stages it holds already."""
    instance: str
    """Made anew with every process."""

    @classmethod
    def read(cls, wire: Mapping[str, Any]) -> Hello:
        """Read what came over the stream.

        Raises
        ------
        ClusterError
            Where it is not a hello; an engine of another release may say so.
        """
        try:
            return cls.model_validate(wire)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"]))
            raise ClusterError(f"not an engine's hello: {field}: {first['msg']}") from None


@dataclass(frozen=True, slots=True)
class Member:
    """A living engine.

    Attributes
    ----------
    gpu : int
    address : str
        Of its Dask worker.
    hello : Hello
    """

    gpu: GpuId
    address: str
    hello: Hello

    def joined(self) -> EngineJoined:
        """The event that tells the controller."""
        return EngineJoined(
            gpu=self.gpu,
            name=self.hello.name,
            node=self.hello.node,
            kind=self.hello.kind,
            memory_bytes=self.hello.memory_bytes,
            resident=self.hello.resident,
        )

    def __repr__(self) -> str:
        return f"<GPU {self.gpu}: {self.hello.name} on {self.hello.node} at {self.address}>"


class Directory:
    """Living engines, and GPU numbers that survive their restarts.

    Each machine owns blocks of `slots_per_node` numbers, so that neighbours in number are
    neighbours in hardware. A GPU gets its machine's first block plus its index there; where that
    number is taken by another living engine (two worker commands on one machine), the machine's
    next free number.

    Examples
    --------
    >>> hello = Hello(name="w-0", node="a", index=1, kind="virtual", memory_bytes=1, instance="i")
    >>> directory = Directory(slots_per_node=8)
    >>> directory.join(hello, "tcp://10.0.0.1:4000")
    <GPU 1: w-0 on a at tcp://10.0.0.1:4000>
    >>> directory.leave("tcp://10.0.0.1:4000")
    1
    >>> directory.join(hello.model_copy(update={"instance": "j"}), "tcp://10.0.0.1:5000").gpu
    1
    """

    def __init__(self, slots_per_node: int) -> None:
        self._slots = slots_per_node
        self._blocks: dict[str, list[int]] = {}
        self._next_block = count()
        self._remembered: dict[tuple[str, str], GpuId] = {}
        self._by_gpu: dict[GpuId, Member] = {}
        self._by_address: dict[str, Member] = {}

    def __len__(self) -> int:
        return len(self._by_gpu)

    def __repr__(self) -> str:
        return f"Directory({sorted(self._by_gpu.values(), key=lambda member: member.gpu)})"

    @property
    def members(self) -> tuple[Member, ...]:
        """Living engines, by GPU number."""
        return tuple(self._by_gpu[gpu] for gpu in sorted(self._by_gpu))

    def address(self, gpu: GpuId) -> str | None:
        """Where the worker of a GPU listens, None if it is gone."""
        member = self._by_gpu.get(gpu)
        return None if member is None else member.address

    def at(self, address: str) -> Member | None:
        """The engine at an address."""
        return self._by_address.get(address)

    def named(self, name: str) -> Member | None:
        """The living engine of a worker name."""
        return next((m for m in self._by_gpu.values() if m.hello.name == name), None)

    def join(self, hello: Hello, address: str) -> Member:
        """Enter an engine. Whoever had its name or address must have left before."""
        gpu = self._number(hello)
        member = Member(gpu, address, hello)
        self._remembered[hello.name, hello.node] = gpu
        self._by_gpu[gpu] = self._by_address[address] = member
        return member

    def leave(self, address: str) -> GpuId | None:
        """Strike the engine at an address; its number, None if there was none."""
        member = self._by_address.pop(address, None)
        if member is None:
            return None
        del self._by_gpu[member.gpu]
        return member.gpu

    def _number(self, hello: Hello) -> GpuId:
        known = self._remembered.get((hello.name, hello.node))
        if known is not None and known not in self._by_gpu:
            return known
        for wanted in self._candidates(hello):
            if wanted not in self._by_gpu:
                return wanted
        raise AssertionError("blocks are endless")

    def _candidates(self, hello: Hello) -> Iterator[GpuId]:
        """Numbers to try: the one of its index, then all of the machine's, block after block."""
        block, slot = divmod(hello.index, self._slots)
        yield self._block(hello.node, block) * self._slots + slot
        for number in count():
            first = self._block(hello.node, number) * self._slots
            yield from range(first, first + self._slots)

    def _block(self, node: str, number: int) -> int:
        blocks = self._blocks.setdefault(node, [])
        while len(blocks) <= number:
            blocks.append(next(self._next_block))
        return blocks[number]
