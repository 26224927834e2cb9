"""Work out once in a process what many tests need: the expanded matrix, compiled templates, pages and conditions.

toml.parse returns the same frozen object for the same text, so that the same objects have the same answer. Errors are
never kept. Conditions follow from their texts alone, and so does the code of a template, which its entry is named by.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from jinja2.bccache import Bucket

from trainwright.diagnose import causes, reader
from trainwright.diagnose.job import streams
from trainwright.image import templates
from trainwright.inspect import matrix_page
from trainwright.matrix import matrix as matrices
from trainwright.matrix import validate
from trainwright.matrix.model import Component, Components, Matrix, Variant

MOST = 64  # matrices
_expand, _check = matrices.expand, validate.check
Key = tuple[object, ...]
_expanded: dict[Key, list[Variant]] = {}
_valid: dict[Key, None] = {}


class Same:
    """An object that equals itself alone; it stays alive, so that no other one gets its identity."""

    def __init__(self, one: object) -> None:
        self.one = one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.one is other.one

    def __hash__(self) -> int:
        return id(self.one)


def _same(*objects: object) -> Key:
    return tuple(one if isinstance(one, str) else Same(one) for one in objects)


def _room(held: dict[Key, Any]) -> None:
    if len(held) >= MOST:
        held.clear()


def expand(matrix: Matrix, components: Mapping[str, Component], text: str = "") -> list[Variant]:
    key = _same(matrix, *components, *components.values())
    if key not in _expanded:
        _room(_expanded)
        _expanded[key] = list(_expand(matrix, components, text))
    return [*_expanded[key]]


def check(root: Path, matrix: Matrix, components: Components, variants: list[Variant]) -> None:
    named = (components.components, components.bases)
    key = _same(matrix, components.tools, *variants, *(one for each in named for one in (*each, *each.values())))
    if key not in _valid:
        _check(root, matrix, components, variants)
        _room(_valid)
        _valid[key] = None


_templates: dict[tuple[Path, str], CodeType] = {}


class ByteCode(templates.ByteCode):
    """Compiled templates that are not read again; those of a folder that a test names are."""

    shared = Path()  # all tests have this folder

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = _templates.get((self.folder, bucket.key))
        if bucket.code is None:
            super().load_bytecode(bucket)
            self._keep(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        super().dump_bytecode(bucket)
        self._keep(bucket)

    def _keep(self, bucket: Bucket) -> None:
        if bucket.code is not None and self.folder.is_relative_to(self.shared):
            _templates[self.folder, bucket.key] = bucket.code


compiled = lru_cache(maxsize=8)(causes.compiled.__wrapped__)
automaton = lru_cache(maxsize=8)(reader.automaton.__wrapped__)
page = lru_cache(maxsize=1)(matrix_page.compiled.__wrapped__)


def remember(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let load_intent, readers of logs, and templates ask these; the folder is that of compiled templates."""
    patch.setattr(ByteCode, "shared", folder)
    patch.setattr(templates, "ByteCode", ByteCode)
    patch.setattr(matrices, "expand", expand)
    patch.setattr(matrices, "check", check)
    patch.setattr(causes, "compiled", lambda texts: compiled(texts))
    for module in (reader, streams):
        patch.setattr(module, "automaton", lambda words: automaton(words))
    patch.setattr(matrix_page, "compiled", lambda text: page(text))
