// Calls of attention that the tests of all ops run, and calls that it refuses.
#include "ops/attention.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Sample> plain_samples() {
  const auto with = [](std::vector<Type> inputs, int64_t heads, int64_t kv, int64_t causal) {
    return Sample{.inputs = std::move(inputs),
                  .attrs = {{"heads", heads}, {"kv_heads", kv}, {"causal", causal}}};
  };
  return {with({of({2, 5, 4}), of({2, 5, 4}), of({2, 5, 4})}, 2, 2, 1),
          with({of({1, 5, 12}), of({1, 5, 6}), of({1, 5, 6})}, 4, 2, 1),  // grouped
          with({of({2, 4, 9})}, 1, 1, 1),                                 // packed
          with({of({1, 5, 16})}, 4, 2, 1),                                // packed and grouped
          with({of({1, 3, 4}), of({1, 3, 4}), of({1, 3, 4})}, 2, 2, 0),
          with({of({1, 1, 2}), of({1, 1, 2}), of({1, 1, 2})}, 1, 1, 1),
          with({of({1, 101, 34}), of({1, 101, 17}), of({1, 101, 17})}, 2, 1, 1)};  // two blocks
}

// A call with options: the operands that they want are added, with what fills them.
struct Options {
  std::vector<Type> rows;
  int64_t heads = 1, kv = 1, causal = 1;
  Attrs said = {};
  int64_t bias = 0;
  bool sinks = false, segments = false;
};

Sample with_options(const Options& o) {
  Sample sample{.inputs = o.rows, .attrs = o.said, .fills = {}, .ids_below = 2};
  sample.fills.assign(o.rows.size(), Sample::Fill::kNormal);
  sample.attrs.insert({{"heads", o.heads}, {"kv_heads", o.kv}, {"causal", o.causal}});
  const auto add = [&](const char* option, Type type, Sample::Fill fill) {
    if (*option) sample.attrs[option] = int64_t{1};
    sample.inputs.push_back(std::move(type));
    sample.fills.push_back(fill);
  };
  const Type& q = o.rows[0];
  if (o.bias) add("bias", of({o.heads, o.bias}), Sample::Fill::kNormal);
  if (o.sinks) add("sinks", of({o.heads}), Sample::Fill::kNormal);
  if (o.segments) add("segments", of({q.dim(0), q.dim(1)}, Dtype::kI32), Sample::Fill::kIds);
  if (o.said.count("dropout")) {
    sample.attrs["key"] = std::string("block[0].attention#1");
    add("", random_counter_type(), Sample::Fill::kCounter);
  }
  return sample;
}

// Each option alone, and combinations in which each stands beside each other one.
std::vector<Sample> option_samples() {
  const auto apart = [](int64_t b, int64_t s, int64_t heads, int64_t kv, int64_t d, int64_t e) {
    return std::vector<Type>{of({b, s, heads * d}), of({b, s, kv * d}), of({b, s, kv * e})};
  };
  const Attr one = int64_t{1};
  const Attrs all_numbers = {
      {"window", int64_t{4}}, {"scale", 0.7}, {"cap", 1.5}, {"alibi", one}, {"dropout", 0.25}};
  return {
      with_options(
          {.rows = apart(2, 7, 2, 2, 2, 2), .heads = 2, .kv = 2, .said = {{"window", int64_t{3}}}}),
      with_options({.rows = apart(1, 7, 2, 1, 2, 2),
                    .heads = 2,
                    .causal = 0,
                    .said = {{"window", int64_t{2}}}}),
      with_options({.rows = {of({2, 5, 12})}, .heads = 2, .said = {{"scale", 0.0625}}}),
      with_options({.rows = {of({2, 5, 12})}, .heads = 2, .kv = 2, .said = {{"cap", 0.8}}}),
      with_options(
          {.rows = apart(1, 5, 6, 3, 2, 2), .heads = 6, .kv = 3, .said = {{"alibi", one}}}),
      with_options({.rows = apart(1, 6, 2, 2, 3, 3),
                    .heads = 2,
                    .kv = 2,
                    .causal = 0,
                    .said = {{"alibi", one}}}),
      with_options({.rows = apart(2, 6, 4, 2, 2, 2), .heads = 4, .kv = 2, .bias = 3}),
      with_options({.rows = apart(1, 4, 2, 2, 2, 2), .heads = 2, .kv = 2, .bias = 9}),
      with_options({.rows = apart(2, 5, 4, 2, 2, 2), .heads = 4, .kv = 2, .sinks = true}),
      with_options({.rows = {of({1, 5, 16})}, .heads = 4, .kv = 2, .causal = 0, .sinks = true}),
      with_options({.rows = apart(2, 9, 2, 1, 2, 2), .heads = 2, .segments = true}),
      with_options({.rows = apart(2, 5, 2, 1, 2, 2), .heads = 2, .causal = 0, .segments = true}),
      with_options(
          {.rows = apart(2, 7, 4, 2, 2, 2), .heads = 4, .kv = 2, .said = {{"dropout", 0.25}}}),
      with_options({.rows = apart(2, 5, 4, 2, 6, 4), .heads = 4, .kv = 2}),  // latent
      with_options({.rows = apart(1, 5, 2, 2, 2, 5), .heads = 2, .kv = 2, .causal = 0}),
      with_options({.rows = {of({2, 6, 16})},
                    .heads = 4,
                    .kv = 2,
                    .said = all_numbers,
                    .bias = 4,
                    .sinks = true,
                    .segments = true}),
      with_options({.rows = apart(2, 6, 3, 3, 3, 2),
                    .heads = 3,
                    .kv = 3,
                    .said = all_numbers,
                    .bias = 2,
                    .sinks = true,
                    .segments = true}),
      with_options({.rows = apart(1, 6, 2, 2, 2, 3),
                    .heads = 2,
                    .kv = 2,
                    .causal = 0,
                    .said = all_numbers,
                    .sinks = true,
                    .segments = true}),
      // Several blocks of every kernel, of which a window leaves few.
      with_options({.rows = apart(1, 150, 2, 1, 17, 9),
                    .heads = 2,
                    .said = all_numbers,
                    .bias = 40,
                    .sinks = true,
                    .segments = true}),
      with_options({.rows = apart(1, 203, 1, 1, 16, 16), .said = {{"window", int64_t{30}}}}),
      with_options({.rows = apart(1, 203, 1, 1, 16, 16),
                    .causal = 0,
                    .said = {{"window", int64_t{30}}, {"cap", 2.0}}}),
  };
}

}  // namespace

