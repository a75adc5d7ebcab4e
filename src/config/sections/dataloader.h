#pragma once

#include "trainer/keys.h"
#include "trainer/options.h"

namespace trainer::config {

struct DataLoaderSection {
  std::optional<int64_t> batch_size = {};
  std::optional<int64_t> global_batch_size = {};
  int64_t num_workers = 1;
  int64_t prefetch = 4;
  bool drop_last = true;
  data::Shards shards = data::Shards::kPad;
  Auto<bool> pin_memory = {};
  ComponentConfig sampler;

  void describe(KeyTable& keys, const RegistryBase& samplers) {
    keys.add("batch_size", batch_size,
             {.min = 1, .unit = "images", .doc = "Images a rank takes in a micro-step. Give this or `global_batch_size`; neither: 128."});
    keys.add("global_batch_size", global_batch_size,
             {.min = 1,
              .unit = "images",
              .doc = "Images all ranks take together in an optimizer step. Where they cannot be divided evenly among ranks or "
                     "`training.accumulation_steps`, the parts differ by one; the result does not depend on the number of ranks."});
    keys.add("num_workers", num_workers,
             {.min = 0,
              .max = 256,
              .unit = "threads",
              .doc = "Threads that prepare batches; 0: the training thread does it. Results do not depend on it."});
    keys.add("prefetch", prefetch,
             {.min = 1, .max = 1024, .unit = "batches", .doc = "Batches that are kept ready; their buffers are allocated once."});
    keys.add_section(
        "sampler",
        [this, &samplers](KeyTable& section) {
          section.add_component("name", sampler, samplers, "shuffled", "`trainer list samplers` shows them.");
        },
        "Which training samples an epoch has, and their order, which all ranks share.");
    keys.add("drop_last", drop_last, {.doc = "Leave out a training epoch's last batch when it is not full on every rank."});
    keys.add_choice(
        "shards", shards, {{"pad", data::Shards::kPad}, {"drop", data::Shards::kDrop}, {"exact", data::Shards::kExact}},
        {.doc = "When the number of an epoch's images is not a multiple of the ranks: repeat some images or leave some out, as PyTorch's "
                "DistributedSampler does, or take each of them once, the ranks' parts then differing by one."});
    keys.refuse("global_batch_size",
                [this] { return batch_size && global_batch_size ? "given together with dataloader.batch_size; keep one of them" : ""; });
    keys.add("pin_memory", pin_memory, {.doc = "Batches in page-locked memory, for faster copies to a GPU; auto: where there is one."});
  }
};

}  // namespace trainer::config
