// adapter_config.json: what PEFT says of a LoRA adapter beside its matrices.
#pragma once
#include <filesystem>

namespace adjoint {

struct PeftConfig {
  double alpha = 1;
  bool by_root = false;  // alpha is divided by the root of the rank
};

// Refuses what is no plain LoRA adapter: other kinds, trained biases, ranks by pattern.
PeftConfig read_peft_config(const std::filesystem::path& path);

}  // namespace adjoint
