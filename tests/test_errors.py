"""The error tree crosses process borders and says what is wrong."""

import inspect
import pickle

import pytest

from elastic_dit import errors

EXAMPLES = [
    errors.ConfigError("control.tick_s", 0, "greater than 0"),
    errors.InvalidRequest("width", 33, "a multiple of 16"),
    errors.UnknownModel("model", "sdxl", "one of shapes"),
    errors.DeadlineInfeasible("deadline_s", 1.0, "at least 3.5"),
    errors.RequestConflict("r1", ["prompt", "seed"]),
    errors.UnknownRequest("r1"),
    errors.ResultGone("r1", "its time to live is over"),
    errors.JournalError("journal.sqlite", "disk full"),
    errors.AdmissionRefused("10000 requests wait", 12.0),
    errors.GenerationFailed("r1", "dit", "RuntimeError", "boom", 3),
    errors.GenerationCancelled("r1"),
    errors.ModelLoadError("shapes", "decoder", "header too large"),
    errors.UnsupportedModel("no family"),
    errors.UnsupportedParallelism("3 heads over 4 GPUs"),
    errors.GroupBroken("0,1 epoch 3", "GPU 1 was lost"),
    errors.ArtifactGone("r1/dit"),
    errors.DigestMismatch("r1/dit"),
    errors.SchedulerUnreachable("tcp://127.0.0.1:1"),
    errors.NotReady("no engine after 120 s"),
    errors.RibError("sqlite:///rib.sqlite", "database is locked"),
    errors.SaveError("out.mp4", "No space left on device"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_pickles_with_type_text_and_attributes(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_every_public_error_is_in_the_tree():
    public = [getattr(errors, name) for name in errors.__all__]
    assert all(issubclass(kind, errors.ElasticDitError) for kind in public)
    defined = {
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__ and not name.startswith("_")
    }
    assert defined == set(errors.__all__)


def test_tree_in_the_docstring_names_every_error():
    missing = [name for name in errors.__all__ if name not in (errors.__doc__ or "")]
    assert missing == []


def test_long_values_are_shortened():
    text = str(errors.InvalidRequest("prompt", "x" * 10_000, "shorter"))
    assert len(text) < 200
    assert "10002 characters" in text


def test_user_errors_are_value_errors_and_save_errors_os_errors():
    assert issubclass(errors.InvalidRequest, ValueError)
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.SaveError, OSError)
