"""Items of a scan of a source, by their kind."""

from __future__ import annotations

from collections.abc import Mapping

from quorank.search.sources import FoundDocument, Scanned, SkippedDocument, UnchangedDocument


class ScannedItems(list[Scanned]):
    """Items of a scan, each key as found or unchanged at most once."""

    @property
    def found(self) -> dict[str, FoundDocument]:
        return {item.key: item for item in self if isinstance(item, FoundDocument)}

    @property
    def texts(self) -> dict[str, str]:
        """Body of each found document."""
        return {key: document.body for key, document in self.found.items()}

    @property
    def skipped(self) -> dict[str, str]:
        """Key → code."""
        return {item.key: item.code for item in self if isinstance(item, SkippedDocument)}

    @property
    def unchanged(self) -> set[str]:
        return {item.key for item in self if isinstance(item, UnchangedDocument)}

    def after(self, known: Mapping[str, str] | None = None) -> dict[str, str]:
        """Fingerprints in an index after the scan: those of found and of unchanged documents."""
        assert len(self.found) + len(self.unchanged) == sum(not isinstance(item, SkippedDocument) for item in self)
        kept = {key: (known or {})[key] for key in self.unchanged}
        return {key: document.fingerprint for key, document in self.found.items()} | kept

    def assert_storable(self) -> None:
        """Assert that a database accepts all strings of the found documents."""
        for document in self.found.values():
            for text in (document.key, document.path, document.title, document.name, document.body):
                assert "\0" not in text.encode().decode()
