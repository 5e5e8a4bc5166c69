#include "train/gpu_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "comm/texts.h"
#include "device/gpu.h"
#include "device/visible_gpu.h"
#include "kernels/cuda/cublaslt/product_table.h"

namespace adjoint {

void take_own_gpu(const Communicator& world) {
  if (world.one_process()) return;
  std::array<char, 256> machine = {};
  ::gethostname(machine.data(), machine.size() - 1);
  std::vector<std::array<char, 256>> all(world.size());
  world.all_gather(std::as_bytes(std::span(machine)), bytes_of(all)).wait();
  int number = 0, processes = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (all[rank] != machine) continue;
    number += rank < world.rank();
    ++processes;
  }
  // Streams of messages must not wait for each other (comm/gpu_messages.h). CUDA reads this when it
  // starts, and keeps 8 apart unless it is told otherwise.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/1);
  take_gpu(number, processes);
}

void meet_on_gpu(Seat& seat, const Plan& plan, bool deterministic) {
  const Communicator& world = seat.world();
  open_gpu();
  if (!world.one_process()) {
    seat.open_gpus(deterministic);
    return;
  }
  const int ranks = world.size();
  const Bytes have = free_gpu_memory();
  // Stages of a pipeline want different amounts. When all have told theirs, all have looked, too,
  // and nobody has taken any.
  const int64_t mine = plan.footprint().count;
  std::vector<int64_t> arenas(ranks);
  world.all_gather(std::as_bytes(std::span(&mine, 1)), bytes_of(arenas)).wait();
  const Bytes all{std::accumulate(arenas.begin(), arenas.end(), int64_t{0})};
  const auto [least, most] = std::minmax_element(arenas.begin(), arenas.end());
  if (all > have) {
    fail(ranks, " ranks on one GPU want ", human(all), " (",
         *least == *most ? with_commas(mine) + " bytes each"
                         : with_commas(*least) + " to " + with_commas(*most) + " bytes",
         "), of which ", human(have),
         " are free: take a smaller --batch, fewer --ranks or another stack");
  }
}

ProductShare::ProductShare(const Seat& seat) : world_(seat.world()) {
  const auto found = seat.coordinates().find(kStageAxis);
  const int stage = found == seat.coordinates().end() ? 0 : found->second;
  std::vector<int> stages(world_.size());
  world_.all_gather(std::as_bytes(std::span(&stage, 1)), bytes_of(stages)).wait();
  first_of_.assign(*std::max_element(stages.begin(), stages.end()) + 1, -1);
  for (int rank = world_.size() - 1; rank >= 0; --rank) first_of_[stages[rank]] = rank;
  const bool is_first = first_of_[stage] == world_.rank();
  while (turn_ < (is_first ? stage : stage + 1)) take_turn();
}

void ProductShare::prepared() {
  while (turn_ < static_cast<int>(first_of_.size())) take_turn();
}

void ProductShare::take_turn() {
  const int first = first_of_[turn_++];
  std::string text;
  if (first == world_.rank()) {
    const auto alone = lock_products();
    text = product_table().text();
  }
  text = broadcast_text(world_, first, text);
  if (first == world_.rank() || world_.one_process()) return;  // a process has one table
  const auto alone = lock_products();
  borrow_products(TunedProducts::parse(text, "the products of rank " + std::to_string(first)));
}

}  // namespace adjoint
