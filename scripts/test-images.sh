#!/usr/bin/env bash
# Images, one after the other: built if need be, tested, pushed to the registry on loopback, trained with from there,
# and taken out of the engine again unless it held them before. What `trainwright record` reads stays in out/<id>/.
#   test-images.sh [--dry-run] [--keep] [--cluster] (--by 'make test'|CI | --framework NAME | --only '<id or glob>')
# --by: those that matrix.toml says are built and tested by it. --keep: nothing leaves the engine. --cluster: build, and run
# the jobs of several hosts alone; with --by CI they follow the training, for images that need no GPU.
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

trap - ERR # what fails here has said why
cd "$TW_ROOT"
trainwright=.venv/bin/trainwright python=.venv/bin/python
by='' keep='' dry='' cluster='' choice=()
while [ $# -gt 0 ]; do
  case $1 in
    --by) by=${2?--by whom} && shift ;;
    --keep) keep=1 ;;
    --dry-run) dry=1 ;;
    --cluster) cluster=1 ;;
    *) choice+=("$1") ;;
  esac
  shift
done
[ -n "$by" ] || [ ${#choice[@]} -gt 0 ] || die "$TW_USAGE" "no image was asked for" "Say --by CI, or --only '<id or glob>'."

# A name that is none ends it here, not after an hour.
chosen=$("$trainwright" list "${choice[@]}" --json | "$python" -c '
import json, sys
for row in json.load(sys.stdin)["images"]:
    if sys.argv[1] in ("", row["tested"]):
        print(row["id"], row["target"], row["accelerator"])' "$by")
[ -n "$chosen" ] || die "$TW_USAGE" "no image is built and tested by '$by'" "[tested] in dockerfiles/matrix.toml says which are."
if [ -n "$dry" ]; then
  printf '%s\n' "$chosen"
  exit
fi
REGISTRY=$(scripts/registry.sh up)
export REGISTRY

first() { # a key of the one row that a command printed as JSON; nothing where it has none
  "$python" -c 'import json, sys; value = json.load(sys.stdin)[0].get(sys.argv[1]) or ""
print(value if isinstance(value, str) else value[0])' "$1"
}

train() { # id target uri
  local code=0
  if [ "$2" != sagemaker ]; then
    say "no training test is for $2 images: $1"
    return
  fi
  say "training with $3"
  "$python" -m pytest --quiet --require-engine tests/train --image "$3" --variant "$1" \
    --junitxml "out/$1/training.xml" --numprocesses auto --maxprocesses 2 </dev/null || code=$? # most of it waits
  [ "$code" != 5 ] || say "no training test is for this framework: $1" # pytest's word for "nothing to do"
  [ "$code" = 0 ] || [ "$code" = 5 ] || exit "$code"
}

several_hosts() { # id uri tests; without an address the engine holds it under its own name
  local image=()
  [ -z "$2" ] || image=(--image "$2")
  say "jobs of several hosts with $1"
  "$python" -m pytest --quiet --require-engine "$3" "${image[@]}" --variant "$1" \
    --numprocesses auto --maxprocesses 2 --dist loadgroup --junitxml "out/$1/cluster.xml" --table "out/$1" </dev/null
}

take_out() { # names of images: out of the engine, but for what it held before
  local name image
  for name; do
    image=$(docker image inspect --format '{{.Id}}' "$name" 2>/dev/null) || continue
    grep -qxF "$image" <<<"$held" && continue
    docker image rm --force "$name" >/dev/null 2>&1 || say "$name stays in the engine"
  done
}

while read -r id target accelerator; do
  began=$SECONDS
  held=$(docker image ls --quiet --no-trunc) || held='' # the build's "skip" does not say
  built=$("$trainwright" build --only "$id" --json </dev/null)
  if [ -n "$cluster" ]; then
    several_hosts "$id" "$(first uri <<<"$built")" tests/cluster
    continue
  fi
  "$trainwright" test --only "$id" </dev/null
  pushed=$("$trainwright" push --only "$id" --json </dev/null)
  uri=$(first uri <<<"$pushed")
  train "$id" "$target" "$uri"
  if [ "$by" = CI ] && [ "$accelerator" = cpu ]; then
    several_hosts "$id" "$uri" tests/cluster/test_jobs.py # failures and stops are tried with the image of `make test`
  fi
  if [ -z "$keep" ]; then
    name=${uri##*/} tag=$(first tags <<<"$pushed")
    take_out "trainwright/${name%@*}:$tag" "$uri"
  fi
  say "$id took $((SECONDS - began)) s"
done <<<"$chosen"
