"""Test signing, attesting and outside verification with cosign on a real registry; each check must be able to fail."""

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from layouts import layout
from packaging.utils import canonicalize_name
from putting import put_blob, put_manifest
from tiny import ID, built_in_this_run, store_of_this_run, trainwright

from trainwright.core.errors import BuildError, ConfigError, EnvironmentProblem, NotRunError, RegistryError
from trainwright.docker import engine
from trainwright.image import inputs
from trainwright.image.inputs import Inputs
from trainwright.inspect import verify_published
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.publish import attest as publish_attest
from trainwright.publish import sign
from trainwright.publish.attest import Attested
from trainwright.registry import client as registries
from trainwright.registry import settings

pytestmark = [pytest.mark.registry]
ROOT = Path(__file__).parents[2]
DONE = {"signature": "passed", "sbom": "passed", "provenance": "passed"}


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Make two key pairs: our own (`ours.key`, `ours.pub`), and another party's (`theirs.key`, `theirs.pub`)."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs"):
        words = [*sign.program(), "generate-key-pair", f"--output-key-prefix={name}"]
        subprocess.run(words, cwd=folder, env={**os.environ, "COSIGN_PASSWORD": name}, check=True, capture_output=True)
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture(autouse=True)
def signer(keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    sign.public_key.cache_clear()
    monkeypatch.setenv(sign.KEY, str(keys["ours.key"]))
    monkeypatch.setenv(sign.PASSWORD, "ours")


@pytest.fixture(scope="session")
def intent() -> Intent:
    return load_intent(ROOT)


@pytest.fixture(scope="session")
def found(intent: Intent) -> Inputs:
    return inputs.load(Recipe(intent, next(variant for variant in intent.variants if variant.default)), as_locked=True)


def bill_of(found: Inputs, digest: str) -> dict[str, Any]:
    """Return an SBOM in syft's format that lists what the lock names."""
    rows = [("deb/debian", package.name, package.version) for package in found.distribution.packages().values()]
    rows += [("pypi", e.name, e.version) for e in found.lock.python if e.group in found.variant.groups]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "metadata": {"component": {"type": "container", "name": "image", "version": digest}},
        "components": [
            {"type": "library", "name": name, "version": version, "purl": f"pkg:{kind}/{canonicalize_name(name)}"}
            for kind, name, version in rows
        ],
    }


