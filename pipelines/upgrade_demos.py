"""Upgrade a demonstrations file of an older version to the current one, with the same content.

Version 3 added the attributes that explain every group and dataset. The content is verified before,
and its digest stays the same, as does what the file tells about its recording. The file is replaced
unless --output is given.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from oracle.demos.recipe import DEFAULT_COMPRESSION
from pipelines.job.command_line import argument, option, relative_path, run

EXAMPLE = "python -m pipelines.upgrade_demos old.h5 --output new.h5"


@dataclass(frozen=True)
class Options:
    """The command line."""

    file: Path = argument("the demonstrations file")
    output: Path | None = option(None, "file to write (default: replace the file)")
    compression: int = option(DEFAULT_COMPRESSION, "level of deflate, 0 (none) to 9")


def main(options: Options) -> int:
    """Write the file in the current version, unless it has that version already."""
    from oracle.demos import Demonstrations
    from oracle.demos.schema import FORMAT_VERSION

    demonstrations = Demonstrations.open(options.file, verify=True)
    metadata = demonstrations.metadata
    if metadata is None:
        raise ValueError(f"{relative_path(options.file)} does not say how it was recorded")
    version = metadata.attributes["format"]["version"]
    output = options.file if options.output is None else options.output
    if version == FORMAT_VERSION:
        print(f"{relative_path(options.file)} has version {version} already: nothing to do")
        return 0
    if options.output is not None and output.exists():
        raise ValueError(f"{output} exists already: remove it, or give another --output")
    digest = demonstrations.write(
        output, compression=options.compression, provenance=metadata.provenance
    )
    if digest != metadata.digest:
        raise RuntimeError(f"{output} does not have the content of {options.file}")
    print(f"version {version} -> {FORMAT_VERSION}, same content: {relative_path(output)}")
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, example=EXAMPLE))
