"""Test where apt runs: on a host with apt and the keyring, else in a container of a locked base."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from trainwright.core.errors import EnvironmentProblem
from trainwright.docker import engine
from trainwright.matrix.matrix import Intent, load_intent
from trainwright.resolve import apt as resolve_apt
from trainwright.resolve import apt_container, fetch, foreign, rpm


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Make an engine that holds every image; return its version, which tests change."""
    said = {"Arch": "amd64"}
    monkeypatch.setattr(engine, "client", lambda: SimpleNamespace(version=lambda: said))
    monkeypatch.setattr(engine, "image_id", lambda _: "sha256:0")
    return said


def test_this_host_where_it_can(intent: Intent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine is asked then; apt without the distribution's keyring cannot."""
    apt = tmp_path / "apt-get"
    apt.write_text("")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(resolve_apt, "keyring", lambda _: apt)
    assert apt_container.apt_of(intent, "debian-12") is None
    monkeypatch.setattr(resolve_apt, "keyring", lambda _: tmp_path / "nowhere")
    with pytest.raises(EnvironmentProblem, match="no Docker engine answers"):
        apt_container.apt_of(intent, "debian-12")


def test_which_base(intent: Intent, machine: dict[str, str]) -> None:
    image = apt_container.image
    assert image(intent, "debian-13-arm64") == image(intent, "debian-13")  # apt resolves for any architecture
    assert image(intent, "debian-12") != image(intent, "debian-13")
    assert image(intent, "debian-12") == image(intent, "debian-12")
    amd64 = image(intent, "debian-13")
    machine["Arch"] = "arm64"
    assert image(intent, "debian-12") == image(intent, "debian-13-arm64") != amd64


@pytest.mark.parametrize(("base", "manager"), [("ubuntu-24.04", "apt"), ("amazonlinux-2023", "dnf")])
def test_an_image_to_start_from_resolves_its_packages_itself(
    intent: Intent, base: str, manager: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = list[str]()
    monkeypatch.setattr(foreign, "pinned", lambda reference: reference)
    monkeypatch.setattr(engine, "read_file", lambda *_: "")

    def resolve(*words: Any) -> tuple[str, dict[str, dict[str, str]]]:
        entered.append(words[-1].args[0])
        return "", {}

    monkeypatch.setattr(resolve_apt, "resolve", resolve)
    monkeypatch.setattr(rpm, "resolve", resolve)
    fetch.resolve_packages(intent, base, False, {})
    definition = intent.components.bases[base]
    assert definition.manager == manager
    assert entered == [foreign.in_engine(definition.reference)]
    assert re.fullmatch(r"[\w./-]+@sha256:[0-9a-f]{64}", entered[0])  # an engine takes no tag beside a digest


class Container:
    """A container that the engine removed already, or cannot remove."""

    def __init__(self, status: int) -> None:
        self.status = status

    def put_archive(self, *_: Any) -> None:
        pass

    def start(self) -> None:
        pass

    def remove(self, **_: Any) -> None:
        raise docker.errors.APIError("no", response=SimpleNamespace(status_code=self.status, url="", reason="why"))


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the options with which a container is created, and the "status" with which its removal is refused."""
    said: dict[str, Any] = {"status": 404}

    def create(image: str, **options: Any) -> Container:
        said.update(options)
        return Container(said["status"])

    containers = SimpleNamespace(create=create)
    monkeypatch.setattr(engine, "client", lambda: SimpleNamespace(containers=containers))
    return said


@pytest.mark.parametrize("status", [404, 409])
def test_a_container_whose_time_was_over(created: dict[str, Any], status: int) -> None:
    """It is gone, or the engine removes it at this moment."""
    created["status"] = status
    with apt_container.workplace("an image", [], [], {}):
        pass
    created["status"] = 500
    with (
        pytest.raises(EnvironmentProblem, match="an image cannot be run"),
        apt_container.workplace("an image", [], [], {}),
    ):
        pass


def test_a_host_with_selinux_lets_its_folders_be_read(created: dict[str, Any], tmp_path: Path) -> None:
    with apt_container.workplace("an image", [], [tmp_path], {}):
        pass
    assert created["volumes"] == {str(tmp_path): {"bind": str(tmp_path), "mode": "ro"}}
    assert created["security_opt"] == ["label=disable"]


def test_nothing_is_locked_yet(tree: Path, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve_apt, "has_apt", lambda _: False)
    for lock in (tree / "dockerfiles/locks").glob("debian-1*.packages"):
        if "arm64" not in lock.name:
            lock.unlink()
    with pytest.raises(EnvironmentProblem, match="debian-12 cannot be resolved on this host") as raised:
        apt_container.apt_of(load_intent(tree), "debian-12")
    assert "no debian base for amd64 is locked yet" in raised.value.why
    assert raised.value.fix.startswith("trainwright lock")
