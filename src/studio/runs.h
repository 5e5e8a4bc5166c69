// Training runs in the folder, as their run.json and metrics.jsonl tell them.
#pragma once
#include <nlohmann/json.hpp>

#include "studio/folder.h"

namespace adjoint {

nlohmann::json list_runs(const Folder& folder);

// Lines of a run's metrics.jsonl from a byte on, some megabytes at a time.
nlohmann::json metrics_of_run(const Folder& folder, const std::string& path, int64_t from);

}  // namespace adjoint
