#pragma once
// logging.histograms_every_epochs: histograms of the parameters and their gradients.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/engine/parts.h"
#include "train/engine/plan.h"
#include "train/engine/train_step.h"
#include "trainer/events.h"

namespace trainer::engine {

// A histogram of the finite elements: 64 bins of equal width from the smallest to the largest one; one bin if they are all equal. Returns
// nullopt if no element is finite. Waits for the device.
std::optional<reporting::Histogram> make_histogram(const std::string& name, const torch::Tensor& tensor);

// After the last step of every `every_epochs`-th epoch, reports histograms of the parameters after this step, and of the gradients of this
// step (summed over the ranks and unscaled, but not yet clipped). The histograms are the same on all ranks, so only one rank needs this
// hook. Does not change training.
class Histograms final : public TrainingHook {
 public:
  // All arguments must outlive this object. `part`: the part of an epoch that is being trained at the time of a call.
  Histograms(const Parts& parts, const EpochPart& part, int64_t every_epochs, reporting::Sink& reporter);

  void on_gradients(int64_t step) override;
  bool needs_gradients(int64_t step) const override { return is_due(step); }
  void after_step(int64_t step) override;

 private:
  bool is_due(int64_t step) const;

  const Parts& parts_;
  const EpochPart& part_;
  int64_t every_epochs_;
  reporting::Sink& reporter_;
  std::vector<reporting::Histogram> gradients_;  // of the step
};

}  // namespace trainer::engine
