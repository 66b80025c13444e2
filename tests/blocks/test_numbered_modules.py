"""Blocks are numbered modules, but not every numbered module is a block."""

from __future__ import annotations

import cProfile
import itertools
import pstats

from models import audit, noise, text_model
from test_blocks import ATTENTION, MLP, D, Net, blocks_of, last, nameless, stack

from analyzer.account.ledger import Ledger

RULE = "name:numbered-modules"


def modules_of(ledger: Ledger) -> list[str]:
    assert ledger.blocks is not None
    return [module for run in ledger.blocks.runs for module in run.modules]


def tower(net: Net, value: str, name: str, widths: list[int]) -> str:
    """Append blocks of two linear layers each, without a residual connection; no two blocks are of one size."""
    for number, (rows, columns) in enumerate(itertools.pairwise(widths)):
        wide = net.op("Relu", net.linear(value, f"{name}.{number}.expand", rows, 2 * rows))
        value = net.linear(wide, f"{name}.{number}.project", 2 * rows, columns)
    return value


def decoder_layer(net: Net, value: str, name: str, memory: str) -> str:
    value = net.op("Add", value, net.attention(net.norm(value, f"{name}.n0"), f"{name}.self"))
    value = net.op("Add", value, net.attention(net.norm(value, f"{name}.n1"), f"{name}.cross", memory))
    return net.op("Add", value, net.mlp(net.norm(value, f"{name}.n2"), f"{name}.mlp"))


def test_numbered_modules_that_structure_cannot_tell_apart_are_blocks(tmp_path):
    net = Net("x")
    value = tower(net, net.linear("x", "stem", D, 5), "features", [5, 7, 6, 9])
    net.linear(value, "head", 9, 3)

    ledger = audit(tmp_path, net.proto(last(net)))

    sizes = [
        rows * 2 * rows + 2 * rows + 2 * rows * columns + columns
        for rows, columns in [(5, 7), (7, 6), (6, 9)]
    ]
    assert blocks_of(ledger) == {
        "stem": 5 * D + 5,
        **{f"block.{number}": size for number, size in enumerate(sizes)},
        "head": 30,
    }
    assert {run.rule for run in ledger.blocks.runs} == {RULE}


def test_nodes_without_names_are_in_the_block_whose_values_they_read(tmp_path):
    net = Net("x")
    net.linear(tower(net, net.linear("x", "stem", D, 5), "features", [5, 7, 6, 9]), "head", 9, 3)

    ledger = audit(tmp_path, net.proto(last(net)))

    blocks = [ledger.blocks.nodes[node.place].block for node in ledger.model.graphs[0].nodes]
    one = ["MatMul", "Add", "Relu", "MatMul", "Add"]
    assert blocks == ["stem"] * 2 + [f"block.{n}" for n in range(3) for _ in one] + ["head"] * 2


def test_the_one_layer_of_a_decoder_is_one_block(tmp_path):
    net = Net("x", "z")
    value = decoder_layer(net, net.linear("x", "embed", D, D), "decoder.layers.0", "z")
    net.linear(value, "head", D, 7)

    ledger = audit(tmp_path, net.proto(last(net)))

    assert modules_of(ledger) == ["decoder.layers.0"]
    assert blocks_of(ledger)["block.0"] == 2 * ATTENTION + MLP


def test_each_layer_of_an_encoder_and_a_decoder_of_one_layer_is_a_block(tmp_path):
    net = Net("x", "z")
    memory = net.layer(net.linear("x", "embed", D, D), "encoder.layers.0")
    value = decoder_layer(net, net.linear("z", "start", D, D), "decoder.layers.0", memory)
    net.linear(value, "head", D, 7)

    ledger = audit(tmp_path, net.proto(last(net)))

    assert modules_of(ledger) == ["encoder.layers.0", "decoder.layers.0"]
    assert [blocks_of(ledger)[f"block.{n}"] for n in (0, 1)] == [ATTENTION + MLP, 2 * ATTENTION + MLP]


