"""Configuration: files, defaults, and errors that name the setting."""

from pathlib import Path

import pytest

from elastic_dit.config import Config
from elastic_dit.errors import ConfigError

CONFIGS = sorted((Path(__file__).parent.parent / "configs").glob("*.yaml"))


def test_defaults_serve_the_embedded_model():
    assert Config().models[0].path == "embedded:shapes"
    assert Config.load(None) == Config()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_files_are_valid(path):
    assert Config.load(path).models


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"control": {"tick_s": 0}}, "control.tick_s"),
        ({"control": {"tick": 1}}, "control.tick"),
        ({"placement": {"ratio": {"dit": 0}}}, "placement.ratio.dit"),
        ({"models": [{"name": "", "path": "x"}]}, "models.0.name"),
        ({"models": [{"name": "m", "path": "x", "dtype": "int8"}]}, "models.0.dtype"),
        ({"engines": {}}, "engines"),
        ({"http": {"allowed_hosts": ["a.example:80"]}}, "http.allowed_hosts.0"),
        (
            {"placement": {"min_machines": 3, "max_machines": 2}},
            "placement.max_machines",
        ),
    ],
)
def test_wrong_setting_is_named(settings, field):
    with pytest.raises(ConfigError) as caught:
        Config.parse(settings)
    assert caught.value.field == field


def test_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        Config.load(tmp_path / "none.yaml")


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2\n", ""])
def test_files_that_are_no_mapping(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="YAML"):
        Config.load(path)


def test_a_file_in_another_encoding_is_said_to_be_no_yaml(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"config = .*: must be valid YAML"):
        Config.load(path)


def test_round_trip_through_plain_data():
    config = Config.parse({"placement": {"ratio": {"dit": 6}}})
    assert Config.parse(config.model_dump(mode="json")) == config
