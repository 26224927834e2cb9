"""Test the search for secrets: it finds deleted files, compressed files, and an image's history."""

import gzip
import io
import json
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import saved
from layouts import make
from saved import Entry, kinds, read

EXPECTED = tomllib.loads((Path(__file__).parents[1] / "image/expected.toml").read_text())
BODY = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAAB\n"
OPENSSH = f"-----BEGIN OPENSSH {'PRIVATE'} KEY-----\n{BODY}-----END OPENSSH PRIVATE KEY-----\n"
PEM = OPENSSH.replace("OPENSSH ", "RSA ")


def packed(files: Mapping[str, str | bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as layer:
        for name, content in files.items():
            raw = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            layer.addfile(entry, io.BytesIO(raw))
    return archive.getvalue()


def secrets(folder: Path, *layers: Mapping[str, str | bytes], **said: Any) -> set[str]:
    config = said.pop("config", {})
    image = make(folder / "image", [packed(layer) for layer in layers or [{}]], config, **said)
    return read(image.folder, kinds(EXPECTED["secrets"]), kinds(EXPECTED["secrets_in_words"])).secrets


@pytest.mark.parametrize("key", [OPENSSH, PEM], ids=["openssh", "pem"])
def test_a_key_that_the_next_layer_deletes_is_found(tmp_path: Path, key: str) -> None:
    found = secrets(tmp_path, {"root/notes.txt": key}, {"root/.wh.notes.txt": ""})
    assert found == {"root/notes.txt: private-key"}


def test_a_key_that_the_next_layer_replaces_is_found(tmp_path: Path) -> None:
    assert secrets(tmp_path, {"a": OPENSSH}, {"a": "empty"}) == {"a: private-key"}


def test_a_key_in_a_packed_folder_is_found(tmp_path: Path) -> None:
    assert secrets(tmp_path, {"backup.tar.gz": packed({"id": OPENSSH})}) == {"backup.tar.gz: private-key"}
    assert secrets(tmp_path / "cut", {"cut.gz": gzip.compress(OPENSSH.encode())[:-20]}) == set()  # no archive at all


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("AWS_SECRET_ACCESS_KEY=" + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzzzz", "aws-secret-key-in-environment"),
        ("aws_secret_access_key = " + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzzzz", "aws-secret-key"),
        ('{"SecretAccessKey": "' + "a" * 40 + '"}', "aws-secret-key-of-a-role"),
        ("AKIA" + "Q" * 16, "aws-access-key"),
        ("TRAINWRIGHT_JOB_SECRET=" + "0123456789abcdef" * 4, "job-secret"),
        ("export https_proxy=http://me:hunter2@proxy.example:3128", "proxy-password"),
        ("HTTPS_PROXY=http://me:hunter2@proxy.example:3128", "proxy-password-in-capitals"),
        ('Acquire::http::Proxy "http://me:hunter2@proxy.example:3128";', "proxy-password-of-apt"),
        ("ghp_" + "a" * 36, "github-token"),
        ("dckr_pat_" + "a" * 27, "docker-hub-token"),
        ("root:$y$j9T$abc$def:19000:0:99999:7:::", "password-hash"),
        ('{"auths": {"registry.example": {"auth": "bWU6bWU="}}}', "registry-login"),
    ],
)
def test_each_kind_is_found(tmp_path: Path, text: str, kind: str) -> None:
    assert secrets(tmp_path, {"some/file": f"one\n{text}\nthree"}, {"some/.wh.file": ""}) == {f"some/file: {kind}"}


def test_what_is_no_secret_is_none(tmp_path: Path) -> None:
    texts = [
        "proxy = http://proxy.example:3128",
        "https_proxy=http://user:${PASSWORD}@proxy.example",
        "-----BEGIN RSA PRIVATE KEY-----",
        "root:*:19000:0:99999:7:::",
        "TRAINWRIGHT_JOB_SECRET=short",
    ]
    assert secrets(tmp_path, {f"{number}": text for number, text in enumerate(texts)}) == set()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            {"history": [{"created_by": "RUN |1 HTTP_PROXY=http://me:hunter2@proxy.example /bin/sh -c apt-get"}]},
            "password-in-address",
        ),
        ({"history": [{"created_by": f"COPY <<KEY /root/.ssh/id\n{OPENSSH}"}]}, "private-key"),
        ({"history": [{"created_by": "ARG PYPI_TOKEN=abc", "empty_layer": True}]}, "secret-by-name"),
        ({"config": {"Env": ["DB_PASSWORD=hunter2"]}}, "secret-by-name"),
        ({"config": {"Labels": {"from": "https://me:hunter2@git.example/repository"}}}, "password-in-address"),
        ({"config": {"Labels": {"API_KEY": "abc"}}}, "secret-by-name"),
        ({"comment": PEM}, "private-key"),
    ],
)
def test_history_and_configuration_are_searched(tmp_path: Path, said: dict[str, Any], kind: str) -> None:
    assert f"configuration: {kind}" in secrets(tmp_path, **json.loads(json.dumps(said)))