std::vector<Sample> attention_samples() {
  std::vector<Sample> all = plain_samples();
  for (Sample& sample : option_samples()) all.push_back(std::move(sample));
  return all;
}

namespace {

std::vector<Sample> refused_operands() {
  const auto with = [](std::vector<Type> inputs, int64_t heads, int64_t kv) {
    return Sample{.inputs = std::move(inputs), .attrs = {{"heads", heads}, {"kv_heads", kv}}};
  };
  return {with({of({2, 5, 4}), of({2, 5, 4}), of({2, 5, 4})}, 3, 3),
          with({of({2, 5, 6}), of({2, 5, 4}), of({2, 5, 4})}, 3, 2),
          with({of({2, 5, 4}), of({2, 4, 4}), of({2, 4, 4})}, 2, 2),
          with({of({2, 5, 4}), of({2, 5, 4})}, 2, 2),
          with({of({5, 6})}, 2, 2),
          with({of({2, 5, 4}), of({2, 5, 4}), of({2, 5, 5})}, 2, 2)};
}

// Options that say what cannot be, each in an otherwise good call.
std::vector<Sample> refused_options() {
  const auto with = [](std::vector<Type> more, Attrs said) {
    Sample sample{.inputs = {of({2, 5, 12})}, .attrs = std::move(said)};
    sample.inputs.insert(sample.inputs.end(), more.begin(), more.end());
    sample.attrs["heads"] = int64_t{2};
    return sample;
  };
  const Attr one = int64_t{1}, none = int64_t{0};
  const Type counter = random_counter_type();
  return {with({}, {{"window", int64_t{-1}}}),
          with({}, {{"scale", -0.5}}),
          with({}, {{"cap", -1.0}}),
          with({counter}, {{"dropout", 1.0}}),
          with({counter}, {{"dropout", -0.1}}),
          with({}, {{"dropout", 0.1}}),
          with({of({3}, Dtype::kI32)}, {{"dropout", 0.1}}),
          with({}, {{"bias", one}}),
          with({of({2})}, {{"bias", one}}),
          with({of({3, 4})}, {{"bias", one}}),
          with({of({2, 4}, Dtype::kI32)}, {{"bias", one}}),
          with({of({2, 4})}, {{"bias", one}, {"causal", none}}),
          with({of({3})}, {{"sinks", one}}),
          with({of({2, 1})}, {{"sinks", one}}),
          with({of({2, 5})}, {{"segments", one}}),
          with({of({2, 4}, Dtype::kI32)}, {{"segments", one}}),
          with({of({5}, Dtype::kI32)}, {{"segments", one}})};
}

}  // namespace

std::vector<Sample> attention_refused() {
  std::vector<Sample> all = refused_operands();
  for (Sample& sample : refused_options()) all.push_back(std::move(sample));
  return all;
}

}  // namespace adjoint
