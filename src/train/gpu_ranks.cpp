#include "train/gpu_ranks.h"

#include <unistd.h>

#include <array>

#include "base/error.h"
#include "base/text.h"
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
  const Bytes all = int64_t{ranks} * plan.arena, have = free_gpu_memory();
  world.barrier().wait();  // all have looked before anybody takes some
  if (all > have) {
    fail(ranks, " ranks on one GPU want ", human(all), " (", with_commas(plan.arena.count),
         " bytes each), of which ", human(have),
         " are free: take a smaller --batch, fewer --ranks or another stack");
  }
}

void share_products(const Communicator& world) {
  const bool first = world.rank() == 0;
  std::string text;
  if (first) {
    const auto alone = lock_products();
    text = product_table().text();
  }
  auto size = static_cast<int64_t>(text.size());
  world.broadcast(0, std::as_writable_bytes(std::span(&size, 1))).wait();
  text.resize(size);
  world.broadcast(0, std::as_writable_bytes(std::span(text))).wait();
  if (first || world.one_process()) return;  // a process has one table
  const auto alone = lock_products();
  borrow_products(TunedProducts::parse(text, "the products of rank 0"));
}

}  // namespace adjoint
