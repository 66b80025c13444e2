"""Operator -> its kind and the role of each of its inputs: the one table that all rules query.

Sources: ONNX docs/Operators.md and docs/Operators-ml.md (1.23, with the inputs of earlier versions), onnxruntime
docs/ContribOperators.md (1.32) and the schemas that it registers, onnxruntime-extensions docs/custom_ops.md and its
`operators/` folder (by hand: it has no schemas). `tests/model/test_operators.py` checks the table against the first
two.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping

from analyzer.model import DEFAULT_DOMAIN, Node
from analyzer.records import Frozen


class Slot(enum.StrEnum):
    """Role of an input of an operator."""

    DATA = "data"
    """Activations that the operator computes with. A stored tensor there is an operand."""
    LEARNED = "learned"
    """A weight if it is stored. Either side of a product may be one."""
    BIAS = "bias"
    """Addend of a product or a norm, if it is stored."""
    CODES = "codes"
    """Quantized numbers: weights if they are stored, else activations."""
    SCALE = "scale"
    ZERO_POINT = "zero-point"
    BUFFER = "buffer"
    """Running statistics and rotary tables: numbers that a module keeps but does not learn."""
    INDEX = "index"
    """Indices, shapes, axes, repeats, pads, conditions, lengths, counts, regions, masks of integers: they control the
    computation and contribute no numbers to the result."""
    CONSTANT = "constant"
    """Bounds and values that only parametrize the computation, in Clip, Pad and Range."""
    TABLE = "table"
    """Table in which rows are looked up."""


class Kind(enum.StrEnum):
    """Kind of an operator's computation."""

    PRODUCT = "product"
    """Multiplies matrices, one of which may be a weight."""
    CONVOLUTION = "convolution"
    RECURRENT = "recurrent"
    ATTENTION = "attention"
    """Computes attention, perhaps with projections of its own."""
    NORMALIZES = "normalizes"
    ELEMENTWISE = "elementwise"
    """Computes a number for each number: activations, arithmetic, comparisons, softmax, rotations, sums along an axis.
    """
    REDUCES = "reduces"
    """Takes sums, means, extremes or the top elements along axes."""
    MOVES = "moves"
    """Transposes, cuts, joins, repeats, pads or casts its input, and computes nothing."""
    LOOKS_UP = "looks-up"
    """Takes rows or elements of a table."""
    MEASURES = "measures"
    """Reads only the size of a value, or whether it is present."""
    QUANTIZES = "quantizes"
    DECODES = "decodes"
    RANDOM = "random"
    MAKES = "makes"
    """Makes numbers from settings alone."""
    POOLS = "pools"
    """Takes a mean or an extreme of windows, or interpolates."""
    CONTROL = "control"
    """Runs the graphs that it holds."""
    SEQUENCE = "sequence"
    """Packs and unpacks sequences and optional values."""
    TEXT = "text"
    MODEL = "model"
    """Is a classic machine-learning model, or a step of its preprocessing: trees, support vectors, encoders."""
    OTHER = "other"


class Operator(Frozen):
    """One operator of one domain."""

    domain: str
    """Domain as in files, but "" for ONNX's own operators."""
    op_type: str
    kind: Kind
    slots: tuple[Slot, ...]
    """Role of each input, over all versions of the operator, up to the first variadic one."""
    rest: Slot
    """Role of any further input: data, unless the operator is variadic."""
    moved: frozenset[int] | None
    """Inputs whose elements are copied into the result, if the operator changes no number: the first of Reshape, the
    second and the third of Where. None for all inputs, as of Concat."""
    again: int = 0
    """Number of last slots that repeat for further inputs: 1 for Concat, 3 for QLinearConcat; 0 if none do."""

    def slot(self, index: int) -> Slot:
        """Return the role of an input, counted from 0; a tensor in an attribute (-1) is a constant."""
        if index < 0:
            return Slot.CONSTANT
        if index < len(self.slots):
            return self.slots[index]
        if self.again:
            return self.slots[len(self.slots) - self.again + (index - len(self.slots)) % self.again]
        return self.rest

    def passes_on(self, index: int) -> bool:
        """Whether the elements of an input reach the output unchanged: moved, cut, joined, repeated, chosen or cast."""
        return index >= 0 and (self.moved is None or index in self.moved)


