"""Sign and verify images with cosign; signatures lie beside the image in its repository as tags sha256-<hex>.sig, .att.

The layout is the one that every registry can hold, and that `cosign verify` of any version reads. If the host has no
cosign, the locked one of dockerfiles/cosign runs.
"""

import base64
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.build import programs
from trainwright.core import certificates, project
from trainwright.core.errors import BuildError, ConfigError, EnvironmentProblem, RegistryError, TrainwrightError
from trainwright.core.process import run
from trainwright.registry import auth

KEY, VERIFY_KEY, PASSWORD = "TRAINWRIGHT_SIGNING_KEY", "TRAINWRIGHT_VERIFY_KEY", "COSIGN_PASSWORD"
KINDS = {"sbom": "cyclonedx", "provenance": "slsaprovenance1"}  # cosign's names of these predicates
FILES = project.installed() / "dockerfiles/cosign"
INSTALL = "install cosign, and have it on PATH"  # for hosts other than Linux, on which the locked cosign does not run
# cosign's messages if the registry answered, but its content does not verify.
UNVERIFIED = ("no matching attestations", "none of the attestations matched", "no matching signatures")
CHATTER = ("Flag --", "WARNING:", "error during command execution:")
REFUSED = ("UNAUTHORIZED", "DENIED", "401 Unauthorized", "403 Forbidden")


@dataclass(frozen=True)
class Place:
    """An image in a repository, with the settings by which cosign reaches it."""

    repository: str
    digest: str
    loopback: bool  # the only registry that may be used without TLS
    transparency_log: bool = False

    @property
    def uri(self) -> str:
        return f"{self.repository}@{self.digest}"


@cache
def public_key(key: str) -> str:
    """Return the PEM public key that verifies signatures by this key. Raises what `sign` raises."""
    if "://" not in key and not os.access(key, os.R_OK):
        there = Path(key).exists()
        raise ConfigError(
            f"the signing key cannot be {'read' if there else 'found'}",
            where=f"{KEY}={key}",
            why="this user may not read it" if there else "the file does not exist",
            fix=f"trainwright cosign generate-key-pair && export {KEY}=$PWD/cosign.key"
            if not there
            else f"ls -l {shlex.quote(key)}",
        )
    with _about(key):
        return _cosign("public-key", "--key", key, what="the signing key cannot be used")


def at_hand() -> bool:
    """Return whether cosign is present, so that running it downloads nothing."""
    return bool(shutil.which("cosign")) or (FILES.is_dir() and programs.held(FILES))


def lacking() -> str:
    """Return why cosign cannot run here, or "" if it can."""
    try:
        program()
    except (EnvironmentProblem, BuildError) as error:
        return f"cosign cannot run: {error.why or error.what}"
    return ""


def must_be_there() -> None:
    """Raise EnvironmentProblem if cosign cannot run."""
    if why := lacking():
        raise EnvironmentProblem("cosign is not on this machine", why=why, fix=INSTALL)


@cache
def program() -> list[str | Path]:
    """Return the words that run the host's cosign, else the locked one. Raises what programs.unpack() raises."""
    return ["cosign"] if shutil.which("cosign") else programs.words(FILES.parents[1], FILES, "cosign")


def sign(place: Place, key: str) -> None:
    """Sign the image. Raises ConfigError (key, password), EnvironmentProblem (no cosign, KMS denial), RegistryError."""
    with _about(key):
        what = f"{place.digest} could not be signed"
        _cosign("sign", "--key", key, *_writing(place), place.uri, place=place, what=what)


def attest(place: Place, key: str, kind: str, predicate: Path) -> None:
    """Attest a predicate file to the image; `kind` is one of KINDS. Raises what `sign` raises."""
    words: list[str | Path]
    words = ["attest", "--key", key, "--type", KINDS[kind], "--predicate", predicate, *_writing(place), place.uri]
    with _about(key):
        _cosign(*words, place=place, what=f"the {kind} of {place.digest} could not be attested")


def unsigned(place: Place, public: Path | str) -> str:
    """Return why the image has no signature by this key; "" if it has one. Raises RegistryError if that is unknown."""
    try:
        _cosign("verify", "--key", public, *_reading(place), place.uri, place=place)
    except RegistryError as error:
        if error.why.startswith("no signatures found"):
            return "it has no signature"
        if any(words in error.why for words in UNVERIFIED):
            return f"it has no signature by this key: {error.why}"
        raise
    return ""


