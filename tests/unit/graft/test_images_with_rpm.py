"""Test grafts upon images with rpm, by a changed record of a look: what is refused, locked, installed and compared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.graft.records import Edit, edited, rendered, wanted

from trainwright.core.errors import LockError, NotRunError
from trainwright.graft import build, distribution, files, lock, verify
from trainwright.graft import plan as graft_plan
from trainwright.graft import recipe as graft_recipe
from trainwright.graft.files import Graft
from trainwright.graft.found import Found
from trainwright.graft.lock import Locked
from trainwright.image.inputs import Distribution
from trainwright.inspect import verify_published
from trainwright.lock import packages
from trainwright.lock.packages import Stanzas
from trainwright.lock.rpms import Rpm
from trainwright.matrix.matrix import Intent
from trainwright.matrix.model import Lock, Names
from trainwright.publish import sign
from trainwright.publish.sign import Place

AMAZON = {"ID": "amzn", "VERSION_ID": "2023", "PRETTY_NAME": "Amazon Linux 2023"}
ROCKY = {"ID": "rocky", "VERSION_ID": "9.6"}
HELD = [{"name": "glibc", "version": "2.34-1", "architecture": "x86_64"}]


def of_rpm(os: dict[str, str] = AMAZON, managers: tuple[str, ...] = ("dnf", "yum"), *more: str) -> Edit:
    def edit(record: dict[str, Any]) -> None:
        rows = [*HELD, *({"name": name, "version": "1-1", "architecture": "noarch"} for name in more)]
        versions = {row["name"]: row["version"] for row in rows}
        record["inside"].update(os=os, managers=list(managers), packages=versions, rpms=rows)

    return edit


def why(intent: Intent, edit: Edit, fabric: str = "none", target: str = "sagemaker") -> str:
    found = edited(edit)
    errors = graft_plan.refusals(found, graft_plan.plan(intent, found, wanted(intent, fabric, target)))
    assert all(isinstance(error, NotRunError) for error in errors), errors
    return errors[0].why if errors else ""


@pytest.mark.parametrize(
    ("edit", "fabric", "said"),
    [
        (of_rpm(), "distro", "the packages of libfabric, openmpi have no known name in amazonlinux 2023: add a line"),
        (of_rpm(ROCKY), "none", "the repositories of rocky 9.6 are not known: bases.toml has no base"),
        (of_rpm(AMAZON, ("microdnf",), "microdnf"), "none", "requires dnf 4 in the image, which has microdnf"),
        (of_rpm(AMAZON, ("dnf",), "microdnf"), "none", "requires dnf 4 in the image, which has microdnf"),
        (of_rpm(AMAZON, ("dnf",), "dnf5"), "none", "requires dnf 4 in the image, which has dnf5"),
    ],
    ids=["names", "repositories", "microdnf", "microdnf-as-dnf", "dnf5"],
)
def test_what_is_not_built_says_what_is_missing(intent: Intent, edit: Edit, fabric: str, said: str) -> None:
    assert said in why(intent, edit, fabric)


def test_what_is_built_upon_amazon_linux(intent: Intent) -> None:
    """layers/ has its names of a compiler, of OpenSSH and of what the EFA installer needs."""
    assert why(intent, of_rpm()) == ""
    assert why(intent, of_rpm(AMAZON, ("dnf",), "dnf", "dnf5"), "efa") == ""
    found = edited(of_rpm())
    recipe = graft_recipe.recipe(intent, found, wanted(intent, "efa", "sagemaker"), "pytorch-2.13-cpu", "pytorch")
    assert (recipe.base.manager, recipe.base.archives) == ("dnf", {"amazonlinux": []})
    assert recipe.variant.base == "amazonlinux-2023-graft"
    assert graft_recipe.tools(recipe) == ["gcc", "gcc-c++", "make", "python3.11-devel"]
    assert {"hwloc", "openssh-clients"} <= set(lock._names(recipe))


def with_openmpi(*names: str) -> Edit:
    def edit(record: dict[str, Any]) -> None:
        of_rpm(AMAZON, ("dnf",), *names)(record)
        record["inside"]["commands"]["openmpi"] = {"version": "4.1.7"}

    return edit


def test_an_open_mpi_of_another_name(intent: Intent) -> None:
    assert why(intent, with_openmpi("openmpi5-libs"), "efa") == ""
    assert "the image has an Open MPI that its package manager did not install" in why(intent, with_openmpi(), "efa")


def test_names_of_what_compiles_for_cuda(intent: Intent) -> None:
    """What only compile stages need counts as well: ccache has a name for all distributions alone."""

    def edit(record: dict[str, Any]) -> None:
        of_rpm()(record)
        record["inside"]["pythons"][0]["components"]["torch"]["version"] = "2.15.0+cu132"

    lacking = graft_plan.plan(intent, edited(edit), wanted(intent, "efa")).lacking
    assert "the packages of nccl-tests have no known name in amazonlinux 2023" in lacking[0]


def test_dnf_as_a_tool_does_not_make_it_an_image_with_rpm(intent: Intent) -> None:
    found = edited(lambda record: record["inside"].update(managers=["apt-get", "dnf"]))
    assert graft_recipe.base(intent, found).manager == "apt"
    assert graft_recipe.base(intent, edited(of_rpm(ROCKY))).manager == "dnf"


def test_a_record_of_before_rpms_were_listed_is_of_an_image_with_rpm(intent: Intent) -> None:
    found = edited(lambda record: record["inside"].update(os=ROCKY, managers=["dnf", "yum"]))
    assert graft_recipe.base(intent, found).manager == "dnf"


def test_a_package_that_is_there_twice_needs_one_of_its_versions(intent: Intent) -> None:
    recipe = grafted(intent)[1].inputs.recipe
    below = {"lib-1-1.x86_64": row("lib", "1-1", "4"), "lib-2-1.x86_64": row("lib", "2-1", "5")}
    distribution.must_keep(recipe, below, {"lib": row("lib", "1-1", "6")})
    with pytest.raises(LockError, match="needs lib 3-1") as raised:
        distribution.must_keep(recipe, below, {"lib": row("lib", "3-1", "6")})
    assert "the image has 1-1 and 2-1" in raised.value.why


def test_a_package_of_the_graft_is_kept_apart_under_whatever_name() -> None:
    """Two versions of a package have their version in the name."""
    below = {"lib": row("lib", "1-1", "4")}
    assert distribution.beyond_of({"lib-1-1.x86_64": row("lib", "1-1", "4")}, below) == {}


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ([], True),
        (["a"], False),
        ({"*": []}, True),
        ({"*": ["a"]}, False),
        ({"debian-*": ["a"]}, False),
        ({"amazonlinux-*": [], "*": ["a"]}, True),
        ({"amazonlinux-2023": ["b"], "*": ["a"]}, True),
    ],
)
def test_names_of_other_distributions(intent: Intent, said: Names, named: bool) -> None:
    found = edited(of_rpm())
    recipe = graft_recipe.recipe(intent, found, wanted(intent), "pytorch-2.13-cpu", "pytorch")
    assert graft_recipe._is_of_others(recipe, said) is not named


# --- the lock --------------------------------------------------------------------------------------------------------


def row(name: str, version: str, sha256: str = "") -> dict[str, str]:
    fields = {"Package": name, "Version": version, "Architecture": "noarch", "Archive": "amazonlinux"}
    return fields | {"Filename": f"{name}.rpm" if sha256 else "", "Size": "1", "SHA256": sha256 * 64}


GLIBC, SSH = {"glibc": row("glibc", "2.34-1")}, {"openssh": row("openssh", "1:9-1", "1")}
SOLVED: dict[str, Stanzas] = {
    "openssh": GLIBC | SSH,
    "gcc": GLIBC | SSH | {"gcc": row("gcc", "11-1", "2")},
    "old": {"glibc": row("glibc", "2.35-1", "3")},
}


@pytest.fixture
def solver(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stand in for dnf and for the fetching and verifying of packages."""
    told: dict[str, Any] = {"signed": [], "below": [], "image": set()}

    def solve(root: Path, base: object, names: list[str], below: Stanzas, image: str) -> tuple[str, Stanzas]:
        told["below"].append(sorted(below))
        told["image"].add(image)
        return "Sun, 22 Nov 2026 02:09:05 GMT", SOLVED[names[-1]] if names else GLIBC

    def signed(intent: Intent, base: str, rows: Stanzas, image: str, *_: object) -> Stanzas:
        told["signed"].append(sorted(name for name in rows if rows[name]["SHA256"]))
        return rows

    monkeypatch.setattr(distribution, "rpms_of", solve)
    monkeypatch.setattr(distribution, "with_signatures", signed)
    return told


