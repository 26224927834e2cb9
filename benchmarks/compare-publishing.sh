#!/usr/bin/env bash
# One image, published in four ways on this machine: seconds, and bytes that went over loopback (requests and answers).
#   compare-publishing.sh <id>      for people who want to know; it takes two builds of the image and their tests
# Each way has a repository of its own in a registry of its own. Nothing else may use loopback meanwhile.
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"

[ $# -eq 1 ] || die "$TW_USAGE" "usage: compare-publishing.sh <id>"
ID=$1 SCRATCH=$(mktemp -d)
LOG=$SCRATCH/log
TRAINWRIGHT_REGISTRY_PORT=$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
export TRAINWRIGHT_REGISTRY_PORT TRAINWRIGHT_REGISTRY_DATA=$SCRATCH/registry

# It is the trap of every exit: what is not there (no registry was started, no image made) is nothing to take away, and
# must neither stop the rest of it nor turn a good exit into a bad one.
clean_up() {
  "$TW_ROOT/.venv/bin/trainwright" registry down 2>/dev/null || true
  docker rmi --force "$REGISTRY/plain:one" "$REGISTRY/plain:two" "$REGISTRY/bake:one" "$REGISTRY/bake:two" >/dev/null 2>&1 || true
  rm -rf "$SCRATCH"
}

timed() { # words command…: one row of the table
  local words=$1 began before
  shift
  before=$(cat /sys/class/net/lo/statistics/tx_bytes) began=$EPOCHREALTIME
  "$@" >>"$LOG" 2>&1 || { tail -n 20 "$LOG" >&2; die 1 "$words failed"; }
  awk -v words="$words" -v from="$began" -v to="$EPOCHREALTIME" -v before="$before" \
    -v after="$(cat /sys/class/net/lo/statistics/tx_bytes)" \
    'BEGIN { printf "| %s | %.1f | %.3f |\n", words, to - from, (after - before) / 1e6 }'
}

ours() { (cd "$SCRATCH/tree" && "$TW_ROOT/.venv/bin/trainwright" "$1" "$ID"); }
publish_ours() { ours build && ours push; }

bake() { # tag
  (cd "$OUT" && docker buildx bake --push --set "image.output=type=image,oci-mediatypes=false,push=true" \
    --set "image.tags=$REGISTRY/bake:$1")
}

plain() { # tag: what people write by hand
  (cd "$OUT" && docker build "${WORDS[@]}" --tag "$REGISTRY/plain:$1" . && docker push "$REGISTRY/plain:$1")
}

change() { # file: one more layer, late in the image
  python3 - "$1" 'RUN echo changed > /opt/changed' <<'PY'
import pathlib, sys
file = pathlib.Path(sys.argv[1])
head, last, tail = file.read_text().rpartition("\nLABEL org.opencontainers.image.title")
file.write_text(f"{head}\n{sys.argv[2]}{last}{tail}")
PY
}

trap clean_up EXIT
REGISTRY=$("$TW_ROOT/.venv/bin/trainwright" registry up) && export REGISTRY
mkdir "$SCRATCH/tree"
cp -r "$TW_ROOT"/{dockerfiles,scripts,tests} "$SCRATCH/tree/"
say "building and publishing $ID (log: $LOG)"
publish_ours >>"$LOG" 2>&1 || { tail -n 20 "$LOG" >&2; die 1 "$ID could not be published"; }
cp -rl "$SCRATCH/tree/out/$ID" "$SCRATCH/plain" && OUT=$SCRATCH/plain
cp --remove-destination "$SCRATCH/tree/out/$ID/Dockerfile" "$OUT/Dockerfile"
mapfile -t WORDS < <(python3 -c '
import json, sys
image = json.load(open(sys.argv[1]))["target"]["image"]
for word, table in (("build-context", image["contexts"]), ("build-arg", image["args"]), ("label", image["labels"])):
    for name, value in table.items():
        print(f"--{word}={name}={value}")
print("--provenance=false")' "$OUT/docker-bake.json")
bake one >>"$LOG" 2>&1
plain one >>"$LOG" 2>&1

printf '| %s | seconds | MB |\n|---|---|---|\n' "$ID"
timed "nothing changed: trainwright push" ours push
timed "nothing changed: trainwright build and push" publish_ours
timed "nothing changed: docker buildx bake --push" bake one
timed "nothing changed: docker build && docker push" plain one
change "$SCRATCH/tree/dockerfiles/frameworks/image.j2"
change "$OUT/Dockerfile"
timed "one layer changed: trainwright build" ours build
timed "one layer changed: trainwright push, its image tests included" ours push
timed "one layer changed: docker buildx bake --push" bake two
timed "one layer changed: docker build && docker push" plain two
