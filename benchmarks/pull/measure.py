"""Measure how long an empty host takes from a pull to a finished `import torch`.

Of the same image with gzip, its zstd twin, one layer with everything, and a plain `pip install torch`. Each run starts
a containerd of its own, with an empty root, and ends it: nothing of an earlier run is there. The images are measured in
turn. On loopback, containerd pulls from 127.0.0.1; at a rate, it runs in a network namespace of its own, and a token
bucket (tc tbf) limits what the registry sends to it. Needs root, docker, containerd, ctr, runc, ip, tc.

    benchmarks/pull/measure.py prepare IMAGE --wheels FOLDER --python BASE.tar     # makes the two other images
    benchmarks/pull/measure.py run IMAGE --rounds 3 --link loopback --link 1gbit --out results.json
    benchmarks/pull/measure.py table results.json

IMAGE is the image with gzip, REPOSITORY:TAG in a registry at 127.0.0.1:PORT that listens on all addresses; its twin has
the tag TAG-zstd. `--root /dev/shm` keeps the host's files in memory, so that a busy disk is not what is measured.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = {
    "gzip": "ours, gzip",
    "zstd": "ours, zstd twin",
    "one-layer": "ours, all in one layer",
    "pip": "plain `pip install torch`",
}
SPACE, HOST, GUEST = "tw-pull", "10.213.7.1", "10.213.7.2"
CRI = ("cri.v1.images", "cri.v1.runtime", "grpc.v1.cri")  # of no use to ctr
IMPORT = "import torch; print(torch.__version__)"
PLAIN = """\
FROM pull/python
RUN --mount=type=bind,from=wheels,target=/wheels \\
    python3 -m pip install --break-system-packages --no-index --find-links /wheels torch numpy
"""


def sh(*words: str | Path, **more: Any) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def images(image: str) -> dict[str, str]:
    host = image.partition("/")[0]
    other = f"{host}/pull"
    return {"gzip": image, "zstd": f"{image}-zstd", "one-layer": f"{other}:one-layer", "pip": f"{other}:pip"}


# --- the other images ------------------------------------------------------------------------------------------------


def prepare(image: str, wheels: Path, python: Path) -> None:
    """Push one image whose single layer has all files of ours, and one as people write it: a base, and pip."""
    named = images(image)
    sh("docker", "pull", image)
    said = json.loads(sh("docker", "image", "inspect", image))[0]["Config"]
    changes = [word for line in said["Env"] for word in ("--change", f"ENV {line}")]
    container = sh("docker", "create", image).strip()
    try:
        export = subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE)
        sh("docker", "import", *changes, "-", named["one-layer"], stdin=export.stdout)
        if export.wait():
            sys.exit("docker export failed")
    finally:
        sh("docker", "rm", container)
    sh("docker", "import", python, "pull/python:latest")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Dockerfile").write_text(PLAIN)
        words = ["--build-context", f"wheels={wheels}", "--network", "none", "--provenance=false", "--load"]
        sh("docker", "buildx", "build", *words, "--tag", named["pip"], folder)
    for name in ("one-layer", "pip"):
        sh("docker", "push", named[name])
        sh("docker", "rmi", named[name])


# --- an empty host ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def link(rate: str) -> Iterator[list[str]]:
    """Make a network namespace behind a link of this rate; yield the words that start a program in it."""
    sh("ip", "netns", "add", SPACE)
    try:
        sh("ip", "link", "add", "twpull0", "type", "veth", "peer", "name", "twpull1", "netns", SPACE)
        sh("ip", "addr", "add", f"{HOST}/30", "dev", "twpull0")
        sh("ip", "link", "set", "twpull0", "up")
        for words in (
            ("addr", "add", f"{GUEST}/30", "dev", "twpull1"),
            ("link", "set", "twpull1", "up"),
            ("link", "set", "lo", "up"),
        ):
            sh("ip", "-n", SPACE, *words)
        sh("tc", "qdisc", "add", "dev", "twpull0", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        yield ["nsenter", f"--net=/run/netns/{SPACE}"]  # `ip netns exec` would also hide the cgroups that runc needs
    finally:
        sh("ip", "netns", "del", SPACE)  # with it, both ends of the link


@contextlib.contextmanager
def empty_host(prefix: list[str], cpu: list[float], root: Path) -> Iterator[list[str]]:
    """Start a containerd with an empty root; yield the words of its ctr. It is ended by its id.

    `cpu` gets the seconds of processor that it and its helpers used.
    """
    folder = Path(tempfile.mkdtemp(prefix="tw-pull-", dir=root))
    config = {"root": folder / "root", "state": folder / "state"}
    lines = [
        "version = 3",
        *(f'{name} = "{path}"' for name, path in config.items()),
        f"disabled_plugins = {json.dumps([f'io.containerd.{name}' for name in CRI])}",
    ]
    lines += ["[grpc]", f'address = "{folder / "socket"}"', "[ttrpc]", f'address = "{folder / "ttrpc"}"']
    (folder / "config.toml").write_text("\n".join(lines) + "\n")
    log = (folder / "log").open("w")
    running = subprocess.Popen([*prefix, "containerd", "--config", folder / "config.toml"], stdout=log, stderr=log)
    try:
        ctr = [*prefix, "ctr", "--address", str(folder / "socket")]
        for _ in range(200):
            if subprocess.run([*ctr, "version"], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.05)
        else:
            sys.exit(f"containerd did not start\n{(folder / 'log').read_text()[-2000:]}")
        yield ctr
    finally:
        running.terminate()
        _, running.returncode, used = os.wait4(running.pid, 0)
        cpu.append(used.ru_utime + used.ru_stime)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
        for mount in reversed(mounts):
            subprocess.run(["umount", "--lazy", mount], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def once(uri: str, prefix: list[str], root: Path) -> dict[str, float]:
    """Return the seconds of a pull with its unpacking, and of `import torch` in a first container."""
    cpu = list[float]()
    with empty_host(prefix, cpu, root) as ctr:
        began = time.monotonic()
        sh(*ctr, "images", "pull", "--plain-http", uri)
        pulled = time.monotonic()
        python = "/opt/venv/bin/python" if not uri.endswith(":pip") else "/usr/bin/python3"
        sh(*ctr, "run", "--rm", uri, "one", python, "-c", IMPORT)
        ended = time.monotonic()
    return {"pull": pulled - began, "import": ended - pulled, "all": ended - began, "cpu": cpu[0]}


def measure(image: str, rounds: int, rate: str, root: Path) -> dict[str, Any]:
    """Run every image `rounds` times, in turn; without a rate, on loopback."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in NAMES}
    with contextlib.ExitStack() as stack:
        host, prefix = image.partition("/")[0], list[str]()
        if rate:
            prefix = stack.enter_context(link(rate))
            host = f"{HOST}:{host.rpartition(':')[2]}"
        for number in range(rounds):
            for name, uri in images(image).items():
                row = once(f"{host}/{uri.partition('/')[2]}", prefix, root)
                found[name].append(row)
                said = f"{row['pull']:.1f} + {row['import']:.1f} s, {row['cpu']:.1f} s of processor"
                print(f"{rate or 'loopback'}, round {number + 1}, {name}: {said}", flush=True)
    return {"link": rate or "loopback", "runs": found}


