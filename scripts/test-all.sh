#!/usr/bin/env bash
# Every test there is: test-all.sh FRAMEWORK. The image is built if need be, tested, pushed to the registry on loopback, and
# the training tests run on what that registry holds. A test that cannot run here fails: --require-engine.
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$TW_ROOT"
REGISTRY=$(scripts/registry.sh up)
export REGISTRY
trainwright=.venv/bin/trainwright pytest=(.venv/bin/python -m pytest --quiet --require-engine)

"$trainwright" lock --check
"${pytest[@]}" tests/unit tests/golden --numprocesses auto
"$trainwright" build --framework "$1"
"$trainwright" test --framework "$1"
"${pytest[@]}" tests/engine
uri=$("$trainwright" push --framework "$1" --json | .venv/bin/python -c 'import json, sys; print(json.load(sys.stdin)[0]["uri"])')
say "training with $uri"
"${pytest[@]}" tests/train --image "$uri"
