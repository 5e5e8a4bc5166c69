#include "data/batches.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/philox.h"

namespace adjoint {

// 4 TiB of tokens; products of sizes below this cannot overflow.
static constexpr int64_t kMaxBatchTokens = int64_t{1} << 40;

Batches::Batches(std::vector<Field> fields, int64_t tokens, int64_t batch, int64_t context,
                 uint64_t seed, std::string_view split)
    : fields_(std::move(fields)),
      tokens_(tokens),
      batch_(batch),
      context_(context),
      key_(random_key(seed, "data." + std::string(split))) {
  if (batch < 1 || context < 1) {
    fail("a batch of ", batch, " samples of ", context, " tokens is empty");
  }
  if (batch > kMaxBatchTokens / context) {
    fail("a batch of ", batch, " samples of ", context, " tokens is more than any memory holds");
  }
  if (tokens <= context) {
    fail("the ", split == "train" ? "training" : split, " part of the data has ", tokens,
         " tokens, but a context of ", context, " needs at least ",
         static_cast<uint64_t>(context) + 1);
  }
  for (const Field& field : fields_) {
    if (batch * context > kMaxBatchTokens / field.width) {
      fail("a batch of ", batch, " samples of ", context, " tokens with ", field.width,
           " numbers of '", field.name, "' each is more than any memory holds");
    }
  }
}

size_t Batches::bytes_per_sample(size_t field) const {
  return static_cast<size_t>(context_ * fields_[field].bytes_per_token());
}

void Batches::fill(int64_t step, std::span<void* const> to) const noexcept {
  fill_samples(step, 0, batch_, to);
}

void Batches::fill_samples(int64_t step, int64_t first, int64_t num,
                           std::span<void* const> to) const noexcept {
  const RandomStream stream{key_, static_cast<uint64_t>(step)};
  const auto num_starts = static_cast<uint64_t>(tokens_ - context_);  // the last target must exist
  for (int64_t row = 0; row < num; ++row) {
    const PhiloxBlock words = stream.block(static_cast<uint64_t>(first + row));
    // 64 bits, so that the remainder favours no start by more than num_starts / 2^64.
    const uint64_t bits = uint64_t{words[1]} << 32 | words[0];
    fill_crop(static_cast<int64_t>(bits % num_starts), row, to);
  }
}

void Batches::fill_crop(int64_t start, int64_t row, std::span<void* const> to) const noexcept {
  for (size_t i = 0; i < fields_.size(); ++i) {
    copy_crop(fields_[i], start, context_,
              static_cast<std::byte*>(to[i]) + row * bytes_per_sample(i));
  }
}

Batch::Batch(const Batches& batches) {
  for (size_t i = 0; i < batches.fields().size(); ++i) {
    fields.emplace_back(static_cast<size_t>(batches.batch()) * batches.bytes_per_sample(i));
  }
  for (std::vector<std::byte>& field : fields) to.push_back(field.data());
}

Prefetcher::Prefetcher(const Batches& batches, int64_t first_step)
    : batches_(batches), front_(batches_), back_(batches_) {
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
    batches_.fill(back_.step, back_.to);
    lock.lock();
    ready_ = true;
    changed_.notify_all();
  }
}

}  // namespace adjoint
