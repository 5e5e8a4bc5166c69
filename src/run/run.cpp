#include "run/run.h"

#include <cstring>

#include "base/error.h"
#include "base/philox.h"
#include "device/parallel.h"
#include "ops/elements.h"

namespace adjoint {

Run::Run(Scheme scheme, Plan plan, RunOptions options)
    : scheme_(std::move(scheme)), plan_(std::move(plan)), options_(options), own_(plan_.arena) {
  base_ = own_.data();
  // Touch every page now, from the threads that will use them, so that no step waits for one.
  fill_arena(std::byte{0});
  for (const Value v : scheme_.inputs) {
    if (scheme_[v].role == Role::kControl && scheme_[v].init) set_number(v, 1);
  }
  prepare();
}

Run::Run(Scheme scheme, Plan plan, Run& host, RunOptions options)
    : scheme_(std::move(scheme)), plan_(std::move(plan)), options_(options) {
  CHECK(plan_.arena <= host.own_.size(), "a guest's plan fits the host's arena");
  base_ = host.base_;
  prepare();
}

void Run::fill_arena(std::byte pattern) {
  parallel_for(plan_.arena.count, 1 << 20, [&](int64_t begin, int64_t end, int) {
    std::memset(base_ + begin, static_cast<int>(pattern), end - begin);
  });
}

void Run::prepare() {
  CHECK(num_threads() <= plan_.threads, "workspaces are planned for every thread that runs");
  calls_.reserve(plan_.calls.size());
  dies_after_.resize(plan_.calls.size());
  for (const PlannedCall& planned : plan_.calls) {
    const Morphism& m = scheme_.morphisms[planned.morphism];
    calls_.push_back(call_of(scheme_, m));
    if (planned.is_view) {
      launches_.emplace_back();
      continue;
    }
    KernelCall k{.call = calls_.back(),
                 .outputs = {},
                 .in_strides = {},
                 .out_strides = {},
                 .threads = plan_.threads};
    Pointers at;
    for (const Value v : m.inputs) {
      k.in_strides.push_back(plan_.places[v].strides);
      at.in.push_back(data(v));
    }
    for (const Value v : m.outputs) {
      k.outputs.push_back(scheme_[v].type);
      k.out_strides.push_back(plan_.places[v].strides);
      at.out.push_back(data(v));
    }
    if (planned.workspace >= 0) {
      at.workspace = base_ + plan_.storages[planned.workspace].offset.count;
    }
    launches_.push_back(options_.reference ? prepare_reference(k, at) : prepare_cpu(k, at));
  }
  const int end = static_cast<int>(plan_.calls.size());
  for (size_t i = 0; i < plan_.storages.size(); ++i) {
    const int last = plan_.storages[i].last;
    if (last < end) dies_after_[last].push_back(static_cast<int>(i));
  }
}

void Run::poison(int at) noexcept {
  for (const int i : dies_after_[at]) {
    const Storage& s = plan_.storages[i];
    std::memset(base_ + s.offset.count, 0xff, s.size.count);  // a NaN in every floating dtype
  }
}

void Run::step() noexcept {
  CHECK(num_threads() <= plan_.threads, "workspaces are planned for every thread that runs");
  for (size_t at = 0; at < launches_.size(); ++at) {
    if (launches_[at]) launches_[at]();
    if (options_.poison) poison(static_cast<int>(at));
    if (after_call) after_call(static_cast<int>(at));
  }
}

void* Run::data(Value v) const { return base_ + plan_.offset_of(v).count; }

double Run::number(Value v) const { return load_element(data(v), scheme_[v].type.dtype, 0); }

void Run::set_number(Value v, double number) {
  store_element(data(v), scheme_[v].type.dtype, 0, number);
}

std::vector<double> Run::values(Value v) const {
  const Type& type = scheme_[v].type;
  const Strides& strides = plan_.places[v].strides;
  std::vector<double> values(type.num_elements());
  for (size_t k = 0; k < values.size(); ++k) {
    int64_t rest = static_cast<int64_t>(k), offset = 0;
    for (int a = type.rank(); a-- > 0;) {
      offset += rest % type.dim(a) * strides[a];
      rest /= type.dim(a);
    }
    values[k] = load_element(data(v), type.dtype, offset);
  }
  return values;
}

Bytes Run::touched(std::byte pattern) const {
  int64_t end = plan_.arena.count;
  while (end > 0 && base_[end - 1] == pattern) --end;
  return {end};
}

void initialize(Run& run, uint64_t seed) {
  for (const Value v : run.scheme().inputs) {
    const Object& object = run.scheme()[v];
    if (!object.init) continue;
    const Init init = *object.init;
    const RandomStream stream{random_key(seed, to_string(object.source) + ":init"), 0};
    void* data = run.data(v);
    const Type& type = object.type;
    const int64_t row = type.rank() ? type.dim(-1) : 1;
    const int64_t physical = type.rank() ? type.axes.back().physical() : 1;
    // Indices count logical elements: padding changes no value. Only the last axis is ever padded.
    parallel_for(type.num_elements(), 4096, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        double value = 0;
        switch (init.kind) {
          case Init::Kind::kZeros:
            break;
          case Init::Kind::kOnes:
            value = 1;
            break;
          case Init::Kind::kNormal:
            value = init.scale * stream.normal(i);
            break;
          case Init::Kind::kUniform:
            value = init.scale * (2 * stream.uniform(i) - 1);
            break;
        }
        store_element(data, type.dtype, i / row * physical + i % row, value);
      }
    });
  }
}

}  // namespace adjoint