_LETTERS = {
    "d": Slot.DATA,
    "w": Slot.LEARNED,
    "b": Slot.BIAS,
    "q": Slot.CODES,
    "s": Slot.SCALE,
    "z": Slot.ZERO_POINT,
    "u": Slot.BUFFER,
    "i": Slot.INDEX,
    "c": Slot.CONSTANT,
    "t": Slot.TABLE,
}
"""Letter of each role. A capital letter marks an input that is passed on unchanged. `*`: the last letter may repeat,
`*3`: the last three."""

_ONNX = """
product      ww       MatMul
             w*       Einsum
             wwb      Gemm
             qqzz     MatMulInteger
             qszqszsz QLinearMatMul
convolution  dwb      Conv ConvTranspose
             dwbd     CausalConvWithState
             dwdbd    DeformConv
             qqzz     ConvInteger
             qszqszszb QLinearConv
recurrent    dwwbid   GRU RNN
             dwwbiddw LSTM
attention    dddddd   LinearAttention
             ddddddi  Attention
normalizes   d        LRN LpNormalization MeanVarianceNormalization
             dw       RMSNormalization
             dwb      GroupNormalization InstanceNormalization LayerNormalization
             dwbuu    BatchNormalization
elementwise  d        Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu
                      HardSigmoid HardSwish Hardmax IsInf IsNaN LeakyRelu Log LogSoftmax Mish Neg Not Reciprocal Relu
                      Round Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh
                      ThresholdedRelu
             dd       Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less
                      LessOrEqual Mod Mul Or Pow Sub SwiGLU Xor
             d*       Max Mean Min Sum
             dw       PRelu
             dcc      Clip
             di       CumProd CumSum Trilu
             duui     RotaryEmbedding
             iDD      Where
reduces      d        ArgMax ArgMin Det
             di       ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
                      ReduceSum ReduceSumSquare TopK
             did      NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss
moves        D        BitCast Cast DepthToSpace Flatten Identity SpaceToDepth Transpose
             Di       CastLike CenterCropPad Compress Expand Reshape ReverseSequence Split Squeeze Unsqueeze
             Dii      Tile
             Diiii    Slice
             Dici     Pad
             Dci      Dropout
             D*       Concat
             DiD      Scatter ScatterElements ScatterND
             DDi      TensorScatter
looks-up     Ti       Gather GatherElements GatherND
measures     i        Shape Size
quantizes    d        DynamicQuantizeLinear
             dsz      QuantizeLinear
decodes      qsz      DequantizeLinear
random       -        RandomNormal RandomUniform
             i        RandomNormalLike RandomUniformLike
             d        Bernoulli Multinomial
makes        -        Constant
             i        BlackmanWindow ConstantOfShape EyeLike HammingWindow HannWindow
             ccc      Range
             iiicc    MelWeightMatrix
             iic      OneHot
pools        d        AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool
             dc       Upsample
             dcci     Resize
             di       MaxRoiPool
             dii      MaxUnpool RoiAlign
             dd       GridSample
control      i        If
             iid*     Loop
             dd*      Scan SequenceMap
sequence     -        SequenceEmpty
             D        ConcatFromSequence Optional OptionalGetElement
             D*       SequenceConstruct
             Di       SequenceAt SequenceErase SplitToSequence
             DDi      SequenceInsert
measures     i        OptionalHasElement SequenceLength
text         d        RegexFullMatch StringNormalizer StringSplit TfIdfVectorizer
             dd       StringConcat
other        d        ImageDecoder NonZero Unique
             di       AffineGrid
             dii      Col2Im DFT
             didi     STFT
             ddicc    NonMaxSuppression
"""

_ONNXRUNTIME_IN_ONNX = """
normalizes   dw       SimplifiedLayerNormalization
elementwise  d        Affine ImageScaler ParametricSoftplus Scale ScaledTanh
recurrent    ddii     GRUUnit
attention    ddd      DisentangledAttention_TRT
moves        D        Crop MemcpyFromHost MemcpyToHost
             Diii     DynamicSlice
makes        i        GivenTensorFill
other        ddd      EfficientNMS_TRT
             ddddd    MultilevelCropAndResize_TRT PyramidROIAlign_TRT
"""
"""Operators that onnxruntime adds to ONNX's own domain."""

