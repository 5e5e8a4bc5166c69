#include "run/run.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "analysis/structure.h"
#include "base/error.h"
#include "base/philox.h"
#include "device/parallel.h"
#include "ops/elements.h"
#include "ops/quantize.h"

namespace adjoint {

Run::Run(Scheme scheme, Plan plan, RunOptions options)
    : scheme_(std::move(scheme)), plan_(std::move(plan)), options_(options) {
  for (int t = 0; t < kNumTiers; ++t) {
    const Bytes size = plan_.arena_of(static_cast<Tier>(t)).size;
    if (t > 0 && size.count == 0) continue;  // most steps use one tier
    own_[t] = Buffer(size);
    base_[t] = own_[t].data();
  }
  // Touch every page now, from the threads that will use them, so that no step waits for one.
  fill_arena(std::byte{0});
  for (const Value v : scheme_.inputs) {
    if (scheme_[v].role == Role::kControl && scheme_[v].init) set_number(v, 1);
  }
  prepare();
}

Run::Run(Scheme scheme, Plan plan, Run& host, RunOptions options)
    : scheme_(std::move(scheme)), plan_(std::move(plan)), options_(options) {
  for (int t = 0; t < kNumTiers; ++t) {
    CHECK(plan_.arena_of(static_cast<Tier>(t)).size <= host.own_[t].size(),
          "a guest's plan fits the host's arena");
  }
  base_ = host.base_;
  prepare();
}

void Run::fill_arena(std::byte pattern) {
  filled_with_ = pattern;
  touched_ = {};
  for (int t = 0; t < kNumTiers; ++t) {
    const Bytes size = plan_.arena_of(static_cast<Tier>(t)).size;
    parallel_for(size.count, 1 << 20, [&](int64_t begin, int64_t end, int) {
      std::memset(base_[t] + begin, static_cast<int>(pattern), end - begin);
    });
  }
}

void Run::set_poison(std::optional<std::byte> with) { poison_ = with; }

void Run::prepare() {
  if (options_.poison) poison_ = std::byte{0xff};  // a NaN in every floating dtype
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
                 .threads = plan_.threads,
                 .workspace_cap = plan_.workspace_cap};
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
      at.workspace = this->at(plan_.storages[planned.workspace]);
    }
    launches_.push_back(options_.reference ? prepare_reference(k, at) : prepare_cpu(k, at));
  }
  const int end = static_cast<int>(plan_.calls.size());
  for (size_t i = 0; i < plan_.storages.size(); ++i) {
    const int last = plan_.storages[i].last;
    if (last < end) dies_after_[last].push_back(static_cast<int>(i));
    crosses_.push_back(plan_.storages[i].first < plan_.body_begin);
  }
  for (const Value in : scheme_.inputs) crosses_[plan_.places[in].storage] = true;
}

// What the next iteration reads is freed by the last one.
void Run::bury(int at, bool for_good) noexcept {
  for (const int i : dies_after_[at]) {
    if (crosses_[i] && !for_good) continue;
    const Storage& s = plan_.storages[i];
    note_touched(s);
    std::memset(this->at(s), static_cast<int>(*poison_), s.size.count);
  }
}

void Run::note_touched(const Storage& s) noexcept {
  int64_t& highest = touched_[static_cast<size_t>(s.tier)];
  const bool workspace = s.objects.empty();
  const std::byte* bytes = this->at(s);
  // From the top down to what is known; of a workspace any byte will do.
  const int64_t least = workspace ? 0 : std::max<int64_t>(0, highest - s.offset.count);
  if (s.offset.count + s.size.count <= highest) return;
  for (int64_t end = s.size.count; end > least; --end) {
    if (bytes[end - 1] == filled_with_) continue;
    highest = s.offset.count + (workspace ? s.size.count : end);
    return;
  }
}

void Run::step() noexcept {
  CHECK(num_threads() <= plan_.threads, "workspaces are planned for every thread that runs");
  run_calls(0, plan_.body_begin, true);
  for (int part = 1; part <= scheme_.parts; ++part) {
    run_calls(plan_.body_begin, plan_.body_end, part == scheme_.parts);
  }
  run_calls(plan_.body_end, static_cast<int>(launches_.size()), true);
}

void Run::run_calls(int begin, int end, bool for_good) noexcept {
  for (int at = begin; at < end; ++at) {
    if (launches_[at]) launches_[at]();
    if (poison_) bury(at, for_good);
    if (after_call) after_call(at);
  }
}

std::byte* Run::at(const Storage& storage) const {
  return arena(storage.tier) + storage.offset.count;
}

void* Run::data(Value v) const {
  const Place& place = plan_.places[v];
  return at(plan_.storages[place.storage]) + place.offset.count;
}

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

void write_numbers(Run& run, Value v, const std::vector<double>& numbers) {
  const Type& type = run.scheme()[v].type;
  const Strides& strides = run.plan().places[v].strides;
  for (size_t k = 0; k < numbers.size(); ++k) {
    int64_t rest = static_cast<int64_t>(k), offset = 0;
    for (int a = type.rank(); a-- > 0;) {
      offset += rest % type.dim(a) * strides[a];
      rest /= type.dim(a);
    }
    store_element(run.data(v), type.dtype, offset, numbers[k]);
  }
}

