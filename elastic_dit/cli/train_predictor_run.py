"""Train with a progress bar."""

from __future__ import annotations

from collections.abc import Sequence

from elastic_dit.cli.output import human_console

__all__ = ["run_train_predictor"]


def run_train_predictor(
    output: str,
    situations: int,
    seed: int,
    telemetry: Sequence[str],
    processes: int | None,
) -> None:
    """Simulate, read, fit, write.

    Parameters
    ----------
    output : str
    situations, seed : int
        Of the simulated examples.
    telemetry : sequence of str
        Files as `elastic_dit.predict.examples.read_examples` takes them.
    processes : int or None

    Raises
    ------
    ConfigError
        Where a file of telemetry is wrong, or there is nothing to learn from.
    SaveError
        Where the file could not be written.
    """
    from elastic_dit.cli.reproduce_run import progress_bar
    from elastic_dit.files import check_target
    from elastic_dit.predict.examples import read_examples
    from elastic_dit.predict.storage import save_estimator
    from elastic_dit.reproduce import training
    from elastic_dit.reproduce.situations import draw_situations

    check_target(output)
    recorded = [example for path in telemetry for example in read_examples(path)]
    console = human_console(None)
    drawn = draw_situations(situations, seed)
    with progress_bar(console, len(drawn), "situations") as done:
        simulated = training.simulate_examples(
            drawn, training.TRAINING, processes=processes, done=done
        )
    save_estimator(training.fit_examples([*simulated, *recorded]), output)
    console.print(
        f"In {output}: trained on {len(simulated)} simulated situations and "
        f"{len(recorded)} recorded ones.",
        soft_wrap=True,
    )
