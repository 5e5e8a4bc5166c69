// Random crops of the tokens. The crop of sample i of step s is a pure function of the seed, the
// step, the split and i, so that a resumed run, or one that is split over ranks or microbatches,
// reads the same data as the plain run. Nothing is shuffled, and there is no state.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

namespace adjoint {

class Batches {
 public:
  // `split` is "train" or "validation". The tokens must outlive this and its copies.
  Batches(std::span<const int32_t> tokens, int64_t batch, int64_t context, uint64_t seed,
          std::string_view split);

  int64_t batch() const { return batch_; }
  int64_t context() const { return context_; }

  // tokens[batch, context], and targets[batch, context]: the token after each.
  void fill(int64_t step, int32_t* tokens, int32_t* targets) const noexcept;
  // The same for the samples from `first` on, counted in the whole batch: [num, context].
  void fill_samples(int64_t step, int64_t first, int64_t num, int32_t* tokens,
                    int32_t* targets) const noexcept;

 private:
  std::span<const int32_t> tokens_;
  int64_t batch_, context_;
  uint64_t key_;
};

struct Batch {
  int64_t step = 0;
  std::vector<int32_t> tokens, targets;  // [batch, context]
};

// Fills the next batch on a thread of its own while the caller works on the last one.
class Prefetcher {
 public:
  Prefetcher(const Batches& batches, int64_t first_step);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The batches of first_step, first_step + 1, ...; each is valid until the next call.
  const Batch& next();

 private:
  void fill_ahead();

  const Batches batches_;
  Batch front_;  // the caller's
  Batch back_;   // the thread's until ready_, then next()'s
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false, stop_ = false;
  std::thread thread_;  // last member: it starts when all others are constructed
};

}  // namespace adjoint
