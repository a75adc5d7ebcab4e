#include "config/sections.h"

namespace trainer::config {

void ModelSection::describe(KeyTable& keys, const RegistryBase& models) {
  keys.add_component("name", component, models, "", "The network; `trainer list models` shows all.");
  keys.add(
      "weights", weights,
      {.doc =
           "Published weights from which training starts, downloaded once to "
           "${TRAINER_HOME:-${XDG_CACHE_HOME:-~/.cache}/trainer}/weights: a name from "
           "`trainer weights list`, `default` for torchvision's default, the URL of a file, or the path of a folder, such as ./resnet50, "
           "in "
           "timm's layout of the Hugging Face Hub. If the number of classes differs, the last layer is initialised at random. With a name "
           "or a folder, transforms that the experiment does not set are those of the weights. Empty: none."});
  keys.add("weights_mirror", weights_mirror,
           {.doc = "The URL of a folder (https://, http:// or file://) from which "
                   "published weights are downloaded, instead of torchvision's server."});
  keys.refuse("weights",
              [this] { return !weights.empty() && !init_from.empty() ? "given together with model.init_from; keep one of them" : ""; });
  keys.refuse("weights_mirror", [this] {
    return !weights_mirror.empty() && weights.empty() ? "has no effect without model.weights; set model.weights, or remove it" : "";
  });
  keys.add("init_from", init_from,
           {.doc = "A file from which parameters and buffers are initialised by their names: a state_dict of PyTorch, safetensors, or a "
                   "checkpoint; empty: none.",
            .is_path = true});
  keys.add("init_strict", init_strict,
           {.doc = "true: refuse a file in which an entry is missing, unexpected or of another shape; false: load the entries that fit, "
                   "for example all except the last layer if the classes differ, and log the skipped entries; from a checkpoint with "
                   "class names, the last layer's rows are matched by these names."});
  // A resumed run has its weights already, and features depend on the weights themselves.
  for (const char* key : {"weights", "weights_mirror", "init_from", "init_strict"}) keys.set_facts(key, {});
  keys.add("freeze", freeze,
           {.doc = "Layers and parameters that are not trained, given by their names or by the beginnings of names up to a dot, as in "
                   "[conv1, layer1]; [backbone] stands for all layers except the last. Batch normalisation in these layers uses its "
                   "running statistics in training too, and does not change them. `trainer validate -v` prints all names.",
            .may_be_empty = false});
  keys.warn("freeze", [this] {
    return !freeze.empty() && weights.empty() && init_from.empty()
               ? "the frozen layers keep their random initial values; set model.weights or model.init_from, or remove this key"
               : "";
  });
}

void TaskSection::describe(KeyTable& keys, const RegistryBase& tasks) {
  keys.add_component("name", component, tasks, "classification",
                     "What the network learns, and the metrics of its results. Default: classification; multi_label if the data set gives "
                     "any number of classes for each image and the loss supports it; regression if the loss is for numbers.");
  keys.set_facts("name", {.is_fixed_on_resume = true, .is_for_predictions = true});
}

void LossSection::describe(KeyTable& keys, const RegistryBase& losses) {
  keys.add_component("name", component, losses, "cross_entropy", "The function that is minimised.");
}

}  // namespace trainer::config
