"""Provide the recorded look into a Debian image with PyTorch, and changes of it."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from trainwright.graft import files
from trainwright.graft import found as graft_found
from trainwright.graft import plan as graft_plan
from trainwright.graft import recipe as graft_recipe
from trainwright.graft.files import Graft
from trainwright.graft.found import Fabric, Found, Target
from trainwright.graft.lock import Locked
from trainwright.graft.plan import Plan
from trainwright.graft.wanted import Wanted
from trainwright.image.inputs import Distribution
from trainwright.matrix.matrix import Intent
from trainwright.matrix.model import Lock

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
