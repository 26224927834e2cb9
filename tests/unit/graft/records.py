"""Provide the recorded look into a Debian image with PyTorch, and changes of it."""

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from trainwright.build import state
from trainwright.core.files import write
from trainwright.graft import files, lock, recorded
from trainwright.graft import found as graft_found
from trainwright.graft import plan as graft_plan
from trainwright.graft import recipe as graft_recipe
from trainwright.graft.files import Graft
from trainwright.graft.found import Fabric, Found, Target
from trainwright.graft.lock import Locked
from trainwright.graft.plan import Plan
from trainwright.graft.wanted import File, Wanted
from trainwright.image.inputs import Distribution
from trainwright.matrix.matrix import Intent
from trainwright.matrix.model import Group, Lock, PythonFile
from trainwright.matrix.records import GRAFT, Image

RECORD = json.loads((Path(__file__).parent / "debian.json").read_text())
Edit = Callable[[dict[str, Any]], object]


def edited(edit: Edit) -> Found:
    record = copy.deepcopy(RECORD)
    edit(record)
    return Found.model_validate(record)


def unchanged(record: dict[str, Any]) -> None:
    pass


def wanted(intent: Intent, fabric: str = "none", target: str = "ec2", **more: Any) -> Wanted:
    return Wanted(
        target=cast(Target, target),
        fabric=cast(Fabric, fabric),
        architecture="amd64",
        settings=graft_found.settings(intent.root),
        compat=intent.compat,
        plugin=graft_plan.newest_plugin(intent),
        **more,
    )


def env(**values: str) -> Edit:
    return lambda record: record["config"]["environment"].update(values)


def config(**values: Any) -> Edit:
    return lambda record: record["config"].update(values)


def inside(**values: Any) -> Edit:
    return lambda record: record["inside"].update(values)


def first_python(**values: Any) -> Edit:
    return lambda record: record["inside"]["pythons"][0].update(values)


def there(**kinds: str) -> Edit:
    return lambda record: record["inside"]["paths"].update({name.replace("_", "/"): one for name, one in kinds.items()})


def library(**values: Any) -> Edit:
    row = {"component": "openmpi", "sha256": "1" * 64, "names": []}
    return lambda record: record["inside"]["libraries"].update({"/usr/lib/libmpi.so": {**row, **values}})


NOTHING = Distribution(intent="", epoch=0, locked={}, effective={}, drift=[], unmet=None)
LOCKED = Locked(Lock(intent="0" * 64, entries="0" * 64, python=[]), NOTHING, None)


def planned(intent: Intent, edit: Edit) -> tuple[Found, Plan]:
    found = edited(edit)
    return found, graft_plan.plan(intent, found, wanted(intent))


def rendered(intent: Intent, edit: Edit = unchanged) -> Graft:
    found, made = planned(intent, edit)
    recipe = graft_recipe.recipe(intent, found, wanted(intent), made.id, made.framework)
    return files.graft(recipe, found, made, LOCKED)


ID = "pytorch-2.13-cpu-py311-ec2-team"
TOOLKIT = "sagemaker-training"
DIGEST = f"sha256:{'5' * 64}"
REPOSITORY = "111122223333.dkr.ecr.us-east-1.amazonaws.com/trainwright/pytorch"


def packages(names: Sequence[str], group: Group = "added") -> list[PythonFile]:
    return [
        PythonFile(name=name, version="1", file=f"{name}-1-py3-none-any.whl", sha256="c" * 64, size=1, group=group)
        for name in names
    ]


def grafted(
    intent: Intent, folder: Path, target: str = "ec2", pushed: bool = True, file: File | None = None
) -> tuple[Intent, Graft]:
    """Make a folder with this project's declarations and a graft named team in out/; return intent and graft.

    With a file, its lines are locked in version 1, with one more package that they need.
    """
    if not (folder / "dockerfiles").exists():
        (folder / "dockerfiles").symlink_to(intent.root / "dockerfiles")
    here = intent.model_copy(update={"root": folder})
    found, asked = edited(env(HF_TOKEN="hf_0123456789abcdefghij")), wanted(here, target=target, file=file)
    made = graft_plan.plan(here, found, asked, "team")
    recipe = graft_recipe.recipe(here, found, asked, made.id, made.framework)
    toolkit = PythonFile(name=TOOLKIT, version="1", file="a.whl", sha256="b" * 64, size=1, group="toolkit")
    python = [toolkit] if target == "sagemaker" else []
    if file:
        python += [*packages([*(line.name for line in file.asked.lines), "needed"]), *packages(["uv"], "tools")]
    intent_ = lock._intent(recipe, found, file)
    locked = LOCKED._replace(lock=LOCKED.lock.model_copy(update={"intent": intent_, "python": python}))
    one, out = files.graft(recipe, found, made, locked), folder / "out" / made.id
    lock._write(out, locked, locked.lock.intent)
    recorded.write_down(found, asked, made, out)
    uri = f"{REPOSITORY}@{DIGEST}"
    said = {"id": one.id, "key": one.key, "image": one.name, "base": found.pinned, "lower_layers": 8, "added_layers": 1}
    said |= {"nccl_before": [], "nccl_after": [], "checked": "", "requirements": file.path if file else ""}
    image = Image(id=one.id, key=one.key, versions=one.inputs.versions)
    if pushed:
        said |= {"digest": DIGEST, "uri": uri}
        image = image.model_copy(update={"digest": DIGEST, "uri": uri, "uris": [uri]})
    write(out / GRAFT, json.dumps(said))
    state.write_image(out, image)
    return here, one
