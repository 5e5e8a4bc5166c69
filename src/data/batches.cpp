#include "data/batches.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "data/permutation.h"

namespace adjoint {

namespace {

// 4 TiB of tokens; products of sizes below this cannot overflow.
constexpr int64_t kMaxBatchTokens = int64_t{1} << 40;

// Of so many samples in a row every source has exactly its share, in an order of its own for each
// block; so how many samples of a source came before is known without counting.
constexpr int64_t kBlock = int64_t{1} << 16;

constexpr int64_t kBytesPerNumber = 4;  // of a batch's fields, int32 or float32

class FieldCrops : public Samples {
 public:
  FieldCrops(std::vector<Field> fields, int64_t tokens, int64_t context)
      : fields_(std::move(fields)), tokens_(tokens), context_(context) {}
  int64_t count() const override { return tokens_ - context_; }  // the last target must exist
  void fill(int64_t start, std::span<std::byte* const> to) const noexcept override {
    for (size_t i = 0; i < fields_.size(); ++i) copy_crop(fields_[i], start, context_, to[i]);
  }
  int64_t count_in_order() const override { return (tokens_ - 1) / context_; }
  int64_t nth_in_order(int64_t n) const override { return n * context_; }
  Tokens tokens_of(int64_t start) const override { return {start, context_}; }

 private:
  std::vector<Field> fields_;
  int64_t tokens_, context_;
};

// How many of kBlock samples each source has: at least one, and otherwise its share, rounded so
// that all are kBlock.
std::vector<int64_t> slots_of(const std::vector<WeightedSamples>& sources) {
  double sum = 0;
  for (const WeightedSamples& source : sources) sum += source.weight;
  std::vector<int64_t> ends;
  double before = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    before += sources[i].weight;
    const auto share = static_cast<int64_t>(std::llround(before / sum * double{kBlock}));
    const auto behind = static_cast<int64_t>(sources.size() - 1 - i);
    ends.push_back(
        std::clamp<int64_t>(share, (ends.empty() ? 0 : ends.back()) + 1, kBlock - behind));
  }
  return ends;
}

}  // namespace

int64_t DataPosition::batch_of(int64_t step) const noexcept {
  int64_t batch = step;
  for (const int64_t out : left_out) batch += out <= batch;
  return batch;
}

int64_t DataPosition::sample_of(int64_t batch, int64_t size) const noexcept {
  if (sizes.empty()) return batch * size;
  return sizes.back().sample + (batch - sizes.back().batch) * size;
}

void DataPosition::leave_out(int64_t batch) {
  const auto at = std::lower_bound(left_out.begin(), left_out.end(), batch);
  if (at == left_out.end() || *at != batch) left_out.insert(at, batch);
}

void DataPosition::change_size(int64_t step, int64_t size_before) {
  const int64_t batch = batch_of(step);
  const int64_t sample = sample_of(batch, size_before);
  std::erase_if(left_out, [&](int64_t out) { return out >= batch; });
  // A run that was resumed twice at one step has changed once.
  std::erase_if(sizes, [&](const Size& size) { return size.batch >= batch; });
  sizes.push_back({batch, sample});
}

Batches::Batches(std::vector<Field> fields, int64_t tokens, int64_t batch, int64_t context,
                 uint64_t seed, std::string_view split)
    : fields_(std::move(fields)),
      batch_(batch),
      context_(context),
      key_(random_key(seed, "data." + std::string(split))) {
  check_sizes();
  if (tokens <= context) {
    fail("the ", split == "train" ? "training" : split, " part of the data has ", tokens,
         " tokens, but a context of ", context, " needs at least ",
         static_cast<uint64_t>(context) + 1, advice_on_length(split == "train"));
  }
  sources_.push_back({std::make_shared<FieldCrops>(fields_, tokens, context)});
  slots_ = slots_of(sources_);
}

