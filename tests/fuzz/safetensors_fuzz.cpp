// A .safetensors file is refused, or every byte that it promises is there; as data it gives
// batches.
#include "data/corpus.h"
#include "data/safetensors.h"
#include "fuzz/fuzz_target.h"

namespace adjoint {

FUZZ_TARGET(safetensors) {
  const std::filesystem::path file = fuzz_folder() / "model.safetensors";
  put_file(file, input);
  const SafetensorsFile tensors(file);
  unsigned sum = 0;
  for (const SafetensorView& view : tensors.tensors()) {
    for (int64_t i = 0; i < view.size.count; ++i) {
      sum += static_cast<unsigned>(static_cast<const std::byte*>(view.data)[i]);
    }
    CHECK(tensors.find(view.name), "a tensor is found by its name");
  }
  CHECK(sum <= 255 * input.size(), "a byte belongs to one tensor");

  const FieldsCorpus corpus(file, 0.25);
  const FieldWish wishes[] = {{.name = "tokens"}, {.name = "targets"}};
  for (const FieldWish& wish : wishes) corpus.check_entries(wish, 64, -1);
  const Batches batches =
      corpus.batches(wishes, Split::kTrain, {.batch = 2, .context = 3, .seed = 1});
}

}  // namespace adjoint
