"""Who runs a request, generation after generation: the record on which all members agree.

A run's *generation* is one constellation of members. The next one is written once, by
compare-and-set on the store that the control plane hosts, either by the master (an order to
regroup) or, after a failure, by a leader among the survivors. Whoever loses its group reads the
next generation before it does anything else, so two halves of a broken group can never both go
on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from elastic_dit.engine.group_store import first_line
from elastic_dit.engine.groups import GroupKey
from elastic_dit.errors import GroupBroken
from elastic_dit.state import GpuId

__all__ = ["Generation", "Ledger", "shrunk"]

LOOK_S = 0.005
"""How often a waiting member looks into the store, seconds; the store cannot call back."""
TURN_SETTLES = 3
"""Settling times that survivors give a leader before the next one takes its turn."""
_WITHDRAWN = -1
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One constellation of members of a run.

    Attributes
    ----------
    number : int
        Rises by one; a run begins alone as generation 0.
    members : tuple of int
        GPU ids, ascending, the master first; empty where the run ends here.
    epoch : int
        Of their group.
    source : int
        Member whose state is the run's.
    step : int
        Denoising steps done in that state.
    transfer : bool
        Whether that state is sent to the others.
    ticket : str
        The order behind it; empty after a failure.
    lost : tuple of int
        Members that did not answer.
    reason : str
        Why, in a few words.
    """

    number: int
    members: tuple[GpuId, ...]
    epoch: int = 0
    source: GpuId = -1
    step: int = 0
    transfer: bool = False
    ticket: str = ""
    lost: tuple[GpuId, ...] = ()
    reason: str = ""

    @property
    def key(self) -> GroupKey:
        """Name of its group."""
        return GroupKey(self.members, self.epoch)

    def encode(self) -> str:
        """Text form.

        >>> Generation.decode(Generation(number=1, members=(0, 1)).encode()).members
        (0, 1)
        """
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str | bytes) -> Generation:
        """Inverse of `encode`."""
        fields = json.loads(text)
        lists = {name: tuple(fields[name]) for name in ("members", "lost")}
        return cls(**{**fields, **lists})


