from pathlib import Path

import pytest
from hostile import unsafe_characters
from models import save, text_model

from analyzer.timing.request import Feed, Fill, Raised, Request
from analyzer.timing.running.isolated import cleaned, refusal

FEEDS = (Feed("x", "FLOAT", (2, 4), Fill.UNIFORM, -1, 1), Feed("n", "INT64", (), Fill.CONSTANT, 1, 1))
AT_ADD = (
    "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Add node. Name:'add1' "
    "Status Message: "
)
SOURCE = "/onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:360 void* onnxruntime::BFCArena::Get(size_t, bool) "


def explain(text: str, *, stage: str = "profiling", model: str = "m.onnx", nbytes: int | None = None) -> str:
    request = Request(model, (FEEDS,), "CPUExecutionProvider", "/tmp", libraries=("/lib/acme.so",))
    return refusal(request, Raised("Fail", text, "1.31.1"), stage, nbytes)


@pytest.mark.parametrize(
    ("domain", "is_own"),
    [
        ("ai.onnx.ml", True),
        ("ai.onnx.preview.training", True),
        ("com.microsoft.nchwc", True),
        ("ai.onnx.contrib", False),
        ("com.microsoftware", False),
    ],
)
def test_missing_operators_of_onnx_and_onnxruntime_need_another_onnxruntime(domain, is_own):
    text = f"Load model from m.onnx failed:Fatal error: {domain}:Foo(-1) is not a registered function/op"

    assert ("install the onnxruntime that the model was made for" in explain(text)) is is_own


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "Load model from m.onnx failed:Fatal error: com.acme:Foo(-1) is not a registered function/op",
            "m.onnx: onnxruntime 1.31.1 has no operator com.acme:Foo; give its library with --custom-ops",
        ),
        (
            'This is an invalid model. In Node, ("foo", Foo, "", -1) : ("x": tensor(float),) -> ("y": tensor(float),) '
            ", Error No Op registered for Foo with domain_version of 18",
            'm.onnx: node "foo": onnxruntime 1.31.1 has no operator Foo in the opset that the model imports; give the '
            "library that has it with --custom-ops, or install the onnxruntime that the model was made for",
        ),
        (
            'In Node, ("a", Relu, "com.acme", -1) : ("x": tensor(float),) -> ("y": tensor(float),) , Error No opset '
            "import for domain 'com.acme'",
            'm.onnx: node "a" is of the domain com.acme, for which the model imports no opset: it is not a valid '
            "model, export it again",
        ),
        (
            "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Asinh(9) node with name "
            "'foo'",
            'm.onnx: node "foo": onnxruntime 1.31.1 has no kernel of Asinh (since opset 9) for the types of its inputs '
            "on cpu; export the model in another precision or opset, or give a library that has it with --custom-ops",
        ),
        (
            "Type Error: Type 'tensor(bool)' of input parameter (x) of operator (Relu) in node (foo) is invalid.",
            'm.onnx: node "foo": the operator Relu does not take tensor(bool) in the opset that the model imports; '
            "export it with a newer opset, or in another precision",
        ),
        (
            "Opset 99 is under development and support for this is limited. Current official support for domain "
            "ai.onnx is till opset 26.",
            "m.onnx: it imports opset 99 of ai.onnx, and onnxruntime 1.31.1 knows up to 26: pip install --upgrade "
            "onnxruntime, or export the model with an older opset",
        ),
        (
            "Unsupported model IR version: 99, max supported IR version: 13",
            "m.onnx: it is of IR version 99, and onnxruntime 1.31.1 knows up to 13: pip install --upgrade "
            "onnxruntime, or save the model with an older IR version",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Failed to load library /lib/acme.so with error: /lib/acme.so: file too "
            "short",
            "m.onnx: the library of custom operators /lib/acme.so cannot be loaded: /lib/acme.so: file too short; "
            "--custom-ops takes one that was built for onnxruntime and for this system",
        ),
        (
            "Failed to get symbol RegisterCustomOps with error: /lib/acme.so: undefined symbol: RegisterCustomOps",
            "m.onnx: the library of custom operators /lib/acme.so cannot be loaded: it has no function "
            "RegisterCustomOps; --custom-ops takes one that was built for onnxruntime and for this system",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : External data path validation failed for initializer: w. Error: "
            "tensorprotoutils.cc:461 ValidateExternalDataPathFromDir External data path does not exist: gone.bin",
            "m.onnx: its external data cannot be read: External data path validation failed for initializer: w. "
            "Error: External data path does not exist: gone.bin; put the file with the weights beside the model, "
            "whole, and under the name that it was exported with",
        ),
        (
            "[ONNXRuntimeError] : 3 : NO_SUCHFILE : Load model m.onnx failed. File doesn't exist",
            "m.onnx: the file is gone, or cannot be opened",
        ),
        (
            "[ONNXRuntimeError] : 10 : INVALID_GRAPH : Load model from m.onnx failed:Functions must not be recursive\n",
            "m.onnx: onnxruntime failed while loading: Functions must not be recursive; export the model again, or "
            "try another version of onnxruntime",
        ),
    ],
    ids=lambda text: text[-40:],
)
def test_what_cannot_be_loaded_is_reported_in_a_sentence(text: str, sentence: str) -> None:
    assert explain(text, stage="loading") == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            f"{AT_ADD}{SOURCE}axis == 1 was false. Attempting to broadcast an axis. 2 by 3\n",
            'm.onnx: node "add1" (Add): Attempting to broadcast an axis. 2 by 3 (inputs: x FLOAT [2, 4], n INT64 []); '
            "give sizes that fit with --shape, or real inputs with --input",
        ),
        (
            f"{AT_ADD}Add does not support float16 on CPU. Use float32 instead.\n",
            'm.onnx: node "add1" (Add): Add does not support float16 on CPU. Use float32 instead',
        ),
        (
            f"{AT_ADD}the text is no number\n",
            'm.onnx: node "add1" (Add): the text is no number (inputs: x FLOAT [2, 4], n INT64 []); give real inputs '
            "with --input",
        ),
        (
            f"{AT_ADD}indices element out of data bounds, idx=9 must be within the inclusive range [-4,3]",
            'm.onnx: node "add1" (Add): indices element out of data bounds, idx=9 must be within the inclusive range '
            "[-4,3]: the values that were made for an input are out of its range (inputs: x FLOAT [2, 4], n INT64 []); "
            "give real ones with --input",
        ),
        (
            "Got invalid dimensions for input: x for the following indices\n index: 1 Got: 5 Expected: 4\n Please fix.",
            "m.onnx: onnxruntime does not take the inputs: Got invalid dimensions for input: x for the following "
            "indices index: 1 Got: 5 Expected: 4 (inputs: x FLOAT [2, 4], n INT64 []); give sizes that fit with "
            "--shape, or real inputs with --input",
        ),
        (
            "Required inputs (['z']) are missing from input feed (['x']).",
            "m.onnx: onnxruntime does not take the inputs: Required inputs (['z']) are missing from input feed "
            "(['x']) (inputs: x FLOAT [2, 4], n INT64 []); give sizes that fit with --shape, or real inputs with "
            "--input",
        ),
        (
            f"{AT_ADD}{SOURCE}Failed to allocate memory for requested buffer of size 4294967296\n",
            'm.onnx: node "add1" (Add): out of memory while profiling (it asked for 4.00 GiB more; the limit is '
            "1.00 GiB in all) (inputs: x FLOAT [2, 4], n INT64 []); give smaller sizes with --shape, or run it on a "
            "machine with more memory",
        ),
        (
            "std::bad_alloc",
            "m.onnx: out of memory while profiling (the limit is 1.00 GiB in all) (inputs: x FLOAT [2, 4], n INT64 "
            "[]); give smaller sizes with --shape, or run it on a machine with more memory",
        ),
    ],
    ids=lambda text: text[-40:],
)
def test_what_cannot_be_run_is_reported_in_a_sentence_with_the_inputs(text: str, sentence: str) -> None:
    assert explain(text, nbytes=1 << 30) == sentence


