#include "train/derived_run.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/near_path.h"
#include "train/preset_weights.h"
#include "train/save.h"

namespace adjoint {

namespace fs = std::filesystem;

void check_is_run(const SavePaths& from) {
  if (fs::is_directory(from.folder)) return;
  check_no_preset(from.folder);
  fail(from.folder.string(),
       ": there is no such folder; --run takes the --out folder of a training run",
       did_you_mean_folder(from.folder));
}

void check_unheld(const SavePaths& to) {
  if (const std::string found = holds_run(to); !found.empty()) {
    fail(to.folder.string(), ": this folder already holds a run, ", found,
         "; choose another --out");
  }
}

void write_derived_run(const SavePaths& from, const SavePaths& to, const std::string& stack,
                       const std::string& made, const nlohmann::json& about,
                       const std::function<void()>& save) {
  check_writable(to);
  const FolderLock lock(to);
  check_unheld(to);  // another run may have begun since the first check
  remove_run(to);    // leftovers of a run that died before its first save
  nlohmann::json settings = read_json(from.run());
  settings[made] = about;
  settings[made]["from"] = fs::absolute(from.folder).string();
  settings[made]["stack"] = settings["options"]["stack"];
  settings["options"]["stack"] = stack;
  settings["options"]["init"] = "";
  settings["options"]["out"] = to.folder.string();
  write_file_atomically(to.text(), read_file(from.text()));
  write_file_atomically(to.tokenizer(), read_file(from.tokenizer()));
  save();
  // Written last, because a folder without it is not a run.
  write_file_atomically(to.run(), settings.dump(2) + "\n");
}

}  // namespace adjoint
