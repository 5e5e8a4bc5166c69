// The index of two files, and the headers of both; each has 24 bytes of data.
#include <cstring>

#include "data/weight_files.h"
#include "fuzz/fuzz_target.h"

namespace adjoint {

FUZZ_TARGET(weight_files) {
  const std::filesystem::path folder = fuzz_folder();
  put_file(folder / "model.safetensors.index.json", part_of(input, 0));
  const char* const names[] = {"a.safetensors", "b.safetensors"};
  for (size_t i = 0; i < 2; ++i) {
    const std::string_view header = part_of(input, 1 + i);
    const uint64_t size = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &size, 8);
    put_file(folder / names[i], bytes.append(header).append(24, '\0'));
  }
  const WeightFiles weights(folder);
  for (const SafetensorView* view : weights.tensors()) {
    CHECK(weights.find(view->name) == view, "a tensor is found by its name");
  }
}

}  // namespace adjoint
