"""HTML pages as a browser reads them."""

from __future__ import annotations

import html.parser


class Seen(html.parser.HTMLParser):
    """What a browser would make of a page: its elements with their attributes, its text, and whether its tags balance."""

    VOID = frozenset({"meta", "br", "link", "img", "hr", "input", "path", "circle"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.pieces: list[str] = []
        self.open: list[str] = []
        self.balanced = True
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.balanced = self.balanced and self.open[-1:] == [tag]
        del self.open[-1:]

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.pieces.append(data)

    @property
    def is_sound(self) -> bool:
        """Every tag is closed where it was opened, and no id occurs twice."""
        return self.balanced and not self.open and len(set(self.ids)) == len(self.ids)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def words(self) -> str:
        """The text with single spaces, also between elements."""
        return " ".join(" ".join(self.pieces).split())

    @property
    def tags(self) -> list[str]:
        return [tag for tag, _ in self.elements]

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.elements if "id" in attributes]

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        """The elements of a tag that have these attributes (class_ for class)."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [found for name, found in self.elements if name == tag and wanted.items() <= found.items()]
