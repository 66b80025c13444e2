#!/usr/bin/env bash
# What `make demo` runs: the same commands a user would type. Weights are random, so nothing is downloaded.
set -euo pipefail
cd "$(dirname "$0")/.."

# Echo a command as one would type it, then run it.
run() {
    local line='$' word
    for word in "$@"; do
        if [[ $word =~ ^[A-Za-z0-9_./=-]+$ ]]; then line+=" $word"; else line+=" '$word'"; fi
    done
    printf '\n%s\n' "$line"
    "$@"
}

rm -rf build/demo
mkdir -p build/demo

run onnxledger export bert-base-uncased --class AutoModel --random-weights -o build/demo/bert
run onnxledger export albert-base-v2 --class AutoModel --random-weights -o build/demo/albert

run onnxledger inspect build/demo/bert/model.onnx
run onnxledger reconcile build/demo/bert/model.onnx

run onnxledger formula bert-base-uncased --class BertModel --against build/demo/bert/model.onnx

run onnxledger inspect build/demo/albert/model.onnx
run onnxledger reconcile build/demo/albert/model.onnx

run onnxledger check build/demo/bert/model.onnx --max-parameters 110M --max-bytes 450MiB --no-duplicates

run onnxledger inspect build/demo/bert/model.onnx --quiet -o build/demo/report.html

run onnxledger compare build/demo/albert/model.onnx build/demo/bert/model.onnx \
    --group 'embeddings=^embeddings|embedding_hidden_mapping_in' \
    --group 'encoder=^encoder' -n 10

printf '\nbuild/demo/report.html is the page of the BERT model: open it in a browser\n'
