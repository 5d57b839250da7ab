"""Shadow mode: a predictor that is asked and written down, and not obeyed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from elastic_dit.predict.workload import RatioPredictor, Workload
from elastic_dit.request import Stage

__all__ = ["ShadowNote", "Shadowed"]


@dataclass(frozen=True, slots=True)
class ShadowNote:
    """What two predictors said about one workload.

    Attributes
    ----------
    obeyed, shadow : mapping of Stage to int
        Instances per stage. Of `shadow` None where it failed.
    error : str
        Why it failed.
    """

    obeyed: Mapping[Stage, int]
    shadow: Mapping[Stage, int] | None
    error: str = ""

    @property
    def agrees(self) -> bool:
        """Whether both said the same."""
        return self.shadow == self.obeyed

    def __str__(self) -> str:
        if self.shadow is None:
            return f"shadow failed ({self.error}), {_ratio(self.obeyed)} stands"
        verb = "agrees with" if self.agrees else f"would have {_ratio(self.shadow)} instead of"
        return f"shadow {verb} {_ratio(self.obeyed)}"


class Shadowed:
    """A `RatioPredictor` that obeys one and notes what another would have done.

    Whatever the shadow does, also an exception, changes nothing.

    Parameters
    ----------
    obeyed, shadow : RatioPredictor
    note : callable
        Takes every `ShadowNote`, such as ``lambda note: log.add(now, "shadow", "", (), str(note))``
        for a `elastic_dit.control.decisions.DecisionLog`.
    """

    def __init__(
        self,
        obeyed: RatioPredictor,
        shadow: RatioPredictor,
        note: Callable[[ShadowNote], None],
    ) -> None:
        self._obeyed = obeyed
        self._shadow = shadow
        self._note = note

    def __repr__(self) -> str:
        return f"Shadowed({self._obeyed!r}, shadow {self._shadow!r})"

    def predict(self, workload: Workload, gpus: Mapping[str, int]) -> Mapping[Stage, int]:
        """What the obeyed predictor says; see `RatioPredictor`."""
        obeyed = self._obeyed.predict(workload, gpus)
        try:
            note = ShadowNote(obeyed, dict(self._shadow.predict(workload, gpus)))
        except Exception as error:
            note = ShadowNote(obeyed, None, f"{type(error).__name__}: {error}")
        self._note(note)
        return obeyed


def _ratio(counts: Mapping[Stage, int]) -> str:
    return ":".join(str(counts.get(stage, 0)) for stage in Stage)
