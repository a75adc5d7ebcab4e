#include "task/mistakes.h"

#include <bit>

namespace trainer::task {
namespace {

constexpr int64_t kIndexBits = 32;
constexpr int64_t kLargestIndex = (int64_t{1} << kIndexBits) - 1;

// The columns of `rows`, [3][any number], that come first.
torch::Tensor first_ones(const torch::Tensor& rows) {
  const auto order = std::get<1>(rows[0].topk(std::min(kMostMistakes, rows.size(1))));
  return rows.index_select(1, order);
}

}  // namespace

MistakeList::MistakeList(torch::Device device)
    : kept_(torch::zeros({3, kMostMistakes}, torch::TensorOptions(device).dtype(torch::kInt64))) {}

void MistakeList::add(const torch::Tensor& confidence, const torch::Tensor& predicted, const torch::Tensor& labels, int64_t first_index) {
  // Numbers that are not negative have the order of their bits.
  const auto bits = confidence.to(torch::kFloat32).contiguous().view(torch::kInt32).to(torch::kInt64);
  const auto complements = at::arange(kLargestIndex - first_index, kLargestIndex - first_index - labels.size(0), -1, labels.options());
  const auto keys = (bits * (kLargestIndex + 1) + complements) * predicted.ne(labels);
  kept_ = first_ones(at::cat({kept_, at::stack({keys, labels, predicted})}, 1));
}

std::vector<reporting::Mistake> MistakeList::read(const distributed::ProcessGroup& group) const {
  const auto of_ranks = group.to_host(group.all_gather(kept_.contiguous()));
  const auto first = first_ones(of_ranks.permute({1, 0, 2}).flatten(1));
  const auto rows = first.accessor<int64_t, 2>();
  std::vector<reporting::Mistake> mistakes;
  for (int64_t i = 0; i < first.size(1) && rows[0][i] != 0; ++i) {
    mistakes.push_back({.index = kLargestIndex - (rows[0][i] & kLargestIndex),
                        .label = rows[1][i],
                        .predicted = rows[2][i],
                        .confidence = std::bit_cast<float>(static_cast<int32_t>(rows[0][i] >> kIndexBits))});
  }
  return mistakes;
}

}  // namespace trainer::task
