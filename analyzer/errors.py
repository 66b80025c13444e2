"""All exceptions of onnxledger, drawn as a tree. Raising one means "could not answer" (exit 2).

```
OnnxLedgerError             base; each message tells the event, the place and a remedy
├── ModelReadError          not ONNX, truncated, unsupported
│   └── ExternalDataError   a referenced weights file is absent, too short, or outside the model's folder
├── ManifestError           the PyTorch side is unreadable, or written for another schema
├── SourceError             SOURCE names nothing that can be resolved to a model
├── ExportError             torch.onnx failed; the cause is chained
├── LedgerError             an identity of the account does not hold: a defect of onnxledger itself
├── TimingError             the model cannot be run, or ended the process that ran it
├── CostError               the cost of the model cannot be computed
├── FormulaError            no count follows from a config: a field is missing, of the wrong type, or no size
├── UsageError              options that contradict each other or name nothing
├── ConfigError             a config is unreadable or wrong; has a message line for each mistake
└── MissingExtraError       names the extra to install
```

Findings of an audit in a readable file are data (`analyzer.account.ledger.Finding`), never exceptions.
"""

from __future__ import annotations

from collections.abc import Iterable


class OnnxLedgerError(Exception):
    """Base of all errors: the question cannot be answered."""


class ModelReadError(OnnxLedgerError):
    """The file cannot be read as an ONNX model."""


class ExternalDataError(ModelReadError):
    """A tensor's external data cannot be read where the file says it is."""


class ManifestError(OnnxLedgerError):
    """The PyTorch side cannot be read."""


class SourceError(OnnxLedgerError):
    """SOURCE cannot be resolved to a PyTorch model."""


class ExportError(OnnxLedgerError):
    """The export failed; the cause is chained."""


class LedgerError(OnnxLedgerError):
    """An identity that must hold for every file does not: a defect to report, never a result to print."""


class TimingError(OnnxLedgerError):
    """The model cannot be run, or ended the process that ran it."""


class CostError(OnnxLedgerError):
    """The cost of a model cannot be computed."""


class FormulaError(OnnxLedgerError):
    """No count follows from the config."""


class UsageError(OnnxLedgerError):
    """The options contradict each other or name nothing."""


class ConfigError(OnnxLedgerError):
    """A config cannot be used. Its message has a line for each mistake."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(self.mistakes))


class MissingExtraError(OnnxLedgerError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, module: str, purpose: str) -> None:
        super().__init__(
            f'{purpose} needs {module}, which is not installed: pip install "onnxledger[{extra}]"'
        )
        self.extra = extra
