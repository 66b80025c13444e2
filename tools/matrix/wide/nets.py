"""Plain modules as users write them: each function is a factory that returns `(module, example inputs)`.

They are called as `matrix.wide.nets:lstm_tagger`, and have parts that library layers lack: weights that are computed
from others, tables that several modules share, packed weights that are split, gates and sequences.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the usual name
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

Made = tuple[nn.Module, Any]


def _image(size: int = 24, channels: int = 3) -> tuple[Tensor]:
    return (torch.randn(2, channels, size, size),)


def _ids(vocabulary: int = 61, length: int = 9) -> tuple[Tensor]:
    return (torch.randint(0, vocabulary, (2, length)),)


class LstmTagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(61, 20)
        self.lstm = nn.LSTM(20, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(48, 7)

    def forward(self, ids: Tensor) -> Tensor:
        return self.tags(self.lstm(self.words(ids))[0])


def lstm_tagger() -> Made:
    return LstmTagger(), _ids()


class ProjectedLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(18, 28, proj_size=12)
        self.out = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.lstm(x)[0][-1])


def lstm_projected() -> Made:
    return ProjectedLstm(), (torch.randn(9, 2, 18),)


class GruSequence(nn.Module):
    """An encoder and a decoder of GRUs with one word table, and dot-product attention between them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(61, 24)
        self.encoder = nn.GRU(24, 28, batch_first=True)
        self.decoder = nn.GRU(24, 28, batch_first=True)
        self.mix = nn.Linear(56, 24)
        self.output = nn.Linear(24, 61, bias=False)
        self.output.weight = self.words.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, state = self.encoder(self.words(source))
        steps, _ = self.decoder(self.words(target), state)
        seen = torch.softmax(steps @ memory.transpose(1, 2), -1) @ memory
        return self.output(torch.tanh(self.mix(torch.cat([steps, seen], -1))))


def gru_seq2seq() -> Made:
    return GruSequence(), (torch.randint(0, 61, (2, 9)), torch.randint(0, 61, (2, 7)))


