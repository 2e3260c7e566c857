"""Parts as values: each method is a small frozen dataclass that prints as its spec and is read back from it.

`PDGD(eta=0.1)` prints as just that, and an experiment file writes it as a table, `{ kind = "pdgd", eta = 0.1 }`, or as the
bare word where nothing differs from the defaults. A `Family` lists the parts that may stand in one place; all of them
derive from the family's base class, which declares what a part needs and provides. Parts of other authors are found in
three ways:

- a class of this process, such as one declared in a notebook, by its `kind`;
- a class of a module on the path or in the current directory: `kind = "my_module:DuelingBandit"`, which imports it;
- an entry point of the group `quorank.parts`, named `family.kind`, imported when its kind is first used:

      [project.entry-points."quorank.parts"]
      "learner.dueling-bandit" = "my_package.dueling:DuelingBandit"
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, cast

from quorank.errors import BadInput, brief, require, suggest
from quorank.files.codec import decode, encode

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "quorank.parts"  # entry points of other packages


class Part(Protocol):
    """A dataclass with a `kind`, the word that names it in experiment files.

    A field may hold a part of another family, whose base class then has `decode_value(spec)`.
    """

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


P = TypeVar("P", bound=Part)


class Numbers(Mapping[str, float]):
    """Immutable, hashable table of numbers as a field of a part; it prints as a dictionary."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: Mapping[Any, float]) -> None:
        self._numbers = {str(name): float(number) for name, number in numbers.items()}

    def __getitem__(self, name: str) -> float:
        return self._numbers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __hash__(self) -> int:
        return hash(frozenset(self._numbers.items()))

    def __repr__(self) -> str:
        return repr(self._numbers)

    @classmethod
    def decode_value(cls, value: object) -> Numbers:
        """Decode the table of an experiment file."""
        return cls(decode(dict[str, float], value))


class Family(Generic[P]):
    """Family of interchangeable parts: our own, and those of installed packages.

    Args:
        name: Word for a member in errors, such as "server optimiser".
        members: Our own parts; the first is the default kind.
        base: Class that every member derives from.
        word: Prefix of entry points, such as "server".
        group: Group of entry points; those of another than the common group are named by their kind alone.
    """

    def __init__(
        self, name: str, *members: type[P], base: type[Any] = object, word: str = "", group: str = GROUP
    ) -> None:
        self.name, self.base, self.word, self.group = name, base, word or name, group
        self.members: dict[str, type[P]] = {member.kind: member for member in members}
        self.ours = (*self.members,)

    @cached_property
    def _plugins(self) -> dict[str, list[EntryPoint]]:
        """Return the entry points of other packages by kind, without importing them. Our own kinds cannot be replaced."""
        from importlib.metadata import entry_points

        found: dict[str, list[EntryPoint]] = {}
        for entry in entry_points(group=self.group):
            word, _, kind = entry.name.partition(".") if self.group == GROUP else (self.word, "", entry.name)
            if word == self.word and kind not in self.members:
                known = found.setdefault(kind, [])
                if entry.value not in [other.value for other in known]:
                    known.append(entry)
        return found

    @property
    def kinds(self) -> list[str]:
        """The kinds of all members, ours first."""
        return [*self.members, *(kind for kind in self._plugins if kind not in self.members)]

    def member(self, kind: str) -> type[P] | None:
        """Return the class of a kind, importing a plug-in; None for an unknown kind."""
        if kind in self.members:
            return self.members[kind]
        if kind in self._plugins:
            entry, *others = self._plugins[kind]
            values, where = " and ".join(other.value for other in (entry, *others)), f"plug-in {entry.name}"
            require(not others, "plugin.ambiguous", f"is offered by {values}; remove one package", where)
            part = self._load(entry.load, f"{where} = {entry.value}")
            require(part.kind == kind, "plugin.wrong-kind", f"must have kind = {kind!r}", f"{where} = {entry.value}")
            self.members[kind] = part
            _INSTALLED.add(part)
            return part
        if ":" in kind:
            return self._load(partial(_import_class, kind), kind)
        return self._declared(lambda part: getattr(part, "kind", None) == kind)

    def _load(self, load: Callable[[], Any], where: str) -> type[P]:
        """Import a part and check it."""
        try:
            part = load()
        except Exception as error:  # another author's code may raise anything
            sentence = f"cannot be imported ({type(error).__name__}: {error}); correct or remove it"
            raise BadInput("plugin.not-importable", sentence, where) from error
        return self._checked(part, where)

    def _checked(self, part: Any, where: str) -> type[P]:
        """Return a class if it is a complete part of this family."""
        sentence = f"is no {self.name}: it must derive from {self.base.__module__}.{self.base.__name__}"
        require(isinstance(part, type) and issubclass(part, self.base), "plugin.wrong-base", sentence, where)
        missing = sorted(getattr(part, "__abstractmethods__", ()))
        missing += [name for name in getattr(self.base, "METHODS", ()) if not _overrides(part, self.base, name)]
        require(not missing, "plugin.incomplete", f"lacks {' or '.join(missing)}", where)
        frozen = getattr(getattr(part, "__dataclass_params__", None), "frozen", False)
        require(frozen, "plugin.not-frozen", "must be a dataclass with frozen=True", where)
        require(isinstance(getattr(part, "kind", None), str), "plugin.wrong-kind", "must have a kind, a string", where)
        return cast("type[P]", part)

    def _declared(self, fits: Callable[[type[Any]], bool]) -> type[P] | None:
        """Return the class of this process that `fits`, the one declared last; None without one."""
        for part in reversed(_subclasses(self.base) if self.base is not object else []):
            if fits(part):
                return self._checked(part, f"{part.__module__}.{part.__qualname__}")
        return None

    def read(self, spec: object, where: str, *, foreign: bool = False, imports: bool = True) -> P:
        """Return the part that a word or table of an experiment file describes, or a part that Python code gives.

        Args:
            spec: Kind, or table with `kind` and fields; without `foreign` also a part or its class.
            where: Dotted key of the part, for errors.
            foreign: Accept our own kinds only, since untrusted input must not import a plug-in.
            imports: Import the module of a kind `module:Class`; otherwise it must have been imported before.

        Raises:
            BadInput: `part.not-imported`, `part.unknown-kind`, `part.not-a-table`, the error of a field, or what makes a
                given part none of this family.

        >>> from quorank.learning import LEARNERS
        >>> LEARNERS.read({"kind": "pdgd", "eta": 0.2}, "learner").eta
        0.2
        """
        kinds = self.ours if foreign else None
        if not foreign and is_part(spec):
            return self._given(spec, where)
        if isinstance(spec, str):
            spec = {"kind": spec}
        if not isinstance(spec, Mapping):
            known = ", ".join(kinds or self.kinds)
            sentence = f"expected a {self.name} ({known}) or a table with kind = …, got {brief(spec)}"
            raise BadInput("part.not-a-table", sentence, where)
        table = dict(spec)
        kind = table.pop("kind", next(iter(self.members)))
        module, colon, _ = kind.partition(":") if isinstance(kind, str) else ("", "", "")
        known_code = imports or not colon or module in sys.modules
        sentence = (
            "is code of a module, which is not run from here; import it in Python before, or install it as a plug-in"
        )
        require(known_code, "part.not-imported", f"{brief(kind)} {sentence}", where)
        member = self.member(kind) if isinstance(kind, str) and (kinds is None or kind in kinds) else None
        if member is None:
            kinds = kinds or (*self.kinds,)
            sentence = f"unknown {self.name} {brief(kind)}{suggest(kind, kinds)}; known: {', '.join(kinds)}"
            raise BadInput("part.unknown-kind", sentence, "kind").under(where)
        return decode(member, table, where)

    def _given(self, part: Any, where: str) -> P:
        """Return a part of Python code, or the default one of its class."""
        cls = self._checked(part if isinstance(part, type) else type(part), where)
        taken = self.members.get(kind_of(cls)) not in (None, cls)
        sentence = f"{cls.kind!r} is the kind of another {self.name}; give {cls.__name__} a kind of its own"
        require(not taken, "plugin.wrong-kind", sentence, where)
        return decode(cls, {}, where) if isinstance(part, type) else cast("P", part)

    def parse(self, text: str) -> P:
        """Read a part from its printed form, without executing anything; the inverse of str(part)."""
        import ast

        try:
            call = ast.parse(text, mode="eval").body
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
                raise ValueError
            table = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
            member = self._named(call.func.id)
        except (SyntaxError, ValueError, KeyError, TypeError, RecursionError, MemoryError):
            example = next(iter(self.members.values())).__name__
            sentence = f"{brief(text)} is not a {self.name}; expected for example {example}()"
            raise BadInput("part.not-a-spec", sentence) from None
        return decode(member, table, text)

    def _named(self, name: str) -> type[P]:
        for member in self.members.values():
            if member.__name__ == name:
                return member
        for kind in self._plugins:
            found = self.member(kind)
            if found is not None and found.__name__ == name:
                return found
        declared = self._declared(lambda part: part.__name__ == name)
        if declared is None:
            raise KeyError(name)
        return declared


