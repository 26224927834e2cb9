"""Test publishing a built image: it is proved first and tagged last, and a second push changes nothing."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest
from faults import Flaky, Strike, shorten
from tiny import ID, IMAGE, built_in_this_run, store_of_this_run, trainwright

from trainwright.build import proof_code
from trainwright.matrix.matrix import load_intent
from trainwright.publish import attest, sign

pytestmark = [pytest.mark.engine, pytest.mark.registry]

PASSES = "def test_it(): pass\n"
BY_DIGEST = "def test_it(request): assert '@sha256:' in request.config.getoption('--image')\n"
FAILS = "def test_it(): assert False\n"
SKIPS = "import pytest\ndef test_one(): pass\ndef test_other(): pytest.skip('not run: it cannot')\n"
HANGS = "import pathlib, time\ndef test_it():\n    pathlib.Path('begun').touch()\n    time.sleep(600)\n"
ENDS_WHAT_HANGS = 300  # seconds
NO_ENGINE = "unix:///nowhere/docker.sock"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    with store_of_this_run():
        yield built_in_this_run()


class Checkout(NamedTuple):
    """A copy of the built checkout with a separate folder in the registry."""

    tree: Path
    registry: str

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return trainwright(self.tree, *words, ID, "--json", REGISTRY=self.registry, **environment)

    def push(self, *words: str, **environment: str) -> dict[str, Any]:
        done = self.run("push", *words, **environment)
        assert done.returncode == 0, done.stderr
        [row] = json.loads(done.stdout)
        return dict(row)

    def image_tests(self, text: str) -> None:
        (self.tree / "tests/image/test_stub.py").write_text(text)

    @property
    def file(self) -> Path:
        return self.tree / "out" / ID / "image.json"

    @property
    def image(self) -> dict[str, Any]:
        return dict(json.loads(self.file.read_text()))

    @property
    def state(self) -> str:
        return str(self.image["proof"]["tests"]["state"])

    def claim(self, state: str) -> None:
        """Write what an earlier run of the present image tests would have recorded."""
        image = self.image
        [recipe] = load_intent(self.tree).recipes
        image["proof"]["tests"] |= {"state": state, "code": proof_code.digest_of(recipe, "image")}
        self.file.write_text(json.dumps(image))

    @property
    def tag(self) -> str:
        return f"{ID}-{self.image['key'][:12]}"

    def url(self, part: str) -> str:
        host, _, folder = self.registry.partition("/")
        return f"http://{host}/v2/{folder}/trainwright/tiny/{part}"

    @property
    def tags(self) -> set[str]:
        """Return the tags that the registry itself lists."""
        answer = httpx.get(self.url("tags/list"))
        return set(answer.json()["tags"] or []) if answer.status_code == 200 else set()

    def digest_of(self, tag: str) -> str:
        return httpx.head(self.url(f"manifests/{tag}"), headers={"Accept": MANIFEST}).headers["docker-content-digest"]

    @property
    def is_empty(self) -> bool:
        """Return whether the registry does not know the repository: it never got a blob or a manifest."""
        return httpx.get(self.url("tags/list")).status_code == 404


@pytest.fixture
def checkout(built: Path, tmp_path: Path, registry: str) -> Checkout:
    """Make a checkout whose image is built and probed, but neither tested nor pushed."""
    tree = tmp_path / "tree"
    shutil.copytree(built, tree, ignore=shutil.ignore_patterns("out"))
    (tree / "out" / ID).mkdir(parents=True)
    shutil.copyfile(built / "out" / ID / "image.json", tree / "out" / ID / "image.json")
    made = Checkout(tree, f"{registry}/{uuid4().hex}")
    made.image_tests(PASSES)
    assert (made.state, made.image["digest"]) == ("not run", None)
    assert made.is_empty
    return made


def test_push_proves_what_the_registry_holds_and_then_tags_it(checkout: Checkout) -> None:
    checkout.image_tests(BY_DIGEST)
    row = checkout.push()
    image = checkout.image
    assert (row["action"], checkout.state) == ("pushed", "passed")
    assert image["proof"]["tests"]["detail"] == "1 tests"
    assert checkout.tags == {checkout.tag}
    assert checkout.digest_of(checkout.tag) == row["digest"] == image["digest"]
    assert image["uri"] == f"{checkout.registry}/trainwright/tiny@{image['digest']}"
    assert image["tags"] == [checkout.tag]
    manifest = httpx.get(checkout.url(f"manifests/{image['digest']}"), headers={"Accept": MANIFEST}).json()
    assert manifest["mediaType"] == MANIFEST
    assert image["size"] == sum(part["size"] for part in [manifest["config"], *manifest["layers"]])


def test_a_registry_that_gives_back_other_bytes_gets_no_tag(checkout: Checkout, flaky: Flaky) -> None:
    """What was sent is read back before anything is tagged, whatever the image tests say of what the engine holds."""
    checkout.claim("passed")
    flaky.faults.strikes = [Strike("corrupted download", 0, 100)]
    shorten(checkout.tree)
    through = checkout._replace(registry=checkout.registry.replace(checkout.registry.partition("/")[0], flaky.address))
    done = through.run("push")
    assert done.returncode == 8, done.stderr
    assert flaky.faults.fired["corrupted download"]
    assert checkout.tags == set()


def test_what_is_proved_already_is_not_proved_again(checkout: Checkout) -> None:
    checkout.image_tests(FAILS)  # never run
    checkout.claim("passed")
    assert checkout.push()["action"] == "pushed"


def test_a_failing_image_test_stops_the_push(checkout: Checkout) -> None:
    """Although other image tests passed on this image: what they proved is proved again."""
    checkout.claim("passed")
    checkout.image_tests(FAILS)
    done = checkout.run("push")
    assert done.returncode == 6
    assert "failed its image tests" in done.stderr
    assert (checkout.state, checkout.image["digest"], checkout.image["tags"]) == ("failed", None, [])
    assert checkout.tags == set()


def test_a_skipped_image_test_stops_the_push(checkout: Checkout) -> None:
    checkout.image_tests(SKIPS)
    done = checkout.run("push")
    assert done.returncode == 7
    assert "1 of 2 image tests" in done.stderr
    assert (checkout.state, checkout.image["digest"]) == ("not run", None)
    assert checkout.tags == set()


@pytest.mark.parametrize(("later", "code", "state"), [(FAILS, 6, "failed"), (SKIPS, 7, "not run")])
def test_a_proof_does_not_survive_a_later_run(checkout: Checkout, later: str, code: int, state: str) -> None:
    checkout.claim("passed")
    checkout.image_tests(later)
    assert checkout.run("test").returncode == code
    assert checkout.state == state
    assert checkout.run("push").returncode == code
    assert checkout.tags == set()


def test_a_proof_does_not_survive_an_interrupted_run(checkout: Checkout) -> None:
    checkout.claim("passed")
    checkout.image_tests(HANGS)
    child = subprocess.Popen(
        [Path(sys.executable).with_name("trainwright"), "test", ID],
        cwd=checkout.tree,
        env={**os.environ, "REGISTRY": checkout.registry},
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + ENDS_WHAT_HANGS
    while not (begun := (checkout.tree / "begun").exists()) and time.monotonic() < until:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=ENDS_WHAT_HANGS)[1]
    assert begun, said
    assert child.returncode == 130, said
    assert checkout.state == "not run"


def test_the_second_push_does_nothing(checkout: Checkout) -> None:
    checkout.claim("passed")
    checkout.push()
    checkout.image_tests(FAILS)  # nobody asks it
    before = (checkout.file.read_bytes(), checkout.file.stat().st_mtime_ns)
    row = checkout.push(DOCKER_HOST=NO_ENGINE, TRAINWRIGHT_STORE=str(checkout.tree / "no-store"))
    assert row["action"] == "skip"
    assert row["digest"] in row["reason"]
    assert (checkout.file.read_bytes(), checkout.file.stat().st_mtime_ns) == before
    kept = {path.name for path in (checkout.tree / "no-store").iterdir()}
    assert kept <= {"templates"}, "compiled templates alone: they save time, and nothing depends on them"
    assert checkout.tags == {checkout.tag}


@pytest.mark.parametrize("release", [(), ("--release", "1.0")])
def test_a_dry_run_changes_nothing(checkout: Checkout, release: tuple[str, ...]) -> None:
    checkout.claim("passed")
    before = (checkout.file.read_bytes(), checkout.file.stat().st_mtime_ns)
    row = checkout.push("--dry-run", *release)
    assert row["action"] == "would push"
    assert checkout.tag in row["reason"]
    assert ("1.0" in row["reason"].split()) == bool(release)
    assert (checkout.file.read_bytes(), checkout.file.stat().st_mtime_ns) == before
    assert checkout.is_empty

    checkout.push()
    before = (checkout.file.read_bytes(), checkout.file.stat().st_mtime_ns)
    row = checkout.push("--dry-run", *release)
    assert row["action"] == ("would tag" if release else "skip")
    assert row["digest"].startswith("sha256:")
    assert (checkout.file.read_bytes(), checkout.file.stat().st_mtime_ns) == before
    assert checkout.tags == {checkout.tag}

    checkout.file.unlink()  # as in another clone, where only the registry knows of it
    assert checkout.push("--dry-run", *release)["digest"] == row["digest"]
    assert not checkout.file.exists()


def test_a_dry_run_of_what_is_not_built(checkout: Checkout) -> None:
    template = checkout.tree / IMAGE
    template.write_text(template.read_text() + "# more\n")
    done = checkout.run("push", "--dry-run")
    assert done.returncode == 7
    assert f"trainwright build {ID}" in done.stderr
    [row] = json.loads(done.stdout)
    assert row["action"] == "not built"
    assert any(step.startswith(f"tag {ID}-") for step in row["steps"])


def test_releases_are_further_tags_of_the_same_image(checkout: Checkout) -> None:
    checkout.claim("passed")
    row = checkout.push("--release", "1.0")
    assert (row["action"], row["tags"]) == ("pushed", [checkout.tag, "1.0"])
    assert checkout.image["tags"] == row["tags"]
    assert checkout.digest_of("1.0") == checkout.digest_of(checkout.tag) == row["digest"]

    again = checkout.push("--release", "1.0.1")
    assert again["action"] == "skip"
    assert checkout.image["tags"] == again["tags"] == [checkout.tag, "1.0", "1.0.1"]
    assert checkout.tags == set(again["tags"])
    assert checkout.digest_of("1.0.1") == row["digest"]

    assert checkout.push("--release", "1.0")["tags"] == again["tags"]  # its own: nothing to do


@pytest.mark.parametrize("name", ["cache-1", "tiny-latest"])
def test_a_name_that_may_move_is_no_release(checkout: Checkout, name: str) -> None:
    done = checkout.run("push", "--release", name)
    assert (done.returncode, checkout.is_empty) == (2, True)
    assert "may move" in done.stderr


@pytest.mark.parametrize("who", ["this checkout", "another one"])
def test_what_was_published_unsigned_is_signed_before_its_release(
    checkout: Checkout, built: Path, tmp_path: Path, who: str
) -> None:
    """Of what another checkout published, this one makes the SBOM from the image, which it probes first."""
    secret = {"COSIGN_PASSWORD": "secret"}
    subprocess.run(
        [*sign.program(), "generate-key-pair"],
        cwd=tmp_path,
        env=os.environ | secret,
        check=True,
        capture_output=True,
    )
    shutil.copy(built / "out" / ID / "sbom.json", checkout.tree / "out" / ID)
    checkout.claim("passed")
    digest = checkout.push()["digest"]
    assert checkout.tags == {tag := checkout.tag}
    if who == "another one":
        for name in ("image.json", "sbom.json"):
            checkout.file.with_name(name).unlink()
    checkout.push("--release", "1.0", TRAINWRIGHT_SIGNING_KEY=str(tmp_path / "cosign.key"), **secret)
    beside = {f"{digest.replace(':', '-')}.{kind}" for kind in ("sig", "att")}
    assert checkout.tags == {tag, "1.0", *beside}
    proof = checkout.image["proof"]
    assert (proof["image"], proof["probe"]["state"], proof["signature"]["state"]) == (digest, "passed", "passed")
    assert attest.bill_of(checkout.file.with_name("sbom.json")) == digest


def test_a_release_tag_never_moves(checkout: Checkout) -> None:
    checkout.claim("passed")
    digest = checkout.push()["digest"]
    manifest = httpx.get(checkout.url(f"manifests/{digest}"), headers={"Accept": MANIFEST}).json()
    other = httpx.put(
        checkout.url("manifests/1.0"), content=json.dumps(manifest, indent=1), headers={"Content-Type": MANIFEST}
    )
    assert other.status_code == 201
    taken = checkout.digest_of("1.0")
    assert taken != digest
    for dry_run in ([], ["--dry-run"]):
        done = checkout.run("push", "--release", "1.0", *dry_run)
        assert done.returncode == 8
        assert taken in done.stderr
    assert checkout.digest_of("1.0") == taken
    assert checkout.image["tags"] == [checkout.tag]


def test_a_taken_release_tag_is_refused_before_anything_is_sent(checkout: Checkout) -> None:
    upload = httpx.URL(httpx.post(checkout.url("blobs/uploads/")).headers["location"])
    digest = "sha256:" + hashlib.sha256(b"{}").hexdigest()
    httpx.put(upload.copy_merge_params({"digest": digest}), content=b"{}").raise_for_status()
    config = {"mediaType": "application/vnd.docker.container.image.v1+json", "size": 2, "digest": digest}
    other = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": []}
    httpx.put(
        checkout.url("manifests/1.0"), content=json.dumps(other), headers={"Content-Type": MANIFEST}
    ).raise_for_status()
    done = checkout.run("push", "--release", "1.0")
    assert done.returncode == 8
    assert checkout.state == "not run"
    assert checkout.tags == {"1.0"}


def test_a_registry_that_does_not_answer_ends_a_push_before_the_tests(checkout: Checkout) -> None:
    for dry_run in ([], ["--dry-run"]):
        done = trainwright(checkout.tree, "push", ID, *dry_run, REGISTRY="127.0.0.1:1")
        assert done.returncode == 8, done.stderr
        assert "refused" in done.stderr
        assert checkout.state == "not run"
