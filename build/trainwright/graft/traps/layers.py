"""Check the image's layers: how many, and whether the target takes their kind."""

from collections.abc import Iterator

from trainwright.graft.found import Found
from trainwright.graft.wanted import Trap, Wanted, refused


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    config, most = found.config, wanted.settings.limits.layers
    if len(config.layers) > most:
        why = f"an engine takes {most} and those of the graft"
        fix = "build the image with fewer steps, or squash it: docker buildx build with COPY --from"
        yield refused("layers", str(len(config.layers)), why, fix)
    foreign = [kind for kind in config.media_types if "foreign" in kind or "nondistributable" in kind]
    if foreign:
        yield refused("layers", foreign[0], "such layers may not be pushed", "name an image without them")
    zstd = [kind for kind in config.media_types if kind.endswith("zstd")]
    if zstd and wanted.target == "sagemaker":
        why = "SageMaker pulls layers that are compressed with gzip only"
        fix = "push the image with gzip layers: buildx --output type=image,compression=gzip,force-compression=true"
        yield refused("zstd layers", f"{len(zstd)} of {len(config.media_types)}", why, fix)
