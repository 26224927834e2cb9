#!/usr/bin/env bash
# Open a pull request on GitHub for a branch, or update the text of the one that is open: BRANCH BASE FILE.
# The first line of FILE is the title ("# title"), the rest its text: `trainwright update --summary FILE` writes it.
# Wants GITHUB_REPOSITORY (owner/name) and GH_TOKEN; GITHUB_API_URL for GitHub Enterprise.
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -eq 3 ] || die "$TW_USAGE" "a branch, its base and a file are required" "scripts/pull-request.sh trainwright/update main summary.md"
branch=$1 base=$2 file=$3
for name in GITHUB_REPOSITORY GH_TOKEN; do
  [ -n "${!name:-}" ] || die "$TW_USAGE" "$name is not set"
done
[ -s "$file" ] || die "$TW_USAGE" "$file is missing or empty" "trainwright update --branch $branch --push origin --summary $file"
pulls="${GITHUB_API_URL:-https://api.github.com}/repos/$GITHUB_REPOSITORY/pulls"

ask() { # method address [body]: the token goes in by a file descriptor, because the arguments of a process are for all to see
  curl --silent --show-error --fail-with-body --max-time 60 --retry 3 --request "$1" \
    --config <(printf 'header = "Authorization: Bearer %s"\n' "$GH_TOKEN") \
    --header 'Accept: application/vnd.github+json' --header 'X-GitHub-Api-Version: 2022-11-28' ${3:+--data-binary "@$3"} "$2" ||
    die "$TW_ENVIRONMENT" "GitHub refused to $1 a pull request of $GITHUB_REPOSITORY" "The lines above are curl's and GitHub's." \
      "The token has to have \`pull-requests: write\`; in the repository's settings, Actions may have to be allowed to create pull requests."
}

read_json() { # expression: of the JSON on standard input, as `said`
  python3 -c 'import json, sys; said = json.load(sys.stdin); print('"$1"')' 2>/dev/null ||
    die "$TW_ENVIRONMENT" "what GitHub answered is not what its API describes"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$branch" "$base" "$file" >"$work/body" <<'PYTHON'
import json, sys

branch, base, file = sys.argv[1:]
with open(file, encoding="utf-8") as text:
    title, _, body = text.read().partition("\n")
print(json.dumps({"title": title.removeprefix("# "), "body": body.strip(), "head": branch, "base": base}))
PYTHON
ask GET "$pulls?state=open&head=${GITHUB_REPOSITORY%%/*}:$branch&base=$base" >"$work/open"
number=$(read_json 'said[0]["number"] if said else ""' <"$work/open")
if [ -n "$number" ]; then
  ask PATCH "$pulls/$number" "$work/body" >"$work/said"
else
  ask POST "$pulls" "$work/body" >"$work/said"
fi
read_json 'said["html_url"]' <"$work/said"