class CellLoop(nn.Module):
    """Recurrent cells in a Python loop, which a tracer unrolls."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(14, 22), nn.GRUCell(22, 18), nn.RNNCell(18, 10)

    def forward(self, x: Tensor) -> Tensor:
        h, c = x.new_zeros(x.shape[1], 22), x.new_zeros(x.shape[1], 22)
        g, r = x.new_zeros(x.shape[1], 18), x.new_zeros(x.shape[1], 10)
        for step in x.unbind(0):
            h, c = self.lstm(step, (h, c))
            g = self.gru(h, g)
            r = self.rnn(g, r)
        return r


def rnn_cells() -> Made:
    return CellLoop(), (torch.randn(4, 2, 14),)


class SpectralDiscriminator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = spectral_norm(nn.Conv2d(3, 12, 3, padding=1))
        self.second = parametrizations.spectral_norm(nn.Conv2d(12, 20, 4, stride=2, padding=1))
        self.score = parametrizations.spectral_norm(nn.Linear(20, 5))

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.second(F.leaky_relu(self.first(x), 0.2)), 0.2)
        return self.score(x.mean((2, 3)))


def spectral_discriminator() -> Made:
    return SpectralDiscriminator(), _image()


class WeightNormVocoder(nn.Module):
    """Transposed and dilated convolutions with the old weight norm, as in vocoders."""

    def __init__(self) -> None:
        super().__init__()
        self.pre = weight_norm(nn.Conv1d(10, 24, 7, padding=3))
        self.up = weight_norm(nn.ConvTranspose1d(24, 14, 4, stride=2, padding=1))
        self.dilated = nn.ModuleList(weight_norm(nn.Conv1d(14, 14, 3, dilation=d, padding=d)) for d in (1, 3))
        self.post = weight_norm(nn.Conv1d(14, 1, 7, padding=3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(F.leaky_relu(self.pre(x), 0.1))
        for layer in self.dilated:
            x = x + layer(F.leaky_relu(x, 0.1))
        return torch.tanh(self.post(x))


def weightnorm_vocoder() -> Made:
    return WeightNormVocoder(), (torch.randn(2, 10, 16),)


class CausalConvolutions(nn.Module):
    """A temporal convolutional network with the parametrized weight norm, along another axis at one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.a = parametrizations.weight_norm(nn.Conv1d(9, 16, 3))
        self.b = parametrizations.weight_norm(nn.Conv1d(16, 20, 3, dilation=2), dim=1)
        self.c = parametrizations.weight_norm(nn.Linear(20, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.a(F.pad(x, (2, 0))))
        x = torch.relu(self.b(F.pad(x, (4, 0))))
        return self.c(x[:, :, -1])


def weightnorm_tcn() -> Made:
    return CausalConvolutions(), (torch.randn(2, 9, 12),)


class StandardizedConv(nn.Conv2d):
    """Weight standardization, computed from the weight at each call, as in BiT."""

    def forward(self, x: Tensor) -> Tensor:
        mean = self.weight.mean((1, 2, 3), keepdim=True)
        variance = self.weight.var((1, 2, 3), keepdim=True, unbiased=False)
        weight = (self.weight - mean) / torch.sqrt(variance + 1e-6)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


def weight_standardized() -> Made:
    layers = [
        StandardizedConv(3, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        StandardizedConv(16, 24, 3, stride=2, padding=1, bias=False),
        nn.GroupNorm(6, 24),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 7),
    ]
    return nn.Sequential(*layers), _image()


class Unet(nn.Module):
    """Group norms, skips, a bilinear resize and a pixel shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU())
        self.deep = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.GroupNorm(8, 32), nn.SiLU())
        self.up = nn.Conv2d(32, 20, 1)
        self.join = nn.Conv2d(36, 12 * 4, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)
        self.out = nn.Conv2d(12, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down(x)
        deep = F.interpolate(
            self.up(self.deep(first)), scale_factor=2.0, mode="bilinear", align_corners=False
        )
        return self.out(self.shuffle(self.join(torch.cat([first, deep], 1))))


def unet_groupnorm() -> Made:
    return Unet(), _image()


class BilinearMatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(10, 14), nn.Linear(12, 18)
        self.match = nn.Bilinear(14, 18, 6)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.match(torch.tanh(self.left(a)), torch.tanh(self.right(b)))


def bilinear_match() -> Made:
    return BilinearMatch(), (torch.randn(2, 10), torch.randn(2, 12))


class CrossAttention(nn.Module):
    """Keys and values of other widths than queries, so that the three projections are separate tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(24, 4, kdim=20, vdim=28, batch_first=True)
        self.norm = nn.LayerNorm(24)

    def forward(self, x: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.norm(x + self.attend(x, key, value, need_weights=False)[0])


def attention_kdim() -> Made:
    return CrossAttention(), (torch.randn(2, 5, 24), torch.randn(2, 7, 20), torch.randn(2, 7, 28))


class MemoryAttention(nn.Module):
    """Queries and keys from different inputs, so that the packed `in_proj_weight` is split; learned extra keys."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(6, 1, 24))
        self.attend = nn.MultiheadAttention(24, 3, add_bias_kv=True)
        self.out = nn.Linear(24, 9)

    def forward(self, memory: Tensor) -> Tensor:
        queries = self.queries.expand(-1, memory.shape[1], -1)
        return self.out(self.attend(queries, memory, memory)[0])


def attention_memory() -> Made:
    return MemoryAttention(), (torch.randn(8, 2, 24),)


class SharedTables(nn.Module):
    """One table for source, target and output; another table that two modules share."""

    def __init__(self) -> None:
        super().__init__()
        self.source = nn.Embedding(61, 24)
        self.target = nn.Embedding(61, 24)
        self.target.weight = self.source.weight
        self.places = nn.Embedding(16, 24)
        self.also_places = self.places
        self.layer = nn.Linear(24, 24)
        self.head = nn.Linear(24, 61)
        self.head.weight = self.source.weight

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        steps = torch.arange(a.shape[1], device=a.device)
        x = self.source(a) + self.places(steps)
        y = self.target(b) + self.also_places(steps)
        return self.head(torch.relu(self.layer(x)) * self.layer(y))


def shared_tables() -> Made:
    return SharedTables(), (torch.randint(0, 61, (2, 9)), torch.randint(0, 61, (2, 9)))


class EncoderClassifier(nn.Module):
    def __init__(self, norm_first: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(61, 24)
        self.register_buffer("positions", _sinusoids(32, 24))
        layer = nn.TransformerEncoderLayer(
            24, 4, 40, batch_first=True, norm_first=norm_first, activation="gelu"
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(24, 6)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) * math.sqrt(24) + self.positions[: ids.shape[1]]
        return self.out(self.encoder(x)[:, 0])


def _sinusoids(length: int, width: int) -> Tensor:
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def transformer_encoder() -> Made:
    return EncoderClassifier(norm_first=False), _ids()


class Translator(nn.Module):
    """`nn.Transformer` with a causal mask computed at run time."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(61, 24)
        self.core = nn.Transformer(24, 4, 1, 2, 40, batch_first=True)
        self.out = nn.Linear(24, 61)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.out(self.core(self.words(source), self.words(target), tgt_mask=mask))


def transformer_seq2seq() -> Made:
    return Translator(), (torch.randint(0, 61, (2, 9)), torch.randint(0, 61, (2, 7)))


class ConvBlock(nn.Module):
    def __init__(self, inside: int, outside: int, size: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, size, stride, size // 2, bias=False)
        self.bn = nn.BatchNorm2d(outside, eps=1e-3, momentum=0.03)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.bn(self.conv(x)))


class Bottlenecks(nn.Module):
    """YOLO's C2f: halves of one convolution, joined at the end."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.half = outside // 2
        self.cv1 = ConvBlock(inside, 2 * self.half, 1)
        self.cv2 = ConvBlock(3 * self.half, outside, 1)
        self.m = nn.Sequential(ConvBlock(self.half, self.half), ConvBlock(self.half, self.half))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.cv1(x).chunk(2, 1)
        return self.cv2(torch.cat([a, b, b + self.m(b)], 1))


class Yolo(nn.Module):
    """A backbone, a neck with nearest upsampling, two scales, boxes by a fixed convolution over bins (DFL)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stage1 = ConvBlock(3, 16, stride=2), Bottlenecks(16, 24)
        self.stage2 = nn.Sequential(ConvBlock(24, 32, stride=2), Bottlenecks(32, 32))
        self.neck = Bottlenecks(56, 24)
        self.boxes = nn.ModuleList(nn.Sequential(ConvBlock(c, 16), nn.Conv2d(16, 4 * 8, 1)) for c in (24, 32))
        self.classes = nn.ModuleList(nn.Sequential(ConvBlock(c, 20), nn.Conv2d(20, 5, 1)) for c in (24, 32))
        self.dfl = nn.Conv2d(8, 1, 1, bias=False).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.stage1(self.stem(x))
        coarse = self.stage2(fine)
        fine = self.neck(torch.cat([fine, F.interpolate(coarse, scale_factor=2.0)], 1))
        found = []
        for level, boxes, classes in zip((fine, coarse), self.boxes, self.classes, strict=True):
            b = boxes(level).flatten(2)
            bins = b.view(b.shape[0], 4, 8, -1).transpose(2, 1).softmax(1)
            found.append(torch.cat([self.dfl(bins).squeeze(1), classes(level).flatten(2).sigmoid()], 1))
        return torch.cat(found, 2)


def yolo() -> Made:
    return Yolo(), _image(32)


class ConvAutoencoder(nn.Module):
    """Strided and transposed convolutions with BatchNorm and PReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 14, 3, 2, 1),
            nn.BatchNorm2d(14),
            nn.PReLU(14),
            nn.Conv2d(14, 26, 3, 2, 1),
            nn.PReLU(),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(26, 18, 4, 2, 1),
            nn.BatchNorm2d(18),
            nn.PReLU(18),
            nn.ConvTranspose2d(18, 3, 4, 2, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))


def conv_autoencoder() -> Made:
    return ConvAutoencoder(), _image()


class Separable(nn.Module):
    """Depthwise and pointwise convolutions, a squeeze-and-excitation gate, a channel shuffle of groups."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 3, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(24)
        self.depthwise = nn.Conv2d(24, 24, 5, padding=2, groups=24, bias=False)
        self.bn2 = nn.BatchNorm2d(24)
        self.squeeze, self.excite = nn.Conv2d(24, 6, 1), nn.Conv2d(6, 24, 1)
        self.grouped = nn.Conv2d(24, 36, 1, groups=3)
        self.head = nn.Linear(36, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.bn(self.stem(x)))
        x = F.hardswish(self.bn2(self.depthwise(x)))
        x = x * F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))
        x = F.channel_shuffle(self.grouped(x), 3) if not torch.onnx.is_in_onnx_export() else self.grouped(x)
        return self.head(x.mean((2, 3)))