@dataclass
class Pushed:
    """An image of this checkout as the registry holds it: a stand-in for the bytes, with the labels and the tag."""

    intent: Intent
    found: Inputs
    repository: str
    digest: str
    bill: Path

    def attest(self) -> Attested:
        return publish_attest.attest(self.found, self.repository, self.digest, self.bill, lambda _: None)

    def states(self) -> dict[str, str]:
        return {name: check["state"] for name, check in self.attest().model_dump().items()}

    @property
    def place(self) -> sign.Place:
        return publish_attest.place_of(self.repository, self.digest, settings.publication(ROOT).signature)

    def url(self, reference: str, kind: str = "manifests") -> str:
        host, _, path = self.repository.partition("/")
        return f"http://{host}/v2/{path}/{kind}/{reference}"

    def tag_of(self, suffix: str) -> str:
        return f"{self.digest.replace(':', '-')}.{suffix}"

    def beside(self, suffix: str) -> dict[str, Any]:
        """Return the manifest that cosign stores for the image under a suffix; {} if there is none."""
        headers = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
        answer = httpx.get(self.url(self.tag_of(suffix)), headers=headers)
        return dict(answer.json()) if answer.status_code == 200 else {}

    def forget(self, suffix: str) -> None:
        headers = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
        digest = httpx.head(self.url(self.tag_of(suffix)), headers=headers).headers["docker-content-digest"]
        httpx.delete(self.url(digest)).raise_for_status()

    def put_beside(self, suffix: str, manifest: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/vnd.oci.image.manifest.v1+json"}
        httpx.put(self.url(self.tag_of(suffix)), content=json.dumps(manifest), headers=headers).raise_for_status()


Push = Callable[..., Pushed]


def pushed_image(intent: Intent, found: Inputs, folder: Path, repository: str, name: str) -> Pushed:
    labels = {"io.trainwright.id": found.variant.id, "io.trainwright.key": found.key}
    digest = layout(folder / name, labels, name)
    registries.push(folder / name, repository, digest)
    (folder / f"{name}.json").write_text(json.dumps(bill_of(found, digest)))
    return Pushed(intent, found, repository, digest, folder / f"{name}.json")


@pytest.fixture
def push(intent: Intent, found: Inputs, registry: str, tmp_path: Path) -> Push:
    """Return a function that pushes an image, to a separate repository for each test unless one is named."""

    own = f"{registry}/{uuid4().hex}/trainwright/{found.variant.framework}"

    def one(name: str = "one", repository: str = "") -> Pushed:
        return pushed_image(intent, found, tmp_path, repository or own, name)

    return one


# --- signing ---------------------------------------------------------------------------------------------------------


def test_an_image_is_signed_once_and_verifies(push: Push) -> None:
    pushed = push()
    first = pushed.attest()
    assert {name: check["state"] for name, check in first.model_dump().items()} == DONE
    held = pushed.beside("sig"), pushed.beside("att")
    assert [len(manifest["layers"]) for manifest in held] == [1, 2]
    again = pushed.attest()
    assert again.signature.detail == again.sbom.detail == again.provenance.detail == "was there, and verifies"
    assert (pushed.beside("sig"), pushed.beside("att")) == held


def test_the_ordinary_command_verifies_it(push: Push, keys: dict[str, Path]) -> None:
    pushed = push()
    pushed.attest()
    words = [f"--key={keys['ours.pub']}", "--insecure-ignore-tlog=true", pushed.place.uri]
    assert subprocess.run([*sign.program(), "verify", *words], capture_output=True).returncode == 0
    for kind in sign.KINDS.values():
        command = [*sign.program(), "verify-attestation", f"--type={kind}", *words]
        assert subprocess.run(command, capture_output=True).returncode == 0


def test_without_a_key_nothing_is_signed_and_it_says_so(push: Push, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sign.KEY)
    pushed = push()
    attested = pushed.attest()
    assert attested.signature.state == attested.sbom.state == attested.provenance.state == "not run"
    assert attested.signature.detail == "no signing key"
    assert (pushed.beside("sig"), pushed.beside("att")) == ({}, {})


def test_what_another_publisher_overwrote_is_signed_again(push: Push, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed, real = push(), sign.attest
    before: list[dict[str, Any]] = []

    def attest(place: sign.Place, key: str, kind: str, predicate: Path) -> None:
        real(place, key, kind, predicate)
        if not before:
            before.append(pushed.beside("att"))
        elif len(before) == 1:  # the other one had read the tag by then, and writes what it made of that
            before.append(pushed.beside("att"))
            pushed.put_beside("att", before[0])

    monkeypatch.setattr(sign, "attest", attest)
    assert pushed.states() == DONE
    assert [len(manifest["layers"]) for manifest in (*before, pushed.beside("att"))] == [1, 2, 2]


def test_what_never_stays_is_an_error_and_ends(push: Push, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed, real, count = push(), sign.attest, []

    def attest(place: sign.Place, key: str, kind: str, predicate: Path) -> None:
        real(place, key, kind, predicate)
        count.append(kind)
        pushed.forget("att")

    monkeypatch.setattr(sign, "attest", attest)
    policy = settings.publication(ROOT)
    quick = policy.signature.model_copy(update={"wait_seconds": 0.01})
    fast = policy.model_copy(update={"signature": quick})
    monkeypatch.setattr(settings, "publication", lambda _: fast)
    with pytest.raises(RegistryError, match=r"does not keep what was signed of .*: its sbom and provenance"):
        pushed.attest()
    assert len(count) == 2 * policy.signature.attempts


def test_two_publishers_at_once(push: Push) -> None:
    pushed = push()
    outcomes: list[dict[str, str]] = []
    publishers = [threading.Thread(target=lambda: outcomes.append(pushed.states())) for _ in range(2)]
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        publisher.join()
    assert outcomes == [DONE, DONE]
    assert {check["detail"] for check in pushed.attest().model_dump().values()} == {"was there, and verifies"}


def test_nothing_is_signed_without_its_own_sbom(push: Push) -> None:
    one, other = push("one"), push("other")
    for bill in (one.bill.with_name("none.json"), other.bill):
        assert publish_attest.lacking(one.found, one.repository, one.digest) == [
            "SBOM",
            "provenance",
            "image",
        ]
        with pytest.raises(BuildError, match="its SBOM is missing here"):
            replace(one, bill=bill).attest()
        assert (one.beside("sig"), one.beside("att")) == ({}, {})
    assert one.states() == DONE
    assert publish_attest.lacking(one.found, one.repository, one.digest) == []
    assert replace(one, bill=other.bill).states() == DONE  # what is signed needs no file here


# --- what is wrong with a key ----------------------------------------------------------------------------------------


def test_a_wrong_password_is_one_clear_error(push: Push, monkeypatch: pytest.MonkeyPatch) -> None:
    for password, why in (("other", "is not its password"), ("", "is not set")):
        monkeypatch.setenv(sign.PASSWORD, password)
        with pytest.raises(ConfigError, match="cannot be decrypted") as error:
            push(f"image{password}").attest()
        assert why in error.value.why
        assert sign.PASSWORD in error.value.fix


def test_a_key_that_is_none_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(sign.KEY, str(tmp_path / "none.key"))
    with pytest.raises(ConfigError, match="cannot be found") as error:
        publish_attest.must_be_possible(ROOT, "push")
    assert "cosign generate-key-pair" in error.value.fix
    (tmp_path / "text.key").write_text("no key\n")
    monkeypatch.setenv(sign.KEY, str(tmp_path / "text.key"))
    with pytest.raises(ConfigError, match="not a cosign key"):
        publish_attest.must_be_possible(ROOT, "push")
    monkeypatch.setenv(sign.KEY, "foo://key")
    with pytest.raises(ConfigError, match="cosign does not support this kind"):
        publish_attest.must_be_possible(ROOT, "push")


def test_where_no_cosign_can_run_the_error_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sign.program.cache_clear()
    with monkeypatch.context() as bare:
        bare.setenv("PATH", str(tmp_path))
        bare.setattr(sys, "platform", "darwin")
        with pytest.raises(EnvironmentProblem, match="cosign is not on this machine") as error:
            publish_attest.must_be_possible(ROOT, "push")
        assert "this machine is darwin" in error.value.why
    assert error.value.fix == sign.INSTALL


@pytest.fixture
def kms(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve a KMS that denies every request."""

    class Denies(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = b'{"__type":"AccessDeniedException","message":"not authorized to perform: kms:GetPublicKey"}'
            self.send_response(400)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Denies) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", f"http://127.0.0.1:{server.server_port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_REGION", "eu-west-1")
        monkeypatch.setenv(sign.KEY, "awskms:///arn:aws:kms:eu-west-1:123456789012:alias/images")
        yield
        server.shutdown()


def test_a_kms_that_denies_is_one_clear_error(kms: None) -> None:
    with pytest.raises(EnvironmentProblem, match="KMS refuses the use of this key") as error:
        publish_attest.must_be_possible(ROOT, "push")
    assert "not authorized to perform: kms:GetPublicKey" in error.value.why
    assert "kms:Sign" in error.value.fix


@pytest.mark.parametrize(
    ("required", "purpose", "refused"),
    [("never", "release", False), ("release", "push", False), ("release", "release", True), ("always", "push", True)],
)
def test_what_has_to_be_signed_is_refused_without_a_key(
    monkeypatch: pytest.MonkeyPatch, required: str, purpose: publish_attest.Purpose, refused: bool
) -> None:
    policy = settings.publication(ROOT)
    signature = policy.signature.model_copy(update={"required": required})
    changed = policy.model_copy(update={"signature": signature})
    monkeypatch.setattr(settings, "publication", lambda _: changed)
    monkeypatch.delenv(sign.KEY)
    if refused:
        with pytest.raises(NotRunError, match="requires a signature"):
            publish_attest.must_be_possible(ROOT, purpose)
    else:
        publish_attest.must_be_possible(ROOT, purpose)


# --- verified from outside -------------------------------------------------------------------------------------------


def verified(pushed: Pushed, public: Path | str, target: str = "") -> dict[str, tuple[str, str]]:
    """Return state and detail of each check of `verify`; no image is pulled."""
    report = verify_published.inspect(pushed.intent, target or pushed.place.uri, str(public), False, lambda _: None)
    return {row.check: (row.state, row.detail) for row in report.rows}


def failed(rows: dict[str, tuple[str, str]]) -> set[str]:
    return {check for check, (state, _) in rows.items() if state == "failed"}


@pytest.fixture(scope="module")
def shelf(
    intent: Intent, found: Inputs, registry: str, keys: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Pushed:
    """Push one image, attested, with the tag of its key."""
    repository = f"{registry}/shelf/trainwright/{found.variant.framework}"
    pushed = pushed_image(intent, found, tmp_path_factory.mktemp("shelf"), repository, "published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(sign.KEY, str(keys["ours.key"]))
        patch.setenv(sign.PASSWORD, "ours")
        pushed.attest()
    registries.tag(pushed.repository, pushed.digest, pushed.found.tag)
    return pushed


@pytest.fixture
def published(shelf: Pushed) -> Iterator[Pushed]:
    """Share one published image between tests, and undo a test's changes to its signature and attestations."""
    before = {suffix: shelf.beside(suffix) for suffix in ("sig", "att")}
    yield shelf
    for suffix, manifest in before.items():
        shelf.put_beside(suffix, manifest)


def statement_of(pushed: Pushed, keys: dict[str, Path], kind: str) -> dict[str, Any]:
    [statement], _ = sign.attested(pushed.place, keys["ours.pub"], kind)
    return dict(statement["predicate"])


def attest_as(pushed: Pushed, kind: str, predicate: dict[str, Any]) -> None:
    """Attest any predicate with our own key, as the only attestation."""
    file = pushed.bill.with_suffix(".predicate")
    file.write_text(json.dumps(predicate))
    sign.attest(pushed.place, os.environ[sign.KEY], kind, file)


def test_a_published_image_is_what_it_says(published: Pushed, keys: dict[str, Path]) -> None:
    for target in ("", f"{published.repository}:{published.found.tag}"):
        rows = verified(published, keys["ours.pub"], target)
        assert {check: state for check, (state, _) in rows.items()} == {
            **{"tags": "passed", "media types": "passed", "signature": "passed"},
            **{"provenance": "passed", "sbom": "passed", "contents": "not run"},
        }, rows
        assert rows["contents"][1] == "--no-contents"


def test_another_key_vouches_for_nothing(published: Pushed, keys: dict[str, Path]) -> None:
    rows = verified(published, keys["theirs.pub"])
    assert failed(rows) == {"signature", "provenance", "sbom"}
    assert "it has no signature by this key" in rows["signature"][1]


def test_an_image_that_nobody_signed(push: Push, keys: dict[str, Path]) -> None:
    pushed = push("bare")
    registries.tag(pushed.repository, pushed.digest, pushed.found.tag)
    rows = verified(pushed, keys["ours.pub"])
    assert failed(rows) == {"signature", "provenance", "sbom"}
    assert rows["signature"][1] == "it has no signature"


def test_an_sbom_that_was_tampered_with(published: Pushed, keys: dict[str, Path]) -> None:
    """Its bytes in the registry, under a digest of their own: the signature over them does not fit any more."""
    manifest = published.beside("att")
    position, layer = next(
        (n, row) for n, row in enumerate(manifest["layers"]) if "cyclonedx" in row["annotations"]["predicateType"]
    )
    envelope = json.loads(registries.blob(published.repository, layer["digest"], layer["size"]))
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["predicate"]["components"].pop()
    envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    content = json.dumps(envelope).encode()
    layer |= {"digest": put_blob(published.repository, content), "size": len(content)}
    config = json.loads(registries.blob(published.repository, manifest["config"]["digest"], manifest["config"]["size"]))
    config["rootfs"]["diff_ids"][position] = layer["digest"]
    content = json.dumps(config).encode()
    manifest["config"] |= {"digest": put_blob(published.repository, content), "size": len(content)}
    published.put_beside("att", manifest)
    rows = verified(published, keys["ours.pub"])
    assert failed(rows) == {"sbom"}, rows
    assert "no SBOM is signed with this cosign key" in rows["sbom"][1]


def test_an_sbom_that_lists_something_else_than_the_lock(published: Pushed, keys: dict[str, Path]) -> None:
    bill = statement_of(published, keys, "sbom")
    bill["components"][-1]["version"] = "0.0"
    published.forget("att")
    attest_as(published, "sbom", bill)
    rows = verified(published, keys["ours.pub"])
    assert failed(rows) == {"sbom", "provenance"}
    assert bill["components"][-1]["name"] in rows["sbom"][1].lower()
    assert "no provenance is signed with this cosign key" in rows["provenance"][1]


def test_a_provenance_that_lists_something_else_than_the_lock(published: Pushed, keys: dict[str, Path]) -> None:
    made, bill = statement_of(published, keys, "provenance"), statement_of(published, keys, "sbom")
    gone = made["buildDefinition"]["resolvedDependencies"].pop()
    published.forget("att")
    attest_as(published, "provenance", made)
    attest_as(published, "sbom", bill)
    rows = verified(published, keys["ours.pub"])
    assert failed(rows) == {"provenance"}
    assert f"{gone['name']} ({gone['uri']}) is in the lock, but not in the provenance" in rows["provenance"][1]


@pytest.mark.parametrize("suffix", ["sig", "att"])
def test_what_was_signed_for_another_image_is_none_for_this_one(
    published: Pushed, push: Push, keys: dict[str, Path], suffix: str
) -> None:
    other = push("other", published.repository)
    other.attest()
    published.put_beside(suffix, other.beside(suffix))
    rows = verified(published, keys["ours.pub"])
    assert failed(rows) == ({"signature"} if suffix == "sig" else {"provenance", "sbom"}), rows


def test_a_provenance_about_another_key(published: Pushed, keys: dict[str, Path]) -> None:
    made = statement_of(published, keys, "provenance")
    made["buildDefinition"]["externalParameters"]["key"] = "0" * 64
    published.forget("att")
    attest_as(published, "provenance", made)
    rows = verified(published, keys["ours.pub"])
    assert failed(rows) == {"provenance", "sbom"}
    assert "the image's labels say" in rows["provenance"][1]


def test_a_checkout_with_another_lock_compares_nothing_and_says_so(
    published: Pushed, keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = published.found.model_copy(update={"key": "0" * 64})
    monkeypatch.setattr(inputs, "load", lambda *_: other)
    rows = verified(published, keys["ours.pub"])
    assert failed(rows) == set()
    assert [rows[check][0] for check in ("signature", "provenance", "sbom", "contents")] == ["passed", *["not run"] * 3]
    assert "this checkout builds" in rows["provenance"][1]
    report = verify_published.inspect(
        published.intent, published.place.uri, str(keys["ours.pub"]), True, lambda _: None
    )
    with pytest.raises(NotRunError, match="provenance, sbom, contents not run"):
        verify_published.judge(report)


def test_without_the_tag_of_its_key_it_was_not_proved(push: Push, keys: dict[str, Path]) -> None:
    pushed = push("untagged")
    pushed.attest()
    rows = verified(pushed, keys["ours.pub"])
    assert failed(rows) == {"tags"}
    assert "points to nothing" in rows["tags"][1]
    other = push("another")
    registries.tag(other.repository, other.digest, pushed.found.tag)
    assert f"points to {other.digest}" in verified(pushed, keys["ours.pub"])["tags"][1]


def test_media_types_that_sagemaker_does_not_pull(published: Pushed, keys: dict[str, Path]) -> None:
    manifest = registries.manifest(published.repository, published.digest)
    oci = "application/vnd.oci.image.manifest.v1+json"
    manifest |= {"mediaType": oci}
    digest = put_manifest(published.repository, json.dumps(manifest).encode(), oci, "oci")
    rows = verified(replace(published, digest=digest), keys["ours.pub"])
    assert f"the media type of its manifest is {oci}" in rows["media types"][1]
    assert {"media types", "tags", "signature"} <= failed(rows)


def test_without_a_key_or_cosign_it_says_what_did_not_run(
    published: Pushed, keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = verified(published, "")
    assert {check for check, (state, _) in rows.items() if state == "not run"} == {
        *("signature", "provenance", "sbom", "contents")
    }
    assert sign.VERIFY_KEY in rows["signature"][1]
    with pytest.raises(ConfigError, match="public key cannot be read"):
        verified(published, tmp_path / "none.pub")
    sign.program.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "cosign cannot run" in verified(published, keys["ours.pub"])["signature"][1]


def test_which_images_are_published_ones(published: Pushed, push: Push) -> None:
    assert verify_published.is_published(published.place.uri)
    assert not verify_published.is_published("trainwright/pytorch:tag")
    with pytest.raises(RegistryError, match="is not in the registry"):
        verify_published.is_published(f"{published.repository}:none")
    labels = {"io.trainwright.id": published.found.variant.id, "io.trainwright.parent": published.place.uri}
    digest = layout(published.bill.with_name("derived"), labels, "derived")
    registries.push(published.bill.with_name("derived"), published.repository, digest)
    assert not verify_published.is_published(f"{published.repository}@{digest}")


@pytest.mark.parametrize(("key", "code", "said"), [("ours.pub", 7, "contents not run"), ("theirs.pub", 5, "signature")])
def test_the_command(published: Pushed, keys: dict[str, Path], key: str, code: int, said: str) -> None:
    done = trainwright(ROOT, "verify", published.place.uri, "--key", str(keys[key]), "--no-contents", "--json")
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    report = json.loads(done.stdout)
    assert (report["uri"], len(report["rows"])) == (published.place.uri, 6)


# --- with an engine --------------------------------------------------------------------------------------------------

CHANGED = """\
FROM {uri}
RUN rm -r /opt/venv/lib/python*/site-packages/pip-*.dist-info
"""


@pytest.mark.slow
@pytest.mark.engine
def test_contents_are_asked_of_the_image_itself(registry: str, keys: dict[str, Path], tmp_path: Path) -> None:
    """A real image, small; and one on top of it that says of itself that it is the same."""
    with store_of_this_run():
        tree = built_in_this_run()
        intent = load_intent(tree)
        found = inputs.load(Recipe(intent, intent.variants[0]))
        repository = f"{registry}/{uuid4().hex}/trainwright/tiny"
        engine.save(found.name, tmp_path / "layout")
        digest, _ = registries.manifest_of(tmp_path / "layout")
        registries.push(tmp_path / "layout", repository, digest)
        registries.tag(repository, digest, found.tag)
        pushed = Pushed(intent, found, repository, digest, tree / "out" / ID / "sbom.json")
        assert pushed.states() == DONE
        done = trainwright(tree, "verify", pushed.place.uri, "--key", str(keys["ours.pub"]), "--json")
        assert done.returncode == 0, done.stderr
        assert {row["state"] for row in json.loads(done.stdout)["rows"]} == {"passed"}

        (tmp_path / "changed").mkdir()
        (tmp_path / "changed/Dockerfile").write_text(CHANGED.format(uri=pushed.place.uri))
        name = f"{repository}:changed"
        words = ["--provenance=false", f"--output=type=image,oci-mediatypes=false,push=true,name={name}"]
        subprocess.run([engine.buildx(), "build", *words, tmp_path / "changed"], check=True, capture_output=True)
        changed = replace(pushed, digest=registries.resolve(repository, "changed"))
        sign.sign(changed.place, str(keys["ours.key"]))
        done = trainwright(tree, "verify", name, "--key", str(keys["ours.pub"]), "--json")
        rows = {row["check"]: row for row in json.loads(done.stdout)["rows"]}
        assert done.returncode == 5
        assert rows["contents"]["state"] == "failed"
        assert "Python package pip" in rows["contents"]["detail"]
        assert (rows["tags"]["state"], rows["signature"]["state"]) == ("failed", "passed")
        subprocess.run(["docker", "rmi", "--force", name, pushed.place.uri], capture_output=True)
