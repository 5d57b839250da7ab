"""Stand-ins for components that another stage owns.

Pipelines read geometry off components they do not run: the denoise stage asks the VAE for its
compression. With ``vae=None`` diffusers silently assumes factors of 8 and 4, which is wrong for
any other VAE. A stub is the real class built from its configuration on the meta device: all
attributes, no memory.
"""

from __future__ import annotations

from typing import Any

import torch

from elastic_dit.families.folder import ModelFolder

__all__ = ["config_stub"]


def config_stub(folder: ModelFolder, name: str, dtype: torch.dtype) -> Any:
    """Component `name` without weights, None where the model has none.

    Parameters
    ----------
    folder : ModelFolder
    name : str
        A component of the diffusers library.
    dtype : torch.dtype
        What its ``dtype`` shall say.
    """
    import diffusers

    entry = folder.component(name)
    if entry is None or entry[0] != "diffusers":
        return None
    with torch.device("meta"):
        stub = getattr(diffusers, entry[1]).from_config(folder.config(name))
    # the class's own ``to`` warns about parameters that stay in float32; these have no values
    return torch.nn.Module.to(stub, dtype).eval()
