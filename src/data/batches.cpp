#include "data/batches.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/philox.h"

namespace adjoint {

// 4 TiB of tokens; products of sizes below this cannot overflow.
static constexpr int64_t kMaxBatchTokens = int64_t{1} << 40;

Batches::Batches(std::span<const int32_t> tokens, int64_t batch, int64_t context, uint64_t seed,
                 std::string_view split)
    : tokens_(tokens),
      batch_(batch),
      context_(context),
      key_(random_key(seed, "data." + std::string(split))) {
  if (batch < 1 || context < 1) {
    fail("a batch of ", batch, " samples of ", context, " tokens is empty");
  }
  if (batch > kMaxBatchTokens / context) {
    fail("a batch of ", batch, " samples of ", context, " tokens is more than any memory holds");
  }
  if (std::cmp_less_equal(tokens.size(), context)) {
    fail("the ", split == "train" ? "training" : split, " part of the data has ", tokens.size(),
         " tokens, but a context of ", context, " needs at least ",
         static_cast<uint64_t>(context) + 1);
  }
}

void Batches::fill(int64_t step, int32_t* tokens, int32_t* targets) const noexcept {
  fill_samples(step, 0, batch_, tokens, targets);
}

void Batches::fill_samples(int64_t step, int64_t first, int64_t num, int32_t* tokens,
                           int32_t* targets) const noexcept {
  const RandomStream stream{key_, static_cast<uint64_t>(step)};
  const uint64_t num_starts = tokens_.size() - context_;  // the last target must exist
  for (int64_t row = 0; row < num; ++row) {
    const PhiloxBlock words = stream.block(static_cast<uint64_t>(first + row));
    // 64 bits, so that the remainder favours no start by more than num_starts / 2^64.
    const uint64_t bits = uint64_t{words[1]} << 32 | words[0];
    const int32_t* crop = tokens_.data() + bits % num_starts;
    std::copy_n(crop, context_, tokens + row * context_);
    std::copy_n(crop + 1, context_, targets + row * context_);
  }
}

Prefetcher::Prefetcher(const Batches& batches, int64_t first_step) : batches_(batches) {
  const auto size = static_cast<size_t>(batches.batch()) * static_cast<size_t>(batches.context());
  for (Batch* batch : {&front_, &back_}) {
    batch->tokens.resize(size);
    batch->targets.resize(size);
  }
  back_.step = first_step;
  thread_ = std::thread([this] { fill_ahead(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

const Batch& Prefetcher::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ready_; });
  std::swap(front_, back_);
  back_.step = front_.step + 1;
  ready_ = false;
  lock.unlock();
  changed_.notify_all();
  return front_;
}

void Prefetcher::fill_ahead() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !ready_ || stop_; });
    if (stop_) return;
    // Unlocked, because no other thread reads back_ until ready_ is set.
    lock.unlock();
    batches_.fill(back_.step, back_.tokens.data(), back_.targets.data());
    lock.lock();
    ready_ = true;
    changed_.notify_all();
  }
}

}  // namespace adjoint
