"""What ``import elastic_dit`` offers, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import elastic_dit

HEAVY = ("torch", "diffusers", "transformers", "distributed", "dask", "av", "numpy")


def test_all_is_sorted_and_every_name_is_there():
    assert elastic_dit.__all__ == sorted(elastic_dit.__all__)
    for name in elastic_dit.__all__:
        assert getattr(elastic_dit, name) is not None
    assert set(elastic_dit.__all__) <= set(dir(elastic_dit))


def test_the_lazy_names_are_those_in_all():
    lazy = set(elastic_dit._HOMES)
    assert lazy | {"__version__", "errors"} == set(elastic_dit.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Sora'"):
        elastic_dit.Sora  # noqa: B018


def test_importing_it_loads_nothing_heavy():
    program = f"import sys, elastic_dit; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def test_the_client_loads_no_torch():
    program = "import sys, elastic_dit; elastic_dit.Client; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"False"
