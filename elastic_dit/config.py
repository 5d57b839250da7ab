"""The one configuration model: every setting, its unit and its default.

Read from YAML (`Config.load`), from keyword arguments, or left as it is. `configs/` holds one
commented file per deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from elastic_dit.errors import ConfigError

__all__ = [
    "AdmissionConfig",
    "ClientConfig",
    "Config",
    "ControlConfig",
    "EngineConfig",
    "FaultsConfig",
    "HttpConfig",
    "JournalConfig",
    "ModelConfig",
    "PlacementConfig",
    "StageRatio",
    "TransferConfig",
]

Seconds = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]
HostName = Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)$")]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelConfig(_Section):
    """One model to serve."""

    name: Annotated[str, Field(min_length=1)]
    """Name that requests use."""
    path: Annotated[str, Field(min_length=1)]
    """Local diffusers folder, or ``embedded:NAME`` for a model inside the package."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of the weights; what the model declares as float32 stays float32."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Overrides of the model card: limits (`max_frames` …) and `defaults`."""


class EngineConfig(_Section):
    """One engine, that is one GPU's process."""

    backend: Literal["torch", "fake"] = "torch"
    """``fake`` makes pretended clips without torch or a model: to try a deployment's plumbing."""
    cpu_threads: Count = 1
    """Torch threads of an engine that runs on a CPU."""
    preload: bool = True
    """On CPUs, start engines from a fork server that has imported torch and diffusers once."""
    group_timeout_s: Seconds = 60.0
    """Longest first step of a group; a longer one has a member that hangs. Later steps are judged
    by those before them."""
    groups_ahead: bool | None = None
    """Whether groups of neighbouring GPUs are formed in the background, as soon as all have loaded
    a DiT and again after a loss, instead of when a request needs them; ``null`` is yes with NCCL,
    whose first communicator takes seconds, and no with gloo."""


class StageRatio(_Section):
    """Instance ratio E:T:D, GPUs per stage in proportion."""

    encoder: Count = 1
    dit: Count = 2
    decoder: Count = 1


class PlacementConfig(_Section):
    """The slow decision: which stages are resident on which GPU."""

    policy: Annotated[str, Field(min_length=1)] = "static"
    """Name of a registered placement policy."""
    ratio: StageRatio = StageRatio()
    """GPUs per stage; for ``reactive`` and ``hybrid`` those to begin with. With fewer GPUs than
    stages, every GPU holds all."""
    interval_s: Seconds = 2.0
    """Seconds between two looks of the scheduler actor (DisagFusion's delta)."""
    exclusive: bool = True
    """For ``hybrid``: one stage per GPU. Without it, stages share GPUs wherever their weights and
    activations fit."""
    predictor: Annotated[str, Field(min_length=1)] = "balanced"
    """For ``hybrid`` with exclusive stages: ``balanced``, the closed form; ``learned``; or the file
    of a predictor of your own."""
    shadow: Annotated[str, Field(min_length=1)] | None = None
    """Another predictor, which is asked too; what it would do stands in the plan's reason."""
    telemetry: Annotated[str, Field(min_length=1)] | None = None
    """File to which the running cluster adds what its split of GPUs was seen to reach, for
    ``elastic-dit train-predictor --telemetry``, as the Dask scheduler's machine sees it. Only
    while each GPU holds one stage; of one cluster."""
    telemetry_window_s: Seconds = 300.0
    """Seconds of one such example, in which nothing moves and 20 requests or more are completed."""
    telemetry_kept: Count = 2_000
    """Latest examples that stay in that file: a week of them by default, a few megabytes."""
    scale_out_utilisation: Annotated[float, Field(gt=0.0, le=1.0)] = 0.80
    """A stage gets a GPU once its GPUs are busy for more than this part of the time, …"""
    scale_out_queue_length: Annotated[int, Field(ge=0)] = 5
    """… more requests than this wait for it, and they wait longer and longer."""
    scale_in_utilisation: Fraction = 0.20
    """A stage gives a GPU up once its GPUs are busy for less than this part of the time and
    nobody waits for it."""
    confirm_looks: Count = 3
    """Looks in a row that must agree before a stage gets or gives up a GPU."""
    cooldown_s: Annotated[float, Field(ge=0.0)] = 30.0
    """Time after a stage's change in which it is not changed the other way, nor predicted anew."""
    earn_back_s: Seconds = 300.0
    """A predicted move must gain more within this time than its loads cost."""
    memory_reserve: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.2
    """Part of a GPU's memory kept free for activations of stages whose needs are not known."""
    action_timeout_s: Seconds = 300.0
    """Longest load or drop of one stage; then the engine counts as broken."""
    min_machines: Count = 1
    """Machines at least: with fewer, more are asked for; of these, none is given back."""
    max_machines: Count | None = None
    """Machines at most. Without it their number is yours: none is asked for or given back."""

    @field_validator("max_machines")
    @classmethod
    def _is_no_less(cls, most: int | None, info: ValidationInfo) -> int | None:
        least: int = info.data.get("min_machines", 1)
        if most is not None and most < least:
            raise PydanticCustomError(
                "machines", "at least min_machines, {least}", {"least": least}
            )
        return most


