"""The digest of the content: of what was recorded, not of how, when, where or how compressed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from oracle.demos.recording import Recording
from oracle.demos.schema import FORMAT_NAME, FORMAT_VERSION, Array, names


class ContentDigest:
    """SHA-256 of every column, fed part by part, and one over them all."""

    def __init__(self, facts: dict[str, Any]) -> None:
        """`facts`: the attributes that belong to the content."""
        self._facts = facts
        self._columns: dict[str, Any] = {}
        self._kinds: dict[str, list[Any]] = {}

    def add(self, name: str, rows: Array) -> None:
        """Feeds the next rows of a column."""
        if name not in self._columns:
            self._columns[name] = hashlib.sha256()
            self._kinds[name] = [rows.dtype.str, 0, *rows.shape[1:]]
        self._kinds[name][1] += len(rows)
        self._columns[name].update(np.ascontiguousarray(rows).view(np.uint8).data)

    def hexdigest(self) -> str:
        content = {
            "format": [FORMAT_NAME, FORMAT_VERSION],
            "facts": self._facts,
            "columns": {
                name: [self._kinds[name], column.hexdigest()]
                for name, column in self._columns.items()
            },
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def digest_of(recording: Recording, facts: dict[str, Any], config: Any) -> str:
    """The digest of columns in memory."""
    digest = ContentDigest(facts)
    for path, column in names(config):
        group = path.partition("/")[0]
        digest.add(path, recording.group(group)[column.name])
    return digest.hexdigest()
