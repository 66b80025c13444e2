"""Models of torchvision, timm and diffusers, with their example inputs.

Each function is a factory that returns `(module, example inputs)`, called as `matrix.wide.zoo:torchvision_resnet`.
Sizes are the smallest that the library's own constructors accept. Nothing is downloaded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

Made = tuple[nn.Module, Any]


def _image(size: int = 64) -> tuple[Tensor]:
    return (torch.randn(2, 3, size, size),)


# torchvision


def torchvision_resnet() -> Made:
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10), _image()


def torchvision_detector() -> Made:
    """The backbone of Faster R-CNN: frozen BatchNorms and a feature pyramid, then its region proposal head."""
    from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
    from torchvision.models.detection.rpn import RPNHead
    from torchvision.models.resnet import BasicBlock, ResNet
    from torchvision.ops import FrozenBatchNorm2d

    class Backbone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = _resnet_fpn_extractor(
                ResNet(BasicBlock, [1, 1, 1, 1], norm_layer=FrozenBatchNorm2d), 3
            )
            self.head = RPNHead(256, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            scores, boxes = self.head(list(self.backbone(x).values()))
            return (*scores, *boxes)

    return Backbone(), _image()


def torchvision_densenet() -> Made:
    from torchvision.models import DenseNet

    return DenseNet(8, (2, 3, 2), 16, num_classes=10), _image()


def torchvision_inception() -> Made:
    """The first blocks of Inception v3, whose BatchNorms have an epsilon of 1e-3."""
    from torchvision.models import inception

    class Stem(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.Conv2d_1a_3x3 = inception.BasicConv2d(3, 16, kernel_size=3, stride=2)
            self.Mixed_5b = inception.InceptionA(16, pool_features=12)
            self.Mixed_6a = inception.InceptionB(236)
            self.fc = nn.Linear(716, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.Mixed_6a(self.Mixed_5b(self.Conv2d_1a_3x3(x))).mean((2, 3)))

    return Stem(), _image(48)


def torchvision_mobilenet_v3() -> Made:
    from torchvision.models import mobilenet_v3_small

    return mobilenet_v3_small(num_classes=10), _image()


def torchvision_efficientnet() -> Made:
    from torchvision.models.efficientnet import EfficientNet, FusedMBConvConfig, MBConvConfig

    settings = [
        FusedMBConvConfig(1, 3, 1, 16, 16, 1),
        FusedMBConvConfig(4, 3, 2, 16, 24, 2),
        MBConvConfig(4, 3, 2, 24, 40, 2),
    ]
    return EfficientNet(settings, 0.1, num_classes=10, last_channel=96), _image()


def torchvision_regnet() -> Made:
    from torchvision.models.regnet import BlockParams, RegNet

    parameters = BlockParams.from_init_params(
        depth=5, w_0=16, w_a=12.0, w_m=2.2, group_width=8, se_ratio=0.25
    )
    return RegNet(parameters, num_classes=10), _image()


def torchvision_mnasnet() -> Made:
    from torchvision.models import MNASNet

    return MNASNet(0.35, num_classes=10), _image()


def torchvision_vit() -> Made:
    from torchvision.models import VisionTransformer

    return VisionTransformer(32, 8, 2, 4, 48, 80, num_classes=10), _image(32)


def torchvision_swin_v2() -> Made:
    from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformer, SwinTransformerBlockV2

    parts = {"block": SwinTransformerBlockV2, "downsample_layer": PatchMergingV2}
    return SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10, **parts), _image()


def torchvision_maxvit() -> Made:
    from torchvision.models import MaxVit

    return MaxVit((64, 64), 16, 4, [16, 32], [1, 1], 8, 0.0, num_classes=10), _image()


def torchvision_convnext() -> Made:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return ConvNeXt([CNBlockConfig(24, 40, 2), CNBlockConfig(40, None, 2)], num_classes=10), _image()


def torchvision_lraspp() -> Made:
    from torchvision.models.segmentation.lraspp import LRASPPHead

    class Segmenter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.low, self.high = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 28, 3, 2, 1)
            self.classifier = LRASPPHead(16, 28, 5, 20)

        def forward(self, x: Tensor) -> Tensor:
            low = torch.relu(self.low(x))
            return self.classifier({"low": low, "high": torch.relu(self.high(low))})

    return Segmenter(), _image(32)


# timm


def _timm(name: str, size: int, **settings: Any) -> Made:
    import timm

    return timm.create_model(name, pretrained=False, num_classes=10, **settings), _image(size)


def timm_vit() -> Made:
    return _timm("test_vit", 160)


def timm_nfnet() -> Made:
    return _timm("test_nfnet", 96)


def timm_efficientnet_evos() -> Made:
    return _timm("test_efficientnet_evos", 96)


def timm_repvgg() -> Made:
    from timm.models.byobnet import ByoBlockCfg, ByobNet, ByoModelCfg

    blocks = tuple(ByoBlockCfg(type="rep", d=2, c=c, s=2) for c in (16, 24))
    return ByobNet(ByoModelCfg(blocks=blocks, stem_type="rep", stem_chs=12), num_classes=10), _image()


def timm_eva() -> Made:
    """Rotary positions in two dimensions, SwiGLU, a bias for queries and values only."""
    from timm.models.eva import Eva

    model = Eva(
        img_size=32, patch_size=8, num_classes=10, embed_dim=48, depth=2, num_heads=3, mlp_ratio=2.0, swiglu_mlp=True,
        use_rot_pos_emb=True, ref_feat_shape=(4, 4),
    )  # fmt: skip
    return model, _image(32)


def timm_xcit() -> Made:
    from timm.models.xcit import Xcit

    return Xcit(
        img_size=32, patch_size=8, num_classes=10, embed_dim=48, depth=1, num_heads=4, cls_attn_layers=1
    ), _image(32)


def timm_ghostnet() -> Made:
    from timm.models.ghostnet import GhostNet

    stages = [[[3, 16, 16, 0, 1]], [[3, 48, 24, 0.25, 2]], [[5, 72, 40, 0.25, 2]]]
    return GhostNet(stages, num_classes=10, width=0.5), _image()


# diffusers


def diffusers_unet_condition() -> Made:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=40,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    inputs = {
        "sample": torch.randn(2, 4, 16, 16),
        "timestep": torch.tensor([3, 500]),
        "encoder_hidden_states": torch.randn(2, 7, 40),
    }
    return model, inputs


def diffusers_autoencoder() -> Made:
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        layers_per_block=1,
        norm_num_groups=8,
    )
    return model, {"sample": torch.randn(2, 3, 32, 32)}


def diffusers_decoder() -> Made:
    """The decoder of an autoencoder, exported alone: the checkpoint has the encoder, too."""
    from diffusers import AutoencoderKL

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vae = diffusers_autoencoder()[0]
            assert isinstance(self.vae, AutoencoderKL)
            del self.vae.encoder, self.vae.quant_conv

        def forward(self, latent: Tensor) -> Tensor:
            return self.vae.decode(latent, return_dict=False)[0]

    return Decoder(), (torch.randn(2, 4, 8, 8),)


def diffusers_transformer() -> Made:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=3, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8, patch_size=2,
        norm_num_groups=8, num_embeds_ada_norm=12,
    )  # fmt: skip
    inputs = {
        "hidden_states": torch.randn(2, 4, 8, 8),
        "timestep": torch.tensor([3, 500]),
        "class_labels": torch.tensor([1, 7]),
    }
    return model, inputs


def diffusers_controlnet() -> Made:
    from diffusers import ControlNetModel

    model = ControlNetModel(
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        cross_attention_dim=40,
        attention_head_dim=8,
        norm_num_groups=8,
        conditioning_embedding_out_channels=(8, 12),
    )
    inputs = {
        "sample": torch.randn(2, 4, 16, 16),
        "timestep": torch.tensor([3, 500]),
        "encoder_hidden_states": torch.randn(2, 7, 40),
        "controlnet_cond": torch.randn(2, 3, 32, 32),
    }
    return model, inputs
