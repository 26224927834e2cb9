#!/usr/bin/env bash
# SageMaker's SDK, versions 2 and 3, each in a virtual environment of its own (.sdk, 1.1 GB), and the tests of its local mode.
#   test-sdk.sh [ARGS of pytest…]
# Its requirements are locked with their hashes: tests/sagemaker/v2.txt, v3.txt.
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

trap - ERR # what fails here has said why
cd "$TW_ROOT"
docker compose version >/dev/null 2>&1 || have docker-compose ||
  die "$TW_ENVIRONMENT" "there is no Docker Compose, which the SDK's local mode wants" "apt-get install --no-install-recommends docker-compose"
for version in v2 v3; do
  wanted=tests/sagemaker/$version.txt made=.sdk/$version
  if ! cmp -s "$wanted" "$made/.complete"; then
    say "installing SageMaker's SDK $version into $made"
    .venv/bin/python -m venv --clear "$made" >&2
    # What pip prints for people, less what it says of each index that lacks a package.
    "$made/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$wanted" 2>&1 |
      { grep -v '^WARNING: Location' >&2 || true; }
    cp "$wanted" "$made/.complete"
  fi
done
.venv/bin/python -m pytest --quiet --require-engine tests/sagemaker --durations 0 "$@"
