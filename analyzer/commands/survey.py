"""`onnxledger survey`: every model of the sources, into the tables of a lake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.commands.help import command
from analyzer.commands.options import parse_size
from analyzer.commands.run import check_folders, print_text, screen_options, write_files
from analyzer.commands.terminal import EXIT_NO_ANSWER, print_message, watching
from analyzer.errors import UsageError
from analyzer.text import format_many, printable

if TYPE_CHECKING:  # `--help` does not need these
    from analyzer.fleet.record import Survey
    from analyzer.model.content import ContentMode


@command(
    "survey",
    examples=(
        "onnxledger survey models/ -o lake",
        "onnxledger survey 'hf://onnx-community/*' -o lake",
        "find /srv -name '*.onnx' | onnxledger survey - -o lake",
    ),
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "-o",
    "outputs",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    metavar="LAKE",
    help="Write the tables to the folder LAKE; also write a page (.html) or the summary (.json, .txt). Repeatable.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray", "dask"]),
    default="local",
    help="Read models in processes here, or on a cluster.  [local]",
)
@click.option(
    "--address",
    metavar="ADDRESS",
    help="Connect to the cluster at this address.  [RAY_ADDRESS, DASK_SCHEDULER_ADDRESS]",
)
@click.option(
    "--jobs", type=click.IntRange(1), metavar="N", help="Read N shards at once.  [one for each processor]"
)
@click.option(
    "--shard", type=click.IntRange(1), default=64, metavar="N", help="Put about N models into a shard.  [64]"
)
@click.option(
    "--content",
    type=click.Choice(["none", "sampled", "full"]),
    help="Read none, samples or all of the values, to find copies and families.  [sampled; none for a URL]",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="AXIS=N",
    help="Also report the MACs and memory of a run at these sizes: batch=1,sequence=128.",
)
@click.option(
    "--max-objects",
    type=click.IntRange(1),
    metavar="N",
    help="Refuse a model with more than N nodes and tensors.  [250000]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=300.0,
    metavar="S",
    help="Give up on a model after S seconds.  [300]",
)
@click.option(
    "--memory-limit",
    default="2GiB",
    metavar="SIZE",
    help="Give up on a model above this much memory.  [2GiB]",
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Print the summary in this format.",
)
@click.option("--quiet", is_flag=True, help="Print no summary and no progress.")
@click.option("--verbose", "-v", is_flag=True, help="Print the traceback of an error, if it has one.")
def survey(
    sources: tuple[str, ...],
    outputs: tuple[Path, ...],
    engine: str,
    address: str | None,
    jobs: int | None,
    shard: int,
    content: ContentMode | None,
    shapes: tuple[str, ...],
    max_objects: int | None,
    timeout: float,
    memory_limit: str,
    style: str,
    quiet: bool,
    verbose: bool,
) -> None:
    """Read every model of SOURCE into a LAKE: tables for `sql`.

    SOURCE is a folder, a glob, a list of paths or URLs (a .txt file, or - for
    stdin), a URL, hf://org/*, s3://bucket/prefix/. A second run reads only
    changed models again. A model that cannot be read gets a row with its error;
    the exit code is 2 if none can be read.
    """
    from analyzer.fleet.engines import find_engine
    from analyzer.fleet.find import list_names, refuse_missing
    from analyzer.fleet.record import FleetSettings
    from analyzer.fleet.run import survey_fleet
    from analyzer.formats import RenderOptions
    from analyzer.formats.lake import summary_as_json, summary_as_text

    lake, files = _split(outputs)
    check_folders(files)
    refuse_missing(sources)
    nbytes = parse_size("--memory-limit", memory_limit)
    settings = FleetSettings(
        content=content, max_objects=max_objects, seconds=timeout, nbytes=nbytes, shapes=_checked(shapes)
    )
    countable = not any(source == "-" or "://" in source for source in sources)
    with watching(quiet, (lambda: sum(1 for _ in list_names(sources))) if countable else None) as tick:
        done = survey_fleet(
            sources, lake, find_engine(engine, jobs, address), settings=settings, shard=shard, progress=tick
        )
    write_files([(path, _summary(done, path)) for path in files])
    if not quiet:
        screen = screen_options(RenderOptions())
        print_text(
            summary_as_json(done)
            if style == "json"
            else summary_as_text(done, screen.width, ascii=screen.ascii)
        )
    if done.models and done.unreadable == done.models:
        print_message(f"onnxledger: none of {format_many(done.models, 'model')} can be read")
        raise click.exceptions.Exit(EXIT_NO_ANSWER)


def _checked(shapes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sizes, if they are well formed.

    Raises:
        UsageError: a size is malformed, or a sweep.
    """
    if shapes:
        from analyzer.timing.inputs.sizes import parse_shapes

        swept = parse_shapes(shapes).sweep
        if swept is not None:
            raise UsageError(f"--shape {printable(swept.key)}: a survey takes a single size of each axis")
    return shapes


def _split(outputs: tuple[Path, ...]) -> tuple[Path, list[Path]]:
    """Return the folder of the lake, and the files beside it.

    Raises:
        UsageError: there is no lake, or several.
    """
    files = [path for path in outputs if path.suffix in _SUFFIXES]
    lakes = [path for path in outputs if path.suffix not in _SUFFIXES]
    if len(lakes) != 1:
        raise UsageError("-o LAKE: name one folder for the tables, such as -o lake")
    return lakes[0], files


_SUFFIXES = (".html", ".json", ".txt")


def _summary(done: Survey, path: Path) -> str:
    if path.suffix == ".html":
        from analyzer.fleet.sql import render_lake

        return render_lake(done.lake)
    from analyzer.formats.lake import summary_as_json, summary_as_text

    return summary_as_json(done) if path.suffix == ".json" else summary_as_text(done)
