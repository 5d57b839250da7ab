"""The deployments name commands, options, settings and files that exist."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from elastic_dit.config import Config
from tests.commands import ROOT, check

DEPLOY = ROOT / "deploy"


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))


def of_kind(kind: str) -> dict[str, Any]:
    [manifest] = [each for each in manifests() if each["kind"] == kind]
    return manifest


def containers(part: Any) -> Iterator[dict[str, Any]]:
    """All of them, however deep."""
    if isinstance(part, dict):
        yield from part.get("containers", ())
    children = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    for child in children:
        yield from containers(child)


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"deploy_{name}", DEPLOY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("name", compose()["services"])
def test_compose(name: str) -> None:
    service = compose()["services"][name]
    words = service["command"]
    assert check(words)
    image = "/opt/elastic-dit/"
    for path in (word for word in words if word.startswith(image)):
        Config.load(ROOT / path.removeprefix(image))
    assert service.get("depends_on", {}).keys() <= compose()["services"].keys()
    # Nothing but the HTTP API is for others, and that on the loopback interface.
    assert service.get("ports", []) == (["127.0.0.1:8000:8000"] if name == "serve" else [])
    secrets = compose()["secrets"]
    assert set(service.get("secrets", ())) <= secrets.keys()
    for word in words:
        if word.startswith("/run/secrets/"):
            assert word.removeprefix("/run/secrets/") in service["secrets"]


def test_kubernetes_commands() -> None:
    found = list(containers(manifests()))
    assert len(found) == 3
    assert all(check(container["args"]) for container in found)


def test_kubernetes_mounts_and_ports_are_there() -> None:
    cluster, served = of_kind("DaskCluster"), of_kind("Deployment")
    pods = [
        cluster["spec"]["worker"]["spec"],
        cluster["spec"]["scheduler"]["spec"],
        served["spec"]["template"]["spec"],
    ]
    for pod in pods:
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
            ports = {port["name"] for port in container.get("ports", ())}
            probes = [container[key] for key in container if key.endswith("Probe")]
            assert {probe["httpGet"]["port"] for probe in probes} <= ports


def test_kubernetes_names_agree() -> None:
    cluster, serve = of_kind("DaskCluster"), of_kind("Service")
    name = cluster["metadata"]["name"]
    [args] = [c["args"] for c in containers(of_kind("Deployment"))]
    # The operator calls the scheduler's service so.
    assert f"tcp://{name}-scheduler:8786" in args
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert serve["spec"]["selector"] == labels
    guarded = of_kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    assert guarded == {"dask.org/cluster-name": name}


def test_kubernetes_settings() -> None:
    [(file, text)] = of_kind("ConfigMap")["data"].items()
    config = Config.parse(yaml.safe_load(text))
    assert config.models[0].path.startswith("/models/")
    args = of_kind("DaskCluster")["spec"]["worker"]["spec"]["containers"][0]["args"]
    assert f"/etc/elastic-dit/{file}" in args


def test_image_copies_what_there_is_and_installs_extras_that_exist() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
        assert all((ROOT / source).exists() for source in line.split()[:-1])
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f"\n{extra} = [" in project for extra in re.findall(r"'\.\[(\w+)\]'", text))


def test_ssh() -> None:
    ssh = module("ssh")
    machine = ssh.machine("gpu1", "/shared/deployment.yaml")
    words = machine["options"]["command"]
    assert words[0] == "ssh"
    assert check(words[words.index("elastic-dit-worker") :])
    assert len(machine["group"]) == ssh.GPUS


def test_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for dask-jobqueue, which is installed where Slurm is."""
    asked: dict[str, Any] = {}
    stand_in = SimpleNamespace(SLURMCluster=lambda **options: asked.update(options))
    monkeypatch.setitem(sys.modules, "dask_jobqueue", stand_in)  # type: ignore[arg-type]
    slurm = module("slurm")
    slurm.make_cluster(Path("/shared/deployment.yaml"))
    command = importlib.import_module(asked["worker_command"])
    assert command.main.name == "elastic-dit-worker"
    # As dask-jobqueue words it.
    fixed = "tls://host:8786 --name n --nthreads 1 --memory-limit 0.0B --death-timeout 60"
    jobs = [*fixed.split(), *asked["worker_extra_args"], "--protocol", "tls://"]
    assert check([command.main.name, *jobs])
    assert asked["processes"] == slurm.GPUS