def resolved(
    intent: Intent, names: list[str], tools: list[str], pinned: str = ""
) -> tuple[distribution.Resolved, distribution.Resolved | None]:
    found = edited(of_rpm())
    found = found.model_copy(update={"pinned": pinned} if pinned else {})
    recipe = graft_recipe.recipe(intent, found, wanted(intent), "pytorch-2.13-cpu", "pytorch")
    progress: Callable[..., None] = lambda *_: None  # noqa: E731
    return distribution.resolved(recipe, found, names, tools, lambda _: None, progress)


def test_what_only_compile_stages_need_is_kept_apart_and_signed(intent: Intent, solver: dict[str, Any]) -> None:
    whole, more = resolved(intent, ["openssh"], ["gcc"])
    assert more is not None
    assert (sorted(whole.stanzas), sorted(more.stanzas)) == (["glibc", "openssh"], ["gcc"])
    assert solver["signed"] == [["openssh"], ["gcc"]]
    assert solver["below"] == [[], ["glibc", "openssh"]]
    assert solver["image"] == {"team.example/train@sha256:" + "a" * 64}
    whole, more = resolved(intent, [], ["gcc"], "sha256:1")  # no registry has the image, so the engine's name is used
    assert (sorted(whole.stanzas), more and sorted(more.stanzas)) == (["glibc"], ["gcc", "openssh"])
    assert "team.example/train:1" in solver["image"]
    assert resolved(intent, [], []) == (distribution.Resolved("", {}), None)


