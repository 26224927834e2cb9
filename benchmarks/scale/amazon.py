"""Amazon ECR in so many regions behind a wide link, which holds what a test says: for commands that look tags up."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from aws.conftest import certify
from aws.emulator import ACCOUNT, Emulator
from aws.wide import link
from moto.ecr.models import Image, ecr_backends

from trainwright.image import tags
from trainwright.image.inputs import Inputs

LOOPBACK = "127.0.0.1"
KIND = "application/vnd.docker.distribution.manifest.v2+json"


@contextmanager
def amazon(folder: Path, regions: list[str], round_trip: float) -> Iterator[tuple[Emulator, dict[str, str]]]:
    """The stand-in, and the environment of a command that leads there."""
    certify(folder, LOOPBACK)
    server = Emulator("127.0.0.1:1", LOOPBACK, folder / "server.pem", folder / "server.key", regions)
    server.reset()
    try:
        with link(server.address(regions[0]), round_trip) as far:
            yield (
                server,
                os.environ
                | {
                    "AWS_ENDPOINT_URL": f"https://{far}",
                    "TRAINWRIGHT_CA": str(folder / "ca.pem"),
                    "AWS_ACCESS_KEY_ID": "AKIATEST",
                    "AWS_SECRET_ACCESS_KEY": "c2VjcmV0",
                    "AWS_EC2_METADATA_DISABLED": "true",
                    "AWS_CONFIG_FILE": str(folder / "none"),
                    "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
                    "REGISTRY": "ecr",
                    "TRAINWRIGHT_REGIONS": ",".join(regions),
                },
            )
    finally:
        server.close()


def publish(server: Emulator, regions: Iterable[str], found: Iterable[Inputs]) -> None:
    """Each image has the tag of its key in every region, as `push` would have left it: without its bytes."""
    found = list(found)
    for region in regions:
        held = ecr_backends[ACCOUNT][region]
        for one in found:
            name = tags.repository(one.variant.framework)
            repository = held.repositories.get(name) or held.create_repository(name, None, {}, {}, "MUTABLE", [])
            manifest = json.dumps({"schemaVersion": 2, "mediaType": KIND, "config": {}, "layers": [], "key": one.key})
            digest = "sha256:" + sha256(manifest.encode()).hexdigest()
            image = Image(ACCOUNT, None, manifest, name, KIND, digest)  # type: ignore[arg-type]
            image.update_tag(one.tag)
            repository.images.append(image)


def calls(server: Emulator) -> Mapping[str, int]:
    names = [name for _, name in server.calls]
    return {name: names.count(name) for name in sorted(set(names))}