Batches::Batches(std::vector<Field> fields, std::vector<WeightedSamples> sources, Draw draw,
                 int64_t batch, int64_t context, uint64_t seed, std::string_view split)
    : fields_(std::move(fields)),
      sources_(std::move(sources)),
      slots_(slots_of(sources_)),
      draw_(draw),
      batch_(batch),
      context_(context),
      key_(random_key(seed, "data." + std::string(split))) {
  check_sizes();
  CHECK(!sources_.empty() && std::cmp_less(sources_.size(), kBlock), "there are sources");
  for (const WeightedSamples& source : sources_) {
    CHECK(source.samples->count() > 0, "a source without samples was refused");
  }
}

void Batches::check_sizes() const {
  if (batch_ < 1 || context_ < 1) {
    fail("a batch of ", batch_, " samples of ", context_, " tokens is empty");
  }
  if (batch_ > kMaxBatchTokens / context_) {
    fail("a batch of ", batch_, " samples of ", context_, " tokens is more than any memory holds");
  }
  for (const Field& field : fields_) {
    if (batch_ * context_ > kMaxBatchTokens / field.width) {
      fail("a batch of ", batch_, " samples of ", context_, " tokens with ", field.width,
           " numbers of '", field.name, "' each is more than any memory holds");
    }
  }
}

size_t Batches::bytes_per_sample(size_t field) const {
  return static_cast<size_t>(context_ * fields_[field].bytes_per_token());
}

Batches::Row Batches::whole_row(int64_t row) const {
  Row whole{.row = row};
  for (size_t field = 0; field < fields_.size(); ++field) {
    const auto bytes = static_cast<int64_t>(bytes_per_sample(field));
    whole.pieces.push_back({field, 0, row * bytes, bytes});
  }
  return whole;
}

Batches Batches::shared(std::span<const DrawnPiece> pieces) const {
  CHECK(pieces.size() == fields_.size(), "a piece of every field");
  Share share;
  std::map<int64_t, Row> rows;
  for (size_t field = 0; field < pieces.size(); ++field) {
    share.sizes.push_back(pieces[field].size * kBytesPerNumber);
    const int64_t row_size = context_ * fields_[field].width;
    for (const DrawnPiece::Run& run : pieces[field].runs) {
      CHECK(run.whole >= 0 && run.whole + run.count <= batch_ * row_size, "a run of the batch");
      CHECK(run.local >= 0 && run.local + run.count <= pieces[field].size, "a run of the piece");
      for (int64_t at = run.whole; at < run.whole + run.count;) {
        const int64_t row = at / row_size;
        const int64_t end = std::min((row + 1) * row_size, run.whole + run.count);
        rows[row].pieces.push_back({field, (at - row * row_size) * kBytesPerNumber,
                                    (run.local + at - run.whole) * kBytesPerNumber,
                                    (end - at) * kBytesPerNumber});
        at = end;
      }
    }
  }
  for (auto& [row, drawn] : rows) {
    drawn.row = row;
    share.rows.push_back(std::move(drawn));
  }
  Batches mine = *this;
  mine.share_ = std::make_shared<const Share>(std::move(share));
  return mine;
}

Batches Batches::whole() const {
  Batches all = *this;
  all.share_.reset();
  return all;
}

int64_t Batches::bytes_of_piece(size_t field) const {
  return share_ ? share_->sizes[field] : batch_ * static_cast<int64_t>(bytes_per_sample(field));
}

std::optional<int32_t> Batches::padding_of(size_t field) const noexcept {
  const auto padding = padding_.find(fields_[field].name);
  if (padding == padding_.end() || is_floating(fields_[field].element)) return std::nullopt;
  return static_cast<int32_t>(padding->second);
}

