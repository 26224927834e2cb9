"""Make releases: immutable tags, a record in dockerfiles/releases/, and last the alias of each image, which moves."""

import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

from trainwright.build.state import known_image, out_folder, read_image, write_image
from trainwright.core import checkout, project
from trainwright.core.errors import (
    ConfigError,
    IncompatibleError,
    NotRunError,
    RegistryError,
    TrainwrightError,
    collected,
    did_you_mean,
    refuse_all,
)
from trainwright.core.files import write
from trainwright.core.progress import Say
from trainwright.core.toml import Model
from trainwright.gate import passed
from trainwright.image import changes, inputs
from trainwright.image import tags as image_names
from trainwright.image.inputs import Inputs
from trainwright.lock import lockfile
from trainwright.matrix.matrix import Intent, Recipe, globs, load_intent
from trainwright.matrix.records import Check
from trainwright.publish import attest, release_records, twins
from trainwright.publish.refusals import gated, refuse_drift
from trainwright.publish.release_records import FOLDER, Shipped, Train
from trainwright.publish.sign_probed import PROBED_FIRST, attested, probed_here
from trainwright.registry import client
from trainwright.registry.retry import Refused, Wrong

PROOFS = ("dockerfiles/proofs", passed.FOLDER)  # written after a build about it; not an input


class Step(Model):
    """The actual or planned result for one image."""

    id: str
    release: str
    registry: str
    action: str
    digest: str
    why: str


def release(
    intent: Intent, recipes: list[Recipe], name: str, hosts: list[str], dry_run: bool, say: Say, waiver: str = ""
) -> list[Step]:
    """Prove all, sign the unsigned, tag all, write the record, and last move the aliases, in every registry of `hosts`.

    In this order, the same command completes a release that was interrupted. Raises before anything is written, all
    errors at once (Refusals): ConfigError (the name, the tree), IncompatibleError (a patch with more than security
    updates), NotRunError (not published, no key though one is needed), LockError (blocked), RegistryError (drift, a tag
    that is taken, registries that hold different images).
    """
    patch, records = release_records.version(name).micro, release_records.known(intent.root)
    record, commit, refused = records.get(name), "", list[TrainwrightError]()
    with collected(refused):
        commit = _clean(intent.root)
    with collected(refused):
        _refuse_additions(intent.root, record, recipes)
    found = {recipe.id: one for recipe in recipes if (one := _loaded(recipe, refused))}
    shipped = _all_proved(found, name, hosts, record, waiver, refused, say)
    if patch:
        with collected(refused):
            _refuse_more_than_security([one.recipe for one in found.values()], name, records, say)
    unsigned = dict[tuple[str, str], str]()  # (image, host) to why
    with collected(refused):
        attest.must_be_possible(intent.root, "release")
        for (identity, image), host in product(shipped.items(), hosts):
            one = found[identity]
            if names := attest.lacking(one, f"{host}/{image.repository}", image.digest):
                held = known_image(one, out_folder(one.recipe))
                first = "" if probed_here(held, image.digest) else f"; {PROBED_FIRST}"
                unsigned[identity, host] = f"not signed by the key yet: {', '.join(names)}{first}"
    for (identity, image), host in product(shipped.items(), hosts) if not refused else ():
        with collected(refused):
            _refuse_stale_alias(identity, image, name, host, records)
    refuse_all(f"nothing was released as {name}", refused)
    today = datetime.now(UTC).date().isoformat()
    old = record or Train(name=name, date=today, commit=commit, images={})
    new = old.model_copy(update={"images": old.images | shipped})
    records[name] = new
    signed = [
        _signed(found[identity], shipped[identity], name, host, why, dry_run, say)
        for (identity, host), why in unsigned.items()
    ]
    if not dry_run:
        for recipe in recipes:
            _note_gate(recipe, shipped[recipe.id])
        for (identity, image), host in product(shipped.items(), hosts):
            repository, tag = f"{host}/{image.repository}", image_names.release_tag(identity, name)
            client.tag(repository, image.digest, tag)
            if twin := _twin(identity, image, name, host):
                attest.sign_twin(found[identity], repository, twin, say)
                client.tag(repository, twin, image_names.twin_tag(tag))
        if new != record:
            write(project.place(intent.root / FOLDER / f"{name}.toml"), release_records.dump(new))
    return signed + [
        _aliased(identity, image, name, records, host, dry_run)
        for (identity, image), host in product(shipped.items(), hosts)
    ]