def test_a_node_without_a_name_is_reported_as_nameless() -> None:
    assert "m.onnx: a node of Add, which has no name: bad" in explain(AT_ADD.replace("add1", "") + "bad")


def test_a_custom_operator_is_named_by_its_node(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["" : 18, "com.acme" : 1]> g (float[2] x) => (float[2] y)'
    model = str(save(tmp_path, text_model(f"{text} {{ [foo] y = com.acme.Foo(x) }}")))

    sentence = explain(
        "Fatal error: com.acme:Foo(-1) is not a registered function/op", stage="loading", model=model
    )

    assert sentence == (
        f'{model}: node "foo": onnxruntime 1.31.1 has no operator com.acme:Foo; give its library with --custom-ops'
    )


def test_what_is_no_model_and_what_is_too_large_for_protobuf_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"no model")
    small = explain("Protobuf parsing failed.", stage="loading", model=str(path))
    with path.open("ab") as file:
        file.truncate(3 << 30)
    large = explain("Protobuf parsing failed.", stage="loading", model=str(path))

    assert small.endswith("nested deeper than protobuf allows; export it, or fetch it, again")
    assert "it has 3.00 GiB in one file, and onnxruntime reads at most 2 GiB of it" in large


def test_the_inputs_are_those_of_the_point_that_failed() -> None:
    other = (Feed("x", "FLOAT", (9, 9), Fill.UNIFORM, -1, 1),)
    request = Request("m.onnx", (FEEDS, other), "CPUExecutionProvider", "/tmp")

    sentence = refusal(request, Raised("Fail", f"{AT_ADD}bad", "1.31.1"), "measuring point 2 of 2")

    assert "(inputs: x FLOAT [9, 9])" in sentence


