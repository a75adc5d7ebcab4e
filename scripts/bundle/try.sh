#!/bin/sh
# Tries an unpacked bundle on a system that may have nothing else, and no network: try.sh BUNDLE IMAGES FOLDER
set -eu
bundle=$1 images=$2 folder=$3
# Calls the program as users do: from another folder, through a symbolic link.
mkdir "$folder/bin"
ln -s "$bundle/bin/trainer" "$folder/bin/trainer"
PATH=$folder/bin:$PATH
cd "$folder"
trainer --version
# doctor exits with 1 if it finds a problem of this machine, which is not a problem of the bundle.
trainer doctor --output-dir . || [ $? -eq 1 ]
cd "$bundle"
trainer launch --nproc-per-node 2 --config configs/quickstart.yaml --run-dir "$folder/run" training.epochs=1
trainer eval --checkpoint "$folder/run/checkpoints/best.pt"
cd "$folder"
trainer predict --checkpoint run/checkpoints/best.pt "$images"
trainer export --checkpoint run/checkpoints/best.pt --output network.onnx