def released(root: Path, name: str, images: Sequence[str]) -> dict[str, Shipped]:
    """Return the images of a release that match one of the globs.

    Raises ConfigError if the release or the image is not recorded.
    """
    records = release_records.known(root)
    if name not in records:
        raise ConfigError(f"release {name!r} does not exist", why=did_you_mean(name, records), fix=f"ls {FOLDER}")
    found = {
        identity: image
        for identity, image in records[name].images.items()
        if any(fnmatchcase(identity, glob) for glob in globs(images))
    }
    if not found:
        asked = " ".join(globs(images))
        raise ConfigError(f"{name} has no image {asked!r}", why=did_you_mean(asked, records[name].images))
    return found


def rollback(root: Path, name: str, images: Sequence[str], hosts: list[str], dry_run: bool) -> list[Step]:
    """Point aliases at the digests that a release names; its tags, and those of other releases, stay.

    Raises ConfigError if the release or the image is not recorded, RegistryError if the registry holds something else
    than the record names; no alias has moved then.
    """
    found = released(root, name, images)
    for (identity, image), host in product(found.items(), hosts):
        repository, tag = f"{host}/{image.repository}", image_names.release_tag(identity, name)
        client.manifest(repository, image.digest)
        _refuse_stale_alias(identity, image, name, host)
        if (held := client.resolve(repository, tag)) != image.digest:
            raise RegistryError(
                f"{identity} in the registry is not what {name} released; no alias was moved",
                where=f"{repository}:{tag}",
                why=f"the record names {image.digest}; the tag {f'names {held}' if held else 'does not exist'}",
                fix=f"git log -- {FOLDER}/{name}.toml",
            )
    return [
        _moved(identity, image, name, host, dry_run, "by request")
        for (identity, image), host in product(found.items(), hosts)
    ]


def _clean(root: Path) -> str:
    """Return the commit of the checkout. Raises ConfigError if the tree has uncommitted changes."""
    if files := checkout.uncommitted(root, FOLDER):
        raise ConfigError(
            f"the tree is not clean: {', '.join(files[:3])}{' and others' if len(files) > 3 else ''}",
            why="a release records the commit that defines its contents",
            fix="git status; commit the changes that belong to the release, or stash them",
        )
    return checkout.commit_of(root, "HEAD")


def _refuse_additions(root: Path, record: Train | None, recipes: list[Recipe]) -> None:
    """Check that an image that joins a release has its commit's content, except records and proofs.

    Raises ConfigError.
    """
    added = [recipe.id for recipe in recipes if record and recipe.id not in record.images]
    if record and added and (files := checkout.changed(root, record.commit, FOLDER, *PROOFS)):
        raise ConfigError(
            f"{added[0]} cannot join {record.name}",
            why=f"it was released from {record.commit[:12]}, and since then these changed: {', '.join(files[:3])}",
            fix=f"git checkout {record.commit[:12]}, or release under another name",
        )


def _loaded(recipe: Recipe, refused: list[TrainwrightError]) -> Inputs | None:
    """Return an image's inputs; for a stale lock or a blocked input, add the error to `refused` and return None."""
    with collected(refused):
        found = inputs.load(recipe)
        lockfile.refuse_blocked(recipe, found.blocked)
        with collected(refused):
            refuse_drift(found)
        return found
    return None


def _all_proved(
    found: Mapping[str, Inputs],
    name: str,
    hosts: list[str],
    record: Train | None,
    waiver: str,
    refused: list[TrainwrightError],
    say: Say,
) -> dict[str, Shipped]:
    """Return each image as every registry holds it.

    A registry that does not answer is not queried for the next image.
    """
    shipped, silent, held_by = dict[str, Shipped](), set[str](), dict[str, list[str]]()
    for (identity, one), host in product(found.items(), hosts):
        if host in silent:
            continue
        say(f"{identity}: reading what {host} holds")
        try:
            held = _held(one, name, host)
        except TrainwrightError as error:
            refused.append(error)
            if not isinstance(error, Refused | Wrong):  # it does not answer, and waiting for it can take minutes
                silent.add(host)
            continue
        held_by.setdefault(identity, []).append(held[0])
        with collected(refused):
            image = _proved(one, name, host, held, record, waiver, refused)
            if shipped.setdefault(identity, image) != image:
                raise RegistryError(
                    f"{identity} differs between registries and cannot be released",
                    where=f"{host}/{image.repository}",
                    why=f"this registry has {image.digest}, {hosts[0]} has {shipped[identity].digest}",
                    fix=f"trainwright rebuild --compare {identity}   # shows the digest that a build gives",
                )
    for identity, digests in held_by.items():
        if not any(digests):  # published nowhere: report its gate now rather than after publishing
            with collected(refused):
                image_json = known_image(found[identity], out_folder(found[identity].recipe))
                _gate(found[identity].recipe, image_json.digest or "", record, waiver)
    return shipped