def separable_gated() -> Made:
    return Separable(), _image()


class NormZoo(nn.Module):
    """Instance, batch, group, layer norms over several axes, and a local response."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 3, padding=1)
        self.instance = nn.InstanceNorm2d(12, affine=True)
        self.tracked = nn.InstanceNorm2d(12, affine=True, track_running_stats=True)
        self.group = nn.GroupNorm(3, 12)
        self.layer = nn.LayerNorm((12, 10, 10))
        self.bare = nn.LayerNorm(10, elementwise_affine=False)
        self.batch = nn.BatchNorm2d(12, affine=False)
        self.flat = nn.BatchNorm1d(12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.tracked(self.instance(self.conv(x)))
        x = self.batch(self.bare(self.layer(F.relu(self.group(x)))))
        return self.flat(x.mean((2, 3)))


def norm_zoo() -> Made:
    return NormZoo(), _image(10)


class ScaledRms(nn.Module):
    def __init__(self, width: int, shifted: bool) -> None:
        super().__init__()
        self.weight, self.shifted = nn.Parameter(torch.randn(width) * 0.1), shifted

    def forward(self, x: Tensor) -> Tensor:
        gain = 1.0 + self.weight if self.shifted else self.weight
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * gain


class RotaryDecoder(nn.Module):
    """A hand-written decoder: rotary table as a buffer, packed QKV, SwiGLU, grouped keys."""

    def __init__(self, shifted: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(61, 32)
        self.norm1, self.norm2 = ScaledRms(32, shifted), ScaledRms(32, shifted)
        self.qkv, self.out = nn.Linear(32, 32 + 2 * 16, bias=False), nn.Linear(32, 32, bias=False)
        self.gate_up, self.down = nn.Linear(32, 88, bias=False), nn.Linear(44, 32, bias=False)
        frequency = 1.0 / 1e4 ** (torch.arange(0, 8, 2) / 8)
        angles = torch.arange(24)[:, None] * frequency
        self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angles.sin().repeat(1, 2), persistent=False)
        self.temperature = nn.Parameter(torch.tensor(1.3))

    def _turn(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        length = x.shape[-2]
        return x * self.cos[:length] + torch.cat([-b, a], -1) * self.sin[:length]

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split([32, 16, 16], -1)
        q = self._turn(q.view(batch, length, 4, 8).transpose(1, 2))
        k = self._turn(k.view(batch, length, 2, 8).transpose(1, 2)).repeat_interleave(2, 1)
        v = v.view(batch, length, 2, 8).transpose(1, 2).repeat_interleave(2, 1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        x = x + self.down(F.silu(gate) * up)
        return F.linear(x, self.words.weight) / self.temperature


def rotary_shifted() -> Made:
    return RotaryDecoder(shifted=True), _ids()


class Experts(nn.Module):
    """A soft mixture whose experts are stacked in one parameter and multiplied by einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(20, 3)
        self.up, self.down = nn.Parameter(torch.randn(3, 20, 28)), nn.Parameter(torch.randn(3, 28, 20))
        self.bias = nn.Parameter(torch.randn(3, 28))

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(torch.einsum("btd,edh->bteh", x, self.up) + self.bias)
        each = torch.einsum("bteh,ehd->bted", hidden, self.down)
        return (self.gate(x).softmax(-1)[..., None] * each).sum(2)