Bytes Run::touched(std::byte pattern, Tier tier) const {
  int64_t end = plan_.arena_of(tier).size.count;
  const int64_t known = touched_[static_cast<size_t>(tier)];
  while (end > known && arena(tier)[end - 1] == pattern) --end;
  return {end};
}

namespace {

double initial_value(const Init& init, const RandomStream& stream, int64_t i) {
  switch (init.kind) {
    case Init::Kind::kZeros:
      return 0;
    case Init::Kind::kOnes:
      return 1;
    case Init::Kind::kNormal:
      return init.scale * stream.normal(i);
    case Init::Kind::kUniform:
      return init.scale * (2 * stream.uniform(i) - 1);
    case Init::Kind::kConstant:
      return init.scale;
  }
  return 0;
}

// A parameter that is held as codes: what it stands for, and how.
struct Encoded {
  Value codes, scales;
  Source source;  // of the matrix
  Type type;
  CodeFormat format;
};

std::vector<Encoded> encoded_parameters(const Scheme& scheme) {
  std::vector<Encoded> all;
  std::set<Value> seen;
  const std::vector<int> made_by = producers(scheme);
  for (const Morphism& m : scheme.morphisms) {
    if (m.op != "dequantize") continue;
    // Codes that live in the host's tier are fetched for each reader; what is stored is the input.
    const Value codes = before_moves(scheme, made_by, m.inputs[0]);
    const Value scales_in = before_moves(scheme, made_by, m.inputs[1]);
    if (!seen.insert(codes).second) continue;
    CHECK(made_by[codes] < 0 && made_by[scales_in] < 0, "codes are a parameter of the step");
    Encoded e{codes, scales_in, scheme[codes].source, scheme[m.outputs[0]].type, {}};
    // The facet that the realization added stands last: W:codes, W:lora.codes.
    std::string& facet = e.source.facet;
    const size_t dot = facet.rfind('.');
    facet.resize(dot == std::string::npos ? 0 : dot);
    const auto format = std::get<std::string>(m.attrs.at("format"));
    if (format == "nf4") e.format.kind = CodeFormat::Kind::kNF4;
    const Type& scales = scheme[e.scales].type;
    if (scales.rank() + 1 == e.type.rank()) e.format.per = CodeFormat::Per::kChannel;
    if (scales.rank() == e.type.rank()) {
      e.format.per = CodeFormat::Per::kGroup;
      e.format.group = e.type.dim(-1) / scales.dim(-1);
    }
    all.push_back(std::move(e));
  }
  return all;
}

void write_codes(Run& run, const Encoded& e, const float* matrix) {
  quantize(matrix, e.type, e.format, run.data(e.codes), static_cast<float*>(run.data(e.scales)));
}

}  // namespace

void initialize(Run& run, uint64_t seed) {
  const auto stream_of = [&](const Source& source) {
    return RandomStream{random_key(seed, to_string(source) + ":init"), 0};
  };
  std::set<Value> written;
  for (const Encoded& e : encoded_parameters(run.scheme())) {
    written.insert({e.codes, e.scales});
    const auto& init = run.scheme()[e.codes].init;
    if (!init) continue;
    const RandomStream stream = stream_of(e.source);
    std::vector<float> matrix(e.type.num_elements());
    parallel_for(e.type.num_elements(), 4096, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        matrix[i] = static_cast<float>(initial_value(*init, stream, i));
      }
    });
    write_codes(run, e, matrix.data());
  }
  for (const Value v : run.scheme().inputs) {
    const Object& object = run.scheme()[v];
    if (!object.init || written.count(v)) continue;
    const RandomStream stream = stream_of(object.source);
    void* data = run.data(v);
    const Type& type = object.type;
    const int64_t row = type.rank() ? type.dim(-1) : 1;
    const int64_t physical = type.rank() ? type.axes.back().physical() : 1;
    // Indices count logical elements: padding changes no value. Only the last axis is ever padded.
    parallel_for(type.num_elements(), 4096, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        store_element(data, type.dtype, i / row * physical + i % row,
                      initial_value(*object.init, stream, i));
      }
    });
  }
}

void write_parameter(Run& run, const Source& source, std::span<const float> values) {
  const auto check_count = [&](const Type& type) {
    if (type.num_elements() == static_cast<int64_t>(values.size())) return;
    fail("parameter '", to_string(source), "' has ", type.num_elements(), " elements, found ",
         values.size());
  };
  for (const Encoded& e : encoded_parameters(run.scheme())) {
    if (e.source != source) continue;
    check_count(e.type);
    write_codes(run, e, values.data());
    return;
  }
  for (const Value v : run.scheme().inputs) {
    const Object& object = run.scheme()[v];
    if (object.role != Role::kParameter || object.source != source) continue;
    const Type& type = object.type;
    check_count(type);
    const int64_t row = type.rank() ? type.dim(-1) : 1;
    const int64_t physical = type.rank() ? type.axes.back().physical() : 1;
    for (size_t k = 0; k < values.size(); ++k) {
      const auto i = static_cast<int64_t>(k);
      store_element(run.data(v), type.dtype, i / row * physical + i % row, values[k]);
    }
    return;
  }
  fail("there is no parameter '", to_string(source), "'");
}

}  // namespace adjoint
