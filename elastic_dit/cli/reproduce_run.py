"""Run an experiment with a progress bar; write its page, pictures and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.cli.reproduce_tables import draw_ddit, draw_mixed_priority, draw_predictor
from elastic_dit.errors import ConfigError, SaveError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["make_folder", "progress_bar", "run_reproduce"]


def run_reproduce(
    experiment: str,
    output: str,
    seeds: int | None,
    requests: int | None,
    processes: int | None,
    json_path: str | None,
) -> None:
    """Run, draw, write.

    Parameters
    ----------
    experiment : str
        ``ddit``, ``disagfusion``, ``mixed-priority`` or ``predictor``.
    output : str
        Folder, made if it is missing.
    seeds, requests : int or None
        Fewer than all, to be quicker.
    processes : int or None
        One for each core by default.
    json_path : str or None

    Raises
    ------
    ConfigError
        Where there are not so many seeds.
    SaveError
        Where a file could not be written.
    """
    check_json_path(json_path)
    folder = make_folder(output)
    console = human_console(json_path)
    if experiment == "ddit":
        document = _ddit(console, folder, seeds, requests, processes)
    elif experiment == "disagfusion":
        document = _disagfusion(console, folder, seeds, processes)
    elif experiment == "predictor":
        document = _predictor(console, folder, seeds, requests, processes)
    else:
        document = _mixed_priority(console, folder, seeds, processes)
    write_json(json_path, document)


def make_folder(path: str) -> Path:
    """The folder, made where it is missing.

    Raises
    ------
    SaveError
        Where that cannot be done, or nothing can be written there.
    """
    from elastic_dit.files import check_target

    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SaveError(path, error.strerror or str(error)) from None
    check_target(folder / "page.md")
    return folder


def _ddit(
    console: Console,
    folder: Path,
    seeds: int | None,
    requests: int | None,
    processes: int | None,
) -> str:
    from elastic_dit.reproduce.ddit import DditExperiment, reproduce_ddit
    from elastic_dit.reproduce.ddit_page import ddit_page
    from elastic_dit.reproduce.plots import draw_cells, draw_grid

    asked = DditExperiment()
    asked = replace(asked, seeds=_first(asked.seeds, seeds), requests=requests or asked.requests)
    with progress_bar(console, asked.runs) as done:
        report = reproduce_ddit(asked, processes=processes, done=done)
    console.print(draw_ddit(report))
    pictures = {"ddit-grid.png": draw_grid(report), "ddit-cells.png": draw_cells(report)}
    _write(console, folder, {"ddit.md": ddit_page(report).encode(), **pictures})
    return report.model_dump_json(indent=2)


def _disagfusion(console: Console, folder: Path, seeds: int | None, processes: int | None) -> str:
    from elastic_dit.cli.reproduce_disagfusion import disagfusion_files, draw_disagfusion
    from elastic_dit.reproduce.disagfusion import DisagFusionExperiment, reproduce_disagfusion

    asked = DisagFusionExperiment()
    asked = replace(asked, seeds=_first(asked.seeds, seeds))
    with progress_bar(console, asked.runs) as done:
        report = reproduce_disagfusion(asked, processes=processes, done=done)
    console.print(draw_disagfusion(report))
    _write(console, folder, disagfusion_files(report))
    return report.model_dump_json(indent=2)


def _mixed_priority(
    console: Console, folder: Path, seeds: int | None, processes: int | None
) -> str:
    from elastic_dit.reproduce.mixed_page import mixed_page
    from elastic_dit.reproduce.mixed_priority import MixedExperiment, reproduce_mixed_priority
    from elastic_dit.reproduce.plots import draw_mixed

    asked = MixedExperiment()
    asked = replace(asked, seeds=_first(asked.seeds, seeds))
    with progress_bar(console, asked.runs) as done:
        report = reproduce_mixed_priority(asked, processes=processes, done=done)
    console.print(draw_mixed_priority(report))
    files = {
        "mixed-priority.md": mixed_page(report).encode(),
        "mixed-priority.png": draw_mixed(report),
    }
    _write(console, folder, files)
    return report.model_dump_json(indent=2)


def _predictor(
    console: Console,
    folder: Path,
    seeds: int | None,
    requests: int | None,
    processes: int | None,
) -> str:
    from elastic_dit.reproduce.predictor import PredictorExperiment, reproduce_predictor
    from elastic_dit.reproduce.predictor_page import predictor_page

    asked = PredictorExperiment()
    asked = replace(asked, seeds=_first(asked.seeds, seeds), requests=requests or asked.requests)
    with progress_bar(console, asked.runs, "situations") as done:
        report = reproduce_predictor(asked, processes=processes, done=done)
    console.print(draw_predictor(report))
    _write(console, folder, {"predictor.md": predictor_page(report).encode()})
    return report.model_dump_json(indent=2)


def _first(all_seeds: tuple[int, ...], count: int | None) -> tuple[int, ...]:
    if count is not None and count > len(all_seeds):
        raise ConfigError("seeds", count, f"at most {len(all_seeds)}")
    return all_seeds[:count]


@contextmanager
def progress_bar(
    console: Console, runs: int, what: str = "simulations"
) -> Iterator[Callable[[int], None]]:
    """A bar that is told how many more runs have ended."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=runs)

        def done(count: int) -> None:
            progress.advance(task, count)

        yield done


def _write(console: Console, folder: Path, files: Mapping[str, bytes]) -> None:
    from elastic_dit.files import write_atomically

    for name, content in files.items():
        write_atomically(folder / name, content)
    console.print(f"In {folder}: {', '.join(files)}.", soft_wrap=True)
