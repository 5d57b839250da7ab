"""Which engine a worker gets."""

from __future__ import annotations

from elastic_dit.config import Config
from elastic_dit.engine.protocol import Engine, ModelSource
from elastic_dit.errors import ConfigError
from elastic_dit.models import EMBEDDED_MODELS, embedded_model_path

__all__ = ["make_engine", "model_sources"]

_EMBEDDED = "embedded:"


def make_engine(config: Config, device: str) -> Engine:
    """The engine that the settings ask for.

    Parameters
    ----------
    config : Config
    device : str
        Torch device.
    """
    if config.engine.backend == "fake":
        from elastic_dit.engine.fake import FakeEngine

        return FakeEngine(device=device)
    from elastic_dit.engine.torch_engine import TorchEngine

    return TorchEngine(
        model_sources(config),
        device=device,
        cpu_threads=config.engine.cpu_threads,
        groups_ahead=config.engine.groups_ahead,
    )


def model_sources(config: Config) -> tuple[ModelSource, ...]:
    """Configured models with their folders found.

    Raises
    ------
    ConfigError
        Where a path names an embedded model that the package does not hold.

    Examples
    --------
    >>> [source.name for source in model_sources(Config())]
    ['shapes']
    """
    return tuple(
        ModelSource(
            name=model.name, path=_folder(model.path), dtype=model.dtype, options=model.options
        )
        for model in config.models
    )


def _folder(path: str) -> str:
    if not path.startswith(_EMBEDDED):
        return path
    name = path.removeprefix(_EMBEDDED)
    if name not in EMBEDDED_MODELS:
        raise ConfigError("models.path", path, f"embedded: and one of {', '.join(EMBEDDED_MODELS)}")
    return str(embedded_model_path(name))
