"""The configuration and the manifest: what a platform reads before anything runs."""

from fnmatch import fnmatchcase
from typing import Any

import pytest

from trainwright.image.inputs import Inputs

DOCKER = "application/vnd.docker"


def test_entrypoint(config: dict[str, Any], declared: Inputs) -> None:
    """`docker run IMAGE train` and an SDK's own entrypoint must both reach a plain PATH: none, or one that execs."""
    assert (config["Entrypoint"] or []) == (["/opt/trainwright/bin/with-cuda"] if "cuda" in declared.pins else [])
    assert not config["User"], "the toolkit starts sshd and writes /etc/environment: it needs root"


@pytest.mark.component("sagemaker-training")
def test_command_is_train(config: dict[str, Any]) -> None:
    assert config["Cmd"] == ["train"]


def test_environment_of_the_image(config: dict[str, Any], expected: dict[str, Any], declared: Inputs) -> None:
    assert forbidden([pair.split("=")[0] for pair in config["Env"]], expected, declared) == {}


def test_environment_of_a_process(host: Any, expected: dict[str, Any], declared: Inputs) -> None:
    """A login shell reads /etc/profile.d, PAM reads /etc/environment: neither may bring back what is forbidden."""
    names = host.check_output("bash -lc 'env -0; cat /etc/environment' | tr '\\0' '\\n' | sed -n 's/=.*//p'").split()
    assert "PATH" in names
    assert forbidden(names, expected, declared) == {}


def forbidden(names: list[str], expected: dict[str, Any], declared: Inputs) -> dict[str, str]:
    """Map each forbidden variable to the reason; what bases.toml declares for this base is allowed."""
    rules, allowed = expected["forbidden_environment"].items(), declared.recipe.base.environment
    return {name: why for name in names for pattern, why in rules if fnmatchcase(name, pattern) and name not in allowed}


def test_one_manifest_with_docker_media_types(saved: Any) -> None:
    """SageMaker does not pull an index, and an attestation would make one."""
    assert [entry["mediaType"] for entry in saved.index["manifests"]] == [f"{DOCKER}.distribution.manifest.v2+json"]
    assert saved.manifest["mediaType"] == f"{DOCKER}.distribution.manifest.v2+json"
    assert saved.manifest["config"]["mediaType"] == f"{DOCKER}.container.image.v1+json"
    assert {layer["mediaType"] for layer in saved.manifest["layers"]} == {f"{DOCKER}.image.rootfs.diff.tar.gzip"}


def test_platform(saved: Any) -> None:
    assert (saved.config["os"], saved.config["architecture"]) == ("linux", "amd64")


@pytest.mark.exact("it has layers of its own, of any size")
def test_layers_pull_in_parallel(saved: Any) -> None:
    """One layer above about 1 GB is what a job start waits for."""
    assert max(layer["size"] for layer in saved.manifest["layers"]) < 1.1e9


@pytest.mark.exact("it has a title and an identity of its own")
def test_labels_of_identity(config: dict[str, Any], declared: Inputs) -> None:
    labels = config["Labels"]
    assert labels["io.trainwright.id"] == labels["org.opencontainers.image.title"] == declared.variant.id
    assert labels["io.trainwright.key"] == declared.key