def test_values_of_the_user_s_own_are_not_reported_as_generated() -> None:
    text = (
        "Non-zero status code returned while running Gather node. Name:'look' Status Message: indices element out of "
        "data bounds, idx=9"
    )
    request = Request("m.onnx", (FEEDS,), "CPUExecutionProvider", "/tmp", npz="/in.npz")

    message = refusal(request, Raised("InvalidArgument", text, "1.31.1"), "measuring")

    assert "the values of an input are out of its range" in message
    assert message.endswith("give others with --input")


@pytest.mark.parametrize("stage", ["loading", "measuring"])
def test_no_control_character_reaches_a_terminal(stage: str) -> None:
    raised = AT_ADD.replace("add1", "a\x1b[2J\u202e") + "\x1b]0;title\x07 bad\u2028worse"

    for text in (
        raised,
        raised.replace("while running", "in"),
        "Fatal error: a\x1b:F\x1b(-1) is not a registered op",
    ):
        assert not unsafe_characters(explain(text, stage=stage, model="m\x1b[1m.onnx"))


def test_long_texts_are_cut() -> None:
    assert len(cleaned("x" * 10_000)) == 400


@pytest.mark.parametrize(
    "part", ["onnxruntime/", "a.cc:1 ", 'In Node, ("', "Load model from ", "x was false. ", ") "]
)
def test_texts_that_look_like_places_again_and_again_are_cleaned_in_no_time(part: str) -> None:
    assert len(explain(AT_ADD + part * 100_000)) < 1000


def test_an_exception_without_a_text_is_named() -> None:
    request = Request("m.onnx", (), "CPUExecutionProvider", "/tmp")

    assert "m.onnx: onnxruntime failed while loading: KeyError; " in refusal(
        request, Raised("KeyError", "", ""), "loading"
    )


def test_what_no_rule_knows_has_a_next_step_for_its_stage() -> None:
    assert explain("odd", stage="loading").endswith(
        "odd; export the model again, or try another version of onnxruntime"
    )
    assert explain("odd").endswith("n INT64 []); give other sizes with --shape, or real inputs with --input")


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (f"[ONNXRuntimeError] : 1 : FAIL : {SOURCE}x != y was false. No room", "No room"),
        (
            f"Exception during initialization: {SOURCE}[ONNXRuntimeError] : 1 : FAIL : a.cc:18 Get Cut off.\n",
            "Cut off",
        ),
        ("Reading w failed.protoutils.cc:1876 GetData It is short", "Reading w failed.It is short"),
        ("Load model from /a/b c.onnx failed:This is bad", "This is bad"),
        ("plain text stays, and so does this (one) here", "plain text stays, and so does this (one) here"),
    ],
)
def test_places_in_the_source_of_onnxruntime_go(text: str, rest: str) -> None:
    assert cleaned(text) == rest
