#include "run/random_steps.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "analysis/padding.h"
#include "base/hash.h"
#include "base/philox.h"
#include "ops/builder.h"
#include "run/parameters.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kRate = 1e-3;

}  // namespace

uint32_t ids_below(const Scheme& scheme) {
  int64_t classes = 0, rows = 0;
  for (const Morphism& m : scheme.morphisms) {
    const OpDef& op = op_named(m.op);
    if (op.loss) classes = std::max(classes, scheme[m.inputs[0]].type.dim(-1));
    if (op.table >= 0) rows = std::max(rows, scheme[m.inputs[op.table]].type.dim(0));
  }
  const int64_t below = classes ? classes : rows ? rows : 64;
  return static_cast<uint32_t>(std::min<int64_t>(below, INT32_MAX));
}

RandomSteps::RandomSteps(Run& run, uint64_t seed)
    : run_(run),
      seed_(seed),
      ids_below_(ids_below(run.scheme())),
      ignored_(ignored_targets(run.scheme())) {}

void RandomSteps::begin() {
  number_ = 0;
  for (const Value in : scheme().inputs) {
    const Object& object = scheme()[in];
    if (is_state(object.role)) run_.clear(in);
    if (object.role == Role::kControl && object.init) run_.set_number(in, 1);
    if (!run_.seat()) continue;
    for (const auto& [axis, coordinate] : run_.seat()->coordinates()) {
      if (object.source == mesh_coordinate(axis)) run_.set_number(in, coordinate);
    }
  }
  initialize(run_, seed_);
}

void RandomSteps::feed() {
  for (const Value in : scheme().inputs) {
    const Object& object = scheme()[in];
    if (object.role == Role::kInput) {
      feed_data(in);
    } else if (object.role == Role::kControl && object.source.path == "rate") {
      run_.set_number(in, kRate);
    } else if (object.role == Role::kControl && object.source.path == kRandomCounter) {
      run_.set_values(in, {static_cast<double>(seed_), static_cast<double>(number_), 0});
    }
  }
}

double RandomSteps::step() {
  const auto before = Clock::now();
  run_.step();
  run_.synchronize();
  const auto after = Clock::now();
  ++number_;
  return std::chrono::duration<double>(after - before).count();
}

double RandomSteps::timed_step(std::vector<double>& call_seconds) {
  const auto before = Clock::now();
  call_seconds = run_.timed_step();
  const auto after = Clock::now();
  ++number_;
  return std::chrono::duration<double>(after - before).count();
}

double RandomSteps::loss() const {
  const std::vector<Value>& out = scheme().outputs;
  return out.empty() || scheme()[out[0]].type.rank() > 0 ? 0 : run_.number(out[0]);
}

std::vector<uint64_t> RandomSteps::hashes() const {
  std::vector<uint64_t> all;
  for (const Value v : left()) {
    std::vector<std::byte> bytes(scheme()[v].type.bytes().count);
    run_.read(v, bytes.data());
    all.push_back(hash_of(bytes.data(), bytes.size()));
  }
  return all;
}

std::vector<Value> RandomSteps::left() const {
  std::vector<Value> all = scheme().outputs;
  for (const Carry& c : scheme().carries) all.push_back(c.in);
  // Objects that are not dense, and padded ones, are left out, because bytes between their elements
  // may hold anything.
  std::erase_if(all, [&](Value v) {
    const Type& type = scheme()[v].type;
    return run_.plan().places[v].strides != dense_strides(type) ||
           type.bytes() != type.num_elements() * size_of(type.dtype);
  });
  return all;
}

// Zipf's law: the n-th most frequent token comes about 1/n times as often as the first.
double RandomSteps::id_like_text(double uniform) const {
  const double rank = std::floor(std::exp(uniform * std::log(ids_below_ + 1.0))) - 1;
  return std::clamp<double>(rank, 0, ids_below_ - 1.0);
}

void RandomSteps::feed_data(Value in) {
  const Object& object = scheme()[in];
  const RandomStream stream{random_key(seed_, object.source.path + ":data"),
                            static_cast<uint64_t>(number_)};
  const Dtype dtype = object.type.dtype;
  const bool ids = !is_float(dtype);
  std::vector<std::byte> data(object.type.bytes().count);
  const std::set<int64_t>& ignored = ignored_[in];
  for (int64_t i = 0; !ignored.empty() && i < object.type.num_elements(); ++i) {
    store_element(data.data(), dtype, i, static_cast<double>(*ignored.begin()));
  }
  // A rank has its piece of what one rank would have.
  for (const ShardRun& r : run_.runs_of(in)) {
    for (int64_t i = 0; i < r.count; ++i) {
      const int64_t at = r.whole + i;
      store_element(data.data(), dtype, r.local + i,
                    ids ? id_like_text(stream.uniform(at)) : stream.normal(at));
    }
  }
  run_.write(in, data.data());
}

}  // namespace adjoint
