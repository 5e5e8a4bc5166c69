#include "train/fed_inputs.h"

#include <algorithm>
#include <cmath>

#include "analysis/input_ranges.h"
#include "base/error.h"

namespace adjoint {

Value input_named(const Scheme& scheme, std::string_view path) {
  for (const Value in : scheme.inputs) {
    if (scheme[in].source.path == path && scheme[in].source.facet.empty()) return in;
  }
  return -1;
}

std::vector<FieldWish> wished_fields(const Scheme& forward, const std::string& file) {
  const Value tokens = input_named(forward, "tokens");
  const auto is_ids = [](const Type& type) {
    return type.dtype == Dtype::kI32 && type.rank() == 2;
  };
  if (tokens < 0 || !is_ids(forward[tokens].type)) {
    fail(file, ": a model that is trained takes tokens[batch, seq]");
  }
  const Type& crop = forward[tokens].type;
  const std::set<std::string> computed_with = inputs_computed_with(forward);
  const std::set<std::string> masks = inputs_that_mask(forward);
  std::vector<FieldWish> wishes;
  for (const Value in : forward.inputs) {
    const Object& object = forward[in];
    if (object.role != Role::kInput) continue;
    const Type& type = object.type;
    const std::string& path = object.source.path;
    if (path == "targets" && !is_ids(type)) {
      fail(file, ": targets are targets[batch, seq], found ", to_string(type));
    }
    if (type.rank() < 2 || type.dim(0) != crop.dim(0) || type.dim(1) != crop.dim(1) ||
        (type.dtype != Dtype::kI32 && type.dtype != Dtype::kF32)) {
      fail(file, ": an input is fed from the data's field of its name, i32 or f32 and [batch, seq]",
           " or [batch, seq, ...]; '", path, "' is ", to_string(type));
    }
    FieldWish wish{.name = path,
                   .floating = type.dtype == Dtype::kF32,
                   .computed_with = computed_with.count(path) > 0,
                   .masks = masks.count(path) > 0};
    for (int axis = 2; axis < type.rank(); ++axis) wish.row.push_back(type.dim(axis));
    wishes.push_back(std::move(wish));
  }
  return wishes;
}

void check_entries(const Corpus& corpus, const std::vector<FieldWish>& wishes,
                   const Scheme& forward) {
  const InputRanges ranges = input_ranges(forward);
  for (const FieldWish& wish : wishes) {
    const auto range = ranges.find(wish.name);
    if (range == ranges.end()) {
      corpus.check_entries(wish, std::nullopt, std::nullopt);
    } else {
      corpus.check_entries(wish, range->second.below, range->second.ignored);
    }
  }
}

std::string field_not_finite(const Batches& batches, const Batch& batch) {
  for (size_t i = 0; i < batch.fields.size(); ++i) {
    const Field& field = batches.fields()[i];
    if (!is_floating(field.element)) continue;
    const auto* const numbers = static_cast<const float*>(batch.to[i]);
    for (size_t k = 0; k < batch.fields[i].size() / sizeof(float); ++k) {
      if (std::isfinite(numbers[k])) continue;
      return join_parts("field '", field.name, "' holds ", numbers[k]);
    }
  }
  return "";
}

Batches drawn_by(const Batches& batches, const Scheme& whole, const Coordinates& at) {
  std::vector<DrawnPiece> pieces;
  for (const Field& field : batches.fields()) {
    const Value in = input_named(whole, field.name);
    CHECK(in >= 0, "a step has the model's inputs");
    const Object& object = whole[in];
    DrawnPiece& piece = pieces.emplace_back(DrawnPiece{.size = object.type.num_elements()});
    for (const ShardRun& run : shard_runs(object, whole.mesh, at)) {
      piece.runs.push_back({run.whole, run.local, run.count});
    }
  }
  return batches.shared(pieces);
}

void feed(Run& run, const Batches& batches, const Batch& batch) {
  for (size_t i = 0; i < batch.fields.size(); ++i) {
    const Value in = input_named(run.scheme(), batches.fields()[i].name);
    const bool staged = !run.scheme().of_all_stages.empty();
    if (in < 0 && staged) continue;  // another stage reads it
    CHECK(in >= 0, "a step has the model's inputs");
    CHECK(run.scheme()[in].type.bytes().count == static_cast<int64_t>(batch.fields[i].size()),
          "an input is as large as its field: " + batches.fields()[i].name);
    run.write(in, batch.fields[i].data());
  }
}

}  // namespace adjoint
