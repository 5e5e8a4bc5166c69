// What the ranks of a job settle before the first step, so that none of them can be the odd one
// out: everything here is called by all ranks, in the same order.
#pragma once
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "train/resolve_config.h"

namespace adjoint {

// Threads of a rank where nobody said how many: its share of the cores that ranks of its machine
// may use. The same on all ranks, because bits of products depend on it.
int threads_of_ranks(const Communicator& world);

// Refuses ranks whose programs differ, or processors, whose instructions decide how products are
// summed; each with one sentence that names the ranks.
void agree_on_program(const Communicator& world);
// Refuses ranks that were given other options, another text or another number of threads.
void agree_on_options(const Communicator& world, const TrainConfig& config, const ModelText& text);

// Refuses a folder that some rank does not see or cannot write to. Leaves nothing behind.
void check_all_see(const Communicator& world, const std::filesystem::path& folder);

// Refuses a step whose mesh has another number of ranks than the job, and says what would fit.
void check_mesh(const std::vector<MeshAxis>& mesh, int ranks);

}  // namespace adjoint
