"""A real image from the engine into a registry like Amazon ECR: the whole way, as `trainwright push` goes it."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aws.conftest import REGIONS
from aws.emulator import Emulator
from tiny import ID, built_in_this_run, store_of_this_run, trainwright

pytestmark = [pytest.mark.engine, pytest.mark.slow]

TRUSTED = Path("/etc/docker/certs.d")  # where the engine looks for the CA of a registry
OPTIONS = 'def pytest_addoption(parser):\n    parser.addoption("--image")\n    parser.addoption("--variant")\n'
BY_DIGEST = "def test_it(request): assert '@sha256:' in request.config.getoption('--image')\n"
SAID = {"imageScanStatus": {"status": "COMPLETE"}, "imageScanFindings": {"findings": []}}
GRAVE = {"name": "CVE-2026-1", "severity": "CRITICAL", "attributes": [{"key": "package_name", "value": "openssl"}]}
Push = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    with store_of_this_run():
        yield built_in_this_run()


@pytest.fixture
def trusting(amazon: Emulator, trust: Path) -> Iterator[None]:
    """The engine trusts the test's CA, as an operator would have it trust a company's."""
    if os.geteuid():
        pytest.skip(f"not run: only root writes {TRUSTED}")
    folders = [TRUSTED / amazon.address(region) for region in REGIONS]
    for folder in folders:
        folder.mkdir(parents=True)
        shutil.copy(trust / "ca.pem", folder / "ca.crt")
    yield
    for folder in folders:
        shutil.rmtree(folder)


@pytest.fixture
def push(built: Path, tmp_path: Path, amazon: Emulator, trusting: None, monkeypatch: pytest.MonkeyPatch) -> Push:
    """`trainwright push` of an image that is built and probed, and not tested yet."""
    tree = tmp_path / "tree"
    shutil.copytree(built, tree, ignore=shutil.ignore_patterns("tests"))
    (tree / "tests/image").mkdir(parents=True)
    (tree / "tests/image/conftest.py").write_text(OPTIONS)
    (tree / "tests/image/test_stub.py").write_text(BY_DIGEST)

    def run(*words: str, regions: str = ",".join(REGIONS), **more: str) -> subprocess.CompletedProcess[str]:
        environment = {"REGISTRY": "ecr", "TRAINWRIGHT_REGIONS": regions, **more}
        return trainwright(tree, "push", "--only", ID, "--json", *words, **environment)

    monkeypatch.chdir(tree)
    return run


def row(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    return dict(found)


def tags(amazon: Emulator, region: str) -> dict[str, str]:
    """What the control plane says: tag to digest."""
    from trainwright import aws

    said = aws.client("ecr", region).describe_images(repositoryName="trainwright/tiny")["imageDetails"]
    return {tag: image["imageDigest"] for image in said for tag in image.get("imageTags", [])}


def scanned(amazon: Emulator, *findings: dict[str, Any], times: int = 2, **more: Any) -> None:
    amazon.say(
        "DescribeImageScanFindings", {**SAID, "imageScanFindings": {"findings": [*findings]}, **more}, times=times
    )


def test_two_regions_from_one_build_and_nothing_the_second_time(push: Push, amazon: Emulator) -> None:
    scanned(amazon)
    found = row(push())
    key_tag = f"{ID}-{found['key'][:12]}"
    assert found["action"] == "pushed"
    assert found["proof"]["tests"]["state"] == found["proof"]["scan"]["state"] == "passed"
    assert [tags(amazon, region) for region in REGIONS] == [{key_tag: found["digest"]}] * 2
    assert found["uris"] == [f"{amazon.address(region)}/trainwright/tiny@{found['digest']}" for region in REGIONS]
    assert ("ecr", "CreateRepository") in amazon.calls
    amazon.calls.clear()
    amazon.requests.clear()
    assert row(push(DOCKER_HOST="unix:///nowhere/docker.sock"))["action"] == "skip"
    assert amazon.requests == []
    assert {name for _, name in amazon.calls} == {"GetAuthorizationToken", "BatchGetImage"}


def test_a_region_that_was_left_out_gets_the_same_digest(push: Push, amazon: Emulator) -> None:
    scanned(amazon)
    first = row(push(regions=REGIONS[0]))
    both = row(push())
    assert (both["action"], both["digest"]) == ("pushed", first["digest"])
    assert tags(amazon, REGIONS[1]) == tags(amazon, REGIONS[0])


def test_a_finding_that_refuses_leaves_no_tag(push: Push, amazon: Emulator) -> None:
    scanned(amazon, GRAVE)
    done = push(regions=REGIONS[0])
    assert done.returncode == 6
    assert "CVE-2026-1 (CRITICAL) in openssl" in done.stderr
    assert tags(amazon, REGIONS[0]) == {}


def test_no_word_of_the_scan_is_not_clean(push: Push, amazon: Emulator) -> None:
    scanned(amazon, imageScanStatus={"status": "UNSUPPORTED_IMAGE"})
    done = push(regions=REGIONS[0])
    assert done.returncode == 7
    assert "unsupported" in done.stderr
    assert tags(amazon, REGIONS[0]) == {}


def test_an_allowed_finding_passes(push: Push, amazon: Emulator) -> None:
    policy = Path("dockerfiles/publish.toml")
    allow = '[[scan.allow]]\nid = "CVE-2026-1"\nreason = "no listener"\nexpires = 2099-01-01\n'
    policy.write_text(f"{policy.read_text()}\n{allow}")
    scanned(amazon, GRAVE)
    assert "CVE-2026-1" in row(push(regions=REGIONS[0]))["proof"]["scan"]["detail"]


def test_a_dry_run_writes_nothing(push: Push, amazon: Emulator) -> None:
    assert row(push("--dry-run"))["action"] == "would push"
    assert {name for _, name in amazon.calls} <= {"GetAuthorizationToken", "BatchGetImage"}
    assert not [method for method, _ in amazon.requests if method not in ("GET", "HEAD")]


def test_a_repository_whose_tags_move_is_refused(push: Push, amazon: Emulator) -> None:
    from trainwright import aws

    aws.client("ecr", REGIONS[0]).create_repository(repositoryName="trainwright/tiny", imageTagMutability="MUTABLE")
    done = push(regions=REGIONS[0])
    assert done.returncode == 8
    assert "trainwright repositories --apply" in done.stderr
    assert tags(amazon, REGIONS[0]) == {}