def _subclasses(base: type[Any]) -> list[type[Any]]:
    """Return all classes that derive from a class, in the order of their declaration within each parent."""
    return [part for child in base.__subclasses__() for part in (child, *_subclasses(child))]


def _overrides(part: type[Any], base: type[Any], names: str) -> bool:
    """Return whether a class overrides one of the methods named "a or b"."""
    return any(getattr(part, name) is not getattr(base, name) for name in names.split(" or "))


def _import_class(reference: str) -> Any:
    """Import `module:Class` from the path, or else from the current directory."""
    module, _, name = reference.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    return attrgetter(name)(import_module(module))


def is_part(value: object) -> bool:
    """Return whether a value of Python code is meant as a part: a dataclass, or a class."""
    return isinstance(value, type) or hasattr(value, "__dataclass_fields__") or hasattr(value, "kind")


def kind_of(cls: type[Part]) -> str:
    """Return the word by which another process finds the class of a part: its kind, or `module:Class`."""
    ours = cls.__module__.partition(".")[0] == "quorank"
    importable = cls.__module__ != "__main__" and getattr(sys.modules.get(cls.__module__), cls.__name__, None) is cls
    return f"{cls.__module__}:{cls.__name__}" if importable and not ours and cls not in _INSTALLED else cls.kind


_INSTALLED: set[type[Any]] = set()  # classes behind entry points, which other processes find by their kinds


def to_table(part: Any, *, complete: bool = True) -> dict[str, Any]:
    """Return the table that a file holds for a part, or a dataclass of parts, complete with defaults or without them.

    TOML has no null: a field that is None is left out.
    """
    table = _without_none(encode(part, defaults=complete))
    return {**table, "kind": kind_of(type(part))} if "kind" in table else table


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {k: _without_none(v) if isinstance(v, dict) else v for k, v in table.items() if v is not None}
