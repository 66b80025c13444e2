"""A config gives transformers' values, or an error names the wrong field, whatever the config holds."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from commands import run_here
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analyzer.errors import FormulaError, UsageError
from analyzer.formulas.counting import (
    check_names,
    choose_class,
    choose_family,
    count_config,
    parse_changes,
    parse_config_changes,
    parse_value,
    read_config,
    settle_fields,
)
from analyzer.formulas.family import load_families, load_family
from analyzer.formulas.record import CacheSize, FieldValue

Written = Any
"""Contents of a config.json: a value, text or bytes."""


def write(folder: Path, content: Written) -> Path:
    path = folder / "config.json"
    text = content if isinstance(content, (bytes, str)) else json.dumps(content)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def settled(key: str, config: dict[str, Any], **changes: Any) -> dict[str, FieldValue]:
    family = load_family(key)
    model_class = choose_class(family, config)
    assert model_class is not None
    return {field.name: field for field in settle_fields(family, config, model_class, changes)}


def value(key: str, field: str, config: dict[str, Any]) -> tuple[Any, str]:
    """Value of a field, and its origin."""
    found = settled(key, {"model_type": key, **config})[field]
    return found.value, found.origin.value


# origins of values


def test_what_the_config_lacks_is_the_default_of_its_class() -> None:
    assert value("bert", "hidden_size", {}) == (768, "default")
    assert value("bert", "hidden_size", {"hidden_size": 12}) == (12, "config")
    assert value("gpt2", "n_embd", {"hidden_size": 12}) == (12, "config")
    assert value("gpt2", "n_inner", {"n_embd": 12}) == (48, "computed")
    assert value("gpt2", "n_inner", {"n_embd": 12, "n_inner": None}) == (48, "computed")
    assert value("gpt2", "n_inner", {"n_embd": 12, "n_inner": 7}) == (7, "config")


def test_every_default_of_every_family_is_of_its_own_kind() -> None:
    for key, family in load_families().items():
        for field in settled(key, {"model_type": family.model_types[0]}).values():
            assert isinstance(field.value, (int, str, tuple, type(None)))


def test_mistral_without_key_value_heads_has_8_and_with_null_one_for_each_head() -> None:
    assert value("mistral", "num_key_value_heads", {}) == (8, "default")
    assert value("mistral", "num_key_value_heads", {"num_key_value_heads": None}) == (32, "computed")
    assert value("mistral", "num_key_value_heads", {"num_key_value_heads": 4}) == (4, "config")


@pytest.mark.parametrize(
    ("fields", "window"),
    [({}, 4096), ({"sliding_window": None}, None), ({"sliding_window": 128}, 128)],
)
def test_mistral_has_a_window_unless_it_is_null(fields: dict[str, Any], window: int | None) -> None:
    formula = count_config({"model_type": "mistral", **fields})
    assert formula is not None

    assert isinstance(formula.cache, CacheSize)
    assert formula.cache.window == window


def test_what_the_class_decides_goes_before_what_the_config_says() -> None:
    config = {"architectures": ["T5ForConditionalGeneration"], "tie_word_embeddings": False}

    assert value("t5", "tie_word_embeddings", config) == (True, "class")


@pytest.mark.parametrize(
    ("fields", "labels", "origin"),
    [
        ({}, 2, "default"),
        ({"num_labels": 7}, 7, "config"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, 3, "config"),
        ({"id2label": ["a", "b", "c"]}, 3, "config"),
        ({"id2label": {}}, 0, "config"),
        ({"id2label": None}, 2, "default"),
        ({"id2label": None, "num_labels": 7}, 7, "config"),
        ({"id2label": {"0": "a"}, "num_labels": None}, 1, "config"),
        ({"id2label": {"0": "a"}, "num_labels": 7}, 7, "config"),  # transformers warns, and uses 7
        ({"id2label": 3, "num_labels": 7}, 7, "config"),
    ],
)
def test_labels_are_counted_where_their_number_is_not_in_the_config(
    fields: dict[str, Any], labels: int, origin: str
) -> None:
    assert value("bert", "num_labels", fields) == (labels, origin)


@pytest.mark.export
@pytest.mark.parametrize("labels", [2, 3, 7])
def test_transformers_takes_the_number_of_labels_before_their_names(labels: int) -> None:
    import transformers

    fields = {"id2label": {"0": "a", "1": "b", "2": "c"}, "num_labels": labels}

    assert transformers.BertConfig.from_dict(fields).num_labels == labels
    assert value("bert", "num_labels", fields) == (labels, "config")


def test_the_usual_value_is_reported_where_a_config_has_it() -> None:
    usual = settled("bert", {"hidden_size": 12, "intermediate_size": 48})["intermediate_size"].usual
    other = settled("bert", {"hidden_size": 12, "intermediate_size": 47})["intermediate_size"].usual

    assert usual is not None
    assert (usual.text, other) == ("4 * hidden_size", None)


# errors

SIZES = [
    "768",
    True,
    False,
    1.5,
    768.0,
    -1,
    {},
    {"a": 1},
    [],
    [1],
    [1, 2, 3],
    ["a", 1],
    [[1], [2]],
    "",
    1 << 54,
]


@pytest.mark.parametrize(
    "wrong", [*SIZES, float("nan"), float("inf"), 10**4_000, -(10**4_000)], ids=range(19)
)
def test_what_is_no_size_is_refused_and_named(wrong: object) -> None:
    with pytest.raises(FormulaError, match=r"^here: vocab_size is .{1,200}, which is not a size$"):
        count_config({"model_type": "bert", "vocab_size": wrong}, source="here")


@pytest.mark.parametrize(
    ("key", "fields", "message"),
    [
        ("bert", {"hidden_size": None}, "hidden_size is null; give it a value, or leave it out for 768"),
        ("bert", {"hidden_size": [3, 4]}, "cannot be computed with hidden_size = (3, 4)"),
        ("bert", {"is_decoder": "yes"}, "is_decoder is 'yes'; write a value such as False"),
        ("bert", {"is_decoder": 1}, "is_decoder is 1; write a value such as False"),
        ("t5", {"feed_forward_proj": 5}, "feed_forward_proj is 5; write a value such as 'relu'"),
        (
            "gpt2",
            {"n_embd": 5, "hidden_size": 6},
            "says n_embd = 5 and hidden_size = 6, two names of one field",
        ),
        ("gpt2", {"n_embd": 5, "hidden_size": 5.0}, "says n_embd = 5 and hidden_size = 5.0"),
        ("gpt2", {"n_embd": 1, "hidden_size": True}, "says n_embd = 1 and hidden_size = True"),
        ("llama", {"num_attention_heads": 0}, "hidden_size // num_attention_heads: divides by zero"),
        ("llama", {"hidden_size": "a"}, "hidden_size"),
        ("llama", {"max_position_embeddings": -1}, "max_position_embeddings: is -1"),
        ("llama", {"max_position_embeddings": 10**400}, "max_position_embeddings is a number of 1,329 bits"),
        ("mistral", {"sliding_window": -5}, "sliding_window: is -5"),
        ("mistral", {"sliding_window": 1.5}, "sliding_window"),
        ("mixtral", {"sliding_window": "x"}, "sliding_window: is 'x'"),
        ("mixtral", {"sliding_window": [4]}, "sliding_window: is (4,)"),
        ("qwen3_moe", {"mlp_only_layers": 5}, "mlp_only_layers is 5; write a value such as ()"),
        ("qwen3_moe", {"mlp_only_layers": ["a"]}, "mlp_only_layers = ('a',)"),
        ("vit", {"patch_size": 0}, "divides by zero with image_size = 224, patch_size = 0"),
        ("vit", {"image_size": {"height": 3, "width": 3}}, "image_size is {'height': 3, 'width': 3}"),
        ("vit", {"image_size": []}, "image_size is (), which is not a size"),
        ("bert", {"id2label": 3}, "id2label is 3, not a map"),
        ("bert", {"id2label": "abc"}, "id2label is 'abc', not a map"),
        ("bert", {"id2label": True}, "id2label is True, not a map"),
        (
            "bert",
            {"architectures": "BertModel"},
            "architectures is 'BertModel'; write a list of names, such as ['BertModel']",
        ),
        ("bert", {"architectures": {"a": 1}}, "architectures is {'a': 1}"),
        ("bert", {"architectures": [None]}, "architectures is [None]"),
        ("bert", {"architectures": [["BertModel"]]}, "architectures is [['BertModel']]"),
        ("bert", {"architectures": 5}, "architectures is 5"),
        ("bert", {"model_type": ["bert"]}, "model_type is ['bert']; write a name, such as 'bert'"),
        ("bert", {"model_type": {"bert": 1}}, "model_type is {'bert': 1}"),
        ("bert", {"model_type": 5}, "model_type is 5"),
        ("bert", {"model_type": True}, "model_type is True"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(key: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(FormulaError) as error:
        count_config({"model_type": key, **fields}, source="here")

    assert str(error.value).startswith("here: ")
    assert message in str(error.value)


@pytest.mark.parametrize("depth", [10, 400, 900, 5_000])
def test_a_value_of_any_depth_is_refused_in_a_short_message(depth: int) -> None:
    deep: Any = []
    for _ in range(depth):
        deep = [deep]
    for key, names in (("bert", ("vocab_size",)), ("gpt2", ("n_embd", "hidden_size"))):
        with pytest.raises(FormulaError, match="is not a size") as error:
            count_config({"model_type": key, **dict.fromkeys(names, deep)})
        assert len(str(error.value)) < 200


def test_fields_that_the_formula_does_not_read_may_hold_anything() -> None:
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    plain = count_config({"model_type": "bert"})
    odd = count_config({"model_type": "bert", "torch_dtype": deep, "\x1b[31m": float("nan"), "": 10**4_000})
    assert plain is not None
    assert odd is not None

    assert odd.total == plain.total


# names


@pytest.mark.parametrize("config", [{}, {"model_type": None}, {"architectures": None}, {"architectures": []}])
def test_a_config_need_not_name_its_class(config: dict[str, Any]) -> None:
    check_names(config)

    assert choose_family(config) is None
    found = choose_class(load_family("bert"), config)
    assert found is not None
    assert found.name == "BertModel"


def test_the_first_of_several_architectures_is_taken() -> None:
    config = {"architectures": ["BertForMaskedLM", "BertModel"]}
    found = choose_class(load_family("bert"), config)
    assert found is not None

    assert found.name == "BertForMaskedLM"


# files

NOT_JSON = {
    "nothing": b"",
    "spaces": b"  \n",
    "half": b'{"model_type": "bert"',
    "bytes": bytes(range(256)),
    "zeros": bytes(1000),
    "utf-16": '{"model_type": "bert"}'.encode("utf-16"),
    "mark": b"\xef\xbb\xbf{}",
    "digits": b'{"model_type": "bert", "hidden_size": ' + b"9" * 5_000 + b"}",
    "deep": b'{"model_type": "bert", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "open": b"[" * 1_000_000,
    "python": b"{'model_type': 'bert'}",
}
NO_CONFIG = ["[]", '"bert"', "5", "null", "true", "NaN", "[{}]"]


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_no_json_is_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, NOT_JSON[name])
    with pytest.raises(FormulaError, match=r"config\.json: not JSON \(.*\); save_pretrained\(\) writes"):
        read_config(path)
    _check_refused(path, "not JSON")


@pytest.mark.parametrize("text", NO_CONFIG)
def test_what_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(FormulaError, match="not a JSON object"):
        read_config(path)
    _check_refused(path, "not a JSON object")


def _check_refused(path: Path, message: str) -> None:
    """Check that the command answers in one line that names the file."""
    answer = run_here("formula", path)

    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"onnxledger: {path}")
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.isascii() or answer.stderr.isprintable()
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert "internal error" not in answer.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"model_type": "bert", "hidden_size": NaN}', "hidden_size is nan, which is not a size"),
        ('{"model_type": "bert", "hidden_size": 1e999}', "hidden_size is inf, which is not a size"),
        (
            '{"model_type": "bert", "hidden_size": ' + "9" * 4_300 + "}",
            "hidden_size is a number of 14,285 bits",
        ),
        ('{"model_type": "bert", "hidden_size": ' + "9" * 300 + "}", "hidden_size is a number of 997 bits"),
        ({"model_type": "bert", "hidden_size": "x" * 10**6}, "hidden_size is 'xxxx"),
        ({"model_type": "bert", "hidden_size": "\x1b[31m\u202e\n"}, r"is '\x1b[31m\u202e\n', which"),
        ({"model_type": "bert", "hidden_size": {"\x1b[2J": 1}}, r"is {'\x1b[2J': 1}, which"),
        ({"model_type": "bert", "hidden_size": "\ud800"}, r"is '\ud800', which"),
        ({"model_type": "bert", "id2label": "\x1b]0;x\x07"}, r"id2label is '\x1b]0;x\x07', not a map"),
        ({"model_type": "bert", "architectures": "\x9b31m"}, r"architectures is '\x9b31m'; write"),
        ({"model_type": ["bert"]}, "model_type is ['bert']"),
        ({"model_type": {"a": {"b": []}}}, "model_type is {'a': {'b': []}}"),
        ({"model_type": "vit", "patch_size": []}, "patch_size is (), which is not a size"),
    ],
)
def test_the_command_names_file_and_field_in_one_line(tmp_path: Path, content: Written, message: str) -> None:
    _check_refused(write(tmp_path, content), message)


@pytest.mark.parametrize("size", [(1 << 53), 1 << 52, 0])
def test_the_largest_sizes_are_answered_by_the_command(tmp_path: Path, size: int) -> None:
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    path = write(tmp_path, {"model_type": "bert", **dict.fromkeys(names, size)})
    for form in ("text", "json", "markdown"):
        answer = run_here("formula", path, "--format", form)
        assert (answer.returncode, answer.stderr) == (0, "")


def test_text_of_a_config_cannot_reach_the_terminal(tmp_path: Path) -> None:
    path = write(tmp_path, {"model_type": "t5", "feed_forward_proj": "gated-\x1b[31m\u202e"})
    answer = run_here("formula", path, "--verbose")

    assert answer.returncode == 0
    assert not {"\x1b", "\u202e"} & set(answer.stdout + answer.stderr)


def test_a_folder_of_any_name_is_escaped(tmp_path: Path) -> None:
    folder = tmp_path / "a\x1b[31m\nb"
    folder.mkdir()
    answer = run_here("formula", folder)

    assert answer.returncode == 2
    assert r"a\x1b[31m\nb" in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"model_type": "bert"}')
    os.truncate(path, 1 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(FormulaError, match=r"config\.json: is too large to be a config"):
            read_config(path)
        _check_refused(path, "is too large to be a config")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 1 << 26


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    os.mkfifo(path)
    with pytest.raises(FormulaError, match="no such file, or not readable"):
        read_config(path)
    _check_refused(path, "not readable")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    lost = tmp_path / "lost.json"
    lost.symlink_to(tmp_path / "nowhere")
    for path in (loop, lost, tmp_path):
        with pytest.raises(FormulaError, match="no such file, or not readable"):
            read_config(path)
    _check_refused(loop, "not readable")
    _check_refused(lost, "not readable")


def test_a_device_is_not_read() -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("the system has no such device")
    _check_refused(Path("/dev/zero"), "not readable")


# --set


def test_changes_are_values_of_the_familys_fields_by_any_of_their_names() -> None:
    changes = parse_changes(load_family("gpt2"), ["hidden_size = 5", "n_layer=3"], "GPT2Model")

    assert changes == {"n_embd": 5, "n_layer": 3}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["n_embd"], "--set 'n_embd': write key=value"),
        (["=5"], "--set '=5': write key=value"),
        (["n_embd="], "--set 'n_embd=': write key=value"),
        ([""], "--set '': write key=value"),
        (
            ["n_emb=5"],
            "--set n_emb: no field of this name; did you mean n_embd? (the count of GPT-2 depends on vocab_size",
        ),
        (["zzz=5"], "--set zzz: no field of this name (the count of GPT-2 depends on"),
        (["n_embd=5", "n_embd=6"], "--set n_embd is given twice"),
        (["n_embd=5", "hidden_size=5"], "--set hidden_size is given twice"),
    ],
)
def test_changes_that_name_nothing_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_changes(load_family("gpt2"), texts, "GPT2Model")

    assert message in str(error.value)


def test_a_change_to_what_the_class_decides_is_refused() -> None:
    with pytest.raises(UsageError, match="T5Model always has True"):
        parse_changes(load_family("t5"), ["tie_word_embeddings=false"], "T5Model")


def test_changes_without_a_family_are_to_the_fields_of_the_configs_class() -> None:
    assert parse_config_changes(["depths", "a"], ["depths=[2, 3]"]) == {"depths": (2, 3)}
    for texts, message in ((["b=1"], "the config has a"), (["a=1", "a=2"], "a field is given twice")):
        with pytest.raises(UsageError, match=message):
            parse_config_changes(["a"], texts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6", 6),
        ("-6", -6),
        ("True", True),
        ("FALSE", False),
        ("null", None),
        ("None", None),
        ("1.5", 1.5),
        ("[8, 6]", (8, 6)),
        ('"6"', "6"),
        ("gated-gelu", "gated-gelu"),
        ("9" * 5_000, "9" * 5_000),
        ("[" * 100_000, "[" * 100_000),
    ],
    ids=range(12),
)
def test_a_value_is_what_json_has_else_text(text: str, expected: object) -> None:
    assert parse_value(text) == expected
    assert type(parse_value(text)) is type(expected)


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=30), st.text(max_size=30))
@example("vocab_size", "0")
def test_any_change_is_a_value_or_a_usage_error(key: str, text: str) -> None:
    family = load_family("gpt2")
    fields = {field.name for field in family.fields.values()}
    for name in (key, "n_embd"):
        try:
            changes = parse_changes(family, [f"{name}={text}"], "GPT2Model")
        except UsageError:
            continue
        assert len(changes) == 1
        assert changes.keys() <= fields


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("hidden_size=" + "9" * 5_000, "hidden_size is '9999"),
        ("hidden_size=NaN", "hidden_size is nan"),
        ("hidden_size=\x1b[31m", r"hidden_size is '\x1b[31m'"),
        ("hidden_size=null", "hidden_size is None"),
        ("hidden_size=[]", "hidden_size is ()"),
        ("hidden_size\x1b=5", r"--set hidden_size\x1b: no field of this name; did you mean hidden_size?"),
    ],
    ids=range(6),
)
def test_the_command_refuses_changes_in_one_line(tmp_path: Path, changed: str, message: str) -> None:
    answer = run_here("formula", write(tmp_path, {"model_type": "bert"}), "--set", changed)

    assert (answer.returncode, answer.stdout) == (2, "")
    assert message in answer.stderr
    assert answer.stderr.count("\n") == 1


# arbitrary configs


@settings(deadline=None, max_examples=150)
@given(
    st.dictionaries(
        st.sampled_from(["model_type", "architectures", "id2label", "hidden_size", "n_embd", "x"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.sampled_from(["bert", "gpt2", "\ud800"]),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=8,
        ),
    )
)
def test_any_object_is_a_config_or_refused(config: dict[str, Any]) -> None:
    try:
        formula = count_config(json.loads(json.dumps(config)))
    except FormulaError:
        return
    assert formula is None or formula.total > 0