def test_compile_stages_that_need_another_version_are_refused(intent: Intent, solver: dict[str, Any]) -> None:
    with pytest.raises(LockError, match=r"needs glibc 2\.35-1") as raised:
        resolved(intent, ["openssh"], ["old"])
    assert raised.value.fix == "update glibc in the image: dnf upgrade glibc"


# --- the image -------------------------------------------------------------------------------------------------------


def of_packages(rows: Stanzas) -> Distribution:
    text = packages.dump({"Intent": "0", "Date": "Sun, 22 Nov 2026 02:09:05 GMT"}, rows)
    return lock._distribution(text, 0)


def grafted(intent: Intent) -> tuple[Found, Graft]:
    found, asked = edited(of_rpm()), wanted(intent, "efa")
    made = graft_plan.plan(intent, found, asked)
    recipe = graft_recipe.recipe(intent, found, asked, made.id, made.framework)
    names = [name for pin in recipe.pins for name in recipe.packages(recipe.provider(pin).packages)]
    rows = GLIBC | {name: row(name, "2-1", "4") for name in names}
    own = Locked(Lock(intent="0" * 64, entries="0" * 64, python=[]), of_packages(rows), None)
    return found, files.graft(recipe, found, made, own)


def test_the_files_of_packages_are_installed_without_network(intent: Intent) -> None:
    text = grafted(intent)[1].inputs.text["Dockerfile"]
    step = next(one for one in text.split("RUN ") if "dnf install" in one)
    assert step.startswith("--network=none --mount=type=bind,from=packages")
    assert "--disablerepo='*'" in step
    assert "        ./openssh-server.rpm \\\n" in step
    assert "glibc" not in step
    assert "apt-get" not in text
    assert "dnf" not in rendered(intent, of_rpm()).inputs.text["Dockerfile"]  # nothing of the distribution is added


def test_rpms_list_must_be_the_locks(intent: Intent) -> None:
    found, one = grafted(intent)
    held = [
        Rpm(name=name, version=said["Version"], architecture="noarch")
        for name, said in one.inputs.distribution.locked.items()
    ]
    assert found.inside

    def differ(rows: list[Rpm]) -> list[str]:
        assert found.inside
        return list(build._packages(found.inside, found.inside.model_copy(update={"rpms": rows}), one))

    assert differ(held) == []
    (lost,) = differ([row for row in held if row.name != "openssh-server"])
    assert lost == "rpm package openssh-server: the lock says 2-1 noarch, the image holds nothing"
    (other,) = differ([row.model_copy(update={"architecture": "i686"}) if row.name == "glibc" else row for row in held])
    assert "the image holds 2.34-1 i686" in other


def test_an_sbom_has_rpms_names(intent: Intent) -> None:
    found, one = grafted(intent)
    keys = {
        f"gpg-pubkey-{name}.(none)": row(f"gpg-pubkey-{name}.(none)", name) | {"Name": "gpg-pubkey"}
        for name in ("1-a", "2-b")
    }
    twice = {
        f"kernel-{name}.noarch": row(f"kernel-{name}.noarch", name) | {"Name": "kernel"} for name in ("5-1", "6-1")
    }
    whole = one.inputs.distribution.locked | keys | twice
    assert verify.wanted_packages(of_packages(whole), found) == {
        **{name: said["Version"] for name, said in one.inputs.distribution.locked.items()},
        "kernel": "5-1 and 6-1",
    }
    before = (
        found.inside.model_copy(update={"packages": {"glibc": "2.34-1", "gpg-pubkey": "1-a and 2-b"}})
        if found.inside
        else None
    )
    alone = found.model_copy(update={"inside": before})
    assert verify.wanted_packages(of_packages({}), alone) == {"glibc": "2.34-1"}
    assert list(verify._missing("package", {"kernel": "5-1 and 6-1"}, {"kernel": "6-1"})) == [
        "package kernel: the graft has 5-1 and 6-1, the SBOM 6-1"
    ]
    assert list(verify._missing("package", {"kernel": "5-1 and 6-1"}, {"kernel": "5-1 and 6-1 and 7-1"})) == []


def test_an_sbom_of_rpms_is_counted_as_one(intent: Intent, monkeypatch: pytest.MonkeyPatch) -> None:
    _, one = grafted(intent)
    rows = [{"name": name, "version": "1", "purl": f"pkg:{name}@1"} for name in ("rpm/mini/a", "rpm/mini/b", "deb/c")]
    bill = {"components": rows}
    monkeypatch.setattr(sign, "attested", lambda *_: ([{"predicate": bill}], ""))
    here = verify_published.Known(one.inputs, "", (), lambda *_: [], lambda *_: "")
    place = Place("127.0.0.1:1/a", "sha256:1", True)
    assert verify_published._sbom(here, place, "") == "2 distribution and 0 Python packages, as locked"