def test_configuration_without_secrets_has_none(tmp_path: Path) -> None:
    history = [{"created_by": "RUN --mount=type=secret,id=token,target=/run/secrets/token pip install -r $TOKEN_FILE"}]
    labels = {"org.opencontainers.image.source": "https://git.example/repository@v1", "key": "0123"}
    assert secrets(tmp_path, history=history, config={"Env": ["PATH=/usr/bin"], "Labels": labels}) == set()


# --- a layer is read once: what was found in it is found again, and nothing else is taken for it ----------------------


def test_what_was_found_is_found_again_without_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = make(tmp_path / "image", [packed({"a": OPENSSH}), packed({"b": "text"})], {})
    searched = kinds(EXPECTED["secrets"])
    first = read(image.folder, searched, [])
    monkeypatch.setattr(saved, "scan", lambda *_: pytest.fail("a layer was read again"))
    again = read(image.folder, searched, [])
    assert again == first
    assert again.secrets == {"a: private-key"}
    assert [[entry.name for entry in layer] for layer in again.layers] == [["a"], ["b"]]


def test_a_layer_that_changed_is_read_and_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below, searched, whole = packed({"a": "text"}), kinds(EXPECTED["secrets"]), saved.scan
    read(make(tmp_path / "one", [below, packed({"b": "text"})], {}).folder, searched, [])
    scan = Mock(side_effect=whole)
    monkeypatch.setattr(saved, "scan", scan)
    changed = make(tmp_path / "two", [below, packed({"b": OPENSSH})], {})
    assert read(changed.folder, searched, []).secrets == {"b: private-key"}
    assert scan.call_count == 1
    fewer = {kind: row for kind, row in EXPECTED["secrets"].items() if kind != "private-key"}
    assert read(changed.folder, kinds(fewer), []).secrets == set(), "what is searched for has changed"
    assert scan.call_count == 3


def test_entries_say_who_may_write(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as layer:
        file = tarfile.TarInfo("./srv/open")
        file.mode, file.uid, file.pax_headers = 0o666, 7, {"SCHILY.xattr.security.capability": "1"}
        link = tarfile.TarInfo("lib")
        link.type, link.linkname = tarfile.SYMTYPE, "usr/lib"
        layer.addfile(file)
        layer.addfile(link)
    image = make(tmp_path / "image", [archive.getvalue()], {})
    for _ in range(2):
        (entries,) = read(image.folder, [], []).layers
        assert entries == [
            Entry("srv/open", "file", 0o666, 7, 0, "", True),
            Entry("lib", "link", 0o644, 0, 0, "usr/lib", False),
        ]


def test_a_layer_of_another_name_is_refused(tmp_path: Path) -> None:
    image = make(tmp_path / "image", [packed({"a": "text"})], {})
    (image.folder / "blobs" / image.manifest["layers"][0]["digest"].replace(":", "/")).write_bytes(packed({"b": ""}))
    with pytest.raises(ValueError, match="the configuration names"):
        read(image.folder, [], [])
