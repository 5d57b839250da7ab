"""Every metric: its name, labels and meaning, once.

Names and labels are those that vLLM-Omni and LightX2V gave their metrics, where ours mean the
same, behind our own prefix: a board made for them works here after that is replaced. Times are
in seconds (``_s``), sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["METRICS", "PREFIX", "Kind", "Metric"]

PREFIX = "elastic_dit_"
"""First part of every name in Prometheus."""

_REQUEST_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_STEP_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TRANSFER_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 30)
_HTTP_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
_BYTES_BUCKETS = tuple(4.0**power for power in range(5, 16))
_RTF_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 1000)


class Kind(StrEnum):
    """How a metric behaves over time."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes
    ----------
    name : str
        Without `PREFIX`.
    kind : Kind
    help : str
        What it tells.
    labels : tuple of str
    buckets : tuple of float
        Upper bounds, of a histogram only; one more bucket takes what is above them.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """As Prometheus shows it.

        >>> GPU_BUSY_S.full_name
        'elastic_dit_gpu_busy_s_total'
        """
        return f"{PREFIX}{self.name}"


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, text, labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, Kind.GAUGE, text, labels)


def _histogram(name: str, buckets: tuple[float, ...], text: str, *labels: str) -> Metric:
    return Metric(name, Kind.HISTOGRAM, text, labels, tuple(map(float, buckets)))


# ------------------------------------------------------------------------------------ requests
REQUESTS_RUNNING = _gauge(
    "num_requests_running", "Requests at work on a stage now.", "model", "stage"
)
REQUESTS_WAITING = _gauge(
    "num_requests_waiting", "Length of a stage's queue now.", "model", "stage"
)
OLDEST_WAIT_S = _gauge(
    "queue_oldest_wait_s", "How long the first in a stage's queue has waited.", "model", "stage"
)
QUEUE_TIME_S = _histogram(
    "request_queue_time_s", _REQUEST_BUCKETS_S,
    "Delay of a request in a stage's queue, until a GPU takes it.", "model", "stage",
)  # fmt: skip
REQUESTS_ACCEPTED = _counter("requests_accepted_total", "Requests let in.", "model")
REQUESTS_REFUSED = _counter(
    "requests_refused_total", "Submissions refused, by error type; nothing has run.", "reason"
)
REQUESTS_ENDED = _counter(
    "requests_success_total",
    "Requests that ended, by how: stop (completed), error (failed), abort (cancelled).",
    "model", "finished_reason",
)  # fmt: skip
LATENCY_S = _histogram(
    "e2e_request_latency_s", _REQUEST_BUCKETS_S,
    "From acceptance to result of completed requests.", "model", "kind",
)  # fmt: skip
IMAGES = _counter("image_num_total", "Images made.", "model")
VIDEO_DURATION_S = _histogram(
    "video_duration_s", _REQUEST_BUCKETS_S, "Playing time of the videos made.", "model"
)
VIDEO_RTF = _histogram(
    "video_rtf", _RTF_BUCKETS, "Latency of a video over its playing time.", "model"
)
# -------------------------------------------------------------------------------------- stages
ATTEMPTS = _counter(
    "stage_attempts_total", "Starts of a stage; attempts above 1 are retries.",
    "model", "stage", "attempt",
)  # fmt: skip
FAILURES = _counter(
    "stage_failures_total", "Errors raised in a stage, by their type; most are retried.",
    "stage", "error_type",
)  # fmt: skip
EXEC_S = _histogram(
    "diffusion_exec_s", _REQUEST_BUCKETS_S,
    "Time on the GPUs of a completed request's stage.", "model", "stage",
)  # fmt: skip
STEP_S = _histogram(
    "run_per_step_dit_duration_s", _STEP_BUCKETS_S,
    "One denoising step as the control plane sees it, by degree of parallelism.", "model", "dop",
)  # fmt: skip
DOP = _gauge(
    "dit_dop", "Requests that are denoised at a degree of parallelism now.", "model", "dop"
)
RESIZES = _counter(
    "group_resizes_total", "Orders to change a running group: promotion or demotion.",
    "model", "direction",
)  # fmt: skip
PREEMPTIONS = _counter("preemptions_total", "Orders to stop at a step boundary.", "model")
# ------------------------------------------------------------------------------------ transfers
TRANSFER_BYTES = _histogram(
    "transfer_size_bytes", _BYTES_BUCKETS,
    "Tensors that one engine pulled from another.", "from_stage", "to_stage",
)  # fmt: skip
TRANSFER_TIME_S = _histogram(
    "transfer_time_s", _TRANSFER_BUCKETS_S,
    "Time an engine took to pull tensors from another, retries included, in stages that ended.",
    "from_stage", "to_stage",
)  # fmt: skip
TRANSFERS_LOCAL = _counter(
    "transfers_local_total", "Inputs that lay on the GPU that needed them.",
    "from_stage", "to_stage",
)  # fmt: skip
TRANSFERS_LOST = _counter(
    "transfers_lost_total", "Inputs that could not be pulled, by the stage that ran again.", "stage"
)
# ----------------------------------------------------------------------------------------- GPUs
STAGE_GPUS = _gauge("stage_gpus", "GPUs that hold a stage.", "model", "stage")
UTILIZATION = _gauge(
    "stage_utilization_ratio", "Share of the GPUs holding a stage that work on it now.",
    "model", "stage",
)  # fmt: skip
GPU_BUSY = _gauge("gpu_busy", "Whether a GPU works now.", "replica", "node")
GPU_BUSY_S = _counter("gpu_busy_s_total", "Time a GPU has worked.", "replica", "node")
GPU_MEMORY = _gauge("gpu_memory_bytes", "Memory of a GPU.", "replica", "node")
ENGINES_JOINED = _counter("engines_joined_total", "Engines that joined.")
ENGINES_LEFT = _counter("engines_left_total", "Engines that left in good order.")
ENGINES_LOST = _counter("engines_lost_total", "Engines that died or hung.")
LOAD_S = _histogram(
    "stage_load_s", _REQUEST_BUCKETS_S, "Loading the weights of a stage.", "model", "stage"
)
LOADS_FAILED = _counter(
    "stage_loads_failed_total", "Stages that could not be loaded.", "model", "stage"
)
PLAN_EPOCH = _gauge("placement_epoch", "Number of the placement plan in force.")
# ----------------------------------------------------------------------------------------- HTTP
CLUSTER_UP = _gauge("cluster_up", "Whether the cluster answered this front end just now.")
HTTP_REQUESTS = _counter(
    "http_requests_total", "Answers of this front end.", "method", "route", "status"
)
HTTP_LATENCY_S = _histogram(
    "http_request_duration_s", _HTTP_BUCKETS_S,
    "Until the last byte of an answer, streams included.", "method", "route",
)  # fmt: skip
HTTP_OPEN = _gauge("http_requests_open", "Requests that this front end is answering now.")

METRICS: tuple[Metric, ...] = tuple(
    value for value in tuple(vars().values()) if isinstance(value, Metric)
)
"""All of them, in the order above."""
