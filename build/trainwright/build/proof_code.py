"""Digest the code that proves an image: its probe, its tests, their imports, and the data files that they name.

The digest is of syntax trees without docstrings, function annotations and comments, so that rewording does not change
it. Of the tests, those of components that the image does not pin are left out; of trainwright, only the functions that
a test or the probe reaches count. Code that reads the intent and the locks does not count, because its result is in the
image's key.
"""

import ast
import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

from trainwright.matrix.matrix import Intent, Recipe, once_per_intent
from trainwright.matrix.model import Variant

Kind = Literal["probe", "image", "training", "cluster"]

PACKAGE = Path(__file__).parents[1]
# Modules of trainwright that do not count: those that read the intent and make the key, error messages, and this
# module, because its strings name test files of every kind.
KEYED = {
    "lock.additions",
    "image.child",
    "core.errors",
    "image.inputs",
    "matrix.matrix",
    "matrix.model",
    "build.proof_code",
}
INTENT = "dockerfiles/"  # does not count either

# The probe and the image tests prove each image; these are each kind's test files, relative to the checkout.
TESTS: dict[Kind, tuple[str, ...]] = {
    "probe": (),
    "image": ("tests/conftest.py", "tests/image/conftest.py", "tests/image/test_*.py"),
    "training": ("tests/conftest.py", "tests/train/conftest.py", "tests/train/test_*.py"),
    "cluster": ("tests/conftest.py", "tests/cluster/conftest.py", "tests/cluster/test_jobs.py"),
}
OWN: dict[Kind, tuple[str, str]] = {  # trainwright's module and function that start such a proof
    "probe": ("trainwright.build.build", "prove"),
    "image": ("trainwright.build.image_tests", "tested"),
}
RPM = ("trainwright.build.build", "proved")  # beside OWN, for an image whose base has rpm


class Part(NamedTuple):
    """A module, or one name in it; "" stands for the whole module."""

    module: str
    name: str


def kinds(recipe: Recipe) -> tuple[Kind, ...]:
    """Return the proofs that an image needs: training tests only for SageMaker, cluster tests only for CPU images."""
    if recipe.variant.target != "sagemaker":
        return ("probe", "image")
    return ("probe", "image", "training") + (("cluster",) if recipe.variant.accelerator == "cpu" else ())


def digest(recipe: Recipe) -> str:
    """Return the sha256 of all code that proves this image, as it was when its intent was first asked for one."""
    return _digest(recipe, _sources(recipe.intent))


def digest_now(recipe: Recipe) -> str:
    """Return the sha256 of all code that proves this image, as it is now: a record is not about older code."""
    return _digest(recipe, _Sources(recipe.root))


def digest_of(recipe: Recipe, kind: Kind) -> str:
    """Return the sha256 of the code of one kind of proof."""
    return _sum(parts(recipe, kind))


def parts(recipe: Recipe, kind: Kind) -> dict[str, str]:
    """Return the parts of one kind of proof with their sha256: files of the checkout, functions of trainwright."""
    return _walk(recipe, kind, _Sources(recipe.root))


def _sum(content: Any) -> str:
    return sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


# --- syntax trees ----------------------------------------------------------------------------------------------------

SILENT = {"ctx", "kind", "type_comment", "type_ignores", "type_params"}  # these differ between Python versions


def _shape(node: Any) -> Any:
    """Convert a tree to lists that are the same in every Python version, because the output of `ast.dump` differs."""
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if name not in SILENT)
        return [type(node).__name__, {name: _shape(value) for name, value in fields if value not in (None, [])}]
    if isinstance(node, list):
        return [_shape(one) for one in node]
    return node if isinstance(node, str) else repr(node)


