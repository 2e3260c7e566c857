"""Parts as values: each method is a small frozen dataclass that prints as its spec and is read back from it.

`PDGD(eta=0.1)` prints as just that, and an experiment file writes it as a table, `{ kind = "pdgd", eta = 0.1 }`, or as the
bare word where nothing differs from the defaults. A `Family` lists the parts that may stand in one place; all of them
derive from the family's base class, which states what a part needs and gives. Other packages add parts through entry
points of the group `quorank.parts`, named `family.kind`:

    [project.entry-points."quorank.parts"]
    "learner.dueling-bandit" = "my_package.dueling:DuelingBandit"

Such a part is imported when its kind is first asked for, and is then used like ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from quorank.errors import BadInput, brief, suggest
from quorank.files.codec import decode, encode

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "quorank.parts"
"""The group of entry points that other packages add parts through."""


class Part(Protocol):
    """A dataclass with a `kind`, the word that names it in experiment files.

    A field may hold a part of another family, whose base class then has `decode_value(spec)`.
    """

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


P = TypeVar("P", bound=Part)


class Numbers(Mapping[str, float]):
    """Numbers by name as a field of a part: a table that cannot change, prints as a dictionary and can be hashed."""

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
    """The parts that may stand in one place of a federation: ours, and those of installed packages.

    `name` is what messages call a member ("server optimiser"), `word` what entry points do ("server"). A family with a
    `group` of entry points of its own names them by their kind alone.
    """

    def __init__(
        self, name: str, *members: type[P], base: type[Any] = object, word: str = "", group: str = GROUP
    ) -> None:
        self.name, self.base, self.word, self.group = name, base, word or name, group
        self.members: dict[str, type[P]] = {member.kind: member for member in members}
        self.ours = (*self.members,)

    @cached_property
    def _plugins(self) -> dict[str, list[EntryPoint]]:
        """Entry points of other packages by kind, none of them imported yet. A kind of ours cannot be replaced."""
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
        """Return the class of a kind, importing it if it is another package's; None if there is none."""
        if kind in self.members or kind not in self._plugins:
            return self.members.get(kind)
        entry, *others = self._plugins[kind]
        if others:
            values = " and ".join(other.value for other in (entry, *others))
            raise BadInput("plugin.ambiguous", f"is offered by {values}; remove one package", f"plug-in {entry.name}")
        return self._load(kind, entry)

    def _load(self, kind: str, entry: EntryPoint) -> type[P]:
        """Import a plug-in and check that it is a part of this family."""
        where = f"plug-in {entry.name} = {entry.value}"
        try:
            part: Any = entry.load()
        except Exception as error:  # another package's code may raise anything
            raise BadInput(
                "plugin.not-importable",
                f"cannot be imported ({type(error).__name__}: {error}); mend or remove the package",
                where,
            ) from error
        if not (isinstance(part, type) and issubclass(part, self.base)):
            raise BadInput(
                "plugin.wrong-base",
                f"is no {self.name}: it must derive from {self.base.__module__}.{self.base.__name__}",
                where,
            )
        missing = sorted(getattr(part, "__abstractmethods__", ()))
        if missing:
            raise BadInput("plugin.incomplete", f"lacks {', '.join(missing)}", where)
        if not getattr(getattr(part, "__dataclass_params__", None), "frozen", False):
            raise BadInput("plugin.not-frozen", "must be a dataclass with frozen=True", where)
        if getattr(part, "kind", None) != kind:
            raise BadInput("plugin.wrong-kind", f"must have kind = {kind!r}", where)
        self.members[kind] = part
        return self.members[kind]

    def read(self, spec: object, where: str, *, foreign: bool = False) -> P:
        """Return the part that a table or a word of an experiment file describes; `where` is its key.

        What came from others (`foreign`) names parts of ours only: it never makes a plug-in be imported.
        """
        kinds = self.ours if foreign else None
        if isinstance(spec, str):
            spec = {"kind": spec}
        if not isinstance(spec, Mapping):
            raise BadInput(
                "part.not-a-table",
                f"expected a {self.name} ({', '.join(kinds or self.kinds)}) or a table with kind = …, got {brief(spec)}",
                where,
            )
        table = dict(spec)
        kind = table.pop("kind", next(iter(self.members)))
        known = isinstance(kind, str) and (kinds is None or kind in kinds)
        member = self.member(kind) if known else None
        if member is None:
            kinds = kinds or (*self.kinds,)
            raise BadInput(
                "part.unknown-kind",
                f"unknown {self.name} {brief(kind)}{suggest(kind, kinds)}; known: {', '.join(kinds)}",
                "kind",
            ).under(where)
        return decode(member, table, where)

    def parse(self, text: str) -> P:
        """Return the part that prints as `text`: parse(str(part)) == part. Nothing in the text is executed."""
        import ast

        try:
            call = ast.parse(text, mode="eval").body
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
                raise ValueError
            table = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
            member = self._named(call.func.id)
        except (SyntaxError, ValueError, KeyError, TypeError, RecursionError, MemoryError):
            example = next(iter(self.members.values())).__name__
            raise BadInput(
                "part.not-a-spec", f"{brief(text)} is not a {self.name}; expected for example {example}()"
            ) from None
        return decode(member, table, text)

    def _named(self, name: str) -> type[P]:
        for member in self.members.values():
            if member.__name__ == name:
                return member
        for kind in self._plugins:
            found = self.member(kind)
            if found is not None and found.__name__ == name:
                return found
        raise KeyError(name)


def to_table(part: Part, *, complete: bool = True) -> dict[str, Any]:
    """Return the table that an experiment file holds for this part, complete with defaults, or without them.

    TOML has no null: a field that is None is left out.
    """
    return _without_none(encode(part, defaults=complete))


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {k: _without_none(v) if isinstance(v, dict) else v for k, v in table.items() if v is not None}
