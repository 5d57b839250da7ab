"""Stage contexts for tests: continue always, or act at a given moment."""

from __future__ import annotations

from collections.abc import Callable

from elastic_dit.engine.protocol import Boundary

__all__ = ["Always", "At", "abort_after_looks"]


class Always:
    """Continue to the end; remembers every boundary."""

    def __init__(self) -> None:
        self.boundaries: list[tuple[int, int]] = []

    def boundary(self, step: int, total_steps: int) -> Boundary:
        self.boundaries.append((step, total_steps))
        return Boundary.CONTINUE

    def aborted(self) -> bool:
        return False


class At(Always):
    """Do `action` once `step` steps are done."""

    def __init__(self, step: int, action: Boundary) -> None:
        super().__init__()
        self.step, self.action = step, action

    def boundary(self, step: int, total_steps: int) -> Boundary:
        super().boundary(step, total_steps)
        return self.action if step == self.step else Boundary.CONTINUE


class _Counting(Always):
    def __init__(self, looks: int, then: Callable[[], None]) -> None:
        super().__init__()
        self.left, self.looks, self.then = looks, 0, then

    def aborted(self) -> bool:
        self.looks += 1
        if self.left and self.looks == self.left:
            self.then()
        return bool(self.left) and self.looks >= self.left


def abort_after_looks(looks: int, then: Callable[[], None] = lambda: None) -> _Counting:
    """Abort when asked for the `looks`-th time; 0 counts the looks and never aborts."""
    return _Counting(looks, then)
