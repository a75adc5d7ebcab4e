struct HuberOptions {
  double delta = 1.0;

  void describe(KeyTable& keys) {
    keys.add("delta", delta, {.min = 0, .min_excluded = true, .doc = "Difference from which on the loss grows linearly."});
  }
};

class Huber : public Loss {
 public:
  explicit Huber(double delta) : delta_(delta) {}

  torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    return at::huber_loss(outputs, targets, at::Reduction::Mean, delta_);
  }
  bool has_classes() const override { return false; }

 private:
  double delta_;
};
