"""Run git in a test's folder, and commit all files of it."""

import os
import subprocess
from pathlib import Path


def git(tree: Path, *words: str, **environment: str) -> str:
    """Run git in a folder, with an author; return its output."""
    author = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    command, env = ["git", *author, "-C", str(tree), *words], {**os.environ, **environment}
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.strip()


def commit(tree: Path, message: str = "more") -> str:
    """Commit all files of a repository; return the commit."""
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", message)
    return git(tree, "rev-parse", "HEAD")


def begin(tree: Path) -> str:
    """Make a repository of a folder, with all of its files in one commit; return the commit."""
    git(tree, "init", "--quiet")
    return commit(tree, "as it was")
