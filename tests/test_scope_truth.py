"""Scopes of files from deployment tools, compared with the modules of PyTorch's parameters."""

from __future__ import annotations

from collections import defaultdict

import pytest
from exports import Exports
from samples import WHOLE, sampled

from analyzer import audit_model, load_manifest, reconcile_ledger
from analyzer.account.ledger import Ledger, Role
from analyzer.account.scopes import module_of
from analyzer.manifest import Manifest
from analyzer.model import Key
from analyzer.reconciliation import Reconciliation
from analyzer.reconciliation.names import align
from tools.matrix.transforms import transform_model

for package in ("torch", "transformers", "onnxruntime"):
    pytest.importorskip(package)

pytestmark = [
    pytest.mark.export,
    pytest.mark.time,
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore:invalid value encountered:RuntimeWarning"
    ),  # raised by the quantizer's calibration
]

UNPLACED = {"llama/default/ort-extended": {"lm_head"}, "t5/default/ort-extended": {"decoder"}}
"""Files with learned tensors without a scope, and the top-level modules of these tensors."""


def is_in(module: str, other: str) -> bool:
    return not other or f"{module}.".startswith(f"{other}.")


def true_modules(manifest: Manifest, result: Reconciliation) -> dict[Key, list[set[str]]]:
    """Return the modules of each parameter in each entry; a tied parameter has the modules of all its names."""
    names = {name: parameter.names for parameter in manifest.parameters for name in parameter.names}
    found: dict[Key, list[set[str]]] = defaultdict(list)
    for line in result.parameters:
        for key in line.entries:
            found[key].append({module_of(name) for name in names[line.name]})
    return found


def misplaced(ledger: Ledger, manifest: Manifest) -> tuple[list[str], set[str]]:
    """Return learned tensors outside their parameters' modules, and top-level modules of tensors without a scope."""
    result = reconcile_ledger(ledger, manifest)
    seen = (name for entry in ledger.entries for name in (entry.tensor.name, *entry.sources))
    in_pytorch = align(seen, [name for parameter in manifest.parameters for name in parameter.names]).module
    wrong, unplaced = [], set()
    for key, modules in true_modules(manifest, result).items():
        (entry,) = (entry for entry in ledger.entries if entry.tensor.key == key)
        assert entry.role is Role.PARAMETER
        if not entry.has_scope:
            unplaced |= {module.partition(".")[0] for homes in modules for module in homes}
        elif not all(any(is_in(home, in_pytorch(entry.scope)) for home in homes) for homes in modules):
            wrong.append(f"{entry.tensor.name} in {entry.scope} ({entry.scoped_by}), not {modules}")
    return wrong, unplaced


FORMS = [
    (name, via, transform)
    for name in ("bert", "gpt2", "llama", "t5", "vit")
    for via in ("default", "torchscript")
    for transform in ("ort-extended", "int8", "qdq")
    if (name, via) != ("llama", "torchscript") or WHOLE  # no other test exports it
]
CHECKED = [
    *FORMS[::3],  # all cases of ort-extended
    *((name, "default", "int8") for name in ("bert", "t5", "vit")),
    *((name, "torchscript", "qdq") for name in ("bert", "gpt2", "t5")),
]


@pytest.mark.parametrize(("name", "via", "transform"), sampled(FORMS, CHECKED))
def test_no_tensor_is_placed_outside_its_module(
    exported: Exports, name: str, via: str, transform: str
) -> None:
    files = exported(name, via=None if via == "default" else via).files
    path = files.model.with_name(f"{transform}.onnx")  # in the folder of the external data
    transform_model(transform, files.model, path)

    wrong, unplaced = misplaced(audit_model(path), load_manifest(files.manifest_path))

    assert not wrong
    assert unplaced == UNPLACED.get(f"{name}/{via}/{transform}", set())
