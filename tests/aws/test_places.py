"""Test the lookup of published images in several places: it makes one call for each repository."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import layouts
import pytest
from aws.conftest import REGIONS
from aws.emulator import ACCOUNT, Emulator

from trainwright.build import state
from trainwright.core.errors import AwsError, RegistryError
from trainwright.image import inputs, tags
from trainwright.image.inputs import Inputs
from trainwright.matrix import matrix
from trainwright.matrix.matrix import Recipe
from trainwright.registry import auth, locations
from trainwright.registry import client as registries
from trainwright.registry.settings import Place

ROOT = Path(__file__).parents[2]
HERE, THERE = REGIONS
INTENT = matrix.load_intent(ROOT)
Publish = Callable[[list[Inputs], list[Place]], None]


@pytest.fixture(scope="module")
def twenty() -> list[Inputs]:
    """Return the inputs of twenty images, of several frameworks, that have a lock."""
    held = inputs.held(INTENT)
    return [inputs.load(recipe) for recipe in held[:: len(held) // 20][:20]]


@pytest.fixture
def publish(amazon: Emulator, tmp_path: Path) -> Publish:
    made = layouts.make(tmp_path / "layout", [b"layer"], {})

    def published(found: list[Inputs], into: list[Place]) -> None:
        state.settle(INTENT, [one.recipe for one in found], into, create=True, change=False)
        for place in into:
            registries.push(made.folder, place.repository, made.digest)
        for one in found:
            for place in into:
                if place.path == tags.repository(one.variant.framework):
                    registries.tag(place.repository, made.digest, one.tag)

    return published


def all_places(found: list[Inputs], regions: str) -> list[Place]:
    return list(dict.fromkeys(p for one in found for p in state.places(Recipe(INTENT, one.variant), "ecr", regions)))


def test_where_images_go(amazon: Emulator) -> None:
    variant = INTENT.variants[0]
    path = f"trainwright/{variant.framework}"
    (plain,) = state.places(Recipe(INTENT, variant), "registry.example.com:5000/team")
    assert plain.repository == f"registry.example.com:5000/team/{path}"
    assert plain.region == ""
    found = state.places(Recipe(INTENT, variant), "ecr/team", ",".join(REGIONS))
    assert [place.repository for place in found] == [f"{amazon.address(region)}/team/{path}" for region in REGIONS]
    assert [str(place) for place in found] == list(REGIONS)
    amazon.calls.clear()
    (own,) = state.places(Recipe(INTENT, variant), "111122223333.dkr.ecr.ap-south-1.amazonaws.com/team")
    assert own == Place(
        host="111122223333.dkr.ecr.ap-south-1.amazonaws.com",
        path=f"team/{path}",
        region="ap-south-1",
        account="111122223333",
    )
    (china,) = state.places(Recipe(INTENT, variant), "111122223333.dkr.ecr.cn-north-1.amazonaws.com.cn")
    assert china.region == "cn-north-1"
    assert amazon.calls == []  # nobody has to be asked where that is


def test_an_address_of_amazon_that_somebody_merely_names_is_signed_in(amazon: Emulator, tmp_path: Path) -> None:
    """To verify it, to pull it: nobody said REGISTRY for that. What docker was told itself goes before."""
    named = f"{ACCOUNT}.dkr.ecr.{HERE}.amazonaws.com"
    assert auth.credentials("registry.example.com/team/image") is None
    assert amazon.calls == []
    user, _ = auth.credentials(f"{named}/team/image@sha256:{'0' * 64}") or ("", "")
    assert (user, amazon.calls) == ("AWS", [("ecr", "GetAuthorizationToken")])
    (tmp_path / "docker").mkdir()
    logins = {"auths": {f"{ACCOUNT}.dkr.ecr.{THERE}.amazonaws.com": {"auth": "bWU6b3du"}}}  # me:own
    (tmp_path / "docker/config.json").write_text(json.dumps(logins))
    assert auth.credentials(f"{ACCOUNT}.dkr.ecr.{THERE}.amazonaws.com/team/image") == ("me", "own")


def test_an_account_without_a_word_where_to(amazon: Emulator) -> None:
    with pytest.raises(RegistryError, match="REGISTRY is not set") as raised:
        state.places(Recipe(INTENT, INTENT.variants[0]), "")
    assert "REGISTRY=ecr" in raised.value.fix
    assert "REGISTRY=127.0.0.1" in raised.value.fix


def test_twenty_images_are_one_call_for_each_repository(
    amazon: Emulator, twenty: list[Inputs], publish: Publish
) -> None:
    publish(twenty, all_places(twenty, HERE))
    amazon.calls.clear()
    amazon.requests.clear()
    held = state.published(INTENT, twenty, "ecr", HERE)
    frameworks = {one.variant.framework for one in twenty}
    assert len(frameworks) > 1
    assert amazon.calls == [("ecr", "BatchGetImage")] * len(frameworks)
    assert amazon.requests == []  # of the registry protocol: none
    assert set(held) == {one.variant.id for one in twenty}
    assert all(digest for row in held.values() for digest in row.values())


def test_regions_that_do_not_hold_the_same(amazon: Emulator, twenty: list[Inputs], publish: Publish) -> None:
    one = twenty[0]
    here, there = state.places(Recipe(INTENT, one.variant), "ecr", ",".join(REGIONS))
    publish([one], [here])
    held = state.published(INTENT, [one], "ecr", f"{THERE},{HERE}")[one.variant.id]
    assert [bool(digest) for digest in held.values()] == [False, True]
    assert locations.home(held) == (here, held[here])
    assert locations.lacking(held) == f"not in {THERE} yet"
    entry = state.plan_one(one, None, lambda: False, held)
    assert (entry.action, entry.warnings[-1]) == ("skip", f"not in {THERE} yet")
    assert "different images" in locations.lacking({here: "sha256:1", there: "sha256:2"})
    assert locations.lacking({here: "", there: ""}) == locations.lacking({here: "a", there: "a"}) == ""


def test_nobody_can_say_is_not_nothing(amazon: Emulator, twenty: list[Inputs]) -> None:
    amazon.refuse("BatchGetImage", "AccessDeniedException", "no", times=9)
    with pytest.raises(AwsError):
        state.published(INTENT, twenty, "ecr", HERE)
    held, why = state.published_if_known(INTENT, twenty, "ecr", HERE)
    assert held == {}
    assert "may not ecr:BatchGetImage" in why
    entry = state.plan_one(twenty[0], None, lambda: False, held.get(twenty[0].variant.id))
    assert "registry: unknown" in entry.reason


def command(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [Path(sys.executable).with_name("trainwright"), *words], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


def test_the_command_line_plans_by_what_ecr_holds(amazon: Emulator, twenty: list[Inputs], publish: Publish) -> None:
    one = twenty[0]
    publish([one], all_places([one], HERE))
    amazon.calls.clear()
    done = command("plan", one.variant.id, "--registry", "ecr", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["id"], row["action"]) == (one.variant.id, "skip")
    assert amazon.calls == [("ecr", "GetAuthorizationToken"), ("ecr", "BatchGetImage")]


def test_the_command_line_creates_and_changes_repositories(amazon: Emulator) -> None:
    words = ("repositories", "--framework", INTENT.variants[0].framework, "--region", ",".join(REGIONS), "--json")
    for flags, states in (((), ["missing"] * 2), (("--apply",), ["created"] * 2), ((), ["as wanted"] * 2)):
        done = command(*words, *flags)
        assert done.returncode == 0, done.stderr
        assert [row["state"] for row in json.loads(done.stdout)] == states
    os.environ.pop("AWS_ACCESS_KEY_ID")
    done = command(*words)
    assert done.returncode == 9
    assert "no AWS credentials were found" in done.stderr
