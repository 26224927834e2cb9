"""Test that a graft of this checkout is an image like any other: its files say what it is made of, and its address."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.graft.records import DIGEST, ID, REPOSITORY, edited, grafted, unchanged

from trainwright.commands import options
from trainwright.core.errors import ConfigError, LockError, NotRunError
from trainwright.core.files import write
from trainwright.docker import engine
from trainwright.gate import run as gate
from trainwright.graft import build, recorded, results
from trainwright.image import tags
from trainwright.inspect import derive, diff, explain, parent, verify_child
from trainwright.jobs import emit, launch
from trainwright.matrix.matrix import Intent
from trainwright.matrix.records import GRAFT
from trainwright.publish import twins, uri
from trainwright.registry import client

URI = f"{REPOSITORY}@{DIGEST}"

Cli = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for a checkout, where no engine answers."""
    monkeypatch.setattr(engine, "answers", lambda: False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print(1)\n")
    return tmp_path


def test_its_inputs_are_computed_again_without_the_image_below(intent: Intent, folder: Path) -> None:
    here, one = grafted(intent, folder)
    again = recorded.recorded(here, ID)
    assert again
    assert recorded.inputs(here, again).key == one.key
    assert [result.id for result in results.results(folder)] == [ID]
    assert results.table(folder) == [{"graft": ID, "upon": again.found.pinned, "published": URI}]


def test_no_secret_of_the_image_is_written_down(intent: Intent, folder: Path) -> None:
    here, _ = grafted(intent, folder)
    assert not [path for path in (folder / "out" / ID).iterdir() if b"hf_0123456789abcdefghij" in path.read_bytes()]
    again = recorded.recorded(here, ID)
    assert again
    assert again.found.config.environment["HF_TOKEN"] == "***"


@pytest.mark.parametrize("name", ["", ".", "..", "../out", "pytorch-2.13-cpu-py311-sagemaker", "no-such"])
def test_other_names_are_not_found_among_the_grafts(intent: Intent, folder: Path, name: str) -> None:
    here, _ = grafted(intent, folder)
    assert recorded.recorded(here, name) is None


def test_a_graft_of_another_version_and_a_damaged_file(intent: Intent, folder: Path) -> None:
    here, _ = grafted(intent, folder)
    file = folder / "out" / ID / recorded.SEEN
    file.write_text("{}")
    assert recorded.recorded(here, ID) is None
    with pytest.raises(LockError, match="not recorded"):
        recorded.must(here, ID)
    file.write_text('{"found": ')
    with pytest.raises(ConfigError) as error:
        recorded.recorded(here, ID)
    assert error.value.fix == f"rm out/{ID}/{recorded.SEEN}, and graft again"


def test_a_lock_of_another_image_below(intent: Intent, folder: Path) -> None:
    here, _ = grafted(intent, folder)
    file = folder / "out" / ID / "graft.lock.toml"
    file.write_text(file.read_text().replace('intent = "', 'intent = "0'))
    one = recorded.recorded(here, ID)
    assert one
    with pytest.raises((LockError, ConfigError)):
        recorded.inputs(here, one)
    file.unlink()
    with pytest.raises(LockError, match="missing or stale"):
        recorded.inputs(here, one)
    lines = list[str]()
    assert list(recorded.contents(here, lines.append)) == []  # so `find` leaves it out, and says so
    assert lines == [f"not looked into: {ID}: the lock of {ID} is missing or stale"]
    (folder / "out" / ID / recorded.SEEN).write_text('{"found": ')
    assert list(recorded.contents(here, lines.append)) == []
    assert lines[1].startswith(f"not looked into: {ID}: ")
    (folder / "out" / ID / recorded.SEEN).unlink()
    assert list(recorded.contents(here, lines.append)) == []
    assert lines[2] == f"not looked into: {ID}: what {ID} is made of is not recorded"


def test_a_damaged_result_hides_no_other(intent: Intent, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grafted(intent, folder)
    other = folder / "out/a-damaged-one"
    other.mkdir()
    (other / GRAFT).write_text('{"id": ')
    for _ in range(2):  # a command that asks twice says it once
        assert [one.id for one in results.results(folder)] == [ID]
    assert recorded.identity_of(folder, URI) == ID
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"out/a-damaged-one/{GRAFT}" in said
    with pytest.raises(ConfigError):
        results.read_result(other)


def test_what_names_it(intent: Intent, folder: Path) -> None:
    _, one = grafted(intent, folder)
    for name in (URI, f"{REPOSITORY}:{one.tag}"):
        assert recorded.identity_of(folder, name) == ID
    for name in (f"{REPOSITORY}:other", f"{REPOSITORY}@sha256:{'6' * 64}", "x"):
        assert recorded.identity_of(folder, name) == ""


def twinned(folder: Path, file: str) -> str:
    """Record a zstd twin of the graft, in graft.json or in twin.json; return its address."""
    twin, out = f"sha256:{'7' * 64}", folder / "out" / ID
    if file == GRAFT:
        write(out / GRAFT, json.dumps({**json.loads((out / GRAFT).read_text()), "twin": f"{REPOSITORY}@{twin}"}))
    else:
        write(out / file, twins.Record(image=DIGEST, twins={REPOSITORY: twin}).model_dump_json())
    return f"{REPOSITORY}@{twin}"


@pytest.mark.parametrize("file", [GRAFT, "twin.json"])
def test_its_twin_names_it(intent: Intent, folder: Path, file: str) -> None:
    grafted(intent, folder)
    assert recorded.identity_of(folder, twinned(folder, file)) == ID
    assert recorded.identity_of(folder, f"{REPOSITORY}@") == ""


def test_its_twin_is_not_for_sagemaker(intent: Intent, folder: Path) -> None:
    here, one = grafted(intent, folder, "sagemaker")
    twin = f"{REPOSITORY}@sha256:{'7' * 64}"
    words = {"instance": "ml.c5.xlarge", "hosts": 1, "role": "arn:aws:iam::111122223333:role/train"}
    twins.record(one.inputs.recipe, REPOSITORY, DIGEST, twin.partition("@")[2])
    (folder / "out" / one.id / recorded.SEEN).unlink()  # even if what it is made of is not known any more
    with pytest.raises(ConfigError, match="SageMaker does not pull the zstd twin"):
        launch.prepare(here.root, twin, Path("code/train.py"), [], output="s3://bucket-of-ours/jobs", **words)  # type: ignore[arg-type]


def test_its_address_and_what_starts_from_it(intent: Intent, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, one = grafted(intent, folder)
    (found,) = uri.uris(folder, ID, "", "", "", by_digest=True)
    assert (found.uri, found.tag, found.region) == (URI, one.tag, "us-east-1")
    assert uri.uris(folder, ID, "", "", "", by_digest=False)[0].uri == f"{REPOSITORY}:{one.tag}"
    labels = {tags.ID_LABEL: ID, tags.KEY_LABEL: one.key, tags.PYTHON_LABEL: one.python}
    monkeypatch.setattr(client, "config", lambda *_: {"config": {"Labels": labels, "User": "1000"}})
    assert verify_child._checkout(here, ID, one.key) == "this checkout made the parent"
    assert verify_child._checkout(here, ID, "1" * 64) == f"this checkout made another {ID}"
    assert verify_child._checkout(here, f"{ID}s", one.key) == f"this checkout does not know {ID}s"
    above = parent.parent_of(here, ID, "")
    assert (above.id, above.key, above.uri) == (ID, one.key, URI)
    assert (above.python, above.user) == (one.python, "1000")
    assert derive.write_project(folder / "project", "mine", above)
    with pytest.raises(NotRunError, match="no digest to start from"):
        parent.parent_of(here, ID, "registry.example.com")
    with pytest.raises(ConfigError, match="unknown image"):
        uri.uris(folder, "pytorch-2.13-cpu-py311-ec2-nobody", "", "", "", by_digest=True)


def test_what_was_not_pushed_starts_nowhere_else(intent: Intent, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, one = grafted(intent, folder, pushed=False)
    with pytest.raises(NotRunError, match="no digest to start from"):
        parent.parent_of(here, ID, "")
    for on in ("slurm", "docker"):
        with pytest.raises(NotRunError) as error:
            gate.subject(folder, ID, on)
        assert error.value.fix.startswith("trainwright graft IMAGE --push")
    monkeypatch.setattr(engine, "answers", lambda: True)
    monkeypatch.setattr(engine, "image_id", lambda name: "sha256:1" if name == one.name else None)
    assert gate.subject(folder, ID, "docker").reference == one.name == tags.name_here(ID, one.key)
    with pytest.raises(NotRunError):
        gate.subject(folder, ID, "slurm")


def test_a_gate_of_it(intent: Intent, folder: Path) -> None:
    grafted(intent, folder)
    what = gate.subject(folder, ID, "slurm")
    assert what.reference == URI
    assert what.pins["torch"] == "2.13.0+cpu"


@pytest.mark.parametrize("image", [ID, URI])
def test_a_job_of_it_for_a_scheduler(intent: Intent, folder: Path, image: str) -> None:
    """It is known to need no instance type, and what starts its ranks."""
    grafted(intent, folder)
    job, said = emit.job(folder, image, "code/train.py", [], on="slurm", nodes=2)
    assert (job.image, job.distribution) == (URI, "torchrun")
    assert "no --instance" in " ".join(said)
    with pytest.raises(ConfigError, match="does not support tensorflow"):
        emit.job(folder, image, "code/train.py", [], on="slurm", nodes=2, distribution="tensorflow")


@pytest.mark.parametrize("by_id", [True, False])
def test_a_job_of_it_on_sagemaker(intent: Intent, folder: Path, by_id: bool) -> None:
    _, one = grafted(intent, folder, "sagemaker")
    words = {"instance": "ml.c5.xlarge", "hosts": 2, "role": "arn:aws:iam::111122223333:role/train"}
    image = one.id if by_id else URI
    job = launch.prepare(folder, image, Path("code/train.py"), [], output="s3://bucket-of-ours/jobs", **words)  # type: ignore[arg-type]
    assert (job.submission.image, job.region) == (URI, "us-east-1")
    assert job.submission.hyperparameters["sagemaker_torch_distributed_enabled"] is True
    assert "contents of" not in " ".join(job.notes)


@pytest.mark.parametrize("image", [ID, URI])
def test_one_for_ec2_is_not_for_sagemaker(intent: Intent, folder: Path, image: str) -> None:
    grafted(intent, folder)
    words = {"instance": "ml.c5.xlarge", "hosts": 1, "role": "arn:aws:iam::111122223333:role/train"}
    with pytest.raises(ConfigError, match="is not for SageMaker") as error:
        launch.prepare(folder, image, Path("code/train.py"), [], output="s3://bucket-of-ours/jobs", **words)  # type: ignore[arg-type]
    assert error.value.fix == f"trainwright graft {edited(unchanged).pinned} --target sagemaker"


def test_what_takes_rows_of_the_matrix_says_what_takes_a_graft(
    intent: Intent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = grafted(intent, folder)
    monkeypatch.setattr(options, "find_root", lambda: here.root)
    with pytest.raises(ConfigError, match="is a graft, and this command takes images of the matrix") as error:
        options.asked_for(None, [ID])
    assert f"trainwright derive {ID} --into DIR" in error.value.fix
    with pytest.raises(ConfigError, match="is a graft, whose packages are added where it is made") as error:
        options.asked_for(None, [ID], Path("more packages.txt"), "team")
    below = edited(unchanged).reference
    words = "--target ec2 --fabric none --name team --with 'more packages.txt'"
    assert error.value.fix == f"trainwright graft {below} {words}"
    with pytest.raises(ConfigError, match="no image matches"):
        options.chosen(None, ["../out"])


def test_an_image_of_the_matrix_with_the_id_of_an_older_graft_is_that_image(
    cli: Cli, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "pytorch-2.13-cpu-py311-sagemaker"
    (tree / "out" / own).mkdir(parents=True, exist_ok=True)
    (tree / "out" / own / GRAFT).write_text("{}")
    monkeypatch.setattr(options, "find_root", lambda: tree)
    assert [recipe.id for recipe in options.asked_for(None, [own])[1]] == [own]
    ended = cli(tree, "explain", own, "--json")
    assert (ended.code, ended.err) == (0, "")


def test_what_decides_its_versions(intent: Intent, folder: Path) -> None:
    here, _ = grafted(intent, folder)
    one = recorded.recorded(here, ID)
    assert one
    own = recorded.inputs(here, one).inputs
    rows = explain.explain(one.recipe, own.lock, own.distribution.packages(), {}, one.decided)
    (torch,) = (row for row in rows if row.component == "torch")
    assert (torch.version, torch.declared) == ("2.13.0+cpu", "the image below")
    assert f"{torch.resolved}@{torch.digest}" == one.found.pinned


def test_a_difference_to_what_is_only_in_the_engine(
    intent: Intent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, one = grafted(intent, folder, pushed=False)
    with pytest.raises(ConfigError, match="is not an image"):
        diff._side(here, ID, "", "")
    monkeypatch.setattr(engine, "answers", lambda: True)
    monkeypatch.setattr(engine, "image_id", lambda name: "sha256:1" if name == one.name else None)
    monkeypatch.setattr(engine, "labels", lambda _: {tags.ID_LABEL: ID, tags.KEY_LABEL: one.key})
    monkeypatch.setattr(engine, "config", lambda _: {})
    monkeypatch.setattr(engine, "layers", lambda _: [])
    side = diff._side(here, ID, "", "")
    assert (side.said, side.name, side.key) == (ID, one.name, one.key)


def test_an_image_that_left_the_matrix_is_unknown(intent: Intent, folder: Path) -> None:
    """Its image.json is still there; only a graft has a graft.json beside it."""
    here, _ = grafted(intent, folder)
    (folder / "out" / ID / GRAFT).unlink()
    with pytest.raises(ConfigError, match="unknown image"):
        gate.subject(folder, ID, "slurm")
    with pytest.raises(ConfigError, match="neither an image of the matrix"):
        parent.parent_of(here, ID, "")


def test_a_result_of_other_inputs_does_not_stay(intent: Intent, folder: Path) -> None:
    here, one = grafted(intent, folder)
    out = folder / "out" / ID
    build.lay_out(one, out)
    assert results.read_result(out)
    file = out / "image.json"
    file.write_text(file.read_text().replace(one.key, "1" * 64))
    build.lay_out(one, out)
    assert not file.exists()
    assert results.read_result(out) is None
    assert list(results.results(here.root)) == []