def test_blocks_of_stages_are_blocks_and_stages_are_not(tmp_path):
    net = Net("x")
    value = net.linear("x", "stem", D, 5)
    for stage, widths in enumerate([[5, 7, 5], [5, 11, 6, 8]]):
        value = tower(net, value, f"stages.{stage}.blocks", widths)
    net.linear(value, "head", 8, 3)

    ledger = audit(tmp_path, net.proto(last(net)))

    assert modules_of(ledger) == [
        *(f"stages.0.blocks.{number}" for number in range(2)),
        *(f"stages.1.blocks.{number}" for number in range(3)),
    ]


def test_experts_are_parts_of_the_layer_that_repeats(tmp_path):
    net = Net("x")
    value = net.linear("x", "embed", D, D)
    for number in range(3):
        name = f"layers.{number}"
        value = net.op("Add", value, net.attention(net.norm(value, f"{name}.n0"), f"{name}.attention"))
        normed = net.norm(value, f"{name}.n1")
        for expert in range(4):
            value = net.op("Add", value, net.mlp(normed, f"{name}.mlp.experts.{expert}"))
    net.linear(value, "head", D, 7)

    ledger = audit(tmp_path, net.proto(last(net)))

    assert modules_of(ledger) == [f"layers.{number}" for number in range(3)]


def test_the_number_of_a_module_that_is_used_three_times_does_not_show_how_many_blocks_there_are(tmp_path):
    net = Net("x")
    value = net.linear("x", "embed", D, D)
    for _ in range(3):
        value = net.layer(value, "groups.0.layers.0")
    net.linear(value, "head", D, 7)

    ledger = audit(tmp_path, net.proto(last(net)))

    assert [run.count for run in ledger.blocks.runs] == [3]


def test_maps_that_are_numbered_and_small_are_no_blocks(tmp_path):
    net = Net("x")
    value = net.linear(net.linear("x", "a", D, 60), "b", 60, 50)
    tower(net, net.linear(value, "c", 50, 3), "head", [3, 4, 2])

    ledger = audit(tmp_path, net.proto(last(net)))

    assert RULE not in {run.rule for run in ledger.blocks.runs}


def test_a_digit_that_ends_a_word_is_no_number(tmp_path):
    net = Net("x")
    net.linear(tower(net, net.linear("x", "stem", D, 5), "wav2vec2.extractor", [5, 7, 6]), "head", 6, 3)

    assert modules_of(audit(tmp_path, net.proto(last(net)))) == [f"wav2vec2.extractor.{n}" for n in (0, 1)]


def test_norms_in_a_row_are_no_blocks(tmp_path):
    net = Net("x")
    value = net.linear("x", "embed", D, D)
    for number in range(4):
        value = net.op("Add", value, net.norm(value, f"norms.{number}"))
    net.linear(value, "head", D, 7)
    proto = net.proto(last(net))

    for number, variant in enumerate((proto, nameless(net.proto(last(net))))):
        (tmp_path / str(number)).mkdir()
        assert blocks_of(audit(tmp_path / str(number), variant)) == {
            "stem": (D * D + D) + 4 * 2 * D + D * 7 + 7
        }


def test_nodes_in_any_order_give_the_same_blocks(tmp_path):
    net = stack(3)
    proto = nameless(net.proto(last(net)))
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))

    ledger = audit(tmp_path, proto)

    layers = {f"block.{number}": ATTENTION + MLP for number in range(3)}
    assert blocks_of(ledger) == {"stem": D * D + D, **layers, "head": 2 * D + 7 * D + 7}


def test_the_first_block_of_a_network_holds_one_matrix_and_is_a_block(tmp_path):
    net = Net("x")
    value = net.linear("x", "features.0.0", D, 5)
    value = net.linear(value, "features.1.0.block.0", 5, 7)
    for stage, widths in ((2, [7, 6, 9]), (3, [9, 8])):
        value = tower(net, value, f"features.{stage}", widths)
    net.linear(value, "classifier.1", 8, 3)

    ledger = audit(tmp_path, net.proto(last(net)))

    assert modules_of(ledger) == ["features.1.0", "features.2.0", "features.2.1", "features.3.0"]
    assert blocks_of(ledger)["stem"] == 5 * D + 5  # a linear layer beside its norm is no block


def test_one_layer_before_and_one_of_another_kind_after_are_both_blocks(tmp_path):
    net = Net("x", "z")
    value = net.layer(net.linear("x", "embed", D, D), "blocks.0")
    value = decoder_layer(net, value, "cls_blocks.0", "z")
    net.linear(value, "head", D, 7)

    ledger = audit(tmp_path, net.proto(last(net)))

    assert modules_of(ledger) == ["blocks.0", "cls_blocks.0"]


