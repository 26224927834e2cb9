"""Test scripts/github-token.sh, which asks GitHub for the token of a job that publishes."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from trainwright.publish import pipelines

ROOT = Path(__file__).parents[3]
SETTINGS = pipelines.settings(ROOT)


@pytest.fixture
def issuer() -> Iterator[tuple[str, list[tuple[str, str]], list[bytes]]]:
    """Serve tokens; yield the address, a list of requests with their bearer tokens, and the list of answers."""
    asked: list[tuple[str, str]] = []
    answers = [b'{"value": "eyJ.a.b"}']

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answers[0])

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/?v=1", asked, answers
        server.shutdown()


def token(address: str, file: Path, **also: str) -> subprocess.CompletedProcess[str]:
    given = {
        "ACTIONS_ID_TOKEN_REQUEST_URL": address,
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "bearer-1",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(file),
        "AWS_TOKEN_AUDIENCE": SETTINGS.github.audience,
        **also,
    }
    env = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    return subprocess.run([ROOT / "scripts/github-token.sh"], env={**env, **given}, capture_output=True, text=True)


def test_a_token_is_asked_for_and_only_we_read_it(issuer: Any, tmp_path: Path) -> None:
    if not shutil.which("curl"):
        pytest.skip("not run: no curl")
    address, asked, answers = issuer
    file = tmp_path / "token"
    ended = token(address, file)
    assert ended.returncode == 0, ended.stderr
    assert file.read_text() == "eyJ.a.b"
    assert file.stat().st_mode & 0o777 == 0o600
    assert asked == [("/?v=1&audience=sts.amazonaws.com", "bearer bearer-1")]
    answers[0] = b"<html>"
    file.unlink()
    ended = token(address, file)
    assert (ended.returncode, file.exists()) == (10, False)
    assert "holds no token" in ended.stderr


def test_outside_of_a_job_that_may_ask(tmp_path: Path) -> None:
    ended = token("", tmp_path / "token")
    assert ended.returncode == 2
    assert "id-token: write" in ended.stderr
