"""The table of errors in docs/families.md: run ``python -m tests.engine.family_errors``."""

from __future__ import annotations

from collections.abc import Iterator

from tests.engine.members import members
from tests.engine.parallel_cases import (
    CASES,
    FAMILY_CASES,
    Part,
    engine_of,
    reference,
    request_of,
)
from tests.engine.test_spmd import FIRST, PLANS, error_of, orders, start

__all__ = ["table"]

COLUMNS = {"1 2 1": "1→2→1", "1 2 4 2 1": "1→2→4→2→1", "apart": "GPUs {1, 3}, then 1"}
NAMES = {"qwen": "qwen_image"}
LIMIT = 8


def table() -> Iterator[str]:
    """Lines in Markdown: the largest error of each family by each plan, over all its cases."""
    yield f"| family | allowed | {' | '.join(COLUMNS.values())} | largest latent |"
    yield "| --- | --- |" + " --- |" * (len(COLUMNS) + 1)
    families: dict[str, list[str]] = {}
    for case in (*CASES, *FAMILY_CASES):
        name = case.split()[0]
        families.setdefault(NAMES.get(name, name), []).append(case)
    for family, cases in families.items():
        errors = [max(_error(case, plan) for case in cases) for plan in COLUMNS]
        largest = max(float(reference(case).abs().max()) for case in cases)
        yield f"| `{family}` | {_allowed(cases[0])} | " + " | ".join(
            [*(f"{error:.1e}" if error else "0" for error in errors), f"{largest:.2g} |"]
        )


def _allowed(case: str) -> str:
    request = request_of(case)
    return ", ".join(map(str, engine_of(request.model).allowed_dops(request, LIMIT)))


def _error(case: str, plan: str) -> float:
    reference(case)  # before the members fork
    last = list(PLANS[plan].values())[-1][0]
    with members() as group:
        part = Part(case, orders(PLANS[plan]))
        begun = start(group, part, PLANS[plan], FIRST.get(plan, 0))
        results = {gpu: member.result() for gpu, member in begun.items()}
    return error_of(results[last], case)


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    for line in table():
        print(line, flush=True)
