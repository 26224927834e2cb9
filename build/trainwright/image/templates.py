"""Render the templates of `dockerfiles/`. Because compiling them is slow, Jinja's byte code is kept in the store."""

from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import StrictUndefined, TemplateNotFound, TemplateSyntaxError, UndefinedError
from jinja2.bccache import Bucket
from jinja2.environment import TemplateModule
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trainwright.core import project, store
from trainwright.core.errors import ConfigError, TrainwrightError, did_you_mean
from trainwright.core.files import write
from trainwright.core.toml import read
from trainwright.core.versions import within
from trainwright.lock.lockfile import digest
from trainwright.matrix.matrix import Intent, once_per_intent

SYNTAX: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
HASH = 32  # bytes of a sha256
GIVEN, MODULES = "_given", "_modules"  # variables for class Template only


def folder() -> Path:
    """Return the folder of the byte code from this version of Jinja with these settings."""
    return store.root() / "templates" / digest([jinja2.__version__, SYNTAX])


@once_per_intent
def _environment(intent: Intent) -> jinja2.Environment:
    """Return one environment for all images of an intent, so that each template is read once."""
    sandboxed = bool(project.overlay(intent.root))  # templates of others are among them
    made = (Sandbox if sandboxed else Environment)(
        loader=Templates(intent.root / "dockerfiles"),
        bytecode_cache=ByteCode(folder() / "sandbox" if sandboxed else folder()),
        undefined=StrictUndefined,
        auto_reload=False,
        **SYNTAX,
    )
    # {{ pins.cuda is within(">=13") }} compares versions, never text. It takes the context so that Jinja does not
    # evaluate it at compile time for two constants and cache the result of this version of within().
    made.tests["within"] = jinja2.pass_context(lambda _, version, range_: within(version, range_))
    return made


class Template(jinja2.Template):
    """A template that runs once per image, however many others import it; it sees fill()'s variables, not theirs."""

    def make_module(self, vars: dict[str, Any] | None = None, *_: Any) -> TemplateModule:
        if vars is None:  # imported without context
            return super().make_module()
        modules: dict[str | None, TemplateModule] = vars[MODULES]
        if self.name not in modules:
            modules[self.name] = super().make_module(vars[GIVEN])
        return modules[self.name]


class Environment(jinja2.Environment):
    template_class = Template


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment in which a template reaches no attribute of Python itself, and changes no value given to it."""

    template_class = Template


class Templates(jinja2.FileSystemLoader):
    """A loader for dockerfiles/; for a template that is not text, the error names its file and line."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        try:
            source, _, fresh = super().get_source(environment, template)
            return source, template, fresh  # compiled code holds this name: that of the file would differ by checkout
        except TemplateNotFound:
            raise
        except (UnicodeDecodeError, OSError):
            read(Path(self.searchpath[0]) / template)
            raise


class ByteCode(jinja2.BytecodeCache):
    """Compiled templates, in the store. An entry that is damaged, or of another text or Python, is compiled again.

    Entries are named by their text, so that every checkout, and every commit that `changes` looks at, uses the same.
    If another user could have written to the folder, no entry of it is used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.own = folder, False
        with suppress(OSError):
            self.own = not store.own(folder)

    def get_bucket(self, environment: jinja2.Environment, name: str, filename: str | None, source: str) -> Bucket:
        checksum = self.get_source_checksum(source)
        bucket = Bucket(environment, self.get_cache_key(f"{name} {checksum}", filename), checksum)
        self.load_bytecode(bucket)
        return bucket

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            if not self.own:
                return
            content = (self.folder / bucket.key).read_bytes()
            if content[:HASH] == sha256(content[HASH:]).digest():
                bucket.bytecode_from_string(content[HASH:])

    def dump_bytecode(self, bucket: Bucket) -> None:
        content = bucket.bytecode_to_string()
        with suppress(OSError):  # a read-only store: compiled each time
            if self.own:
                write(self.folder / bucket.key, sha256(content).digest() + content)


def fill(intent: Intent, name: str, context: dict[str, object]) -> str:
    """Render a template with its variables. Raises ConfigError with template and line."""
    given = {**context, MODULES: {}}
    given[GIVEN] = given
    try:
        return _environment(intent).get_template(name).render(given)
    except TemplateSyntaxError as error:
        raise ConfigError(
            "a template is not valid",
            where=f"dockerfiles/{error.name}:{error.lineno}",
            why=str(error.message),
        ) from None
    except UndefinedError as error:
        path, line = _innermost(error)
        missing = str(error.message).split("'")
        known = sorted([*context, *context["pins"]])  # type: ignore[misc]  # the one value that is a mapping
        hint = did_you_mean(missing[-2], known) if len(missing) > 2 else ""
        raise ConfigError(
            "a template uses an undefined variable",
            where=f"dockerfiles/{path}:{line}",
            why=f"{error.message}; {hint}",
            fix=f"$EDITOR +{line} dockerfiles/{path}",
        ) from None
    except TrainwrightError:
        raise
    except TemplateNotFound as error:
        path, line = _innermost(error)
        where = f"dockerfiles/{path}:{line}" if line else f"dockerfiles/{error.name}"
        raise ConfigError(
            f"the template dockerfiles/{error.name} does not exist", where=where, why=f"{error.name} is included there"
        ) from None
    except Exception as error:  # a template is code: it may test a missing version, divide by a name, or include itself
        path, line = _innermost(error)
        where = f"dockerfiles/{path}:{line}" if line else f"dockerfiles/{name}"
        why = f"{type(error).__name__}: {error}"
        raise ConfigError("a template cannot be rendered", where=where, why=why, fix=f"$EDITOR {where}") from None


def _innermost(error: BaseException) -> tuple[str, int]:
    """Return template and line of the deepest frame of a traceback that is in a template; Templates names it there."""
    place, trace = ("?", 0), error.__traceback__
    while trace:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.suffix == ".j2":
            place = (str(file), trace.tb_lineno)
        trace = trace.tb_next
    return place