class ControlConfig(_Section):
    """The fast decision and the request table."""

    dispatch: Annotated[str, Field(min_length=1)] = "fcfs"
    """Name of a registered dispatch policy."""
    tick_s: Seconds = 0.5
    """Seconds between two ticks of the controller."""
    max_attempts: Count = 3
    """How often a request is tried when engines die under it."""
    retry_backoff_s: Annotated[float, Field(ge=0.0)] = 0.5
    """Wait before the second retry after a failed stage; doubles with each further one. The first
    retry, and one after a lost engine, is at once."""
    checkpoint_every: Annotated[int, Field(ge=0)] = 10
    """Denoising steps after which another engine pulls a snapshot, from which a request goes on
    whose engines all die; 0 for none."""
    checkpoint_interval_s: Annotated[float, Field(ge=0.0)] = 5.0
    """Least time between two such snapshots, and before the first: where steps take milliseconds,
    to repeat them is cheaper than to copy a state."""
    silence_factor: Annotated[float, Field(gt=1.0)] = 10.0
    """An engine hangs whose stage, or denoising step, takes this many times what it took before; it
    is made anew, and the request goes on elsewhere."""
    silence_floor_s: Seconds = 30.0
    """It never hangs before that."""
    unknown_stage_timeout_s: Seconds = 1_800.0
    """It hangs after that where such a stage has not been seen."""
    load_grace_s: Seconds = 10.0
    """Requests fail once no GPU could load a stage they need for this long."""
    max_waiting: Count = 10_000
    """Requests that may wait at once; more are refused with a retry-after."""
    max_image_bytes: Count = 2**30
    """Bytes of input pictures that live requests may hold; more are refused with a retry-after."""
    prefetch_depth: Annotated[int, Field(ge=0)] = 1
    """Requests whose inputs an encoder or decoder engine pulls ahead of its turn."""
    ready_per_gpu: Count = 8
    """Requests that may wait before a stage, per GPU that serves it, until the stage before
    pauses; their tensors lie in engines' memory."""
    progress_interval_s: Seconds = 0.5
    """Least time between two reports of one request's steps, from its engine and to its client."""
    slots_per_node: Count = 8
    """GPU numbers set aside for each machine; groups form inside one such block first."""
    profile: Annotated[str, Field(min_length=1)] | None = None
    """Latencies that policies expect before they have seen any: the file or database URL that
    ``elastic-dit profile --rib`` wrote, as the scheduler's machine sees it; refined in use."""
    profile_interval_s: Seconds = 60.0
    """Seconds between two writes of what was seen to the profile."""
    finished_kept: Count = 1_000
    """Finished requests whose records stay for `status` and the dashboard."""
    decisions_kept: Count = 1_000
    """Latest decisions that stay for the dashboard."""
    window_s: Seconds = 30.0
    """Latest seconds whose utilisation and delays placement policies go by."""
    arrivals_kept: Count = 256
    """Latest arrivals that placement policies see."""


class AdmissionConfig(_Section):
    """Which requests are let in, beyond what their models can make.

    What none of these names is bounded by `ControlConfig.max_waiting` and the model's card alone.
    """

    max_pixels: Count | None = None
    """Largest width x height of any request, pixels."""
    max_frames: Count | None = None
    """Most frames of any request."""
    max_steps: Count | None = None
    """Most denoising steps of any request."""
    max_prompt_characters: Count = 100_000
    """Longest prompt or negative prompt; looked at before a tokenizer sees it."""
    max_per_client: Count | None = None
    """Requests that one client, or one `owner` it names, may have in the cluster at once."""
    max_queued_gpu_seconds: Seconds | None = None
    """Predicted work in the cluster, GPU-seconds, beyond which requests are refused with a
    retry-after. An idle cluster takes any request."""
    check_deadlines: bool = True
    """Refuse a request whose deadline is shorter than it takes when nothing else runs."""


