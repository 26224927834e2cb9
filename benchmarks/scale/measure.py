"""How 20, 100 and 500 images in five regions behave; docs/scale.json, and from it docs/scale.md.

Real keys, the real `trainwright plan` and `render` in processes of their own, real bake files read by buildx; Amazon
ECR is tests/aws/emulator.py behind a link with latency. Not run: a build of all of them, real Amazon.
"""

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "build"), str(ROOT / "benchmarks")]

from aws.wide import link  # after the path
from registries import MANIFEST, digest_of, serving
from scale import page, sizes, world
from scale.amazon import amazon, calls, publish
from scale.settings import Change, Settings, settings

from trainwright.core import host_settings
from trainwright.image import inputs, tags
from trainwright.matrix.matrix import Intent, Recipe, load_intent
from trainwright.registry import client

RESULTS = ROOT / "docs/scale.json"
LOCAL = host_settings.registry_address(ROOT)
COPIES = f"*-{world.FLAVOUR}-*"


def command(tree: Path, environment: dict[str, str], *words: str) -> tuple[str, float, float]:
    """What the real command line prints; seconds; megabytes that it held at most."""
    held = {**environment, "PYTHONPATH": str(ROOT / "build")}
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        started = subprocess.Popen([sys.executable, "-m", "trainwright.cli", *words], cwd=tree, env=held, stdout=out)
        _, status, used = os.wait4(started.pid, 0)
        seconds = time.monotonic() - began
        started.returncode = os.waitstatus_to_exitcode(status)
        if started.returncode:
            raise SystemExit(f"trainwright {' '.join(words)} ended with {started.returncode}")
        out.seek(0)
        return out.read().decode(), seconds, used.ru_maxrss / 1024


def plan(tree: Path, environment: dict[str, str], count: int) -> dict[str, Any]:
    said, seconds, megabytes = command(tree, environment, "plan", COPIES, "--json")
    rows = json.loads(said)
    assert len(rows) == count
    return {
        "actions": dict(Counter(row["action"] for row in rows)),
        "builds": [row["id"] for row in rows if row["action"] == "build"],
        "seconds": round(seconds, 2),
        "decisions_per_second": round(count / seconds, 1),
        "megabytes": round(megabytes),
    }


def keys(intent: Intent) -> tuple[list[inputs.Inputs], float]:
    began = time.monotonic()
    found = [inputs.load(Recipe(intent, variant)) for variant in world.copies(intent)]
    return found, time.monotonic() - began


def plain(tree: Path, found: list[inputs.Inputs], round_trip: float, environment: dict[str, str]) -> dict[str, Any]:
    """The same question to a plain registry, which answers for one tag at a time; one region."""
    with serving() as held, link(held.address, round_trip) as far:
        for one in found:
            content = json.dumps({"key": one.key}).encode()
            place = (tags.repository(one.variant.framework), digest_of(content))
            held.manifests[place] = content, MANIFEST
            held.tags[place[0], one.tag] = place[1]
        row = plan(tree, environment | {"REGISTRY": far, "TRAINWRIGHT_REGIONS": ""}, len(found))
        return {**row, "requests": len(held.asked)}


def baked(tree: Path, environment: dict[str, str], count: int) -> dict[str, Any]:
    """Every bake file, as rendered; each read by buildx, and all of them as one file with a target for each."""
    _, seconds, _ = command(tree, environment, "render", COPIES, "--json")
    files = sorted((tree / "out").glob(f"{COPIES}/docker-bake.json"))
    assert len(files) == count
    row: dict[str, Any] = {"render_seconds": round(seconds, 2), "bytes": sum(file.stat().st_size for file in files)}
    text = [path for path in (tree / "out").rglob("*") if path.is_file()]
    row["text_megabytes"] = round(sum(path.stat().st_size for path in text) / 1e6, 1)
    if not shutil.which("docker"):
        return {**row, "buildx": "not run: there is no docker client on PATH"}
    began = time.monotonic()
    for file in files:
        printed(file.parent, file.name)
    row["print_each_seconds"] = round(time.monotonic() - began, 2)
    whole: dict[str, Any] = {"group": {"default": {"targets": []}}, "target": {}}
    for number, file in enumerate(files):
        name, target = f"image-{number}", json.loads(file.read_text())["target"]["image"]
        contexts = {key: f"{file.parent.name}/{value}" for key, value in target["contexts"].items()}
        whole["target"][name] = target | {"context": file.parent.name, "contexts": contexts}
        whole["group"]["default"]["targets"].append(name)
    one = tree / "out/all.json"
    one.write_text(json.dumps(whole))
    began = time.monotonic()
    assert len(json.loads(printed(one.parent, one.name))["target"]) == count
    return {**row, "print_together_seconds": round(time.monotonic() - began, 2), "together_bytes": one.stat().st_size}