def soft_experts() -> Made:
    return Experts(), (torch.randn(2, 5, 20),)


class TiedAutoencoder(nn.Module):
    """The decoder is the transposed weight of the encoder; one bias is negated, another goes through softplus."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(30, 18)
        self.bias = nn.Parameter(torch.randn(30))
        self.spread = nn.Parameter(torch.randn(18))

    def forward(self, x: Tensor) -> Tensor:
        code = torch.relu(self.encoder(x)) * F.softplus(self.spread)
        return F.linear(code, self.encoder.weight.t(), -self.bias)


def tied_autoencoder() -> Made:
    return TiedAutoencoder(), (torch.randn(2, 30),)


class Recommender(nn.Module):
    """Category tables, a bag of words, a cross network, BatchNorm over features."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 8) for n in (13, 29, 41))
        self.norm = nn.BatchNorm1d(30)
        self.cross = nn.ParameterList(nn.Parameter(torch.randn(30, 1) * 0.2) for _ in range(2))
        self.deep = nn.Sequential(
            nn.Linear(30, 22), nn.BatchNorm1d(22), nn.ReLU(), nn.Linear(22, 11), nn.Dropout()
        )
        self.out = nn.Linear(41, 1)

    def forward(self, categories: Tensor, numbers: Tensor) -> Tensor:
        found = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        x0 = self.norm(torch.cat([*found, numbers], 1))
        x = x0
        for weight in self.cross:
            x = x0 * (x @ weight) + x
        return self.out(torch.cat([x, self.deep(x0)], 1)).sigmoid()


