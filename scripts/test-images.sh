#!/usr/bin/env bash
# Images, one after the other: built if need be, tested, pushed to the registry on loopback, trained with from there,
# and taken out of the engine again unless it held them before. What `trainwright record` reads stays in out/<id>/.
#   test-images.sh [--dry-run] [--keep] [--cluster | --without-jobs] [--began SECONDS]
#                  (--by 'make test'|CI | --framework NAME | '<id or glob>')
# --by: those that matrix.toml says are built and tested by it; of CI's, what `trainwright ci proofs` says is to be proved.
# --keep: nothing leaves the engine. Jobs of several hosts follow the training, for images that need no GPU.
# --cluster: build, and run those jobs alone, and break and stop some. --without-jobs: somebody else runs them.
# --began: when the whole of CI began (date +%s); no image begins later after that than matrix.toml says.
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

trap - ERR # what fails here has said why
cd "$TW_ROOT"
trainwright=.venv/bin/trainwright python=.venv/bin/python
by='' keep='' dry='' cluster='' jobs=1 began_at='' choice=()
while [ $# -gt 0 ]; do
  case $1 in
    --by) by=${2?--by whom} && shift ;;
    --keep) keep=1 ;;
    --dry-run) dry=1 ;;
    --cluster) cluster=1 ;;
    --without-jobs) jobs='' ;;
    --began) began_at=${2?--began when} && shift ;;
    *) choice+=("$1") ;;
  esac
  shift
done
[ -n "$by" ] || [ ${#choice[@]} -gt 0 ] || die "$TW_USAGE" "no image was asked for" "Say --by CI, or '<id or glob>'."

# A name that is none ends it here, not after an hour.
chosen=$("$trainwright" list "${choice[@]}" --json | "$python" -c '
import json, sys
for row in json.load(sys.stdin)["images"]:
    if sys.argv[1] in ("", row["tested"]):
        print(row["id"], row["target"], row["accelerator"])' "$by")
if [ "$by" = CI ]; then
  proofs=$("$trainwright" ci proofs --json)
  chosen=$("$python" -c '
import json, sys
images = {line.split()[0]: line for line in sys.argv[1].splitlines()}
for row in json.loads(sys.argv[2]):
    print({"prove": "to prove"}.get(row["action"], row["action"]), row["id"], row["reason"], sep=": ", file=sys.stderr)
    if row["action"] == "prove":
        print(images[row["id"]])' "$chosen" "$proofs")
fi
[ -n "$chosen" ] || die "$TW_USAGE" "no image is built and tested by '$by'" "[tested] in dockerfiles/matrix.toml says which are."
if [ -n "$dry" ]; then
  printf '%s\n' "$chosen"
  exit
fi
REGISTRY=$("$trainwright" registry up)
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
  [ "$code" = 0 ] || [ "$code" = 5 ] || exit "$TW_FAILED" # pytest's codes mean other things than ours
}

same_digest() { # id key digest: what is recorded of these inputs must come out again
  "$python" - "$@" <<'PY' || die "$TW_FAILED" "$1 came out as another image than the recorded one" \
    "The same inputs must give the same digest: trainwright rebuild --compare $1; or trainwright record $1, and say why."
import pathlib, sys, tomllib
identity, key, digest = sys.argv[1:]
file = pathlib.Path("dockerfiles/proofs", f"{identity}.toml")
record = tomllib.loads(file.read_text()) if file.exists() else {}
if record.get("key") == key and record["digest"] != digest:
    sys.exit(f"{file}: {record['digest']}\npushed: {digest}\nkey of both: {key}")
PY
}

too_late() { # whether no further image may begin
  [ -n "$began_at" ] || return 1
  local within
  within=$("$python" -c 'import tomllib
print(tomllib.load(open("dockerfiles/matrix.toml", "rb"))["tested"]["begin-within-minutes"])')
  [ $(($(date +%s) - began_at)) -gt $((within * 60)) ]
}

several_hosts() { # id uri tests; without an address the engine holds it under its own name
  local image=()
  [ -z "$2" ] || image=(--image "$2")
  say "jobs of several hosts with $1"
  "$python" -m pytest --quiet --require-engine "$3" "${image[@]}" --variant "$1" \
    --numprocesses auto --maxprocesses 2 --dist loadgroup --junitxml "out/$1/cluster.xml" --table "out/$1" </dev/null ||
    exit "$TW_FAILED"
}

take_out() { # names of images: out of the engine, but for what it held before
  local name image
  for name; do
    image=$(docker image inspect --format '{{.Id}}' "$name" 2>/dev/null) || continue
    grep -qxF "$image" <<<"$held" && continue
    docker image rm --force "$name" >/dev/null 2>&1 || say "$name stays in the engine"
  done
}

not_run=''
while read -r id target accelerator; do
  if too_late; then
    say "not run: $id: CI began longer ago than [tested] in dockerfiles/matrix.toml lets another image begin"
    not_run=1
    continue
  fi
  began=$SECONDS
  held=$(docker image ls --quiet --no-trunc) || held='' # the build's "skip" does not say
  built=$("$trainwright" build "$id" --json </dev/null)
  if [ -n "$cluster" ]; then
    several_hosts "$id" "$(first uri <<<"$built")" tests/cluster
    continue
  fi
  "$trainwright" test "$id" </dev/null
  pushed=$("$trainwright" push "$id" --json </dev/null)
  uri=$(first uri <<<"$pushed")
  same_digest "$id" "$(first key <<<"$pushed")" "${uri##*@}"
  train "$id" "$target" "$uri"
  if [ -n "$jobs" ] && [ "$target $accelerator" = "sagemaker cpu" ]; then
    several_hosts "$id" "$uri" tests/cluster/test_jobs.py # failures and stops: --cluster
  fi
  if [ -z "$keep" ]; then
    name=${uri##*/} tag=$(first tags <<<"$pushed")
    take_out "trainwright/${name%@*}:$tag" "$uri"
  fi
  say "$id took $((SECONDS - began)) s"
done <<<"$chosen"
[ -z "$not_run" ] || exit "$TW_NOT_RUN"
