#pragma once
// How the processes of a run find each other and work together.

#include "distributed/supervision/options.h"
#include "trainer/keys.h"
#include "trainer/options.h"

namespace trainer::config {

struct DistributedSection {
  distributed::BackendChoice backend = distributed::BackendChoice::kAuto;
  std::string init_method = "env://";
  std::string secret_file = {};
  int64_t timeout_seconds = 600;
  int64_t hang_seconds = supervision::kDefaultHangLimit.count();
  double straggler_ratio = 1.5;
  bool sync_batch_norm = true;
  distributed::DataParallelOptions data_parallel = {.gradient_as_bucket_view = true};

  void describe(KeyTable& keys) {
    using distributed::BackendChoice, distributed::GradientCompression;
    keys.add_choice("backend", backend, {{"auto", BackendChoice::kAuto}, {"gloo", BackendChoice::kGloo}, {"nccl", BackendChoice::kNccl}},
                    {.doc = "What carries tensors between processes; auto: nccl between GPUs, else gloo."});
    keys.add("init_method", init_method,
             {.doc = "Where the processes meet: env:// (MASTER_ADDR and MASTER_PORT), tcp://HOST:PORT, or file:///PATH on a disk that all "
                     "of them see. The flag --init-method takes precedence."});
    keys.add(
        "secret_file", secret_file,
        {.doc = "A file with the same 16 or more random characters on all hosts, by which the processes of a run recognise each other; "
                "\"\": what the launcher gives (see Trust in running.md)."});
    keys.add("timeout_seconds", timeout_seconds,
             {.min = 1, .max = 86400, .unit = "seconds", .doc = "How long to wait for a process that is late, at the start and later."});
    keys.add("hang_seconds", hang_seconds,
             {.min = 1,
              .max = 86400,
              .unit = "seconds",
              .doc = "A process that does not answer for so long, or takes longer for one step, one validation batch or, at its start, one "
                     "file, hangs: it is named and the run ends."});
    keys.add("straggler_ratio", straggler_ratio,
             {.min = 1,
              .min_excluded = true,
              .doc = "A process for which the others wait is named in the log when its own work (waiting for data, and computing until its "
                     "first gradients are ready) takes more than this many times as long as the others' median."});
    keys.add("sync_batch_norm", sync_batch_norm,
             {.doc = "Batch normalisation over the batches of all processes together; false: each over its own."});
    keys.add(
        "bucket_cap_mb", data_parallel.bucket_cap_mb,
        {.min = 0, .min_excluded = true, .unit = "MiB", .doc = "Gradients are joined up to this size and then sent, during backward."});
    keys.add("broadcast_buffers", data_parallel.broadcast_buffers,
             {.doc = "Take the running statistics of rank 0 before each forward pass; without effect where they are synchronised anyway."});
    keys.add("find_unused_parameters", data_parallel.find_unused_parameters,
             {.doc = "Allow parameters that take no part in a step's loss; costs a walk through the graph in every step."});
    keys.add("gradient_as_bucket_view", data_parallel.gradient_as_bucket_view,
             {.doc = "Keep gradients in the memory that is sent, which saves a copy of them."});
    keys.add_choice(
        "gradient_compression", data_parallel.gradient_compression,
        {{"none", GradientCompression::kNone}, {"float16", GradientCompression::kFloat16}, {"bfloat16", GradientCompression::kBfloat16}},
        {.doc = "Send gradients in this type; halves the traffic and rounds."});
  }
};

}  // namespace trainer::config
