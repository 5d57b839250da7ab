"""Files of predictors: kept as they are, small, and refused where they are not ours."""

from __future__ import annotations

import contextlib
import io
import zipfile
from importlib.resources import files

import pytest
import skops.io
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from elastic_dit.errors import ConfigError, SaveError
from elastic_dit.predict.estimator import SplitEstimator
from elastic_dit.predict.storage import (
    load_default,
    load_estimator,
    read_estimator,
    save_estimator,
)
from tests.predict.test_estimator import world

SITUATIONS, OUTCOMES = world(5.0)
SMALLEST_PACKAGE = 200_000


def fitted() -> SplitEstimator:
    return SplitEstimator(Ridge()).fit(SITUATIONS, OUTCOMES)


def test_what_is_saved_predicts_the_same(tmp_path):
    path = tmp_path / "predictor.skops"
    estimator = fitted()
    save_estimator(estimator, path)
    loaded = load_estimator(path)
    assert loaded.predict(SITUATIONS) == estimator.predict(SITUATIONS)
    assert loaded.get_params(deep=False).keys() == estimator.get_params(deep=False).keys()


def test_the_packaged_one_is_small_and_needs_no_more_trust_than_ours():
    content = (files("elastic_dit.predict") / "default.skops").read_bytes()
    assert len(content) < SMALLEST_PACKAGE
    untrusted = skops.io.get_untrusted_types(data=content)
    assert untrusted == ["elastic_dit.predict.estimator.SplitEstimator"]
    assert load_default().is_sound()


class Stranger:
    """A type that nobody trusts."""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "BadZipFile"),
        (b"nonsense", "BadZipFile"),
        (skops.io.dumps(Stranger()), "Untrusted"),
        (skops.io.dumps(SplitEstimator(Stranger())), "Untrusted"),
        (skops.io.dumps(Ridge()), "of the same version and fitted"),
        (skops.io.dumps(SplitEstimator()), "of the same version and fitted"),
    ],
)
def test_what_is_not_ours_is_refused(content, said):
    with pytest.raises(ConfigError, match=said) as caught:
        read_estimator(content, "some.skops")
    assert caught.value.field == "predictor"
    assert caught.value.value == "some.skops"


def test_one_for_other_features_is_refused():
    estimator = fitted()
    estimator.latency_ = Ridge().fit([[1.0], [2.0]], [1.0, 2.0])
    with pytest.raises(ConfigError, match="same version"):
        read_estimator(skops.io.dumps(estimator), "old.skops")


def test_one_that_unpacks_to_too_much_is_refused():
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b"0" * (20 << 20))
    with pytest.raises(ConfigError, match="unpacks to"):
        read_estimator(bomb.getvalue(), "bomb.skops")


GOOD = skops.io.dumps(fitted())


@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=8))
@settings(max_examples=30, deadline=None)
def test_a_damaged_file_gives_a_typed_error_or_a_predictor(at, junk):
    damaged = GOOD[:at] + junk + GOOD[at + len(junk) :]
    with contextlib.suppress(ConfigError):
        assert read_estimator(damaged, "damaged.skops").is_sound()


def test_paths_that_cannot_be_are_named(tmp_path):
    with pytest.raises(ConfigError, match="readable"):
        load_estimator(tmp_path / "none.skops")
    with pytest.raises(SaveError):
        save_estimator(fitted(), tmp_path / "none" / "predictor.skops")
