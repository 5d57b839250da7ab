"""Scenes the embedded model can be asked for, their ground truth, and a judge of what it made.

Needs numpy, scipy and Pillow only, so anything that shows or tests results may import it.
"""

from __future__ import annotations

from elastic_dit.judging.judge import Verdict, judge
from elastic_dit.judging.render import (
    Trajectory,
    coverage,
    default_trajectory,
    random_trajectory,
    render,
)
from elastic_dit.judging.scenes import (
    BACKGROUNDS,
    COLOURS,
    MOTIONS,
    SHAPES,
    Scene,
    all_scenes,
    evaluation_scenes,
    parse_prompt,
)
from elastic_dit.judging.tally import Tally, tally

__all__ = [
    "BACKGROUNDS",
    "COLOURS",
    "MOTIONS",
    "SHAPES",
    "Scene",
    "Tally",
    "Trajectory",
    "Verdict",
    "all_scenes",
    "coverage",
    "default_trajectory",
    "evaluation_scenes",
    "judge",
    "parse_prompt",
    "random_trajectory",
    "render",
    "tally",
]