def printed(folder: Path, file: str) -> str:
    words = ["docker", "buildx", "bake", "--file", file, "--print"]
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True, timeout=120).stdout


def measure(count: int, known: Settings, held: dict[str, list[sizes.Layer]], scratch: Path) -> dict[str, Any]:
    tree, version = scratch / "tree", "4.1.2"
    intent = world.plant(tree, known.originals, count, known.own_pin, version)
    copies = [(variant.id, variant.id.partition(f"-{world.FLAVOUR}-")[0]) for variant in world.copies(intent)]
    found, seconds = keys(intent)
    assert len({one.key for one in found}) == count
    row: dict[str, Any] = {"images": count, "keys_seconds": round(seconds, 2)}
    (scratch / "tls").mkdir()
    with amazon(scratch / "tls", known.regions, known.round_trip_seconds) as (server, environment):
        row["nothing published"] = plan(tree, environment, count)
        publish(server, known.regions, found)
        server.calls.clear()
        row["nothing changed"] = plan(tree, environment, count) | {"calls": calls(server)}
        assert row["nothing changed"]["actions"] == {"skip": count}
        row["plain registry"] = plain(tree, found, known.round_trip_seconds, environment)
        row["bake"] = baked(tree, environment, count)
        row["changes"] = [changed(tree, environment, change, copies, known, held) for change in known.changes]
    if held:
        row |= totals(copies, known, held)
    for part in ("nothing published", "nothing changed", "plain registry"):
        del row[part]["builds"]  # ids, of all or of none
    row["megabytes"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return row


def totals(copies: list[tuple[str, str]], known: Settings, held: dict[str, list[sizes.Layer]]) -> dict[str, Any]:
    gigabytes = sizes.stored(copies, held, by_repository=True) / 1e9
    return {
        "apart_gigabytes": round(sum(layer.size for _, original in copies for layer in held[original]) / 1e9, 1),
        "stored_gigabytes": round(gigabytes, 1),
        "mounted_gigabytes": round(sizes.stored(copies, held, by_repository=False) / 1e9, 1),
        "month_usd": round(gigabytes * len(known.regions) * sizes.price(known, "stored-gigabyte"), 2),
    }


def changed(
    tree: Path,
    environment: dict[str, str],
    change: Change,
    copies: list[tuple[str, str]],
    known: Settings,
    held: dict[str, list[sizes.Layer]],
) -> dict[str, Any]:
    """One pin is another one: what `plan` would build; then it is put back."""
    with world.repinned(tree, change.old, change.new):
        row = {"change": change.id, **plan(tree, environment, len(copies))}
    wanted = set(row.pop("builds"))
    built = [pair for pair in copies if pair[0] in wanted]
    minutes = sizes.minutes(built, known)
    row |= {
        "builds": len(built),
        "cold_minutes": round(minutes),
        "warm_minutes": round(len(built) * known.warm.seconds / 60),
        "build_usd": round(minutes * sizes.price(known, "build-minute"), 2),
    }
    if held:
        row["gigabytes_sent"] = round(sizes.changed_bytes(built, held) * len(known.regions) / 1e9, 1)
    return row


def published(known: Settings) -> dict[str, list[sizes.Layer]]:
    """Layers of the originals, as the registry on loopback holds them; {} where it does not hold them all."""
    found = {}
    intent = load_intent(ROOT)
    for variant in intent.variants:
        if variant.id in known.originals:
            place = f"{LOCAL}/{tags.repository(variant.framework)}"
            if not client.answers(LOCAL) or not (
                digest := client.resolve(place, inputs.load(Recipe(intent, variant)).tag)
            ):
                return {}
            found[variant.id] = sizes.layers(client.manifest(place, digest), client.config(place, digest))
    return found


def main() -> None:
    known = settings()
    held = published(known)
    if not held:
        raise SystemExit(
            f"not run: the originals of scale.toml are not all published at {LOCAL}: scripts/test-images.sh <id>"
        )
    rows = []
    for count in known.sizes:
        with tempfile.TemporaryDirectory(prefix="trainwright-scale-") as folder:
            rows.append(measure(count, known, held, Path(folder)))
            print(f"{count} images: measured", file=sys.stderr)
    where = {"machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"}
    result = {"day": datetime.now(UTC).date().isoformat(), **where, "layers": held, "rows": rows}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    page.write(ROOT / "docs/scale.md", result, known)


if __name__ == "__main__":
    main()