def sizes(image: str) -> dict[str, dict[str, float]]:
    """Return bytes, layers and the share of the largest layer of each image, as the registry says."""
    import httpx

    kinds = ("vnd.docker.distribution.manifest.v2+json", "vnd.oci.image.manifest.v1+json")
    found = {}
    for name, uri in images(image).items():
        host, _, rest = uri.partition("/")
        path, _, tag = rest.partition(":")
        accept = {"Accept": ", ".join(f"application/{kind}" for kind in kinds)}
        layers = [
            row["size"]
            for row in httpx.get(f"http://{host}/v2/{path}/manifests/{tag}", headers=accept).json()["layers"]
        ]
        found[name] = {"bytes": sum(layers), "layers": len(layers), "largest": max(layers) / sum(layers)}
    return found


def table(results: dict[str, Any]) -> str:
    lines = [
        "| | MB | layers | "
        + " | ".join(f"{one['link']}: pull and unpack | with `import torch` | processor" for one in results["links"])
        + " |"
    ]
    lines.append("|---|---|---|" + "---|---|---|" * len(results["links"]))
    for name, words in NAMES.items():
        size = results["sizes"][name]
        cells = []
        for one in results["links"]:
            runs = one["runs"][name]
            for part in ("pull", "all"):
                values = [row[part] for row in runs]
                cells.append(f"{statistics.median(values):.1f} s ({min(values):.1f} to {max(values):.1f})")
            cells.append(f"{statistics.median(row['cpu'] for row in runs):.1f} s")
        lines.append(f"| {words} | {size['bytes'] / 1e6:.0f} | {size['layers']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("prepare")
    first.add_argument("image")
    first.add_argument("--wheels", type=Path, required=True, help="folder with the wheels of torch and what it needs")
    first.add_argument("--python", type=Path, required=True, help="tar of a file system with python3 and pip")
    second = commands.add_parser("run")
    second.add_argument("image")
    second.add_argument("--rounds", type=int, default=3)
    second.add_argument("--link", action="append", required=True, help="loopback, or a rate of tc such as 1gbit")
    second.add_argument("--root", type=Path, default=Path(tempfile.gettempdir()), help="folder for the host's files")
    second.add_argument("--out", type=Path, required=True)
    third = commands.add_parser("table")
    third.add_argument("results", type=Path)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that a host and a link are taken away
    if asked.command == "prepare":
        prepare(asked.image, asked.wheels, asked.python)
    elif asked.command == "run":
        links = list[dict[str, Any]]()
        for one in asked.link:  # written after each, so that an interrupt loses little
            links.append(measure(asked.image, asked.rounds, one.replace("loopback", ""), asked.root))
            asked.out.write_text(json.dumps({"sizes": sizes(asked.image), "links": links}, indent=1) + "\n")
    else:
        print(table(json.loads(asked.results.read_text())))


if __name__ == "__main__":
    main()
