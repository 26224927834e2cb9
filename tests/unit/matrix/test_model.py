"""Test image.json: the project has its schema, and what we write matches it."""

import json
from pathlib import Path

import jsonschema
import pytest

from trainwright.build.state import read_image, write_image
from trainwright.core.errors import ConfigError
from trainwright.matrix.records import Check, Drift, Image, Proof

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/image.schema.json").read_text())
SAMPLE = Image(
    id="pytorch-2.13-cpu-py311-sagemaker",
    key="a" * 64,
    digest="sha256:" + "d" * 64,
    uri="127.0.0.1:5000/trainwright/pytorch@sha256:" + "d" * 64,
    tags=["v1"],
    size=1,
    versions={"torch": "2.13.0+cpu"},
    packages={"git": "1"},
    drift=[Drift(package="git", locked="1", used="2")],
    proof=Proof(image="sha256:1", probe=Check(state="passed"), tests=Check(state="not run")),
)


def test_the_schema_in_docs_is_the_one_in_use() -> None:
    assert Image.model_json_schema() == SCHEMA


@pytest.mark.parametrize("sample", [SAMPLE, Image(id="a", key="b")])
def test_what_is_written_fits_and_is_read_back(sample: Image, tmp_path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    write_image(tmp_path, sample)
    written = json.loads((tmp_path / "image.json").read_text())
    jsonschema.validate(written, SCHEMA)
    assert written.keys() >= {"id", "key", "digest", "uri", "size", "versions", "drift"}
    assert written["schema"] == 1
    assert read_image(tmp_path) == sample


@pytest.mark.parametrize("wrong", [{"drift": "none"}, {"surprise": 1}, {"size": "big"}])
def test_what_does_not_fit_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(SAMPLE.to_json() | wrong, SCHEMA)


def test_no_image_json(tmp_path: Path) -> None:
    assert read_image(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "\n[1,"])
def test_a_damaged_image_json_is_refused(tmp_path: Path, text: str) -> None:
    """Not taken for one that is not there: it may say where the image was pushed."""
    (tmp_path / "image.json").write_text(text)
    with pytest.raises(ConfigError, match="is not valid JSON") as raised:
        read_image(tmp_path)
    assert raised.value.where == f"out/{tmp_path.name}/image.json:{text.count(chr(10)) + 1}"
    assert raised.value.fix.startswith(f"rm -r out/{tmp_path.name}/image.json")


@pytest.mark.parametrize("text", ['{"id": "a"}', '{"id": "a", "key": "b", "of_another_version": 1}'])
def test_image_json_of_another_version_is_made_anew(tmp_path: Path, text: str) -> None:
    """It is our own output: what another version wrote is as good as not there."""
    (tmp_path / "image.json").write_text(text)
    assert read_image(tmp_path) is None
