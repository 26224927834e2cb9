"""Serve a registry like Amazon ECR to tests (see emulator.py). Tests that lack a program for it are "not run"."""

import datetime
import functools
import ipaddress
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import botocore.session
import pytest
from aws.emulator import Emulator
from aws.jobs import Jobs
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from engines import registry_in
from moto.logs.models import logs_backends
from moto.s3.models import s3_backends
from moto.sagemaker.models import sagemaker_backends
from pip_once import pip_asked_once

REGIONS = ("us-east-1", "eu-west-1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("aws")


def bridge() -> str:
    """Return the address of Docker's bridge: an address of this machine outside 127/8, where clients use TLS."""
    if not shutil.which("ip"):
        pytest.skip("not run: no `ip` to ask for the address of Docker's bridge")
    said = subprocess.run(["ip", "-json", "-4", "address", "show", "docker0"], capture_output=True, text=True)
    if said.returncode:
        pytest.skip("not run: there is no bridge docker0 to listen on; make engine")
    return str(json.loads(said.stdout)[0]["addr_info"][0]["local"])


def certify(folder: Path, address: str) -> None:
    """Write ca.pem, and a certificate for an address that this CA signed: server.pem and server.key."""
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("CA of a test run", address)]
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in names]
    for index, file in enumerate(("ca", "server")):
        certificate = (
            x509.CertificateBuilder(names[0], names[index], keys[index].public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=index == 0, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
            .sign(keys[0], hashes.SHA256())
        )
        (folder / f"{file}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.key").write_bytes(keys[1].private_bytes(*form))


@pytest.fixture(scope="session", autouse=True)
def _settings_of_pip() -> Iterator[None]:
    with pip_asked_once():
        yield


@pytest.fixture(scope="session", autouse=True)
def _apis_read_once() -> Iterator[None]:
    """Read botocore's descriptions of Amazon's APIs once, which are data: each test has sessions of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", functools.cache(botocore.session.create_loader))
        yield


@pytest.fixture(scope="session")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with ca.pem and the certificate for the bridge's address."""
    folder = tmp_path_factory.mktemp("tls")
    certify(folder, bridge())
    return folder


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory, trust: Path) -> Iterator[Emulator]:
    folder = tmp_path_factory.mktemp("registry")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with registry_in(folder, port) as address:
        emulator = Emulator(address, bridge(), trust / "server.pem", trust / "server.key", REGIONS)
        yield emulator
        emulator.close()


@pytest.fixture
def amazon(running: Emulator, trust: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """Set up an empty account, and point the environment to it."""
    from trainwright.registry import aws, ecr

    running.reset()
    settings = {
        "AWS_ENDPOINT_URL": f"https://{running.address(REGIONS[0])}",
        "TRAINWRIGHT_CA": str(trust / "ca.pem"),
        "SSL_CERT_FILE": str(trust / "ca.pem"),
        "AWS_ACCESS_KEY_ID": "AKIATEST",
        "AWS_SECRET_ACCESS_KEY": "c2VjcmV0",
        "AWS_REGION": REGIONS[0],
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "DOCKER_CONFIG": str(tmp_path / "docker"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    aws.forget()
    ecr.forget()
    return running


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    """Serve empty SageMaker, CloudWatch and S3 over plain HTTP."""
    for backends in (logs_backends, sagemaker_backends, s3_backends):
        backends.reset()
    running = Jobs()
    yield running
    running.close()
