#include <fmt/format.h>

#include "base/file.h"
#include "reporting/sinks.h"

namespace trainer::reporting {
namespace {

// The digits that give the same double back.
std::string cell(const std::optional<double>& value) { return value ? fmt::format("{}", *value) : std::string(); }

class Csv : public Sink {
 public:
  explicit Csv(const std::filesystem::path& file) : file_(file) {
    if (std::filesystem::file_size(file) > 0) return;
    file_.write_line(
        "epoch,step,lr,train_loss,train_top1,validation_loss,validation_top1,validation_top5,validation_ema_loss,validation_ema_top1,"
        "validation_ema_top5,seconds,images_per_second");
  }

  void on_epoch(const EpochEvent& event) override {
    std::string scores = ",,,,,";
    if (const auto& validation = event.validation) {
      scores = fmt::format("{},{},{},{},{},{}", validation->loss, cell(validation->top1), cell(validation->top5),
                           cell(validation->ema_loss), cell(validation->ema_top1), cell(validation->ema_top5));
    }
    file_.write_line(fmt::format("{},{},{},{},{},{},{},{}", event.epoch, event.step, event.lr, event.train_loss, cell(event.train_top1),
                                 scores, event.seconds, event.images_per_second));
  }

 private:
  LineFile file_;
};

}  // namespace

std::unique_ptr<Sink> make_csv(const std::filesystem::path& file) { return std::make_unique<Csv>(file); }

}  // namespace trainer::reporting
