"""An RTK-Sketch in plain Python, cell by cell, to compare the compiled one with."""

from __future__ import annotations

from quorank.silos.hashing import Hashing
from quorank.silos.sketch.cell_pool import POOL_SPARE, SPARE, scatter
from quorank.silos.sketch.count_sketch import count_min_table, count_sketch_table
from quorank.silos.sketch.reverse_top_k import Shape


class SlowCell:
    """Entries (order, scattered document, value), all in one list."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int, int]] = []
        self.floor: int | None = None
        self.low: tuple[int, int] = (-(2**40), 0)

    def keep(self, number: int) -> None:
        self.entries.sort()
        *_, last = self.entries[: len(self.entries) - number]
        self.entries = self.entries[len(self.entries) - number :]
        self.low = last[:2]
        self.floor = last[0] if self.floor is None else max(self.floor, last[0])


class SlowReverseTopK:
    """The rules of `quorank.silos.sketch.reverse_top_k` for one limit of all cells and a bounded number of entries."""

    def __init__(self, hashing: Hashing, shape: Shape) -> None:
        self.hashing, self.shape = hashing, shape
        self.literal = shape.reading == "literal"
        self.limit = -(-shape.capacity * SPARE // (SPARE - 1)) + 1 if self.literal else shape.capacity
        self.cells = [[SlowCell() for _ in range(shape.columns)] for _ in range(shape.rows)]

    def all_cells(self) -> list[SlowCell]:
        return [cell for row in self.cells for cell in row]

    def stored(self) -> int:
        return sum(len(cell.entries) for cell in self.all_cells())

    def add(self, document: int, terms: list[str], counts: list[int]) -> None:
        columns, signs = self.hashing.places(terms)
        if self.shape.sketch == "count":
            table = count_sketch_table(columns, signs, counts, self.shape.columns)
        else:
            table = count_min_table(columns, counts, self.shape.columns)
        cells = len(self.all_cells())
        more = min(len(terms) * self.shape.rows, cells)
        if not self.literal and self.shape.entries < cells * self.limit:
            while self.stored() + more > self.shape.entries:
                self.shrink(self.shape.entries - max(self.shape.entries // POOL_SPARE, more))
        seen = set()
        for term in range(len(terms)) if not self.literal else ():
            for a in range(self.shape.rows):
                seen.add((a, int(columns[term, a])))
        places = [(a, j) for a in range(self.shape.rows) for j in range(self.shape.columns)] if self.literal else seen
        for a, j in places:
            self.insert(self.cells[a][j], document, int(table[a, j]))

    def insert(self, cell: SlowCell, document: int, value: int) -> None:
        order = value if self.literal or self.shape.sketch == "count-min" else abs(value)
        if not self.literal and order <= 0:
            return
        entry = (order, scatter(document), document, value)
        if entry[:2] < cell.low:
            return
        if len(cell.entries) >= self.limit:
            cell.keep(self.limit - max(1, self.limit // SPARE))
            if entry[:2] < cell.low:
                return
        cell.entries.append(entry)

    def shrink(self, target: int) -> None:
        limit = max(len(cell.entries) for cell in self.all_cells())
        while limit > 2 and sum(min(len(cell.entries), limit) for cell in self.all_cells()) > target:
            limit -= 1
        for cell in self.all_cells():
            if len(cell.entries) > limit:
                cell.keep(limit)
        self.limit = limit

    def read(self, a: int, j: int) -> tuple[dict[int, int], int]:
        """Documents and values of a cell, and its floor."""
        cell = self.cells[a][j]
        entries, floor = sorted(cell.entries), cell.floor
        if len(entries) > self.shape.capacity:
            last = entries[len(entries) - self.shape.capacity - 1][0]
            floor = last if floor is None else max(floor, last)
            entries = entries[len(entries) - self.shape.capacity :]
        return {document: value for _, _, document, value in entries}, 0 if floor is None else floor
