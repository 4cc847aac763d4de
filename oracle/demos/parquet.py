"""Demonstrations as a folder of Parquet files with a dataset card, for Hugging Face's `datasets`.

    FOLDER/README.md                      the card, whose front matter names the files
    FOLDER/transitions/train.parquet      the steps, with stacked windows
    FOLDER/episodes/train.parquet         the episodes, with their last observation
    FOLDER/operations/train.parquet       the sums and differences, in decimal

and `validation.parquet` beside each. `datasets.load_dataset(FOLDER)` returns the transitions with
both splits; `load_dataset(FOLDER, "operations")` one of the others. Codes have their names in the
files: in `datasets` they are features of the type ClassLabel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abacus.reward import TERMS
from abacus.rules import AbacusConfig, Action
from oracle.demos.schema import DESCRIPTION, TEXTS, attributes_of, groups

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped] # it carries no types

    from oracle.demos.dataset import Demonstrations

TABLES = ("transitions", "episodes", "operations")
SPLITS = ("train", "validation")
CARD = "README.md"

#: Rows of a row group: stacked, a set takes a hundred times its own memory.
_ROWS_AT_ONCE = 2**14
#: The upper bounds of Hugging Face's size categories, and their names.
_SIZES = {10**3: "n<1K", 10**4: "1K<n<10K", 10**5: "10K<n<100K", 10**6: "100K<n<1M"}
_LARGER = {10**7: "1M<n<10M", 10**8: "10M<n<100M", 10**9: "100M<n<1B"}
_EXPLANATIONS = {
    "episode": "Number of the episode; the same in all three tables and in both splits.",
    "step": "Number of the step in its episode.",
    "window": "The stacked frames of the observation, flat: frame, plane, column, row.",
    "previous_action": "The action taken before; none where the stack of frames starts over.",
    "action": "The action taken, which reward and next observation follow from.",
    "expert_action": "The expert's action in this state: the label to clone.",
    "action_mask": "Whether each action is legal, in the order of their names.",
    "reward": "The reward of the action taken.",
    "reward_terms": "The terms whose sum is the reward.",
    "final_window": "The stacked frames after the last action, flat.",
    "first_step": "The step of the episode at which the operation starts.",
    "first_operand": "The number on the abacus before.",
    "second_operand": "The number that is added or subtracted.",
    "result": "The number on the abacus after.",
}


@dataclass(frozen=True)
class _Field:
    """A column of a Parquet file: its type for Arrow, its feature for Hugging Face, its meaning."""

    kind: pa.DataType
    feature: Any
    explanation: str


def write_parquet(demonstrations: Demonstrations, folder: Path, facts: Mapping[str, str]) -> None:
    """Write the files and the card to a new folder; `facts` are further lines of the card."""
    try:
        import pyarrow.parquet as pq  # type: ignore[import-untyped] # it carries no types
    except ImportError as error:
        raise ValueError(
            "pyarrow is not installed: pip install 'virtual-abacus[parquet]'"
        ) from error
    fields = {table: _fields(table, demonstrations.config) for table in TABLES}
    numbers = np.arange(demonstrations.counts["episodes"])
    written = []
    for split in SPLITS:
        which = demonstrations.episodes["validation"] == SPLITS.index(split)
        if not which.any():
            continue
        part = demonstrations.select(which)
        written.append(split)
        for table in TABLES:
            path = folder / table / f"{split}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            schema = _schema(fields[table])
            with pq.ParquetWriter(path, schema, compression="zstd") as writer:
                for columns in _row_groups(table, part, numbers[which]):
                    writer.write_table(_arrow_table(columns, schema))
    (folder / CARD).write_text(_card(demonstrations, fields, written, facts), "utf-8")


def _schema(fields: Mapping[str, _Field]) -> pa.Schema:
    """Return the schema, with the features where `datasets` looks for them."""
    import pyarrow as pa

    features = {name: field.feature for name, field in fields.items()}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.schema([(name, field.kind) for name, field in fields.items()], metadata)


def _fields(table: str, config: AbacusConfig) -> dict[str, _Field]:
    import pyarrow as pa

    schema = {column.name: column for column in groups(config)[table]}
    attributes = attributes_of(config)

    def explained(name: str) -> str:
        if name in _EXPLANATIONS:
            return _EXPLANATIONS[name]
        text: str = attributes[f"{table}/{name}"][DESCRIPTION]
        return text

    def value(name: str, dtype: str) -> _Field:
        kind = {"bool": pa.bool_(), "string": pa.string()}.get(dtype) or getattr(pa, dtype)()
        return _Field(kind, {"dtype": dtype, "_type": "Value"}, explained(name))

    def label(name: str, names: Sequence[str]) -> _Field:
        feature = {"names": list(names), "_type": "ClassLabel"}
        return _Field(pa.int64(), feature, explained(name))

    def coded(name: str, column: str | None = None) -> _Field:
        meanings = schema[column or name].meanings
        assert meanings is not None
        # Labels count from 0.
        names = [meanings.get(code, "none") for code in range(max(meanings) + 1)]
        return label(name, names)

    def numbers(name: str, dtype: str, length: int) -> _Field:
        item = value(name, dtype)
        feature = {"feature": item.feature, "length": length, "_type": "Sequence"}
        return _Field(pa.list_(item.kind, length), feature, explained(name))

    pixels = int(np.prod(config.window_shape))
    if table == "transitions":
        actions = [action.words for action in Action]
        terms = [(name, pa.float32()) for name in TERMS]
        feature = {name: {"dtype": "float32", "_type": "Value"} for name in TERMS}
        return {
            "episode": value("episode", "int64"),
            "step": value("step", "int32"),
            "window": numbers("window", "float32", pixels),
            "symbol": coded("symbol"),
            "operation": coded("operation"),
            "previous_action": label("previous_action", [*actions, "none"]),
            "action": coded("action", "taken"),
            "expert_action": coded("expert_action", "action"),
            "action_mask": numbers("action_mask", "bool", len(Action)),
            "reward": value("reward", "float32"),
            "reward_terms": _Field(pa.struct(terms), feature, explained("reward_terms")),
            "terminated": value("terminated", "bool"),
            "truncated": value("truncated", "bool"),
        }
    if table == "episodes":
        return {
            "episode": value("episode", "int64"),
            "length": value("length", "int32"),
            "operations": value("operations", "int32"),
            "seed": value("seed", "int64"),
            "end": coded("end"),
            "final_window": numbers("final_window", "float32", pixels),
            "final_symbol": coded("final_symbol"),
            "final_operation": coded("final_operation"),
        }
    number = "int64" if config.capacity <= 2**63 else "string"
    return {
        "episode": value("episode", "int64"),
        "first_step": value("first_step", "int32"),
        "length": value("length", "int32"),
        "operation": coded("operation"),
        "first_operand": value("first_operand", number),
        "second_operand": value("second_operand", number),
        "result": value("result", number),
    }


def _row_groups(
    table: str, part: Demonstrations, numbers: npt.NDArray[np.int64]
) -> Iterator[dict[str, Any]]:
    """Yield the columns of a table, row group by row group; `numbers` are those of the episodes."""
    for start in range(0, part.counts[table], _ROWS_AT_ONCE):
        rows = slice(start, min(start + _ROWS_AT_ONCE, part.counts[table]))
        if table == "transitions":
            yield _transitions(part, rows, numbers)
        elif table == "episodes":
            yield _episodes(part, rows, numbers)
        else:
            yield _operations(part, rows, numbers)


def _transitions(
    part: Demonstrations, rows: slice, numbers: npt.NDArray[np.int64]
) -> dict[str, Any]:
    columns, starts = part.transitions, part.episodes["start"]
    row_numbers = np.arange(rows.start, rows.stop)
    episode = np.searchsorted(starts, row_numbers, side="right") - 1
    observations = part.observations(rows)
    previous = observations["previous_action"]
    return {
        "episode": numbers[episode],
        "step": row_numbers - starts[episode],
        "window": observations["window"],
        "symbol": columns["symbol"][rows],
        "operation": columns["operation"][rows],
        "previous_action": np.where(previous.any(axis=1), previous.argmax(axis=1), len(Action)),
        "action": columns["taken"][rows],
        "expert_action": columns["action"][rows],
        "action_mask": part.masks(rows),
        "reward": part.rewards(rows=rows),
        "reward_terms": dict(zip(TERMS, part.terms(rows=rows).T, strict=True)),
        "terminated": columns["terminated"][rows].astype(np.bool_),
        "truncated": columns["truncated"][rows].astype(np.bool_),
    }


def _episodes(part: Demonstrations, rows: slice, numbers: npt.NDArray[np.int64]) -> dict[str, Any]:
    names = ("length", "operations", "seed", "end", "final_symbol", "final_operation")
    return {
        "episode": numbers[rows],
        "final_window": part.final_observations()["window"][rows],
        **{name: part.episodes[name][rows] for name in names},
    }


def _operations(
    part: Demonstrations, rows: slice, numbers: npt.NDArray[np.int64]
) -> dict[str, Any]:
    columns = part.operations
    episode = columns["episode"][rows]
    names = {"first_operand": "before", "second_operand": "operand", "result": "after"}
    # Numbers beyond 64 bits are Python's, and become decimal texts.
    decimals = {name: part.numbers(of, rows) for name, of in names.items()}
    if part.config.capacity > 2**63:
        decimals = {name: np.array(list(map(str, found))) for name, found in decimals.items()}
    return {
        "episode": numbers[episode],
        "first_step": columns["start"][rows] - part.episodes["start"][episode],
        "length": columns["length"][rows],
        "operation": columns["operation"][rows],
        **decimals,
    }


def _arrow_table(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    arrays = []
    for field in schema:
        values = columns[field.name]
        if isinstance(values, dict):
            arrays.append(pa.StructArray.from_arrays(list(values.values()), list(values)))
        elif pa.types.is_fixed_size_list(field.type):
            flat = pa.array(np.ascontiguousarray(values).ravel(), field.type.value_type)
            arrays.append(pa.FixedSizeListArray.from_arrays(flat, type=field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _card(
    demonstrations: Demonstrations,
    fields: Mapping[str, Mapping[str, _Field]],
    splits: Sequence[str],
    facts: Mapping[str, str],
) -> str:
    """Return the dataset card: front matter in YAML, of which JSON is a part, and a page."""
    sizes = (name for bound, name in (_SIZES | _LARGER).items() if len(demonstrations) < bound)
    front = [
        f"pretty_name: {json.dumps('Demonstrations on a virtual abacus')}",
        f"license: {TEXTS['license'].lower()}",
        "task_categories: [reinforcement-learning]",
        "tags: [imitation-learning, offline-rl, arithmetic, algorithm-learning]",
        f"size_categories: [{json.dumps(next(sizes, 'n>1B'))}]",
        "configs:",
    ]
    for table in TABLES:
        front += [f"- config_name: {table}", f"  default: {json.dumps(table == TABLES[0])}"]
        front += ["  data_files:"]
        for split in splits:
            front += [f"  - split: {split}", f"    path: {table}/{split}.parquet"]
    counts = ", ".join(f"{count:,} {name}" for name, count in demonstrations.counts.items())
    lines = [
        "# Demonstrations on a virtual abacus",
        "",
        "Exact addition and subtraction on a virtual abacus, by the reference algorithm: "
        f"{counts}.",
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        'transitions = load_dataset("FOLDER")  # where this page is',
        'operations = load_dataset("FOLDER", "operations")',
        "```",
    ]
    for table in TABLES:
        lines += [
            "",
            f"## {table.capitalize()}",
            "",
            "| column | type | content |",
            "|---|---|---|",
        ]
        lines += [
            f"| `{name}` | {_type_name(field)} | {field.explanation} |"
            for name, field in fields[table].items()
        ]
    lines += ["", "## Origin", ""]
    lines += [f"- {name}: {text}" for name, text in facts.items()]
    lines += ["", "## Licence and citation", "", f"{TEXTS['license']}. {TEXTS['citation']}"]
    return "\n".join(["---", *front, "---", "", *lines]) + "\n"


def _type_name(field: _Field) -> str:
    """Return the type of a column in words: `float32`, `72 float32`, `label: left, right`."""
    feature = field.feature
    kind = feature.get("_type")
    if kind == "ClassLabel":
        return "label: " + ", ".join(f"`{name}`" for name in feature["names"])
    if kind == "Sequence":
        return f"{feature['length']} {feature['feature']['dtype']}"
    return str(feature["dtype"]) if kind == "Value" else ", ".join(f"`{name}`" for name in feature)
