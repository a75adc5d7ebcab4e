#include "images/quiet.h"

#include <iostream>
#include <streambuf>

namespace trainer::images {
namespace {

thread_local bool is_quiet = false;

// Passes on what the other threads write.
class Filter final : public std::streambuf {
 public:
  explicit Filter(std::streambuf* target) : target_(target) {}

 protected:
  int_type overflow(int_type c) override {
    if (is_quiet || traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    return target_->sputc(traits_type::to_char_type(c));
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override { return is_quiet ? count : target_->sputn(text, count); }
  int sync() override { return is_quiet ? 0 : target_->pubsync(); }

 private:
  std::streambuf* target_;
};

// Never destroyed: std::cerr is used until the process ends.
void install_filter() { [[maybe_unused]] static const auto* const previous = std::cerr.rdbuf(new Filter(std::cerr.rdbuf())); }

}  // namespace

QuietErrors::QuietErrors() {
  install_filter();
  is_quiet = true;
}
QuietErrors::~QuietErrors() { is_quiet = false; }

}  // namespace trainer::images