_ML = """
looks-up     Ti       ArrayFeatureExtractor
model        d        Binarizer CastMap CategoryMapper DictVectorizer Imputer LabelEncoder LinearClassifier
                      LinearRegressor Normalizer OneHotEncoder SVMClassifier SVMRegressor Scaler TreeEnsemble
                      TreeEnsembleClassifier TreeEnsembleRegressor ZipMap
             d*       FeatureVectorizer
"""

_PREVIEW = """
attention    ddd      FlexAttention
"""

_TRAINING = """
other        ddd*     Adagrad Adam Momentum
             d*       Gradient
"""

_MICROSOFT = """
product      ww       FusedMatMul FusedMatMulActivation SparseToDenseMatMul TransposeMatMul
             wwb      FusedGemm GemmFastGelu
             qq       MatMulInteger16
             qqbsss   GemmFloat8
             qqsszzb  MatMulIntegerToFloat
             qszqszbsz QGemm
             qsqssbqs QOrderedMatMul
             dqi      MatMulFpQ4
             dqs      MatMulBnb4 MatMulPacked
             dqszb    DynamicQuantizeMatMul
             dqszib   MatMulNBits
             dqsqsqs  MatMulNBitsQLoRA
             dqssb    MatMulBlockQuantizedFp8Weight
             dqsssb   MatMulBlockQuantizedFp4Weight
             ddwqsbqsb MatMulNBitsMlp
             ddwqsbqsbqsb MatMulNBitsQkv
             ddwbwbwb MoE
             ddqqqd   MoEPacked
             dbw      MoEGroupRouter
             dw       RouterGateUpProj
             dwwwwdd  HyperConnectionLowRankMix
             ddqsbqsbqsbzzzdssssss QMoE
convolution  dwb      NhwcConv
             dwbd     CausalConvWithState FusedConv NhwcFusedConv
             dwib     ConvTransposeWithDynamicPads
             dwibdiid VarlenCausalConvWithState
             iwbt     WordConvEmbedding
             qszqszszb QLinearConv
recurrent    dwwbiddwwwwdiw AttnLSTM
             dddwbbwwwi Mamba2Verify
             dqqbiddwszsz DynamicQuantizeLSTM
attention    dwbiddi  Attention
             dwbiddiii DecoderMaskedSelfAttention
             dwbiid   PackedAttention
             dwbdwbi  LongformerAttention
             ddwwbiddiiii DecoderAttention
             dddbidddii MultiHeadAttention
             dddbiid  PackedMultiHeadAttention
             dddidddiiib DecoderMaskedMultiHeadAttention
             dddddiiuuidwsswwi GroupQueryAttention
             dddddiiiuuiwwwssi PagedAttention
             dddddiiiiuu SparseAttention
             dddddiiiiiiddiuuwwwssi SparsePagedAttention
             dddddddiiiiuuiwwwiss DynamicSparseAttention
             dddddd   LinearAttention
             dddidddwbii GatedDeltaNet
             ddwwuuiddbdiid SparseAttentionIndexer
             ddwwuuiidbdidddiiiiiii PackedSparseAttentionIndexer
             qqbssizzd QAttention
             qssssqqqsssbbbsssidd QOrderedAttention
             qsqsbssdqsbsis QOrderedLongformerAttention
normalizes   dw       BranchwiseRMSNorm
             dwd      GatedRMSNorm
             dwiuui   RMSNormRotary
             dwb      GroupNorm
             dwbdb    SkipGroupNorm
             ddwb     SkipSimplifiedLayerNormalization
             ddwbb    SkipLayerNormalization
             qswbs    QOrderedLayerNormalization
elementwise  d        Gelu QuickGelu SampleOp
             dd       BiasSoftmax ComplexMul ComplexMulConj HyperConnectionPreMix SwiGLU
             dddw     GatedAdd
             dddd     HyperConnectionPostMix
             ddddd    GemmaRotaryEmbedding
             db       BiasGelu BiasSplitGelu FastGelu
             dbd      BiasAdd
             dbdci    BiasDropout BitmaskBiasDropout
             dbdwbwi  GatedRelativePositionBias
             dbwd     LinearAttentionGate
             dc       ScaledSiLU
             di       Trilu
             diuu     MRotaryEmbedding RotaryEmbedding
             dddwww   EngramGate
             qss      QOrderedGelu
             qszsz    QLinearLeakyRelu QLinearSigmoid QLinearSoftmax
             qszqszsz QLinearAdd QLinearMul
             qzqz     MulInteger
             iqszqszsz QLinearWhere
reduces      d        ReduceSumInteger
             d*       IsAllFinite
             qszsz    QLinearReduceMean
moves        D        UnfoldTensor
             Di       ExpandDims RemovePadding RestorePadding
             Dic      Pad
             Dci      BitmaskDropout
             szqsz*3  QLinearConcat
looks-up     Ti       GatherND
             Tii      RelativePositionBias
             Tiii     TorchEmbedding
             qi       GatherPacked
             qisz     GatherBlockQuantized
             iitttwbii EmbedLayerNormalization
             iiqqqqqissssszzzzz QEmbedLayerNormalization
quantizes    d        QuantizeBFP
             ds       QuantizeWithOrder
             dsz      QuantizeLinear
decodes      qs       DequantizeWithOrder
             qsz      DequantizeLinear
             qii      DequantizeBFP
makes        ccc      Range
pools        d        NhwcMaxPool
             dd       GridSample MaxpoolWithMask
             diii     CropAndResize
             qszsz    QLinearAveragePool QLinearGlobalAveragePool
control      iiiciii  GreedySearch
             iiiciiiii Sampling
             iiiiicciiiii BeamSearch
             iiiiicciiiiiiic WhisperBeamSearch
text         d        Tokenizer
other        d        DynamicTimeWarping Inverse Irfft MurmurHash3 Rfft Unique
             d*       EPContext Snpe
             dd       CDist
             dddi     ConvStateReplay GatedDeltaNetStateReplay
             id       NGramRepeatBlock
             iiii     BifurcationDetector
             iiiiiii  PackedSparseAttentionIndexerMerge SpeculativePrefixCommit
             icciiii  NGramHashMapping
             icciiiiiii VarlenNGramHashMapping
"""

