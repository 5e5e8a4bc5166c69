// What a run's folder says of how the run came to be, beside its options: by what program and
// machine, of which files, and whether it ever went on otherwise than it had begun. So it can be
// repeated (--repeat), or refused with what has changed.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/resolve_config.h"
#include "train/store.h"

namespace adjoint {

// Version, a hash of the program itself, and what it computes with.
nlohmann::json made_by(bool on_gpu);

// Files and folders beside the data that decide a run's numbers, each with its path and a hash: the
// weights that it starts from ("weights", "init", "adapter") and a template of the user's own.
nlohmann::json made_of(const TrainConfig& config, const ModelText& text);
// Refuses what is no longer what a run's folder says that it was made of.
void check_made_of(const SavePaths& was, const nlohmann::json& now);

// What changed when a run was resumed: the folder's list, and one more entry if numbers depend on
// an option that is another now.
nlohmann::json history_with(const nlohmann::json& about, const nlohmann::json& options,
                            int64_t step);

// A run's settings once more: its folder's model, tokenizer, functors and options, which `toml` and
// `flags` may override. Refuses a run that went on otherwise than it had begun.
ResolvedConfig resolve_repeated(const std::string& folder, const nlohmann::json& toml,
                                const nlohmann::json& flags);

}  // namespace adjoint