def recommender() -> Made:
    return Recommender(), (torch.randint(0, 13, (2, 3)), torch.randn(2, 6))


class ConvLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Conv2d(3 + 10, 40, 3, padding=1)
        self.peephole = nn.Parameter(torch.randn(1, 10, 1, 1))
        self.out = nn.Conv2d(10, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], 10, x.shape[3], x.shape[4])
        c = h
        for step in x.unbind(1):
            i, f, o, g = self.gates(torch.cat([step, h], 1)).chunk(4, 1)
            c = torch.sigmoid(f + self.peephole * c) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.out(h)


def conv_lstm() -> Made:
    return ConvLstm(), (torch.randn(2, 3, 3, 12, 12),)


class GraphNet(nn.Module):
    """Graph convolutions with the adjacency matrix as an input, and the same weight applied twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.pass_on = nn.Linear(7, 24), nn.Linear(24, 24)
        self.gru = nn.GRUCell(24, 24)
        self.attention = nn.Parameter(torch.randn(24))
        self.out = nn.Linear(24, 3)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        x = self.embed(nodes)
        for _ in range(2):
            message = edges @ self.pass_on(x)
            x = self.gru(message.flatten(0, 1), x.flatten(0, 1)).view_as(x)
        weights = torch.softmax(x @ self.attention, 1)
        return self.out((weights[..., None] * x).sum(1))


def graph_net() -> Made:
    return GraphNet(), (torch.randn(2, 5, 7), torch.rand(2, 5, 5))


class Nerf(nn.Module):
    """Fourier features from a fixed random matrix, a skip, sine activations with learned frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.randn(3, 16) * 4)
        self.layers = nn.ModuleList([nn.Linear(32, 40), nn.Linear(40, 40), nn.Linear(72, 40)])
        self.omega = nn.Parameter(torch.rand(3) * 3 + 1)
        self.color = nn.Linear(40, 4)

    def forward(self, x: Tensor) -> Tensor:
        angles = 2 * math.pi * x @ self.frequencies
        features = torch.cat([angles.sin(), angles.cos()], -1)
        h = torch.sin(self.omega[0] * self.layers[0](features))
        h = torch.sin(self.omega[1] * self.layers[1](h))
        h = torch.sin(self.omega[2] * self.layers[2](torch.cat([h, features], -1)))
        return self.color(h)


def fourier_field() -> Made:
    return Nerf(), (torch.randn(2, 6, 3),)


class VideoNet(nn.Module):
    """3-D convolutions, factored in space and time, with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.space, self.time = (
            nn.Conv3d(3, 14, (1, 3, 3), padding=(0, 1, 1), bias=False),
            nn.Conv3d(14, 22, (3, 1, 1)),
        )
        self.norm = nn.BatchNorm3d(14)
        self.head = nn.Linear(22, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.time(F.relu(self.norm(self.space(x))))).mean((2, 3, 4)))


def video_conv3d() -> Made:
    return VideoNet(), (torch.randn(2, 3, 5, 10, 10),)


class Highway(nn.Module):
    """Character convolutions of several widths, highway layers, an ensemble of three heads of equal shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(40, 15, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(15, 12, width) for width in (2, 3, 4))
        self.gates = nn.ModuleList(nn.Linear(36, 72) for _ in range(2))
        self.heads = nn.ModuleList(nn.Linear(36, 4) for _ in range(3))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.characters(ids).transpose(1, 2)
        x = torch.cat([conv(x).amax(2) for conv in self.convolutions], 1)
        for layer in self.gates:
            value, gate = layer(x).chunk(2, 1)
            x = torch.sigmoid(gate) * torch.relu(value) + (1 - torch.sigmoid(gate)) * x
        return torch.stack([head(x) for head in self.heads]).mean(0)


def character_highway() -> Made:
    return Highway(), _ids(40, 12)


