#!/usr/bin/env bash
# Every test there is: test-all.sh [--framework NAME | --only '<id or glob>']; without either, the images that the matrix
# marks as tested. Each image is built if need be, tested, pushed to the registry on loopback, and the training tests run
# on what that registry holds. A test that cannot run here fails: --require-engine.
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

trap - ERR   # what fails here has said why
cd "$TW_ROOT"
REGISTRY=$(scripts/registry.sh up)
export REGISTRY
trainwright=.venv/bin/trainwright pytest=(.venv/bin/python -m pytest --quiet --require-engine)

# A name that is none ends it here, not after the tests.
chosen=$("$trainwright" list "$@" --json | .venv/bin/python -c '
import json, sys
for row in json.load(sys.stdin):
    if len(sys.argv) > 1 or row["tested"]:
        print(row["id"], row["target"])' "$@")
"$trainwright" lock --check
"$trainwright" lint --require-check
"${pytest[@]}" tests/unit tests/golden --numprocesses auto
while read -r id _; do
  "$trainwright" build --only "$id" </dev/null
  "$trainwright" test --only "$id" </dev/null
done <<<"$chosen"
"${pytest[@]}" tests/scripts tests/engine
while read -r id target; do
  uri=$("$trainwright" push --only "$id" --json </dev/null |
    .venv/bin/python -c 'import json, sys; print(json.load(sys.stdin)[0]["uri"])')
  if [ "$target" = sagemaker ]; then
    say "training with $uri"
    "${pytest[@]}" tests/train --image "$uri" --variant "$id" </dev/null
  else
    say "no training test is for $target images: $id"
  fi
done <<<"$chosen"
