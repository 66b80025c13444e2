"""Models of several files -> one Model of the artifact that they form."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from analyzer.model import Component, File, Graph, GraphPath, Model
from analyzer.read.book import STRUCTURE
from analyzer.records import replace


def merge_models(folder: Path | str, models: Mapping[str, Model]) -> Model:
    """Merge several models by the names of their components; the paths of their graphs begin with these names.

    A file that several of them refer to is listed once, and so are its bytes.

    Raises:
        ModelReadError: a file has changed while others were read.
    """
    roots: dict[str, GraphPath] = {name: (name,) for name in models}
    for source in itertools.chain.from_iterable(model.sources.values() for model in models.values()):
        source.check()
    return Model(
        path=str(folder),
        files=_files(Path(folder), list(models.values())),
        ir_version=max(model.ir_version for model in models.values()),
        opsets=_opsets(models.values()),
        producer=", ".join(dict.fromkeys(m.producer for m in models.values() if m.producer)),
        graphs=tuple(graph for name, m in models.items() for graph in _below(roots[name], m)),
        functions=tuple(
            replace(function, path=roots[name] + function.path)
            for name, m in models.items()
            for function in m.functions
        ),
        structure=_structure(models.values()),
        unread=tuple(
            (finding, (roots[name] + path, tensor), sentence)
            for name, m in models.items()
            for finding, (path, tensor), sentence in m.unread
        ),
        not_utf8=tuple(sorted({name for m in models.values() for name in m.not_utf8})),
        odd_names=tuple(sorted({name for m in models.values() for name in m.odd_names})),
        sources={key: source for m in models.values() for key, source in m.sources.items()},
        components=tuple(
            Component(name, roots[name], tuple(f.key for f in m.files), m.ir_version, m.opsets, m.producer)
            for name, m in models.items()
        ),
    )


def _files(folder: Path, models: Sequence[Model]) -> tuple[File, ...]:
    """Return the model files, then all files that they refer to, named relative to the artifact's folder."""
    root = folder.resolve()
    own = {model.files[0].key: model for model in models}
    main = (
        File(os.path.relpath(model.path, folder), model.files[0].nbytes, key) for key, model in own.items()
    )
    external = {file.key: file.nbytes for model in models for file in model.external}
    keys = sorted(external.keys() - own.keys())
    return (*main, *(File(os.path.relpath(key, root), external[key], key) for key in keys))


def _opsets(models: Iterable[Model]) -> tuple[tuple[str, int], ...]:
    """Return the highest version of each domain, which a runtime must support."""
    highest: dict[str, int] = {}
    for domain, version in itertools.chain.from_iterable(model.opsets for model in models):
        highest[domain] = max(version, highest.get(domain, version))
    return tuple(highest.items())


def _structure(models: Iterable[Model]) -> tuple[tuple[str, int], ...]:
    nbytes: Counter[str] = Counter()
    for model in models:
        nbytes.update(dict(model.structure))
    return tuple((account, nbytes[account]) for account in STRUCTURE)


def _below(root: GraphPath, model: Model) -> Iterator[Graph]:
    """Yield a model's graphs, with all paths below `root`."""
    paths = {graph.path: root + graph.path for graph in model.graphs}
    for graph in model.graphs:
        path, parent = paths[graph.path], graph.parent
        yield replace(
            graph,
            path=path,
            nodes=tuple(node._replace(graph_path=path) for node in graph.nodes),
            tensors=tuple(replace(tensor, graph_path=path) for tensor in graph.tensors),
            parent=None if parent is None else (paths[parent[0]], parent[1]),
        )
