"""A plain module without transformers: convolutions, norms and linear layers with distinct sizes."""

from __future__ import annotations

from typing import Any

__all__ = ["SOURCE", "build"]

SOURCE = "tools.suite.net:build"
_SEED = 5


def build() -> tuple[Any, tuple[Any, ...]]:
    """Return the module with random weights, and inputs for its export."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.up = nn.Linear(width, 96)
            self.act = nn.GELU()
            self.down = nn.Linear(96, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = x + self.down(self.act(self.up(self.norm(x))))
            return out

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 24, 3, stride=2, padding=1)
            self.bn = nn.BatchNorm2d(24)
            self.mix = nn.Conv2d(24, 24, 3, padding=1)
            self.act = nn.LeakyReLU(0.1)
            self.last = nn.Conv2d(24, 32, 3, padding=1, stride=2)
            self.square = nn.Linear(32, 32)
            self.blocks = nn.ModuleList(Block(32) for _ in range(2))
            self.head = nn.Linear(32, 10)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            x = self.act(self.bn(self.stem(image)))
            x = torch.relu(self.last(x + self.mix(x)))
            x = self.square(x.flatten(2).transpose(1, 2))
            for block in self.blocks:
                x = block(x)
            return torch.softmax(self.head(x.mean(1)), -1)

    with torch.random.fork_rng():
        torch.manual_seed(_SEED)
        net = Net()
        with torch.no_grad():
            for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
                if tensor.dtype.is_floating_point:
                    tensor.add_(0.1 * torch.randn(tensor.shape))
                    if "running_var" in name:
                        tensor.abs_().add_(0.5)
        image = torch.randn(2, 3, 16, 16)
    return net.eval(), (image,)