class Ledger:
    """One member's view of one run's record.

    Parameters
    ----------
    store : torch.distributed.Store
        Client of the control plane's store.
    run : str
        Names one attempt at one request.
    gpu : int
        This member.
    settle_s : float
        How long a leader waits for survivors to report, seconds.

    Raises
    ------
    GroupBroken
        From every method, where the store does not answer.

    Examples
    --------
    >>> from torch.distributed import HashStore
    >>> store = HashStore()
    >>> first, second = (Ledger(store, "r/1", gpu, settle_s=0.1) for gpu in (0, 1))
    >>> first.propose(Generation(number=1, members=(0, 1))).members
    (0, 1)
    >>> second.propose(Generation(number=1, members=(1,))).members
    (0, 1)
    """

    def __init__(self, store: Any, run: str, gpu: GpuId, *, settle_s: float) -> None:
        self.run = run
        self.gpu = gpu
        self.settle_s = settle_s
        self._store = store

    def __repr__(self) -> str:
        return f"<Ledger of {self.run} at GPU {self.gpu}>"

    # ------------------------------------------------------------------ generations
    def propose(self, generation: Generation) -> Generation:
        """Write the next generation unless it stands already; the one that stands."""
        key = self._key(generation.number, "record")
        stands = self._ask(lambda: self._store.compare_set(key, "", generation.encode()))
        return Generation.decode(stands)

    def read(self, number: int) -> Generation | None:
        """The generation of that number, None while nobody wrote it."""
        found = self._get(self._key(number, "record"))
        return None if found is None else Generation.decode(found)

    # ------------------------------------------------------------------ joining
    def knock(self, ticket: str) -> None:
        """A joiner is there."""
        self._set(self._key("knock", ticket, self.gpu), "1")

    def all_knocked(self, ticket: str, gpus: Iterable[GpuId], patience_s: float) -> bool:
        """Whether all of `gpus` are there, or come within `patience_s`."""
        keys = [self._key("knock", ticket, gpu) for gpu in gpus]
        there: bool = _until(lambda: self._ask(lambda: self._store.check(keys)), patience_s)
        return there

    def admit(self, ticket: str, gpus: Iterable[GpuId], number: int) -> None:
        """Tell joiners which generation is theirs."""
        for gpu in gpus:
            self._set(self._key("admit", ticket, gpu), str(number))

    def withdraw(self, ticket: str, gpus: Iterable[GpuId]) -> None:
        """Tell joiners that they are not needed any more."""
        self.admit(ticket, gpus, _WITHDRAWN)

    def admission(
        self, ticket: str, timeout_s: float, aborted: Callable[[], bool]
    ) -> Generation | None:
        """Wait to be admitted; None where that was withdrawn, aborted or took too long."""
        key = self._key("admit", ticket, self.gpu)
        answer = _until(lambda: b"" if aborted() else self._get(key), timeout_s)
        number = int(answer or _WITHDRAWN)
        return None if number == _WITHDRAWN else self.read(number)

    # ------------------------------------------------------------------ after a failure
    def agree(
        self,
        number: int,
        *,
        members: Sequence[GpuId],
        step: int,
        lost: Callable[[], frozenset[GpuId]],
        choose: Callable[[Mapping[GpuId, int]], Generation],
    ) -> Generation:
        """The generation after a failure, the same at all survivors.

        Parameters
        ----------
        number : int
            The one to agree on.
        members : sequence of int
            Of the generation that broke.
        step : int
            Denoising steps done in this member's state, -1 where it has none.
        lost : callable
            Members known to be dead.
        choose : callable
            Makes the generation from the survivors' steps; called at one of them, usually.

        Raises
        ------
        GroupBroken
            Where no leader came to a result.
        """
        self._set(self._key(number, "present", self.gpu), str(step))
        for turn in range(len(members)):
            if self._leads(number, turn):
                return self.propose(choose(self._survivors(number, members, lost)))
            found = _until(lambda: self.read(number), TURN_SETTLES * self.settle_s)
            if found is not None:
                return found
        raise GroupBroken(f"{self.run} generation {number}", "the survivors did not agree")

    def _leads(self, number: int, turn: int) -> bool:
        key, me = self._key(number, "leader", turn), str(self.gpu)
        leader: bytes = self._ask(lambda: self._store.compare_set(key, "", me))
        return leader.decode() == me

    def _survivors(
        self, number: int, members: Sequence[GpuId], lost: Callable[[], frozenset[GpuId]]
    ) -> dict[GpuId, int]:
        present: dict[GpuId, int] = {}

        def complete() -> bool:
            for gpu in members:
                report = self._get(self._key(number, "present", gpu))
                if gpu not in present and report is not None:
                    present[gpu] = int(report)
            return set(members) <= present.keys() | lost()

        _until(complete, self.settle_s)
        return present

    # ------------------------------------------------------------------ the store
    def _key(self, *parts: object) -> str:
        return "/".join(["run", self.run, *map(str, parts)])

    def _set(self, key: str, value: str) -> None:
        self._ask(lambda: self._store.set(key, value))

    def _get(self, key: str) -> bytes | None:
        found: bytes | None = self._ask(
            lambda: self._store.get(key) if self._store.check([key]) else None
        )
        return found

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except RuntimeError as error:
            raise GroupBroken(self.run, f"the store does not answer: {first_line(error)}") from None


def shrunk(
    survivors: Sequence[GpuId], sources: Sequence[GpuId], dops: Sequence[int]
) -> tuple[GpuId, ...]:
    """Members with which a broken group goes on: as many as allowed, one of `sources` among them.

    Neighbours in an aligned block are preferred, for their links and because the table has
    their group already.

    Parameters
    ----------
    survivors : sequence of int
        In ascending order.
    sources : sequence of int
        Survivors that have the run's latest state.
    dops : sequence of int
        Degrees allowed; 1 is among them.

    Examples
    --------
    >>> shrunk([1, 2, 3], [1, 2, 3], [1, 2, 4]), shrunk([0, 2], [2], [1, 2, 4])
    ((2, 3), (0, 2))
    """
    size = max(dop for dop in dops if dop <= len(survivors))
    for source in sources:
        first = source - source % size
        block = tuple(gpu for gpu in survivors if first <= gpu < first + size)
        if len(block) == size:
            return block
    others = [gpu for gpu in survivors if gpu != sources[0]]
    return tuple(sorted([sources[0], *others[: size - 1]]))


def _until(look: Callable[[], _T], timeout_s: float) -> _T:
    """First result of `look` that counts (neither None nor False), the last one in the end."""
    deadline = time.monotonic() + timeout_s
    while (found := look()) is None or found is False:
        if time.monotonic() >= deadline:
            break
        time.sleep(LOOK_S)
    return found
