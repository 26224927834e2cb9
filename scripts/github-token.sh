#!/usr/bin/env bash
# In a job of GitHub Actions with `id-token: write`: a token that says which job this is, into AWS_WEB_IDENTITY_TOKEN_FILE.
# boto3 trades it for the role AWS_ROLE_ARN. It is good for minutes: ask right before it is used.
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for name in ACTIONS_ID_TOKEN_REQUEST_URL ACTIONS_ID_TOKEN_REQUEST_TOKEN AWS_WEB_IDENTITY_TOKEN_FILE AWS_TOKEN_AUDIENCE; do
  [ -n "${!name:-}" ] || die "$TW_USAGE" "$name is not set" \
    "This runs in a job of GitHub Actions with \`permissions: {id-token: write}\`: trainwright ci github"
done
umask 077
# The bearer goes in by standard input: the arguments of a process are for all to see.
said=$(printf 'header = "Authorization: bearer %s"\n' "$ACTIONS_ID_TOKEN_REQUEST_TOKEN" |
  curl --silent --show-error --fail --max-time 60 --retry 3 --config - \
    "$ACTIONS_ID_TOKEN_REQUEST_URL&audience=$AWS_TOKEN_AUDIENCE") ||
  die "$TW_ENVIRONMENT" "GitHub gave no token for AWS" "Does the job have \`permissions: {id-token: write}\`? The line above is curl's."
python3 -c 'import json, sys; sys.stdout.write(json.load(sys.stdin)["value"])' <<<"$said" >"$AWS_WEB_IDENTITY_TOKEN_FILE.new" 2>/dev/null ||
  die "$TW_ENVIRONMENT" "what GitHub answered holds no token"
mv "$AWS_WEB_IDENTITY_TOKEN_FILE.new" "$AWS_WEB_IDENTITY_TOKEN_FILE"