def attested(place: Place, public: Path | str, kind: str) -> tuple[list[dict[str, Any]], str]:
    """Return the image's attestations of this `kind` by this key, as in-toto statements; if there are none, the reason.

    Raises RegistryError if that cannot be determined.
    """
    words: list[str | Path]
    words = ["verify-attestation", "--key", public, "--type", KINDS[kind], *_reading(place), place.uri]
    try:
        said = _cosign(*words, place=place)
    except RegistryError as error:
        if any(words in error.why for words in UNVERIFIED):
            return [], error.why
        raise
    statements = []
    for line in filter(None, said.splitlines()):
        statement = json.loads(base64.b64decode(json.loads(line)["payload"]))
        statements.append(dict(statement))
    return statements, ""


def _writing(place: Place) -> list[str]:
    words = ["--yes"] + ([] if place.transparency_log else ["--tlog-upload=false"])
    if _takes_signing_config():  # cosign 3 defaults to another layout, which older registries and clients do not read
        words += ["--use-signing-config=false", "--new-bundle-format=false"]
    return words + ["--allow-http-registry=true"] * place.loopback


def _reading(place: Place) -> list[str]:
    words = ["--new-bundle-format=false"] + ([] if place.transparency_log else ["--insecure-ignore-tlog=true"])
    return words + ["--allow-http-registry=true"] * place.loopback


@cache
def _takes_signing_config() -> bool:
    """Return whether cosign has the option; its help is read, because distributions build cosign without a version."""
    return "--use-signing-config" in run([*program(), "sign", "--help"], error=EnvironmentProblem)


def _cosign(*words: str | Path, what: str = "", place: Place | None = None) -> str:
    must_be_there()
    with _environment(place) as env:
        try:
            return run([*program(), *words], env=env, error=RegistryError, what=what)
        except RegistryError as error:
            lines = [line for line in error.why.splitlines() if not line.startswith(CHATTER)]
            error.why = " ".join(" ".join(lines).removeprefix("Error: ").split())
            if place and any(word in error.why for word in REFUSED):
                error.fix = f"docker login {place.repository.split('/')[0]}"
            raise


@contextmanager
def _environment(place: Place | None) -> Iterator[dict[str, str | None]]:
    """Yield cosign's environment: CA bundle, registry credentials, and a password, so that it does not prompt."""
    env: dict[str, str | None] = {PASSWORD: os.environ.get(PASSWORD, "")}
    if bundle := certificates.bundle():
        env["SSL_CERT_FILE"] = bundle
    host = place.repository.split("/")[0] if place else ""
    who = auth.credentials(host) if host else None  # looked up each time: a token may have expired
    if who is None:
        yield env
        return
    with tempfile.TemporaryDirectory(prefix="trainwright-login-") as folder:  # mode 700
        user, password = who
        told = {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}
        if user == auth.IDENTITY:
            told = {"identitytoken": password}
        Path(folder, "config.json").write_text(json.dumps({"auths": {host: told}}))
        yield {**env, "DOCKER_CONFIG": folder}


@contextmanager
def _about(key: str) -> Iterator[None]:
    """Convert errors about the key to one clear error; pass on all others."""
    try:
        yield
    except RegistryError as error:
        raise _of_the_key(error, key) or error from None


def _of_the_key(error: RegistryError, key: str) -> TrainwrightError | None:
    where, why = f"{KEY}={key}", error.why
    if "decryption failed" in why:
        fix = f"export {PASSWORD}=<the password that `cosign generate-key-pair` was given>"
        said = "is not its password" if os.environ.get(PASSWORD) else "is not set"
        return ConfigError("the signing key cannot be decrypted", where=where, why=f"{PASSWORD} {said}", fix=fix)
    if "pem" in why.lower() or "unmarshal" in why:
        fix = f"trainwright cosign generate-key-pair && export {KEY}=$PWD/cosign.key"
        return ConfigError("the signing key is not a cosign key", where=where, why=why, fix=fix)
    if "KMS" in why:
        fix = "allow kms:GetPublicKey, kms:DescribeKey and kms:Sign on that key: aws kms get-public-key --key-id <key>"
        return EnvironmentProblem("KMS refuses the use of this key", where=where, why=why, fix=fix)
    if "unrecognized scheme" in why:
        return ConfigError("cosign does not support this kind of signing key", where=where, why=why, fix=f"unset {KEY}")
    return None