template <typename FillRow>
void Batches::for_each_row(const FillRow& fill_row) const noexcept {
  // A row that is needed in pieces, or not of every field, is drawn here and copied from here.
  size_t bytes = 0;
  for (size_t field = 0; share_ && field < fields_.size(); ++field) {
    bytes += bytes_per_sample(field);
  }
  std::vector<std::byte> scratch(bytes);
  if (share_) {
    for (const Row& row : share_->rows) fill_row(row, scratch);
  } else {
    for (int64_t row = 0; row < batch_; ++row) fill_row(whole_row(row), scratch);
  }
}

void Batches::fill(int64_t step, std::span<void* const> to) const noexcept {
  for_each_row([&](const Row& row, std::span<std::byte> scratch) {
    fill_row(origin(step, row.row), row, scratch, to);
  });
}

Batches::Origin Batches::origin(int64_t step, int64_t row) const noexcept {
  const int64_t batch = position_.batch_of(step);
  const auto source_at = [&](int64_t slot) {
    return static_cast<size_t>(std::upper_bound(slots_.begin(), slots_.end(), slot) -
                               slots_.begin());
  };
  if (draw_ == Draw::kAtRandom) {
    const RandomStream stream{key_, static_cast<uint64_t>(batch)};
    const PhiloxBlock words = stream.block(static_cast<uint64_t>(row));
    const size_t source = source_at(words[2] % kBlock);
    // 64 bits, so that the remainder favours no sample by more than count / 2^64.
    const uint64_t bits = uint64_t{words[1]} << 32 | words[0];
    const auto count = static_cast<uint64_t>(sources_[source].samples->count());
    return {source, static_cast<int64_t>(bits % count)};
  }
  const int64_t k = position_.sample_of(batch, batch_) + row;
  size_t source = 0;
  int64_t nth = k;  // of the source's samples
  if (sources_.size() > 1) {
    const int64_t block = k / kBlock;
    const Permutation order(kBlock, key_ + static_cast<uint64_t>(block) * 0xD1B54A32D192ED03);
    const auto slot = static_cast<int64_t>(order(static_cast<uint64_t>(k % kBlock)));
    source = source_at(slot);
    const int64_t begin = source == 0 ? 0 : slots_[source - 1];
    nth = block * (slots_[source] - begin) + slot - begin;
  }
  const int64_t count = sources_[source].samples->count();
  const uint64_t epoch_key = random_key(key_, "epoch") ^
                             (static_cast<uint64_t>(nth / count) * 0x9E3779B97F4A7C15 + source);
  const Permutation order(static_cast<uint64_t>(count), epoch_key);
  return {source, static_cast<int64_t>(order(static_cast<uint64_t>(nth % count)))};
}

Samples::Tokens Batches::tokens_of(const Origin& from) const {
  return sources_[from.source].samples->tokens_of(from.sample);
}

void Batches::fill_row(const Origin& from, const Row& row, std::span<std::byte> scratch,
                       std::span<void* const> to) const noexcept {
  constexpr size_t kFew = 16;
  std::byte* few[kFew];
  std::vector<std::byte*> many(fields_.size() > kFew ? fields_.size() : 0);
  std::byte** const rows = many.empty() ? few : many.data();
  size_t used = 0;
  for (size_t field = 0; field < fields_.size(); ++field) {
    rows[field] = scratch.data() + used;
    if (share_) used += bytes_per_sample(field);
  }
  const auto is_whole = [&](const RowPiece& piece) {
    return piece.count == static_cast<int64_t>(bytes_per_sample(piece.field));
  };
  const auto place = [&](const RowPiece& piece) {
    return static_cast<std::byte*>(to[piece.field]) + piece.in_piece;
  };
  for (const RowPiece& piece : row.pieces) {
    if (is_whole(piece)) rows[piece.field] = place(piece);
  }
  sources_[from.source].samples->fill(from.sample, {rows, fields_.size()});
  for (const RowPiece& piece : row.pieces) {
    if (is_whole(piece)) continue;
    std::memcpy(place(piece), rows[piece.field] + piece.in_row, static_cast<size_t>(piece.count));
  }
}