def test_a_decoder_whose_first_nodes_stand_before_the_encoder_comes_after_it(tmp_path):
    net = Net("x", "z")
    value = net.linear("z", "start", D, D)
    table = net.linear(net.norm(value, "decoder.layers.0.n0"), "decoder.layers.0.places", D, D)
    memory = net.linear("x", "embed", D, D)
    for number in range(2):
        memory = net.layer(memory, f"encoder.layers.{number}")
    value = net.op("Add", value, table)
    for number in range(2):
        value = decoder_layer(net, value, f"decoder.layers.{number}", memory)
    net.linear(value, "head", D, 7)

    ledger = audit(tmp_path, net.proto(last(net)))

    assert modules_of(ledger) == [
        f"{side}.layers.{number}" for side in ("encoder", "decoder") for number in (0, 1)
    ]


def test_towers_side_by_side_are_in_the_order_of_their_names_wherever_they_stand(tmp_path):
    found = []
    for order in (("vision", "text"), ("text", "vision")):
        net = Net("x", "z")
        ends = {}
        for side in order:
            value = net.linear("x" if side == "text" else "z", f"{side}.embed", D, D)
            for number in range(2):
                value = net.layer(value, f"{side}.layers.{number}")
            ends[side] = value
        net.op("MatMul", ends["text"], net.op("Transpose", ends["vision"]))
        found.append(modules_of(audit(tmp_path, net.proto(last(net)))))

    assert found[0] == found[1]
    assert found[0][0] == "text.layers.0"


def test_numbered_parts_of_a_block_are_no_blocks_beside_it(tmp_path):
    net = Net("x")
    value = net.linear("x", "stem", D, 5)
    for stage, (rows, columns) in enumerate([(5, 7), (7, 6), (6, 9)]):
        for part in (1, 2):
            value = tower(net, value, f"blocks.{stage}.0.ghost{part}", [rows, columns])
            rows = columns
    net.linear(value, "head", 9, 3)

    assert modules_of(audit(tmp_path, net.proto(last(net)))) == [f"blocks.{stage}.0" for stage in range(3)]


def test_blocks_of_a_network_with_a_heavy_head_are_recognized_by_their_names(tmp_path):
    net = Net("x")
    value = tower(net, net.linear("x", "stem", D, 5), "blocks", [5, 7, 6, 9])
    net.linear(net.op("Relu", net.linear(value, "widen", 9, 80)), "classifier", 80, 40)

    assert modules_of(audit(tmp_path, net.proto(last(net)))) == [f"blocks.{number}" for number in range(3)]


def test_layers_of_one_matrix_and_a_norm_are_blocks_where_no_others_are_numbered(tmp_path):
    net = Net("x")
    value = net.linear("x", "stem", D, 5)
    for number, (rows, columns) in enumerate([(5, 8), (8, 6), (6, 9)]):
        value = net.linear(value, f"layer.{number}.map", rows, columns)
        value = net.op("Relu", net.norm(value, f"layer.{number}.norm", columns))
    net.linear(value, "head", 9, 3)

    assert modules_of(audit(tmp_path, net.proto(last(net)))) == [f"layer.{number}" for number in range(3)]


def test_a_module_far_below_is_visited_once_for_each_caller(tmp_path):
    """20 of 100 modules, 30 levels below the root, are queried for their contents: fewer than 100 times 30 calls."""
    home = ".".join("abcdefghijklmnopqrstuvwxyzabcd")
    weights = {f"{home}.{number}.{part}.weight": noise(2, 2) for number in range(20) for part in "uv"}
    chain = [f'x{at + 1} = MatMul(x{at}, "{name}")' for at, name in enumerate(weights)]
    text = f"g (float[2, 2] x0) => (float[2, 2] x{len(chain)}) {{ {' '.join(chain)} }}"
    profile = cProfile.Profile()

    profile.runcall(audit, tmp_path, text_model(text, weights))

    calls = {key[2]: row[1] for key, row in pstats.Stats(profile).stats.items() if "lists.py" in key[0]}
    assert calls["below"] < 1000
