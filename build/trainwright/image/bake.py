"""Write a build as a docker-bake.json: BuildKit runs the graph, with or without trainwright."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from pydantic_core import to_json

from trainwright.matrix.model import Base

IMAGE_OUTPUT = "type=image,oci-mediatypes=false"  # Docker media types, because SageMaker accepts no others


def bake(
    base: Base,
    epoch: int,
    folders: Iterable[str],
    name: str = "",
    key: str = "",
    images: Mapping[str, str] = MappingProxyType({}),
    target_folder: str = "",
) -> str:
    """Return the bake file; without name and key, the part that the key is computed over.

    `folders` below out/<id>/ are the named contexts of the Dockerfile; each is named by its last path component.
    `images` are contexts that the engine holds; with `target_folder` the output is files there, and no image.
    """
    target: dict[str, object] = {
        "context": ".",
        "dockerfile": "Dockerfile",
        "contexts": {folder.rpartition("/")[2]: folder for folder in folders}
        | {context: f"docker-image://{image}" for context, image in images.items()},
        "args": {"SOURCE_DATE_EPOCH": str(epoch)},
        "platforms": [f"linux/{base.architecture}"],
        # Because SageMaker pulls a plain single-platform image with Docker media types, no attestation may make it an
        # index.
        "attest": ["type=provenance,disabled=true", "type=sbom,disabled=true"],
        "output": [f"type=local,dest={target_folder}" if target_folder else IMAGE_OUTPUT],
    }
    if name:
        target |= {"tags": [name], "labels": {"io.trainwright.key": key}}
    whole = {"group": {"default": {"targets": ["image"]}}, "target": {"image": target}}
    return to_json(whole, indent=2, ensure_ascii=True).decode() + "\n"
