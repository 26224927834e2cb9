"""Look up facts that several checks need, once; for a fact that cannot be determined, return the error."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from trainwright.build import state
from trainwright.core import host_settings
from trainwright.core.errors import EnvironmentProblem, LockError, NotRunError, RegistryError
from trainwright.core.toml import Model
from trainwright.docker import engine
from trainwright.image import inputs
from trainwright.image.inputs import Inputs
from trainwright.matrix import matrix
from trainwright.matrix.matrix import Intent, Recipe
from trainwright.registry import client, http


class Finding(Model):
    """The result of one check of `trainwright doctor`."""

    check: str
    state: Literal["ok", "warning", "failed", "unknown"]
    found: str
    fix: str = ""


@dataclass
class Context:
    root: Path
    registry: str  # REGISTRY; "" for the one on loopback
    ids: set[str] | None = None  # the images to build; None for the default ones

    @cached_property
    def host(self) -> host_settings.Host:
        return host_settings.host(self.root)

    @cached_property
    def intent(self) -> Intent:
        return matrix.load_intent(self.root)

    @cached_property
    def engine(self) -> dict[str, Any] | EnvironmentProblem:
        try:
            return engine.facts()
        except EnvironmentProblem as error:
            return error

    @cached_property
    def inputs(self) -> dict[str, Inputs | LockError]:
        """Map the id of each image that is not blocked to its inputs, or to the error of its lock."""
        return {recipe.id: self.inputs_of(recipe) for recipe in inputs.held(self.intent)}

    def inputs_of(self, recipe: Recipe) -> Inputs | LockError:
        """Return the inputs of one image, or the error of its lock: a check of few images reads few locks."""
        if recipe.id not in self._loaded:
            try:
                self._loaded[recipe.id] = inputs.load(recipe)
            except LockError as error:
                self._loaded[recipe.id] = error
        return self._loaded[recipe.id]

    @cached_property
    def _loaded(self) -> dict[str, Inputs | LockError]:
        return {}

    @cached_property
    def registry_host(self) -> str:
        """Return host:port of the registry in use."""
        return (self.registry or host_settings.registry_address(self.root)).split("/")[0]

    @cached_property
    def registry_answers(self) -> bool | None:
        """Return whether the registry answers; None for one beyond loopback, because doctor uses no network."""
        return client.answers(self.registry_host) if http.is_loopback(self.registry_host) else None

    def to_build(self) -> list[Inputs]:
        """Return the images to build that neither the registry on loopback nor the engine holds.

        Raises NotRunError if a stale lock or a broken registry prevents the answer.
        """
        found = []
        try:
            for recipe in self.intent.recipes:
                wanted = recipe.variant.default if self.ids is None else recipe.id in self.ids
                if not wanted or inputs.awaited(recipe):
                    continue
                given = self.inputs_of(recipe)
                if isinstance(given, LockError):
                    raise given
                asked = self.registry_answers  # None for a registry beyond loopback
                repository = state.repository_if_any(recipe, self.registry) if asked else None
                entry = state.plan_one(given, repository, lambda: isinstance(self.engine, dict))
                found += [given] if entry.action == "build" else []
        except (LockError, RegistryError, EnvironmentProblem) as error:
            raise NotRunError(
                "cannot determine which images are still to be built", why=error.what, fix=error.fix
            ) from None
        return found
