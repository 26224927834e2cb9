"""The registry's rules that need no registry: what is worth a second try, what a manifest weighs, which tag moves."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from tenacity import wait_none

from trainwright import registry
from trainwright.errors import RegistryError

HELD = "sha256:" + "1" * 64
OTHER = "sha256:" + "2" * 64
REPOSITORY = "127.0.0.1:1/trainwright/pytorch"
Oras = Callable[[str], Callable[[], list[str]]]


@pytest.fixture
def oras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Oras:
    """An `oras` of a few lines of shell; what it was asked, one line a call."""
    program, log = tmp_path / "bin/oras", tmp_path / "asked"
    monkeypatch.setattr(registry._oras.retry, "wait", wait_none())

    def script(body: str) -> Callable[[], list[str]]:
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "$*" >> {log}\ncount=$(wc -l < {log})\n{body}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return lambda: log.read_text().splitlines()

    return script


def test_a_tag_never_moves(oras: Oras) -> None:
    asked = oras(f'case "$1" in resolve) echo {HELD};; esac')
    with pytest.raises(RegistryError, match="a released tag never moves") as raised:
        registry.tag(REPOSITORY, OTHER, "v1")
    assert raised.value.exit_code == 8
    assert HELD in raised.value.why
    assert not any(line.startswith("tag ") for line in asked())


def test_a_tag_that_is_there_already(oras: Oras) -> None:
    asked = oras(f'case "$1" in resolve) echo {HELD};; esac')
    registry.tag(REPOSITORY, HELD, "v1")
    assert len(asked()) == 1


def test_a_new_tag(oras: Oras) -> None:
    asked = oras('case "$1" in resolve) echo "Error: v1: not found" >&2; exit 1;; esac')
    registry.tag(REPOSITORY, HELD, "v1")
    assert asked()[-1] == f"tag {REPOSITORY}@{HELD} v1 --plain-http"


def test_500_twice_and_then_works(oras: Oras) -> None:
    asked = oras(f'[ $count -lt 3 ] && {{ echo "response status code 500" >&2; exit 1; }}; echo {HELD}')
    assert registry.resolve(REPOSITORY, "v1") == HELD
    assert len(asked()) == 3


def test_500_for_good(oras: Oras) -> None:
    oras('echo "response status code 500" >&2; exit 1')
    with pytest.raises(RegistryError) as raised:
        registry.resolve(REPOSITORY, "v1")
    assert raised.value.exit_code == 8
    assert "500" in raised.value.why


def test_a_refusal_is_not_tried_again(oras: Oras) -> None:
    asked = oras('echo "response status code 401: unauthorized" >&2; exit 1')
    with pytest.raises(RegistryError):
        registry.resolve(REPOSITORY, "v1")
    assert len(asked()) == 1


def test_manifest_of_another_digest(oras: Oras) -> None:
    oras("echo '{}'")
    with pytest.raises(RegistryError, match="another manifest"):
        registry.manifest(REPOSITORY, HELD)


def test_verify(oras: Oras) -> None:
    manifest = {"config": {"digest": "sha256:c", "size": 7}, "layers": [{"digest": "sha256:l", "size": 7}]}
    body = json.dumps(manifest)
    digest = "sha256:" + sha256(body.encode()).hexdigest()
    answer = """case "$1" in manifest) printf %%s '%s';; blob) echo '{"size": %s}';; esac"""
    oras(answer % (body, 7))
    registry.verify(REPOSITORY, digest, manifest)
    oras(answer % (body, 6))
    with pytest.raises(RegistryError, match="truncated"):
        registry.verify(REPOSITORY, digest, manifest)


@pytest.mark.parametrize(
    ("repository", "plain"),
    [
        ("127.0.0.1:5000/a", True),
        ("localhost:5000/a", True),
        ("localhost/a", True),
        ("registry.example.com/a", False),
        ("127.example.com/a", False),
        ("10.0.0.1:5000/a", False),
    ],
)
def test_plain_http_only_on_loopback(repository: str, plain: bool) -> None:
    assert bool(registry._plain(repository)) is plain


def test_size_is_config_and_layers() -> None:
    assert registry.size_of({"config": {"size": 1}, "layers": [{"size": 10}, {"size": 100}]}) == 111


def test_manifest_of_a_layout(tmp_path: Path) -> None:
    blob = tmp_path / "blobs/sha256" / ("1" * 64)
    blob.parent.mkdir(parents=True)
    blob.write_text('{"layers": []}')
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [{"digest": HELD}]}))
    assert registry.manifest_of(tmp_path) == (HELD, {"layers": []})


def test_answers() -> None:
    assert registry.answers("127.0.0.1:1") is False
