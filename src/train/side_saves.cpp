#include "train/side_saves.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/file_view.h"
#include "train/saver.h"

namespace adjoint {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kOfAStep = "step-";

// A folder without run.json is not a run, so that goes first: whoever is killed in between leaves
// nothing that looks like a save and is half of one.
void remove_side_save(const fs::path& folder) {
  fs::remove(checked_output(SavePaths(folder).run()));
  fs::remove_all(folder);
}

// Steps that have a folder of their own, in order.
std::vector<int64_t> kept_steps(const fs::path& folder) {
  std::vector<int64_t> steps;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kOfAStep)) continue;
    const std::string digits = name.substr(kOfAStep.size());
    const bool number = !digits.empty() && digits.size() < 16 &&
                        digits.find_first_not_of("0123456789") == std::string::npos;
    if (number) steps.push_back(std::stoll(digits));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace

SideSaves::SideSaves(SavePaths run_folder, const Run& run, std::string model,
                     const TrainConfig& config, std::optional<Communicator> group)
    : paths_(std::move(run_folder)),
      run_(run),
      model_(std::move(model)),
      num_kept_(config.keep),
      best_(config.keep_best),
      group_(std::move(group)) {}

void SideSaves::keep(int64_t step) const {
  if (num_kept_ == 0) return;
  save_to(std::string(kOfAStep) + std::to_string(step), step);
  if (group_ && group_->rank() > 0) return;
  // Only once the new one is complete. What a writer that died left is not one of the last saves.
  int64_t newer = 0;
  const std::vector<int64_t> steps = kept_steps(paths_.folder);
  for (auto at = steps.rbegin(); at != steps.rend(); ++at) {
    const fs::path folder = paths_.folder / (std::string(kOfAStep) + std::to_string(*at));
    const bool is_save = fs::exists(SavePaths(folder).run());
    if (is_save && newer++ < num_kept_) continue;
    if (is_save || fs::exists(SavePaths(folder).lock())) remove_side_save(folder);
  }
}

void SideSaves::keep_best(int64_t step) const {
  if (best_) save_to("best", step);
}

void SideSaves::save_to(const std::string& name, int64_t step) const {
  const SavePaths to(paths_.folder / name);
  if (group_ && group_->rank() > 0) {
    return Saver(to, run_, model_, -1, kNoCap, group_).save(step);
  }
  check_writable(to);
  const FolderLock lock(to);
  for (const fs::path& file :
       {paths_.text(), paths_.tokenizer(), paths_.rule(), paths_.products(), paths_.position()}) {
    if (fs::exists(file)) write_file_atomically(to.folder / file.filename(), read_file(file));
  }
  for (const fs::path& own : {paths_.functors(), paths_.schedules()}) {
    if (!fs::exists(own)) continue;
    make_folders(to.folder / own.filename());
    for (const fs::directory_entry& file : fs::directory_iterator(own)) {
      write_file_atomically(to.folder / own.filename() / file.path().filename(),
                            read_file(file.path()));
    }
  }
  Saver(to, run_, model_, -1, kNoCap, group_).save(step);
  // Written last, because a folder without it is not a run.
  write_file_atomically(to.run(), read_file(paths_.run()));
}

void remove_side_saves(const SavePaths& paths) {
  std::vector<fs::path> folders = {paths.folder / "best"};
  for (const int64_t step : kept_steps(paths.folder)) {
    folders.push_back(paths.folder / (std::string(kOfAStep) + std::to_string(step)));
  }
  for (const fs::path& folder : folders) {
    if (fs::exists(SavePaths(folder).lock())) remove_side_save(folder);  // only what is ours
  }
}

bool BestLoss::note(double found) {
  if (found < loss) {
    loss = found;
    evaluations_since = 0;
    return true;
  }
  ++evaluations_since;
  return false;
}

BestLoss best_loss_in(const fs::path& metrics) {
  BestLoss best;
  std::ifstream in(checked_path(metrics));
  for (std::string line; std::getline(in, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    if (!entry.is_object() || !entry.contains("val_loss") || !entry["val_loss"].is_number() ||
        entry.contains(kOfAStop)) {
      continue;
    }
    best.note(entry["val_loss"].get<double>());
  }
  return best;
}

}  // namespace adjoint
