// run.json and save.json of a run's folder, whose save is of step 7. Reading changes nothing; what
// a writer settles leaves the save that was there.
#include "base/file.h"
#include "data/safetensors.h"
#include "fuzz/fuzz_target.h"
#include "train/resolve_config.h"
#include "train/store.h"

namespace adjoint {

FUZZ_TARGET(run_folder) {
  const SavePaths paths(fuzz_folder());
  put_file(paths.run(), part_of(input, 0));
  if (const std::string_view manifest = part_of(input, 1); !manifest.empty()) {
    put_file(paths.manifest(), manifest);
  }
  put_file(paths.text(), "axes: vocab=4\n");
  const float numbers[] = {1, 2};
  const SafetensorView tensor{
      .name = "w", .dtype = "F32", .shape = {2}, .data = numbers, .size = {8}};
  AtomicFile file(paths.model());
  write_safetensors(file, std::span(&tensor, 1), {{"step", "7"}, {"checksum", "c"}});
  file.replace();

  refuse_or([&] { saved_config(paths.folder); });
  refuse_or([&] { holds_run(paths); });
  refuse_or([&] { saved_step(paths); });
  refuse_or([&] { step_to_resume(paths); });
  refuse_or([&] {
    const OpenSave save = open_save(paths, true);
    CHECK(save.step == 7, "there is one save");
  });
  refuse_or([&] { const FolderLock lock(paths); });
  CHECK(std::filesystem::exists(paths.model()), "the save is still there");
}

}  // namespace adjoint