_NCHWC = """
convolution  dwbd     Conv
moves        D        ReorderInput ReorderOutput
pools        d        AveragePool GlobalAveragePool GlobalMaxPool MaxPool Upsample
"""

_NHWC_ONLY = """
convolution  qszqszszb QLinearConvTranspose
"""
"""The other operators of the domain are those of ONNX and of com.microsoft, with channels last."""

_EXTENSIONS = """
elementwise  dd       MaskedFill
             d        NegPos
reduces      di       SegmentSum
other        d        Inverse SegmentExtraction
             di       MergeSignalSegments
             diiic    SplitSignalSegments
             didic    GaussianBlur
             diidi    StftNorm
             dd       DrawBoundingBoxes
             dccii    AudioDecoder
             d        DecodeImage EncodeImage ImageDecoder ImageReader
             d*       RaggedTensorToDense RaggedTensorToSparse StringRaggedTensorToDense
text         d        BasicTokenizer BertTokenizer BlingFireSentenceBreaker BpeDecoder CLIPTokenizer GPT2Tokenizer
                      HfBertTokenizer RobertaTokenizer SentencepieceDecoder SpmTokenizer StringLength StringLower
                      StringMapping StringSplit StringStrip StringToVector StringUpper VectorToString
             d*       BertTokenizerDecoder HfJsonTokenizer SentencepieceTokenizer StringConcat
                      StringECMARegexReplace StringECMARegexSplitWithOffsets StringEqual StringHash StringHashFast
                      StringJoin StringRegexReplace StringRegexSplitWithOffsets StringSlice StringToHashBucket
                      StringToHashBucketFast TrieDetokenizer TrieTokenizer WordpieceTokenizer
"""

_MICROSOFT_DOMAIN = "com.microsoft"
_NHWC_DOMAIN = "com.ms.internal.nhwc"
_DOMAINS: tuple[tuple[str, str], ...] = (
    ("", _ONNX),
    ("", _ONNXRUNTIME_IN_ONNX),
    ("ai.onnx.ml", _ML),
    ("ai.onnx.preview", _PREVIEW),
    ("ai.onnx.preview.training", _TRAINING),
    (_MICROSOFT_DOMAIN, _MICROSOFT),
    ("com.microsoft.nchwc", _NCHWC),
    (_NHWC_DOMAIN, _NHWC_ONLY),
    ("ai.onnx.contrib", _EXTENSIONS),
)


