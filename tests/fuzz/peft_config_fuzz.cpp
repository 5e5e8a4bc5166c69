// An adapter_config.json.
#include "fuzz/fuzz_target.h"
#include "train/peft_config.h"

namespace adjoint {

FUZZ_TARGET(peft_config) {
  const std::filesystem::path file = fuzz_folder() / "adapter_config.json";
  put_file(file, input);
  read_peft_config(file);
}

}  // namespace adjoint
