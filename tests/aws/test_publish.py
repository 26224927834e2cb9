"""Test all of `trainwright push` with a real image from the engine, to a registry like Amazon ECR."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aws.conftest import REGIONS
from aws.emulator import ACCOUNT, Emulator
from moto.sagemaker.models import sagemaker_backends
from tiny import ID, add, built_in_this_run, store_of_this_run, trainwright

from trainwright.publish import sign

pytestmark = [pytest.mark.engine, pytest.mark.slow]

TRUSTED = Path("/etc/docker/certs.d")  # where the engine looks for the CA of a registry
BY_DIGEST = "def test_it(request): assert '@sha256:' in request.config.getoption('--image')\n"
SAID = {"imageScanStatus": {"status": "COMPLETE"}, "imageScanFindings": {"findings": []}}
GRAVE = {"name": "CVE-2026-1", "severity": "CRITICAL", "attributes": [{"key": "package_name", "value": "openssl"}]}
SECRET = {"COSIGN_PASSWORD": "secret"}
Push = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    with store_of_this_run():
        yield built_in_this_run()


@pytest.fixture
def trusting(amazon: Emulator, trust: Path) -> Iterator[None]:
    """Make the engine trust the test's CA, as an operator does with a company's CA."""
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
    """Return a function that runs `trainwright push` on an image that is built and probed, but not tested yet."""
    tree = tmp_path / "tree"
    shutil.copytree(built, tree)
    (tree / "tests/image/test_stub.py").write_text(BY_DIGEST)

    def run(*words: str, regions: str = ",".join(REGIONS), **more: str) -> subprocess.CompletedProcess[str]:
        environment = {"REGISTRY": "ecr", "TRAINWRIGHT_REGIONS": regions, **more}
        return trainwright(tree, "push", ID, "--json", *words, **environment)

    monkeypatch.chdir(tree)
    return run


def row(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    return dict(found)


def tags(amazon: Emulator, region: str) -> dict[str, str]:
    """Map each tag to its digest, as the control plane lists them."""
    from trainwright.registry import aws

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
    twin = tags(amazon, REGIONS[0])[f"{key_tag}-zstd"]  # the same bytes in both regions
    assert twin != found["digest"]
    assert [tags(amazon, region) for region in REGIONS] == [{key_tag: found["digest"], f"{key_tag}-zstd": twin}] * 2
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
    assert {name for _, name in amazon.calls} <= {"GetAuthorizationToken", "BatchGetImage", "DescribeRepositories"}
    assert not [method for method, _ in amazon.requests if method not in ("GET", "HEAD")]


def test_a_repository_whose_tags_move_is_refused(push: Push, amazon: Emulator) -> None:
    from trainwright.registry import aws

    aws.client("ecr", REGIONS[0]).create_repository(repositoryName="trainwright/tiny", imageTagMutability="MUTABLE")
    done = push(regions=REGIONS[0])
    assert done.returncode == 8
    assert "trainwright repositories --apply" in done.stderr
    assert tags(amazon, REGIONS[0]) == {}


def test_from_no_repository_to_the_second_image_and_the_first_one_gone(
    push: Push, amazon: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line: create, push, verify, scan gate, sign, tag, diff, prune. Prints the calls that each of them made."""
    subprocess.run(
        [*sign.program(), "generate-key-pair"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        env=os.environ | SECRET,
    )
    for name, value in {**SECRET, "TRAINWRIGHT_SIGNING_KEY": str(tmp_path / "cosign.key")}.items():
        monkeypatch.setenv(name, value)
    policy, here = Path("dockerfiles/publish.toml"), {"REGISTRY": "ecr", "TRAINWRIGHT_REGIONS": REGIONS[0]}
    policy.write_text(policy.read_text().replace('"never"', '"always"'))
    sagemaker_backends[ACCOUNT].reset()

    def calls(of: str) -> list[str]:
        """List the calls of Amazon's API since the last time, each once.

        Print the number of requests to the registry.
        """
        made = list(dict.fromkeys(name for _, name in amazon.calls))
        with capsys.disabled():
            print(f"\n{of}: {', '.join(made)}; {len(amazon.requests)} requests to the registry")
        amazon.calls.clear()
        amazon.requests.clear()
        return made

    scanned(amazon, GRAVE, times=1)
    refused = push(regions=REGIONS[0])
    assert refused.returncode == 6, refused.stderr
    assert tags(amazon, REGIONS[0]) == {}
    made = calls("push that the scan refuses")
    assert made.index("CreateRepository") < made.index("PutLifecyclePolicy") < made.index("DescribeImageScanFindings")

    scanned(amazon, times=1)
    first = row(push(regions=REGIONS[0]))
    assert "CreateRepository" not in calls("push")
    add(Path.cwd(), 'ENV SECOND="1"')
    built = trainwright(Path.cwd(), "build", ID)
    assert built.returncode == 0, built.stderr
    scanned(amazon, times=1)
    second = row(push(regions=REGIONS[0]))
    calls("push of the second image")
    named = {f"{ID}-{one['key'][:12]}": one["digest"] for one in (first, second)}
    held = tags(amazon, REGIONS[0])
    assert held.items() >= named.items()
    beside = {f"{digest.replace(':', '-')}.{kind}" for digest in named.values() for kind in ("sig", "att")}
    twins = {f"{name}-zstd" for name in named}
    beside |= {f"{held[name].replace(':', '-')}.sig" for name in twins}  # signed by itself
    assert held.keys() == named.keys() | twins | beside

    public = {**here, "TRAINWRIGHT_VERIFY_KEY": str(tmp_path / "cosign.pub")}
    docker = {"auths": {amazon.address(REGIONS[0]): {"auth": base64.b64encode(":".join(token()).encode()).decode()}}}
    (tmp_path / "docker").mkdir(exist_ok=True)
    (tmp_path / "docker/config.json").write_text(json.dumps(docker))
    verified = trainwright(Path.cwd(), "verify", second["uri"], "--json", **public)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert {check["state"] for check in json.loads(verified.stdout)["rows"]} == {"passed"}
    calls("verify")

    diff = trainwright(Path.cwd(), "diff", first["uri"], second["uri"], "--json", **here)
    assert diff.returncode == 0, diff.stderr
    assert ("SECOND", "1") in [(each["name"], each["new"]) for each in json.loads(diff.stdout)["rows"]], diff.stdout
    calls("diff")
    for image in amazon.images(REGIONS[0], "trainwright/tiny"):
        image.image_pushed_at = "2020-01-01T00:00:00+00:00"  # type: ignore[assignment]  # what is young stays

    dry = trainwright(Path.cwd(), "prune", "--json", **here)
    assert dry.returncode == 0, dry.stderr
    assert "BatchDeleteImage" not in calls("prune, dry")
    done = trainwright(Path.cwd(), "prune", "--delete", "--json", **here)
    assert done.returncode == 0, done.stderr
    gone = {each["digest"] for each in json.loads(done.stdout)["rows"] if each["state"] == "deleted"}
    assert first["digest"] in gone
    assert second["digest"] not in gone
    assert calls("prune --delete").count("BatchDeleteImage") == 1
    left = f"{ID}-{second['key'][:12]}"
    assert {tag for tag in tags(amazon, REGIONS[0]) if tag in named.keys() | twins} == {left, f"{left}-zstd"}
    assert row(push(regions=REGIONS[0]))["action"] == "skip"


def token() -> tuple[str, str]:
    """Return the user name and password that `docker login` would store."""
    from trainwright.registry import ecr

    return ecr.credentials(REGIONS[0])()