_WIDE = 22 * " "
"""Indent of a line that continues a list of names."""


def _parse(domain: str, table: str) -> Iterator[Operator]:
    """Read a table: kind, letters of the inputs, names; a line that omits some takes those of the line before."""
    kind, inputs = Kind.OTHER, ""
    for line in filter(None, table.splitlines()):
        words = line.split()
        if not line.startswith(" "):
            kind = Kind(words.pop(0))
        if not line.startswith(_WIDE):
            inputs = words.pop(0)
        for name in words:
            yield _operator(domain, name, kind, inputs)


def _operator(domain: str, name: str, kind: Kind, inputs: str) -> Operator:
    letters, star, count = inputs.strip("-").partition("*")
    slots = tuple(_LETTERS[letter.lower()] for letter in letters)
    again = int(count or 1) if star else 0
    moved = frozenset(index for index, letter in enumerate(letters) if letter.isupper())
    rest = slots[-1] if again else Slot.DATA
    return Operator(domain, name, kind, slots, rest, None if again and moved else moved, again)


def _collect() -> dict[str, dict[str, Operator]]:
    found: dict[str, dict[str, Operator]] = {}
    for domain, table in _DOMAINS:
        found.setdefault(domain, {}).update((known.op_type, known) for known in _parse(domain, table))
    found[DEFAULT_DOMAIN] = found[""]
    found[_NHWC_DOMAIN] = {**found[_MICROSOFT_DOMAIN], **found[""], **found[_NHWC_DOMAIN]}
    return found


OPERATORS: Mapping[str, Mapping[str, Operator]] = _collect()
"""Operators by domain and name. ONNX's own domain is listed under both of its names."""

STANDARD = OPERATORS[""].keys() - {known.op_type for known in _parse("", _ONNXRUNTIME_IN_ONNX)}
"""Names of the operators that ONNX itself defines in its own domain."""

_NONE: Mapping[str, Operator] = {}


def operator_of(node: Node) -> Operator | None:
    """Return the operator of a node; None if its domain is unknown or lacks the name."""
    return OPERATORS.get(node.domain, _NONE).get(node.op_type)


def kind_of(node: Node) -> Kind | None:
    """Return the kind of a node's operator; None if it is unknown."""
    known = OPERATORS.get(node.domain, _NONE).get(node.op_type)
    return None if known is None else known.kind


def is_integer_product(node: Node) -> bool:
    """Whether a node multiplies codes without a scale, so that its integer result is scaled later."""
    known = operator_of(node)
    return (
        known is not None
        and known.kind in (Kind.PRODUCT, Kind.CONVOLUTION)
        and set(known.slots) <= {Slot.CODES, Slot.ZERO_POINT}
    )


def is_own(node: Node) -> bool:
    """Whether a runtime has its own operator for a node, whatever local functions the file defines.

    In ONNX's and its own domains onnxruntime runs its own kernel, even if a function of the file has that name.
    """
    return node.is_standard and operator_of(node) is not None


def operators_of(*kinds: Kind) -> frozenset[str]:
    """Return the names of all operators of these kinds, in any domain."""
    return frozenset(
        known.op_type for domain in OPERATORS.values() for known in domain.values() if known.kind in kinds
    )


MOVES = operators_of(Kind.MOVES)
"""Names of the operators that compute nothing: readers of their output read their input."""

MEASURES = operators_of(Kind.MEASURES)
"""Names of the operators that read no element of their input."""

DECODES = operators_of(Kind.DECODES) | {"Cast"}
"""Names of the operators that return the stored numbers in another type."""

RECODES = frozenset({"QLinearConcat", "QuantizeLinear"})
"""Names of the operators that write the numbers of their input as other codes."""

CARRIES = MOVES | (operators_of(Kind.DECODES, Kind.QUANTIZES) - {"DynamicQuantizeLinear"})
"""Names of the operators that move, cut or re-encode their input, with one result. (DynamicQuantizeLinear has three.)
"""
