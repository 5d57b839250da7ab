"""The architecture page and the layers that are enforced say the same, and name what exists."""

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_picture_is_the_enforced_order():
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    enforced = contracts["importlinter:contract:layers"]["layers"].split("\n")
    picture = re.search(r"```layers\n(.*?)```", PAGE, re.DOTALL)
    assert picture is not None
    drawn = [re.split(r"\s{3,}", line)[0] for line in picture[1].strip().splitlines()]
    assert drawn == [line.strip() for line in enforced if line.strip()]


def test_every_file_and_module_it_names_exists():
    package = ROOT / "elastic_dit"
    files = re.findall(r"`([a-z_/]+\.py)`", PAGE)
    folders = re.findall(r"`([a-z_/]+/)`", PAGE)
    modules = re.findall(
        r"`((?:control|cluster|engine|actors|client|catalog|results)\.[a-z_]+)", PAGE
    )
    assert files
    assert modules
    missing = [
        name
        for name in files + folders
        if not ((ROOT if name.startswith("benchmarks/") else package) / name).exists()
    ]
    missing += [
        name
        for name in modules
        if not (package / f"{name.replace('.', '/')}.py").exists()
        and not (package / name.replace(".", "/")).is_dir()
        and not (package / f"{name.split('.')[0]}.py").exists()
    ]
    assert missing == []
