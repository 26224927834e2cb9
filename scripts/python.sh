#!/bin/sh
# Run a Python script with the first interpreter that is new enough: python.sh SCRIPT [WORD...]. PYTHON=... names another.
set -eu
root=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
least=$(sed -n 's/^requires-python = ">=\([0-9.]*\)"$/\1/p' "$root/pyproject.toml")

named() { # every python3.N on PATH
  IFS=:
  for folder in $PATH; do
    for file in "$folder"/python3.[0-9] "$folder"/python3.[0-9][0-9]; do [ ! -x "$file" ] || echo "$file"; done
  done
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] < tuple(map(int, sys.argv[1].split("."))))' "$least"; }

for python in ${PYTHON:-python3 $(named) python}; do
  if new_enough "$python" 2>/dev/null; then exec "$python" "$@"; fi
done
version=$("${PYTHON:-python3}" -c 'import platform; print(platform.python_version())' 2>/dev/null) || version='no Python that runs'
echo "error: ${PYTHON:-python3} is $version; Python $least or newer is needed
  Install one, or name it:  make setup PYTHON=/path/to/python$least" >&2
exit 10
