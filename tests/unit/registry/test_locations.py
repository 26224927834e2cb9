"""Test the registry's address from each setting: an invalid one is refused before any request."""

from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from registries import Handler, serving

from trainwright.core.errors import ConfigError
from trainwright.registry import locations
from trainwright.registry.settings import Place

AMAZON = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.mark.parametrize("given", ["ECR", "ecr_", "ECR/team", "registry", "registry/team", "http"])
def test_a_word_that_is_no_host(tmp_path: Path, given: str) -> None:
    """Docker takes a host without dot and port for a part of Docker Hub: so would whoever pulls it later."""
    with pytest.raises(ConfigError, match=f"REGISTRY={given} is not a registry address") as raised:
        locations.hosts(tmp_path, given)
    assert ("did you mean 'ecr'" in raised.value.why) == given.lower().startswith("ecr")
    assert "REGISTRY=ecr" in raised.value.fix


@pytest.mark.parametrize("given", ["localhost", "localhost/team", "registry:5000", "registry.example.com/a/b", "[::1]"])
def test_what_is_a_host(tmp_path: Path, given: str) -> None:
    (host,) = locations.hosts(tmp_path, given)
    assert str(host) == given


@pytest.mark.parametrize("given", ["", "registry.example.com", "127.0.0.1:5000/team", AMAZON])
def test_regions_of_what_has_none_or_another(tmp_path: Path, given: str) -> None:
    with pytest.raises(ConfigError, match="not in these regions: us-east-1,eu-west-1") as raised:
        locations.hosts(tmp_path, given, "us-east-1,eu-west-1")
    assert given in raised.value.why


@pytest.mark.parametrize("words", [["plan"], ["push"], ["prune"], ["repositories"], ["test"], ["release", "2026.11.0"]])
def test_commands_refuse_it_as_usage(cli: Any, tree: Path, words: list[str]) -> None:
    """And not as a registry that does not answer, which `plan` passes over."""
    asked = ["--framework", "pytorch", "--registry", "ECR"]
    ended = cli(tree, *words, *asked)
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert "did you mean 'ecr'" in ended.err


def test_a_framework_that_is_none_has_nothing_to_prune(cli: Any, tree: Path) -> None:
    ended = cli(tree, "prune", "--framework", "pytorh", "--registry", "127.0.0.1:1")
    assert (ended.code, ended.out) == (2, "")
    assert "did you mean 'pytorch'" in ended.err


def test_a_plain_registry_has_no_settings_and_it_says_so(cli: Any, tree: Path) -> None:
    ended = cli(tree, "repositories", "--framework", "pytorch", "--registry", "registry.example.com/team")
    assert (ended.code, ended.out) == (0, "")
    assert "registry.example.com is a plain registry" in ended.err
    assert "--registry ecr" in ended.err


def test_no_baseline_is_said(cli: Any, tree: Path) -> None:
    ended = cli(tree, "baseline", "list")
    assert (ended.code, ended.out) == (0, "")
    assert "trainwright baseline record" in ended.err
    assert cli(tree, "baseline", "list", "--json").out.strip() == "[]"


def test_places_are_asked_side_by_side() -> None:
    """Each registry answers once the other one was asked, too: one after the other, neither would."""
    both = Barrier(2, timeout=10)

    def wait(handler: Handler) -> None:
        both.wait()
        handler.route()

    with serving() as one, serving() as other:
        held = [Place(host=registry.address, path="a") for registry in (one, other)]
        for registry in (one, other):
            registry.act("GET /v2/a/manifests/", wait)
        assert locations.look_up({"x": [(place, "tag") for place in held]}) == {"x": dict.fromkeys(held, "")}
    assert not both.broken  # what hung up was asked again, and answered
