"""Release a new version of a pin, end to end: intent, lock, changes, build, probe, tests, push, release.

Also test what keeps a release consistent: what is refused, what an interrupted release leaves, and the rollback.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest
from commits import begin, commit, git
from faults import Flaky
from tiny import ID, built_in_this_run, store_of_this_run, trainwright

from trainwright.registry import client as registries

pytestmark = [pytest.mark.engine, pytest.mark.registry, pytest.mark.slow]

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
ANOTHER_PIP = "26.2"
ALIAS = f"{ID}-latest"


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    with store_of_this_run():
        yield built_in_this_run()


class Checkout(NamedTuple):
    """A git checkout of the built tree, with a separate folder in the registry."""

    tree: Path
    registry: str

    def run(self, *words: str, code: int = 0) -> Any:
        """Run a command and return its JSON, or its error if it should fail."""
        done = trainwright(self.tree, *words, "--json", REGISTRY=self.registry)
        assert done.returncode == code, done.stderr
        return json.loads(done.stderr.splitlines()[-1] if code else done.stdout)

    def release(self, name: str, *words: str, code: int = 0) -> Any:
        return self.run("release", name, ID, *words, code=code)

    def publish(self) -> str:
        (row,) = self.run("push", ID)
        return str(row["digest"])

    @property
    def tags(self) -> dict[str, str]:
        """Map each tag to its digest, as the registry itself says."""
        host, _, folder = self.registry.partition("/")
        url = f"http://{host}/v2/{folder}/trainwright/tiny"
        listed = httpx.get(f"{url}/tags/list").json().get("tags") or []
        accept = {"Accept": MANIFEST}
        return {
            tag: httpx.head(f"{url}/manifests/{tag}", headers=accept).headers["docker-content-digest"] for tag in listed
        }

    def record(self, name: str) -> Path:
        return self.tree / f"dockerfiles/releases/{name}.toml"


@pytest.fixture
def checkout(built: Path, tmp_path: Path, registry: str) -> Checkout:
    """Make a checkout whose image is built and probed, with an empty registry."""
    tree = tmp_path / "tree"
    shutil.copytree(built, tree, ignore=shutil.ignore_patterns("out"))
    (tree / "out" / ID).mkdir(parents=True)
    shutil.copyfile(built / "out" / ID / "image.json", tree / "out" / ID / "image.json")
    (tree / "tests/image/test_stub.py").write_text("def test_it(): pass\n")
    (tree / ".gitignore").write_text("/out/\n__pycache__/\n.pytest_cache/\n")
    begin(tree)
    return Checkout(tree, f"{registry}/{uuid4().hex}")


def move_pip(tree: Path) -> None:
    """Move the pin of pip: one line of matrix.toml."""
    path = tree / "dockerfiles/matrix.toml"
    text, count = re.subn(r'^pip = ".*"', f'pip = "{ANOTHER_PIP}"', path.read_text(), flags=re.MULTILINE)
    assert count == 1
    path.write_text(text)


def test_a_new_release_of_what_is_pinned_end_to_end(checkout: Checkout) -> None:
    pinned = re.search(r'^pip = "(.*)"', (checkout.tree / "dockerfiles/matrix.toml").read_text(), re.MULTILINE)
    assert pinned
    old = checkout.publish()
    (row,) = checkout.release("2026.11.0")
    assert (row["action"], row["digest"]) == ("released", old)
    assert checkout.tags[ALIAS] == checkout.tags[f"{ID}-2026.11.0"] == old
    commit(checkout.tree, "2026.11.0")

    move_pip(checkout.tree)
    (unlocked,) = checkout.run("changes", "--since", "HEAD")
    assert (unlocked["new"], "stale" in unlocked["why"]) == ("unknown", True)
    checkout.run("lock")
    (changed,) = checkout.run("changes", "--since", "HEAD")
    assert changed["id"] == ID
    assert changed["why"] == f"component pip wheel {pinned[1]} -> wheel {ANOTHER_PIP}"
    (row,) = checkout.run("build", ID)
    assert (row["action"], row["key"], row["versions"]["pip"]) == ("build", changed["new"], ANOTHER_PIP)
    (row,) = checkout.run("test", ID)
    assert row["action"] == "tested"
    new = checkout.publish()
    assert new != old
    assert checkout.tags[ALIAS] == old  # published is not released

    commit(checkout.tree, "pip moves")
    refused = checkout.release("2026.11.1", code=3)
    assert f"component pip wheel {pinned[1]} -> wheel {ANOTHER_PIP}" in refused["why"]
    assert refused["fix"].startswith("trainwright release 2026.12.0")
    assert f"{ID}-2026.11.1" not in checkout.tags
    assert not checkout.record("2026.11.1").exists()
    checkout.release("2026.12.0")
    assert (checkout.tags[ALIAS], checkout.tags[f"{ID}-2026.12.0"]) == (new, new)
    commit(checkout.tree, "2026.12.0")

    (row,) = checkout.run("affected", "--by", f"pip={pinned[1]}")
    assert (row["release"], row["digest"], row["alias"]) == ("2026.11.0", old, "no")
    rows = checkout.run("affected", "--by", f"pip={ANOTHER_PIP}")
    assert [(row["release"], row["digest"], row["alias"]) for row in rows] == [
        ("", new, "yes"),
        ("2026.12.0", new, "yes"),
    ]

    before = checkout.tags
    (row,) = checkout.run("rollback", "--to", "2026.11.0", "--dry-run")
    assert (row["action"], row["digest"]) == ("would move", old)
    assert checkout.tags == before
    (row,) = checkout.run("rollback", "--to", "2026.11.0")
    assert (row["action"], row["digest"]) == ("moved", old)
    assert checkout.tags == before | {ALIAS: old}
    (row,) = checkout.run("affected", "--by", f"pip={pinned[1]}")
    assert row["alias"] == "yes"
    (row,) = checkout.run("rollback", "--to", "2026.11.0")
    assert row["action"] == "stays"

    # The same command once more moves nothing back, and nothing forward that an older release does not own.
    (row,) = checkout.release("2026.12.0")
    assert checkout.tags == before
    git(checkout.tree, "checkout", "--quiet", "HEAD~2", "--", "dockerfiles/matrix.toml", "dockerfiles/locks")
    commit(checkout.tree, "back")
    (row,) = checkout.release("2026.11.0")
    assert "2026.12.0 is newer" in row["why"]
    assert checkout.tags == before


def test_a_release_again_changes_nothing(checkout: Checkout) -> None:
    checkout.publish()
    checkout.release("2026.11.0")
    before = checkout.record("2026.11.0").read_bytes(), checkout.tags
    assert git(checkout.tree, "status", "--porcelain", "--untracked-files=all").split() == [
        "??",
        "dockerfiles/releases/2026.11.0.toml",
    ]
    checkout.release("2026.11.0")
    commit(checkout.tree, "the record")
    checkout.release("2026.11.0")
    assert (checkout.record("2026.11.0").read_bytes(), checkout.tags) == before


def test_a_patch_of_the_same_packages(checkout: Checkout) -> None:
    digest = checkout.publish()
    refused = checkout.release("2026.11.1", code=2)
    assert refused["fix"] == "trainwright release 2026.11.0"
    checkout.release("2026.11.0")
    (row,) = checkout.release("2026.11.1")
    assert checkout.tags[f"{ID}-2026.11.1"] == checkout.tags[ALIAS] == row["digest"] == digest
    (row,) = checkout.release("2026.11.0")  # once more: the alias is not its own any longer
    assert "2026.11.1 is newer" in row["why"]


def test_a_dry_run_writes_nothing(checkout: Checkout) -> None:
    checkout.publish()
    before = checkout.tags
    (row,) = checkout.release("2026.11.0", "--dry-run")
    assert row["action"] == "would release"
    assert checkout.tags == before
    assert not checkout.record("2026.11.0").exists()


def test_what_is_not_published_is_not_released(checkout: Checkout) -> None:
    refused = checkout.release("2026.11.0", code=7)
    assert f"trainwright push {ID}" in refused["fix"]
    assert not checkout.record("2026.11.0").exists()


def test_a_tag_that_something_else_has(checkout: Checkout) -> None:
    digest = checkout.publish()
    other = put(checkout, f"{ID}-2026.11.0", digest)
    before = checkout.tags
    for words in ([], ["--dry-run"]):
        refused = checkout.release("2026.11.0", *words, code=8)
        assert other in refused["why"]
        assert "no record of 2026.11.0 names it" in refused["why"]
        assert checkout.tags == before
    assert not checkout.record("2026.11.0").exists()


def put(checkout: Checkout, tag: str, digest: str) -> str:
    """Put the same manifest with other white space under a tag; return its digest."""
    host, _, folder = checkout.registry.partition("/")
    url = f"http://{host}/v2/{folder}/trainwright/tiny/manifests"
    content = httpx.get(f"{url}/{digest}", headers={"Accept": MANIFEST}).json()
    text = json.dumps(content, indent=1)
    return str(
        httpx.put(f"{url}/{tag}", content=text, headers={"Content-Type": MANIFEST}).headers["docker-content-digest"]
    )


def test_a_rollback_verifies_first(checkout: Checkout) -> None:
    digest = checkout.publish()
    checkout.release("2026.11.0")
    put(checkout, f"{ID}-2026.11.0", digest)  # as somebody with another client could
    put(checkout, ALIAS, digest)
    before = checkout.tags
    refused = checkout.run("rollback", "--to", "2026.11.0", code=8)
    assert "no alias was moved" in refused["error"]
    text = checkout.record("2026.11.0").read_text()
    checkout.record("2026.11.0").write_text(text.replace(digest, "sha256:" + "0" * 64))
    assert "cannot be read back" in checkout.run("rollback", "--to", "2026.11.0", code=8)["error"]
    assert checkout.tags == before


@pytest.mark.parametrize("after", [0, 1])
def test_interrupted_between_two_tags(checkout: Checkout, flaky: Flaky, after: int) -> None:
    """Before the release's tag is written, or the alias: what is there is explained, and the same command completes."""
    digest = checkout.publish()
    before = checkout.tags
    address, faults = flaky
    hanging = checkout._replace(registry=f"{address}/{checkout.registry.partition('/')[2]}")
    if after:  # the first tag is there: the next PUT is that of the alias
        registries.tag(f"{checkout.registry}/trainwright/tiny", digest, f"{ID}-2026.11.0")
    faults.hang = "PUT"
    child = subprocess.Popen(
        [Path(sys.executable).with_name("trainwright"), "release", "2026.11.0", ID],
        cwd=checkout.tree,
        env={**os.environ, "REGISTRY": hanging.registry},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert faults.hanging.wait(30)
    assert checkout.record("2026.11.0").exists() is bool(after)
    child.send_signal(signal.SIGKILL)
    child.wait(10)
    faults.hang = ""
    faults.over.set()
    assert ALIAS not in before
    checkout.release("2026.11.0")
    assert checkout.tags == before | {ALIAS: digest, f"{ID}-2026.11.0": digest}
    assert digest in checkout.record("2026.11.0").read_text()


# --- newer versions as a branch --------------------------------------------------------------------------------------


@pytest.fixture
def lagging(checkout: Checkout) -> Checkout:
    """Make a checkout whose pin and lock are older than upstream's newest version."""
    move_pip(checkout.tree)
    checkout.run("lock")
    git(checkout.tree, "config", "user.name", "A")
    git(checkout.tree, "config", "user.email", "a@example.com")
    commit(checkout.tree, "an older pip")
    (checkout.tree / "notes").write_text("mine, not committed\n")
    return checkout


def state(tree: Path) -> tuple[str, ...]:
    """Return everything that a command which makes a branch must leave unchanged."""
    return tuple(git(tree, *words.split()) for words in ("rev-parse HEAD", "status --porcelain", "worktree list"))


def test_newer_versions_come_as_a_branch(lagging: Checkout) -> None:
    before, words = state(lagging.tree), ("update", "--branch", "newer", "--pins", "pip")
    (forecast,) = lagging.run(*words, "--dry-run")
    (move,) = forecast["moves"]
    assert (move["name"], move["old"], move["state"]) == ("pip", ANOTHER_PIP, "moved")
    assert (forecast["commit"], git(lagging.tree, "branch", "--list", "newer")) == ("", "")
    (done,) = lagging.run(*words)
    assert state(lagging.tree) == before
    assert done["commit"] == git(lagging.tree, "rev-parse", "newer")
    assert git(lagging.tree, "rev-parse", "newer~1") == git(lagging.tree, "rev-parse", "HEAD")
    said = git(lagging.tree, "log", "-1", "--format=%B", "newer")
    assert f"pip: {ANOTHER_PIP} -> {move['new']}" in said
    files = set(git(lagging.tree, "diff", "--name-only", "HEAD", "newer").splitlines())
    assert files == {"dockerfiles/matrix.toml", f"dockerfiles/locks/{ID}.toml"}
    (image,) = done["images"]
    assert image["id"] == ID
    assert image["why"] == f"component pip wheel {ANOTHER_PIP} -> wheel {move['new']}"
    assert f"--- a/out/{ID}/Dockerfile" in done["diff"]
    assert f'+pip = "{move["new"]}"' in done["diff"]
    assert f'+version = "{move["new"]}"' in done["diff"]
    refused = lagging.run(*words, code=2)
    assert "the branch newer already exists" in refused["error"]
    git(lagging.tree, "checkout", "--quiet", "newer")
    assert {row["state"] for row in lagging.run("lock", "--check")} == {"current"}
    (row,) = lagging.run("plan", ID)
    assert row["key"] == image["new"]


def test_what_a_rule_refuses_is_said_and_makes_no_branch(lagging: Checkout) -> None:
    (lagging.tree / "dockerfiles/compat.toml").write_text(f"""\
[[rules]]
kind = "ban"
a = "pip"
a_range = ">{ANOTHER_PIP}"
severity = "refuse"
rule = "this pip needs a Python that nobody has"
evidence = "this test"
checked_on = 2026-11-21
""")
    (lagging.tree / "notes").unlink()
    commit(lagging.tree, "a rule")
    (done,) = lagging.run("update", "--branch", "newer", "--pins", "pip")
    (move,) = done["moves"]
    assert (move["state"], "needs a Python" in move["why"], done["commit"], done["images"]) == ("refused", True, "", [])
    assert git(lagging.tree, "branch", "--list", "newer") == ""


def test_ctrl_c_leaves_no_work_tree_and_no_branch(lagging: Checkout) -> None:
    before = state(lagging.tree)
    child = subprocess.Popen(
        [Path(sys.executable).with_name("trainwright"), "update", "--branch", "newer", "--pins", "pip"],
        cwd=lagging.tree,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr
    while line := child.stderr.readline():
        if "resolving" in line:
            break
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 130
    assert state(lagging.tree) == before
    assert git(lagging.tree, "branch", "--list", "newer") == ""