void Batches::pad_row(const Row& row, std::span<void* const> to) const noexcept {
  for (const RowPiece& piece : row.pieces) {
    const std::optional<int32_t> padding = padding_of(piece.field);
    if (!padding) continue;
    auto* const bytes = static_cast<std::byte*>(to[piece.field]) + piece.in_piece;
    std::fill_n(reinterpret_cast<int32_t*>(bytes), piece.count / kBytesPerNumber, *padding);
  }
}

int64_t Batches::count_in_order() const {
  int64_t count = 0;
  for (const WeightedSamples& source : sources_) count += source.samples->count_in_order();
  return count;
}

Batches::Origin Batches::origin_in_order(int64_t n) const noexcept {
  size_t source = 0;
  while (n >= sources_[source].samples->count_in_order()) {
    n -= sources_[source++].samples->count_in_order();
  }
  return {source, sources_[source].samples->nth_in_order(n)};
}

void Batches::fill_in_order(int64_t first, std::span<void* const> to) const noexcept {
  const int64_t count = count_in_order();
  for_each_row([&](const Row& row, std::span<std::byte> scratch) {
    const int64_t n = first + row.row;
    fill_row(origin_in_order(std::min(n, count - 1)), row, scratch, to);
    if (n >= count) pad_row(row, to);
  });
}

double Batches::epoch(int64_t step) const {
  const int64_t samples = position_.sample_of(position_.batch_of(step), batch_);
  double most = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const auto slots = static_cast<double>(slots_[i] - (i == 0 ? 0 : slots_[i - 1]));
    const auto once = static_cast<double>(sources_[i].samples->count_in_order());
    most = std::max(most, static_cast<double>(samples) * slots / double{kBlock} / once);
  }
  return most;
}

Batch::Batch(const Batches& batches) {
  for (size_t field = 0; field < batches.fields().size(); ++field) {
    fields.emplace_back(static_cast<size_t>(batches.bytes_of_piece(field)));
    const std::optional<int32_t> padding = batches.padding_of(field);
    if (!padding) continue;
    std::fill_n(reinterpret_cast<int32_t*>(fields.back().data()),
                fields.back().size() / sizeof(int32_t), *padding);
  }
  for (std::vector<std::byte>& field : fields) to.push_back(field.data());
}

Prefetcher::Prefetcher(const Batches& batches, int64_t first_step, int threads)
    : batches_(batches), taken_(first_step), claimed_(first_step) {
  // One that the caller reads, one for each thread, and one that is ready.
  for (int i = 0; i < threads + 2; ++i) slots_.emplace_back(batches_);
  ready_.resize(slots_.size());
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { fill_ahead(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  freed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

const Batch& Prefetcher::next() {
  std::unique_lock lock(mutex_);
  const int64_t step = taken_++;  // so the slot of the last one is free
  freed_.notify_one();
  const size_t slot = static_cast<size_t>(step) % slots_.size();
  if (!ready_[slot]) {
    const auto began = std::chrono::steady_clock::now();
    filled_.wait(lock, [&] { return ready_[slot]; });
    stalled_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  ready_[slot] = false;
  return slots_[slot];
}

void Prefetcher::fill_ahead() {
  std::unique_lock lock(mutex_);
  const auto num_slots = static_cast<int64_t>(slots_.size());
  while (true) {
    // The caller reads the slot of taken_ - 1.
    freed_.wait(lock, [&] { return stop_ || claimed_ < taken_ - 1 + num_slots; });
    if (stop_) return;
    const int64_t step = claimed_++;
    const size_t slot = static_cast<size_t>(step) % slots_.size();
    // Unlocked, because nobody else touches a slot that is claimed and not ready.
    lock.unlock();
    slots_[slot].step = step;
    batches_.fill(step, slots_[slot].to);
    lock.lock();
    ready_[slot] = true;
    filled_.notify_one();
  }
}

}  // namespace adjoint
