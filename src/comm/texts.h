// Texts that ranks tell each other: names of files, sentences.
#pragma once
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace adjoint {

// What the root says, on all ranks.
std::string broadcast_text(const Communicator& world, int root, const std::string& text);
// What every rank says, on all ranks, in the order of the ranks.
std::vector<std::string> gather_texts(const Communicator& world, const std::string& mine);

// "rank 2", "ranks 0, 1, 3".
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace adjoint
