#include "comm/texts.h"

#include <algorithm>

#include "base/text.h"

namespace adjoint {

std::string broadcast_text(const Communicator& world, int root, const std::string& text) {
  auto size = static_cast<int64_t>(text.size());
  world.broadcast(root, std::as_writable_bytes(std::span(&size, 1))).wait();
  std::string all = world.rank() == root ? text : std::string(size, '\0');
  world.broadcast(root, std::as_writable_bytes(std::span(all))).wait();
  return all;
}

std::vector<std::string> gather_texts(const Communicator& world, const std::string& mine) {
  const auto size = static_cast<int64_t>(mine.size());
  std::vector<int64_t> sizes(world.size());
  world.all_gather(std::as_bytes(std::span(&size, 1)), bytes_of(sizes)).wait();
  const int64_t longest = *std::ranges::max_element(sizes);
  if (longest == 0) return std::vector<std::string>(world.size());
  std::string padded = mine, all(longest * world.size(), '\0');
  padded.resize(longest);
  world.all_gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all))).wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < world.size(); ++rank) {
    texts.push_back(all.substr(rank * longest, sizes[rank]));
  }
  return texts;
}

std::string name_ranks(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(names, ", ");
}

}  // namespace adjoint