def _held(found: Inputs, name: str, host: str) -> tuple[str, str]:
    """Return the digests behind the tags of the key and of the release; "" for a tag that does not exist."""
    repository = f"{host}/{image_names.repository(found.variant.framework)}"
    digest = client.resolve(repository, found.tag)
    if digest:
        client.manifest(repository, digest)
    return digest, client.resolve(repository, image_names.release_tag(found.variant.id, name))


def _proved(
    found: Inputs,
    name: str,
    host: str,
    held: tuple[str, str],
    record: Train | None,
    waiver: str,
    refused: list[TrainwrightError],
) -> Shipped:
    """Return the image that the registry holds under its key, a tag that only built, probed and tested images get."""
    recipe, (digest, taken) = found.recipe, held
    path = image_names.repository(recipe.variant.framework)
    repository, tag = f"{host}/{path}", image_names.release_tag(recipe.id, name)
    if not digest:
        raise NotRunError(
            f"{recipe.id} is not published with its present inputs",
            where=f"{repository}:{found.tag}",
            why="only an image that the registry holds under its key is proved",
            fix=f"trainwright build {recipe.id} && trainwright push {recipe.id}",
        )
    out, gate = record.images.get(recipe.id) if record else None, ""
    with collected(refused):
        gate = _gate(recipe, digest, record, waiver)
    image = Shipped(key=found.key, digest=digest, repository=path, gate=gate)
    if (out and out != image) or taken not in ("", digest):
        said = (
            f"{FOLDER}/{name}.toml names {out.digest}"
            if out
            else f"no record of {name} names it: that release was interrupted"
        )
        raise RegistryError(
            f"{recipe.id} was already released as {name}, and a release is immutable",
            where=f"{repository}:{tag}",
            why=f"the tag {f'points to {taken}' if taken else 'does not exist'}; {said}; this image is {digest}",
            fix="release under another name",
        )
    return image


def _gate(recipe: Recipe, digest: str, record: Train | None, waiver: str) -> str:
    """Return the gate that the release's record has for this digest; if it has none, the present result of gated()."""
    out = record.images.get(recipe.id) if record else None
    return out.gate if out and out.digest == digest else gated(recipe, digest, waiver).detail


def _twin(identity: str, image: Shipped, name: str, host: str) -> str:
    """Return the digest of a released image's zstd twin, by its tag of the release or of the key; "" for none.

    Raises RegistryError if something else has that tag.
    """
    repository = f"{host}/{image.repository}"
    tags = (image_names.release_tag(identity, name), image_names.key_tag(identity, image.key))
    return next((twin for tag in tags if (twin := twins.find(repository, tag, image.digest))), "")


def _refuse_stale_alias(
    identity: str, image: Shipped, name: str, host: str, records: Mapping[str, Train] | None = None
) -> None:
    """Check that the alias of the zstd twin, if there is one, can follow the image's; nothing may be moved before.

    With `records`, an image of which a newer release exists is not checked, because its alias stays. Raises
    NotRunError, and what _twin() raises.
    """
    newest = release_records.newest(identity, (records or {}).values())
    stays = bool(newest) and release_records.version(newest) > release_records.version(name)
    if _twin(identity, image, name, host) or stays:
        return
    repository, alias = f"{host}/{image.repository}", image_names.twin_tag(image_names.alias(identity))
    if held := client.resolve(repository, alias):
        raise NotRunError(
            f"{identity} of {name} has no zstd twin, but the alias of its twin exists",
            where=f"{repository}:{alias}",
            why=f"the alias would keep naming {held}, a twin of another image",
            fix=f"trainwright push {identity} --twin   # in a checkout of that release, then this command again",
        )


def _signed(one: Inputs, image: Shipped, name: str, host: str, why: str, dry_run: bool, say: Say) -> Step:
    """Sign what our key has not signed yet, even if another checkout pushed it. Raises what attested() raises."""
    if not dry_run:
        attested(one, f"{host}/{image.repository}", image.digest, say)
    action = "would sign" if dry_run else "signed"
    return Step(id=one.variant.id, release=name, registry=host, action=action, digest=image.digest, why=why)


def _note_gate(recipe: Recipe, shipped: Shipped) -> None:
    """Write the gate's result into image.json, if this checkout has the image.json of the released image."""
    out = out_folder(recipe)
    image = read_image(out)
    if image and image.digest == shipped.digest and image.proof:
        passed = re.match(r"\d+ x ", shipped.gate)  # passed.check()'s result begins so; a waiver with "waived by ..."
        gate = Check(state="passed" if passed else "not run", detail=shipped.gate)
        write_image(out, image.model_copy(update={"proof": image.proof.model_copy(update={"gate": gate})}))


