"""Test what a command imports and what it computes once: counts of modules guard the start-up time, not seconds."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from importlib import import_module
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from threading import Thread
from typing import Any

import pytest

from trainwright import commands
from trainwright.commands.options import app
from trainwright.core.errors import EnvironmentProblem
from trainwright.docker import engine, engine_socket
from trainwright.matrix.matrix import Intent, once_per_intent

ROOT = Path(__file__).parents[3]
HEAVY = {"boto3", "botocore", "click", "debian", "docker", "matplotlib", "pygments", "requests", "tomlkit", "yaml"}
PROGRAM = """
import json, sys
from trainwright import cli
sys.argv = ["trainwright", *sys.argv[1:]]
try:
    cli.main()
except SystemExit as ended:
    code = ended.code
print(json.dumps([code, sorted(sys.modules)]))
"""


def imported(*words: str) -> set[str]:
    """Return every module that a command has imported when it ends."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules)


@pytest.mark.parametrize(
    "words", ["plan --framework pytorch", "list pytorch-2.13-cpu-py311-sagemaker", "render --help"]
)
def test_heavy_modules_are_left_alone(words: str) -> None:
    found = imported(*words.split())
    assert found & HEAVY == set()
    assert "rich" not in found
    assert "httpx" not in found or words.startswith("plan"), "what only looks starts without HTTP"
    assert {name for name in found if name.startswith("trainwright.commands.")} == {
        f"trainwright.commands.{name}"
        for name in {words.split()[0], "options"} | ({"matrix"} if words.startswith("list") else set())
    }


def test_each_command_is_in_the_file_of_its_name() -> None:
    for name in commands.NAMES:
        import_module(f"trainwright.commands.{name}")
    found = {}
    for info in app.registered_commands:
        assert info.callback
        found[info.name or info.callback.__name__] = info.callback.__module__
    groups = [str(group.name) for group in app.registered_groups]
    assert sorted(groups) == ["baseline", "ci", "registry"]
    assert found == {name: f"trainwright.commands.{name}" for name in commands.NAMES if name not in groups}


def test_what_follows_from_an_intent_is_worked_out_once_for_it(intent: Intent) -> None:
    asked = []

    @once_per_intent
    def work(held: Intent, word: str) -> int:
        asked.append(word)
        return len(held.variants)

    assert (work(intent, "a"), work(intent, "b"), work(intent, "a")) == (len(intent.variants),) * 3
    assert asked == ["a", "b"]
    smaller = intent.model_copy(update={"variants": intent.variants[:1]})
    assert work(smaller, "a") == 1
    with pytest.raises(TypeError):  # what a keyword says would not count for what is kept
        work(intent, word="c")  # type: ignore[call-arg]


# --- the engine, asked without docker's SDK --------------------------------------------------------------------------


class _Engine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        said = {"/_ping": (200, b"OK"), "/images/a/b%40sha256:1/json": (200, b'{"Id": "sha256:1"}')}
        said |= {f"/images/{status}/json": (status, b"why") for status in (400, 404, 500)}
        status, body = said[self.path]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass

    def address_string(self) -> str:
        return ""


@pytest.fixture
def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve an engine on a socket; the engine has one image."""
    short = Path(os.path.relpath(tmp_path / "e.sock"))  # a socket's path is short
    with ThreadingUnixStreamServer(str(short), _Engine) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'e.sock'}")
        yield
        server.shutdown()


@pytest.mark.usefixtures("answering")
def test_an_engine_that_answers_is_asked_over_its_socket() -> None:
    assert engine.answers()
    assert engine.image_id("a/b@sha256:1") == "sha256:1"
    assert engine.image_id("404") is None
    assert engine.image_id("400") is None
    with pytest.raises(EnvironmentProblem, match="cannot be queried for the image 500") as refused:
        engine.image_id("500")
    assert refused.value.why == "why"


def test_an_engine_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not engine.answers()
    with pytest.raises(EnvironmentProblem, match="no Docker engine answers"):
        engine.image_id("a")


@pytest.mark.parametrize("host", ["ssh://nobody@127.0.0.1", "tcp://127.0.0.1:1"])
def test_what_only_the_sdk_knows_is_asked_through_it(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    asked = []
    monkeypatch.setattr(engine, "client", lambda: asked.append(host))
    assert engine.answers()
    assert asked == [host]


@pytest.mark.parametrize("how", ["the file of docker's client", "the environment", "none"])
def test_a_context_of_docker_is_asked_through_the_sdk(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As rootless Docker and Docker Desktop set one."""
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(engine_socket, "SOCKET", str(tmp_path / "no.sock"))
    if how == "the environment":
        monkeypatch.setenv("DOCKER_CONTEXT", "rootless")
    said = {"currentContext": "rootless" if how.startswith("the file") else "default"}
    (tmp_path / "config.json").write_text(json.dumps(said))
    monkeypatch.setattr(engine, "client", lambda: None)  # it answers
    assert engine.answers() == (how != "none")