class _Bare(ast.NodeTransformer):
    """A transformer that removes docstrings, function annotations and type-only imports: none affects execution."""

    def _without_docstring(self, node: Any) -> Any:
        self.generic_visit(node)
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            node.body = node.body[1:]
        return node

    def _without_annotations(self, node: Any) -> Any:
        node.returns = None
        return self._without_docstring(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        return None if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" else node

    visit_Module = visit_ClassDef = _without_docstring
    visit_FunctionDef = visit_AsyncFunctionDef = _without_annotations


class _Statement:
    """A statement of a module's top level, and its properties, each computed once."""

    def __init__(self, node: ast.stmt) -> None:
        self.node = node

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.node))

    @cached_property
    def sum(self) -> str:
        return _sum(_shape(self.node))

    @cached_property
    def defined(self) -> set[str]:
        node = self.node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return {node.name}
        if isinstance(node, ast.Import | ast.ImportFrom):
            return set()
        return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}

    @cached_property
    def strings(self) -> set[str]:
        found = (one.value for one in self.nodes if isinstance(one, ast.Constant))
        return {text for text in found if isinstance(text, str)}

    @cached_property
    def attributes(self) -> set[tuple[str, str]]:
        """Return attribute accesses as pairs: `engine.save` as engine, save."""
        found = (one for one in self.nodes if isinstance(one, ast.Attribute))
        return {(one.value.id, one.attr) for one in found if isinstance(one.value, ast.Name)}

    @cached_property
    def names(self) -> set[str]:
        """Return the names that it uses and does not bind itself."""
        names = [one for one in self.nodes if isinstance(one, ast.Name)]
        bound = {one.id for one in names if not isinstance(one.ctx, ast.Load)}
        bound |= {one.arg for one in self.nodes if isinstance(one, ast.arg)}
        return {one.id for one in names} - bound

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Map every name that an import in it binds to its module and its name there, "" for the module itself."""
        found = dict[str, tuple[str, str]]()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found |= {one.asname or one.name.partition(".")[0]: (one.name, "") for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found |= {one.asname or one.name: (node.module, one.name) for one in node.names}
        return found

    @cached_property
    def marks(self) -> list[tuple[str, str]]:
        """Return the marks `component(name)` and `devel` of a test, or of a whole file for its `pytestmark`."""
        given = list(getattr(self.node, "decorator_list", []))
        if isinstance(self.node, ast.Assign) and self.defined == {"pytestmark"}:
            given = self.node.value.elts if isinstance(self.node.value, ast.List) else [self.node.value]
        found = []
        for one in given:
            said = ast.unparse(one.func if isinstance(one, ast.Call) else one)
            if said == "pytest.mark.devel":
                found.append(("devel", ""))
            if said == "pytest.mark.component" and isinstance(one, ast.Call) and isinstance(one.args[0], ast.Constant):
                found.append(("component", str(one.args[0].value)))
        return found

    def applies(self, variant: Variant) -> bool:
        """Return whether tests/conftest.py would keep the test for the image."""
        return all(variant.devel if mark == "devel" else name in variant.pins for mark, name in self.marks)


@cache
def _statements(text: str) -> list[_Statement]:
    tree = _Bare().visit(ast.parse(text))
    return [_Statement(node) for node in tree.body]


@cache
def _imports(text: str) -> dict[str, tuple[str, str]]:
    """Map the names that a module's imports bind, at its top level and below."""
    return {name: place for one in _statements(text) for name, place in one.imports.items()}


def _content(path: Path) -> str:
    """Return the sha256 of a file: of Python's tree, of TOML's values, of a shell script's lines without comments."""
    raw = path.read_bytes()
    if path.suffix == ".py":
        return _sum([one.sum for one in _statements(raw.decode())])
    if path.suffix == ".toml":
        return _sum(tomllib.loads(raw.decode()))
    if path.suffix == ".sh" or raw.startswith(b"#!"):
        lines = (line.strip() for line in raw.decode().splitlines())
        return _sum([line for line in lines if line and not line.startswith("#")])
    return sha256(raw).hexdigest()


def split(variant: Variant, statements: list[_Statement]) -> tuple[list[_Statement], list[_Statement]]:
    """Split a test file into the statements that count for an image, and the tests that do not apply to it."""
    if not all(one.applies(variant) for one in statements if one.defined == {"pytestmark"}):
        return [], statements
    kept = [one for one in statements if one.applies(variant)]
    return kept, [one for one in statements if one not in kept]


# --- the walk --------------------------------------------------------------------------------------------------------