class JournalConfig(_Section):
    """What makes requests and results outlive the cluster."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """SQLite file of accepted requests, on a disk of the Dask scheduler's machine; without one,
    requests end with the cluster, and with the clients that wait for them."""
    results: Annotated[str, Field(min_length=1)] | None = None
    """Folder or fsspec URL of finished results, the same for the scheduler and every worker; a
    folder beside the journal by default."""
    ttl_s: Seconds = 86_400.0
    """How long requests that have ended, and their results, are kept."""


class TransferConfig(_Section):
    """Tensors between engines."""

    timeout_s: Seconds = 30.0
    """Longest wait for one pull."""
    attempts: Count = 3
    """Pulls of one artifact before its stage is run again."""
    backoff_s: Seconds = 0.1
    """Wait before the second pull; doubles with each further one."""


class FaultsConfig(_Section):
    """Faults on purpose, for tests and drills; an engine takes them from its own settings only."""

    seed: int | None = None
    """Of the dice; without one, nothing ever goes wrong on purpose."""
    transfer_delay: Fraction = 0.0
    """Part of the transfers that are delayed, …"""
    transfer_delay_s: Annotated[float, Field(ge=0.0)] = 0.0
    """… by this."""
    transfer_loss: Fraction = 0.0
    """Part of the transfers that never arrive."""
    transfer_corruption: Fraction = 0.0
    """Part of the transfers that arrive damaged."""
    step_delay_s: Annotated[float, Field(ge=0.0)] = 0.0
    """Added to every denoising step."""
    decode_delay_s: Annotated[float, Field(ge=0.0)] = 0.0
    """Added to every decode."""
    decode_out_of_memory: Fraction = 0.0
    """Part of the decodes that run out of memory, unless they are tiled."""


class ClientConfig(_Section):
    """Waits of a client."""

    connect_timeout_s: Seconds = 10.0
    """Longest wait for the Dask scheduler."""
    ready_timeout_s: Seconds = 120.0
    """Longest wait for the first engine that serves anything."""
    submit_timeout_s: Seconds = 30.0
    """Longest wait for the answer to one submission."""
    direct_results: bool = True
    """Fetch results from the engines that made them, rather than through the scheduler, which all
    its work waits for meanwhile; false where only the scheduler's address can be reached."""


class HttpConfig(_Section):
    """The HTTP front end; each has its own."""

    allowed_hosts: tuple[HostName, ...] = ()
    """Names without ports that requests may ask for in their Host header, besides the address
    listened on and those of the loopback interface. Without any, all names will do where there
    are API keys or other machines are listened for."""
    max_body_bytes: Count = 16 * 2**20
    """Largest body of a request; a picture to start from travels in one."""
    body_timeout_s: Seconds = 60.0
    """Longest wait for a request's body."""
    max_images: Count = 10
    """Most images of one request."""
    max_waits: Count = 1000
    """Event streams and image requests that may be open at once; more are told to come back."""
    answer_timeout_s: Seconds = 600.0
    """Longest wait of an image request for its images."""
    ready_timeout_s: Seconds = 5.0
    """Longest wait of a request for the first engine that serves anything."""
    keepalive_s: Seconds = 15.0
    """Silence of an event stream after which a comment is sent."""
    encoders: Count = 2
    """Results that are made into files at once, each in a thread."""
    cache_bytes: Count = 2**30
    """Files of results that stay on this machine's disk for the next download."""
    results_bytes: Count = 8 * 2**30
    """Frames of finished results that are kept in the cluster's memory where no journal keeps
    them; the oldest go first."""
    shutdown_s: Seconds = 10.0
    """Longest wait for open requests at the end."""


class Config(_Section):
    """All settings of a deployment.

    Examples
    --------
    >>> Config.parse({"placement": {"ratio": {"dit": 6}}}).placement.ratio.dit
    6
    >>> Config.parse({"control": {"tick_s": 0}})
    Traceback (most recent call last):
    elastic_dit.errors.ConfigError: control.tick_s = 0: must be greater than 0
    """

    models: tuple[ModelConfig, ...] = (ModelConfig(name="shapes", path="embedded:shapes"),)
    """Models to serve; the first is the default of requests that name none."""
    engine: EngineConfig = EngineConfig()
    placement: PlacementConfig = PlacementConfig()
    control: ControlConfig = ControlConfig()
    admission: AdmissionConfig = AdmissionConfig()
    journal: JournalConfig = JournalConfig()
    transfer: TransferConfig = TransferConfig()
    faults: FaultsConfig = FaultsConfig()
    client: ClientConfig = ClientConfig()
    http: HttpConfig = HttpConfig()

    @classmethod
    def parse(cls, settings: Mapping[str, Any]) -> Self:
        """Build from a nested mapping.

        Raises
        ------
        ConfigError
            Naming the dotted setting, its value and what is allowed.
        """
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"])
            allowed = first["msg"].removeprefix("Input should be ")
            if first["type"] == "extra_forbidden":
                allowed = "a known setting"
            raise ConfigError(field, first["input"], allowed) from None

    @classmethod
    def load(cls, path: str | Path | None) -> Self:
        """Read a YAML file; None gives the defaults.

        Raises
        ------
        ConfigError
            Where the file is missing, is no YAML mapping, or holds a wrong setting.
        """
        if path is None:
            return cls()
        try:
            settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError("config", str(path), f"a readable file ({error.strerror})") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError("config", str(path), f"valid YAML ({error})") from None
        if not isinstance(settings, dict):
            raise ConfigError("config", str(path), "a YAML mapping of settings")
        return cls.parse(settings)