class Variational(nn.Module):
    """A flow with masks and triangular weights, which are computed from parameters at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.lower, self.upper = (
            nn.Parameter(torch.randn(12, 12) * 0.2),
            nn.Parameter(torch.randn(12, 12) * 0.2),
        )
        self.log_scale = nn.Parameter(torch.randn(12) * 0.1)
        self.shift = nn.Parameter(torch.randn(1, 12))
        self.register_buffer("eye", torch.eye(12))
        self.net = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 12))

    def forward(self, x: Tensor) -> Tensor:
        lower = torch.tril(self.lower, -1) + self.eye
        upper = torch.triu(self.upper, 1) + torch.diag(torch.exp(self.log_scale))
        x = (x + self.shift) @ (lower @ upper)
        kept, moved = x.chunk(2, 1)
        scale, shift = self.net(kept).chunk(2, 1)
        return torch.cat([kept, moved * torch.exp(torch.tanh(scale)) + shift], 1)


def normalizing_flow() -> Made:
    return Variational(), (torch.randn(2, 12),)


class Siamese(nn.Module):
    """One tower applied twice; cosine prototypes; a learned scale stored as a logarithm."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2, 2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 20),
        )
        self.prototypes = nn.Parameter(torch.randn(9, 20))
        self.log_scale = nn.Parameter(torch.tensor(1.7))

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        x, y = F.normalize(self.tower(a), dim=-1), F.normalize(self.tower(b), dim=-1)
        logits = x @ F.normalize(self.prototypes, dim=-1).t() * self.log_scale.exp()
        return (x * y).sum(-1), logits


def siamese_cosine() -> Made:
    return Siamese(), (torch.randn(2, 3, 24, 24), torch.randn(2, 3, 24, 24))


class DeepSpeech(nn.Module):
    """Convolutions over spectrograms, then a bidirectional GRU, then a row convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 8, (5, 3), (2, 1), (2, 1), bias=False), nn.BatchNorm2d(8), nn.Hardtanh(0, 20)
        )
        self.rnn = nn.GRU(8 * 10, 18, bidirectional=True)
        self.norm = nn.BatchNorm1d(36)
        self.lookahead = nn.Conv1d(36, 36, 3, groups=36, bias=False, padding=1)
        self.out = nn.Linear(36, 15, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = self.rnn(x.flatten(1, 2).permute(2, 0, 1))[0].permute(1, 2, 0)
        return self.out(self.lookahead(self.norm(x)).transpose(1, 2))


def deep_speech() -> Made:
    return DeepSpeech(), (torch.randn(2, 1, 20, 13),)


class Mixer(nn.Module):
    """Patches by a strided convolution, token and channel mixing, layer scales, a class token and positions."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 28, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, 28))
        self.positions = nn.Parameter(torch.randn(1, 10, 28) * 0.1)
        self.norm1, self.norm2 = nn.LayerNorm(28), nn.LayerNorm(28)
        self.tokens = nn.Sequential(nn.Linear(10, 18), nn.GELU(), nn.Linear(18, 10))
        self.channels = nn.Sequential(nn.Linear(28, 50), nn.GELU(), nn.Linear(50, 28))
        self.scale = nn.Parameter(torch.full((28,), 0.1))
        self.head = nn.Linear(28, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.scale * self.channels(self.norm2(x))
        return self.head(x[:, 0])


def token_mixer() -> Made:
    return Mixer(), _image()


class RelativeAttention(nn.Module):
    """A learned bias for each head and offset, gathered by a buffer of indices, as in window attention."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 24)
        self.table = nn.Parameter(torch.randn(49, 3) * 0.2)
        axes = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        offsets = axes[:, :, None] - axes[:, None, :] + 3
        self.register_buffer("index", offsets[0] * 7 + offsets[1])

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, 3, 8).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.index.flatten()].view(length, length, 3).permute(2, 0, 1)
        seen = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(8) + bias, -1)
        return self.out((seen @ v).transpose(1, 2).reshape(batch, length, width))


def window_attention() -> Made:
    return RelativeAttention(), (torch.randn(2, 16, 24),)


class StateSpace(nn.Module):
    """A diagonal state space: -exp of a parameter, softplus of another, unrolled over a few steps."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(12, 20, bias=False), nn.Linear(20, 12, bias=False)
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, 9.0)).repeat(20, 1))
        self.B, self.C = nn.Linear(20, 8, bias=False), nn.Linear(20, 8, bias=False)
        self.dt = nn.Parameter(torch.randn(20))
        self.D = nn.Parameter(torch.ones(20))

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        decay = torch.exp(-torch.exp(self.A_log) * F.softplus(self.dt)[:, None])
        state, made = x.new_zeros(x.shape[0], 20, 8), []
        for step in x.unbind(1):
            state = state * decay + step[..., None] * self.B(step)[:, None]
            made.append((state * self.C(step)[:, None]).sum(-1) + self.D * step)
        return self.out(torch.stack(made, 1))


def state_space() -> Made:
    return StateSpace(), (torch.randn(2, 4, 12),)