class _Sources:
    """The files of a checkout and what their statements reach, which is the same for all images: each looked up once.

    It does not see later changes of the files, so it lasts for one walk, or for one intent.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._paths = dict[str, Path | None]()
        self._texts = dict[Path, str]()
        self._contents = dict[Path, str]()
        self._tests = dict[Kind, list[Part]]()
        self._reached = dict[tuple[str, _Statement], list[Part]]()
        self._named = dict[tuple[str, _Statement], set[Path]]()
        self._functions = dict[Part, tuple[list[_Statement], str]]()

    def tests(self, kind: Kind) -> list[Part]:
        """Return the test files of one kind of proof."""
        if kind not in self._tests:
            files = [path for pattern in TESTS[kind] for path in sorted(self.root.glob(pattern))]
            names = [path.relative_to(self.root / "tests").with_suffix("").parts for path in files]
            self._tests[kind] = [Part(".".join(name), "") for name in names]
        return self._tests[kind]

    def path(self, module: str) -> Path | None:
        """Return the path of a module of ours; None for others, and for modules that do not count."""
        if module not in self._paths:
            self._paths[module] = self._found(module)
        return self._paths[module]

    def _found(self, module: str) -> Path | None:
        names = module.split(".")
        if names[0] == "trainwright" and (len(names) == 1 or ".".join(names[1:3]) in KEYED):
            return None
        at = PACKAGE.joinpath(*names[1:]) if names[0] == "trainwright" else (self.root / "tests").joinpath(*names)
        return next((path for path in (at.with_suffix(".py"), at / "__init__.py") if path.is_file()), None)

    def text(self, path: Path) -> str:
        if path not in self._texts:
            self._texts[path] = path.read_text()
        return self._texts[path]

    def content(self, path: Path) -> str:
        if path not in self._contents:
            self._contents[path] = _content(path)
        return self._contents[path]

    def function(self, part: Part, path: Path) -> tuple[list[_Statement], str]:
        """Return the statements that define a name of trainwright, and their sum."""
        if part not in self._functions:
            used = [one for one in _statements(self.text(path)) if part.name in one.defined]
            self._functions[part] = used, _sum([one.sum for one in used])
        return self._functions[part]

    def named(self, module: str, path: Path, used: _Statement) -> set[Path]:
        """Return the data files that the strings of a statement name."""
        if (module, used) not in self._named:
            found = {self.root / string for string in used.strings if _is_file(self.root, string)}
            if not module.startswith("trainwright.") and "." in module:  # in a folder for one kind of test
                found |= {file for string in used.strings for file in _beside(path.parent, string)}
            self._named[module, used] = found
        return self._named[module, used]

    def reached(self, module: str, path: Path, used: _Statement) -> list[Part]:
        """Return the parts that a statement uses: names of its own module, imported modules, and names in those."""
        if (module, used) not in self._reached:
            self._reached[module, used] = list(dict.fromkeys(self._reach(module, _imports(self.text(path)), used)))
        return self._reached[module, used]

    def _reach(self, module: str, imports: Mapping[str, tuple[str, str]], used: _Statement) -> Iterator[Part]:
        for name, attribute in used.attributes:
            if name in imports:
                yield Part(".".join(filter(None, imports[name])), attribute)
        for name in used.names:
            if name in imports:
                yield from self._import(*imports[name])
            elif module.startswith("trainwright."):
                yield Part(module, name)
        if not module.startswith("trainwright."):
            for place in used.imports.values():
                yield from self._import(*place)

    def _import(self, of: str, name: str) -> Iterator[Part]:
        """Yield the whole module if it is of the tests; of a trainwright module, yield only the name that is used."""
        if of.partition(".")[0] != "trainwright":
            yield from (Part(of, ""), Part(f"{of}.{name}", "")) if name else (Part(of, ""),)
        elif name and self.path(f"{of}.{name}") is None:
            yield Part(of, name)


@once_per_intent
def _sources(intent: Intent) -> _Sources:
    return _Sources(intent.root)


def _digest(recipe: Recipe, sources: _Sources) -> str:
    return _sum({kind: _sum(_walk(recipe, kind, sources)) for kind in kinds(recipe)})


def _walk(recipe: Recipe, kind: Kind, sources: _Sources) -> dict[str, str]:
    """Walk from the test files and the start of a proof along imports and names."""
    waiting = list(sources.tests(kind))
    waiting += [Part(*OWN[kind])] if kind in OWN else []
    waiting += [Part(*RPM)] if kind == "probe" and recipe.base.manager == "dnf" else []
    found, seen, modules = dict[str, str](), set[Part](), set[Path]()
    kept, left, data = set[str](), set[str](), set[Path]()
    while waiting:
        part = waiting.pop()
        ours = part.module.startswith("trainwright.")
        part = part if ours else Part(part.module, "")
        if part in seen or (path := sources.path(part.module)) is None:
            continue
        seen.add(part)
        if ours:
            used, content = sources.function(part, path)
        else:
            used, unused = split(recipe.variant, _statements(sources.text(path)))
            content = _sum([one.sum for one in used])
            left.update(*(one.strings for one in unused))
            modules.add(path)
        if used:
            found[f"{part.module}{part.name and ':'}{part.name}"] = content
        for one in used:
            kept |= one.strings
            data |= sources.named(part.module, path, one)
            waiting += sources.reached(part.module, path, one)
    texts = ["\0".join(strings) for strings in (kept, left)]  # one search in all of them is quick
    for path in sorted(data - modules):
        if [path.name in text for text in texts] != [False, True]:  # else named only by tests that do not count
            found[str(path.relative_to(sources.root))] = sources.content(path)
    return found


def _is_file(root: Path, text: str) -> bool:
    path = "/" in text and "\n" not in text and not text.startswith(("/", ".", INTENT)) and len(text) < 200
    return path and (root / text).is_file()


def _beside(folder: Path, text: str) -> Iterator[Path]:
    """Yield the files beside a test that a text names: one file, all files of a folder, or all matches of a pattern."""
    if not text or "\n" in text or text.startswith(("/", ".")) or len(text) > 200:
        return
    if "*" in text:
        found = list(folder.glob(text)) if "**" not in text and any(map(str.isalpha, text)) else []
    else:
        found = list((folder / text).rglob("*")) if (folder / text).is_dir() else [folder / text]
    yield from (path for path in found if path.is_file() and "__pycache__" not in path.parts)
