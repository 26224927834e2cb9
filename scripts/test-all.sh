#!/usr/bin/env bash
# Every test but those of the goals test-cluster, test-ci, test-sdk, test-slurm, test-terraform, test-gpu and test-slow:
# test-all.sh [--framework NAME | '<id or glob>']; without either, with the images that matrix.toml says `make test`
# builds. A test that cannot run here fails: --require-engine.
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

trap - ERR   # what fails here has said why
cd "$TW_ROOT"
trainwright=.venv/bin/trainwright pytest=(.venv/bin/python -m pytest --quiet --require-engine)
images=(scripts/test-images.sh --keep --without-jobs "$@")
[ $# -gt 0 ] || images+=(--by 'make test')

stage() { # words command…: run it, and say how long it took
  local words=$1 from=$SECONDS
  shift
  "$@"
  say "$words: $((SECONDS - from)) s"
}

build() { # the images, which are tested at the end: the build and the checks each use one core, so they run at once
  local id rest
  while read -r id rest; do "$trainwright" build "$id" </dev/null || return; done <<<"$chosen"
}

chosen=$("${images[@]}" --dry-run) # a name that is none ends it here, not after the tests
REGISTRY=$("$trainwright" registry up)
log=$(mktemp)
set -m # a group of its own, so that all of it can be ended
REGISTRY=$REGISTRY build >"$log" 2>&1 &
building=$!
set +m
trap 'kill -- "-$building" 2>/dev/null || true; rm -f "$log"' EXIT
stage "format, lint, types" make --no-print-directory check
stage "lock --check" "$trainwright" lock --check
stage lint "$trainwright" lint --require-check
stage "unit tests" "${pytest[@]}" tests/unit tests/golden tests/hostile -m 'not slurm and not png' --numprocesses auto --dist worksteal
code=0
wait "$building" || code=$?
[ "$code" = 0 ] || { cat "$log" >&2 && exit "$code"; }
# Each file has a registry of its own, and much of it waits: three files at a time are quicker than two or four on two cores.
stage "tests of scripts, engine, AWS" "${pytest[@]}" tests/scripts tests/engine tests/aws -m 'not slow and not terraform' --numprocesses 3 --dist loadfile --no-loadscope-reorder
stage "the images" "${images[@]}"