def _refuse_more_than_security(recipes: list[Recipe], name: str, records: Mapping[str, Train], say: Say) -> None:
    """Check that a patch changes only packages of the distribution's security archive.

    Raises ConfigError, IncompatibleError.
    """
    before = release_records.earlier(name, records)
    if not before:
        train = ".".join(map(str, release_records.version(name).release[:2]))
        raise ConfigError(
            f"{name} is a patch of the train {train}, which does not exist",
            why=did_you_mean(name, records),
            fix=f"trainwright release {train}.0",
        )
    found: dict[str, list[str]] = {}
    for recipe in recipes:
        base = next((train for train in before if recipe.id in train.images), None)
        if base is None:
            found[recipe.id] = [f"it is new: {before[0].name} does not have it"]
            continue
        say(f"{recipe.id}: comparing with {base.name}")
        found[recipe.id] = _beyond(recipe, base)
    if any(found.values()):
        lines = [f"{identity}: {', '.join(problems)}" for identity, problems in found.items() if problems]
        raise IncompatibleError(
            f"{name} would contain more than security updates",
            where=f"{FOLDER}/{before[0].name}.toml",
            why="\n".join(lines),
            fix=f"trainwright release {release_records.next_train(records)}   # a new train, with the same images",
        )


def _beyond(recipe: Recipe, base: Train) -> list[str]:
    """Return an image's differences from a release that are not security updates, one phrase each."""
    with checkout.exported(recipe.root, checkout.commit_of(recipe.root, base.commit)) as folder:
        try:
            old = load_intent(folder)
            twin = old.recipe(recipe.id)
            one, other = inputs.load(twin, as_locked=True), inputs.load(recipe, as_locked=True)
            found = _of_the_builder(one, base.images[recipe.id])
            if one.key == other.key:
                return found
            rows = changes.differ(one, other)
            found += [f"{row.kind} {row}" for row in rows if row.kind != "distribution package"]
            found += release_records.beyond_security(one.distribution.locked, other.distribution.locked)
            if one.tools and other.tools:
                found += release_records.beyond_security(one.tools.locked, other.tools.locked)
            if not found:  # the old tree with the present packages must make this very image
                for tools in (False, True) if other.tools else (False,):
                    source = inputs.packages_path(recipe.intent, recipe.variant.base, tools)
                    shutil.copyfile(source, inputs.packages_path(old, recipe.variant.base, tools))
                patched = inputs.load(twin, as_locked=True)
                found += [str(row) for row in changes.differ(patched, other)] * (patched.key != other.key)
        except TrainwrightError as error:
            return [f"it cannot be compared with {base.name}: {' '.join(f'{error.what}: {error.why}'.split())}"]
    return found


def _of_the_builder(one: Inputs, shipped: Shipped) -> list[str]:
    """Return a problem if the present builder computes another key from the release's inputs."""
    if one.key == shipped.key:
        return []
    return [f"build/trainwright itself: the inputs of key {shipped.key[:12]} now give {one.key[:12]}"]


def _aliased(identity: str, image: Shipped, name: str, records: Mapping[str, Train], host: str, dry_run: bool) -> Step:
    """Move the alias of a released image, unless a newer release has it: it never moves back by itself."""
    newest = release_records.newest(identity, records.values())
    if newest != name:
        why = f"the alias stays: {newest} is newer; `trainwright rollback --to {name}` moves it"
        action = "would release" if dry_run else "released"
        return Step(id=identity, release=name, registry=host, action=action, digest=image.digest, why=why)
    step = _moved(identity, image, name, host, dry_run, f"tag {image_names.release_tag(identity, name)}")
    return step.model_copy(update={"action": "would release" if dry_run else "released"})


def _moved(identity: str, image: Shipped, name: str, host: str, dry_run: bool, why: str) -> Step:
    repository, alias = f"{host}/{image.repository}", image_names.alias(identity)
    twin = _twin(identity, image, name, host)
    moves = [(alias, image.digest), *([(image_names.twin_tag(alias), twin)] if twin else [])]
    before = client.resolve_all(repository, [name for name, _ in moves])
    held, waiting = before[alias], [(name, digest) for name, digest in moves if before[name] != digest]
    if not waiting:
        action, said = "stays", "the alias already points to it"
    elif dry_run:
        action, said = "would move", f"the alias points to {held or 'nothing'}"
    else:
        for moving, digest in waiting:
            client.move(repository, digest, moving)
        action, said = "moved", f"the alias pointed to {held or 'nothing'}"
    said += f"; its zstd twin {'would follow' if dry_run else 'too'}" if twin else ""
    return Step(id=identity, release=name, registry=host, action=action, digest=image.digest, why=f"{why}; {said}")
