"""What others list for the mixed-priority workloads: `mixed_priority/policy_results.csv`."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from elastic_dit.data import data_path
from elastic_dit.reproduce.schema import ClassFigures, MixedFigures

__all__ = ["best_listed", "read_listed"]

_MS_PER_S = 1000.0
_Row = Mapping[str, str]


def read_listed(seeds: Sequence[int]) -> dict[str, dict[str, MixedFigures]]:
    """Listed figures, averaged over the seeds.

    Policies that are listed for some of the seeds only are left out.

    Parameters
    ----------
    seeds : sequence of int

    Returns
    -------
    dict
        By ``profile@load`` and the name that the file gives the policy.
    """
    rows: dict[str, dict[str, list[_Row]]] = defaultdict(lambda: defaultdict(list))
    with data_path("mixed_priority/policy_results.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if int(row["seed"]) in seeds:
                rows[f"{row['profile']}@{row['target_load']}"][row["policy"]].append(row)
    return {
        workload: {
            policy: _average(of_policy)
            for policy, of_policy in sorted(by_policy.items())
            if len(of_policy) == len(seeds)
        }
        for workload, by_policy in sorted(rows.items())
    }


def best_listed(listed: Mapping[str, MixedFigures]) -> str:
    """The policy of the highest attainment; of several, that of the lowest mean latency."""
    return max(listed, key=lambda policy: (listed[policy].attainment, -listed[policy].mean_s))


def _average(rows: Sequence[_Row]) -> MixedFigures:
    def mean(column: str) -> float:
        return statistics.fmean(float(row[column]) for row in rows)

    return MixedFigures(
        attainment=mean("all_sar_submitted"),
        completed=sum(int(row["completed"]) for row in rows),
        submitted=sum(int(row["submitted"]) for row in rows),
        mean_s=mean("all_mean_ms") / _MS_PER_S,
        p99_s=mean("all_p99_ms") / _MS_PER_S,
        S=ClassFigures(attainment=mean("S_sar_submitted")),
        M=ClassFigures(attainment=mean("M_sar_submitted")),
        L=ClassFigures(attainment=mean("L_sar_submitted")),
    )
