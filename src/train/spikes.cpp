#include "train/spikes.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/file_view.h"
#include "base/text.h"

namespace adjoint {

using nlohmann::json;

namespace {
constexpr std::string_view kWentBack = "went back";
}

StepNumbers::StepNumbers(const std::vector<double>& outputs, bool guarded)
    : loss(outputs[0]), count(outputs[1]), norm(outputs[2]), taken(std::isfinite(norm)) {
  if (!guarded) return;
  taken = outputs[3] != 0;
  usual = outputs[4];
  num_read = 5;
}

std::string_view name(Wrong what) {
  constexpr std::string_view names[] = {"loss", "gradient", "spike"};
  return names[static_cast<size_t>(what)];
}

std::optional<Wrong> wrong_with(const StepNumbers& step, bool scales_loss) {
  if (!std::isfinite(step.loss)) return Wrong::kLoss;
  if (step.taken || step.count == 0) return std::nullopt;
  if (std::isfinite(step.norm)) return Wrong::kSpike;
  return scales_loss ? std::nullopt : std::optional(Wrong::kGradient);
}

std::string Spike::sentence() const {
  if (what == Wrong::kSpike) {
    return join_parts("at step ", step, " the loss is ", loss,
                      ", and the mean of the steps before is ", usual);
  }
  return join_parts("at step ", step, " the ", name(what), " is no longer a number");
}

void note_spike(const SavePaths& paths, const Spike& spike, const std::string& done) {
  const json line = {{"step", spike.step}, {"batch", spike.batch}, {"wrong", name(spike.what)},
                     {"loss", spike.loss}, {"usual", spike.usual}, {"grad_norm", spike.norm},
                     {"done", done}};
  std::ofstream out(checked_output(paths.spikes()), std::ios::app);
  out << line.dump() << "\n" << std::flush;
  if (!out) throw MachineError(paths.spikes().string() + ": cannot be written");
}

void cut_spikes(const SavePaths& paths, int64_t step) {
  if (!std::filesystem::exists(paths.spikes())) return;
  std::ifstream in(checked_path(paths.spikes()));
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const json entry = json::parse(line, nullptr, false);
    if (!entry.is_object()) continue;  // the writer died in it
    const bool stays = entry.value("step", int64_t{0}) <= step ||
                       entry.value("done", std::string()).starts_with(kWentBack);
    if (stays) kept += line + "\n";
  }
  write_file_atomically(paths.spikes(), kept);
}

std::string words_for(const std::vector<DocumentPlace>& documents) {
  std::vector<std::string> words;
  for (const DocumentPlace& at : documents) {
    if (at.file.empty()) continue;
    std::string said = at.file.string();
    if (at.line > 0) said += " line " + std::to_string(at.line);
    if (std::find(words.begin(), words.end(), said) == words.end()) words.push_back(said);
  }
  constexpr size_t kShown = 4;
  const size_t more = words.size() > kShown ? words.size() - kShown : 0;
  words.resize(words.size() - more);
  return join(words, ", ") + (more > 0 ? ", and " + std::to_string(more) + " more" : "");
}

}  // namespace adjoint
