"""MANIFEST.tsv of ../shared/corpus: what each file must come out as."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
PRESENT = (CORPUS / "MANIFEST.tsv").exists()


@dataclass(frozen=True)
class Line:
    """One file of the manifest."""

    path: str
    pages: int | None
    password: str | None
    outcome: str
    calls: int | None

    @property
    def file(self) -> Path:
        """Where it lies."""
        return CORPUS / self.path

    @property
    def statuses(self) -> list[set[str]] | None:
        """The statuses that each page may have; None when the document is refused as a whole."""
        if self.outcome.startswith("error:"):
            return None
        parts = [set(part.split("|")) for part in self.outcome.split(",")]
        return parts * self.pages if len(parts) == 1 and self.pages else parts

    @property
    def errors(self) -> set[str]:
        """The error classes that the document may be refused with, or what its pages may be instead."""
        return set(self.outcome.removeprefix("error:").split("|")) if self.statuses is None else set()


def _read() -> list[Line]:
    if not PRESENT:
        return []
    with (CORPUS / "MANIFEST.tsv").open(encoding="utf-8", newline="") as file:
        return [
            Line(
                row["path"],
                int(row["pages"]) if row["pages"] else None,
                row["password"] or None,
                row["outcome"],
                int(row["calls"]) if row["calls"] else None,
            )
            for row in csv.DictReader(file, delimiter="\t")
        ]


LINES = _read()
"""All of them; none where the corpus is not."""
