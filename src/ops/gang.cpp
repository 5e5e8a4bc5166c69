// y0.., y1.., ... = gang(x0.., x1.., ..., s..): `calls` calls of one elementwise or row op, the
// last `shared` operands given once for all of them. Its other attributes are the op's own. What it
// saves is the start of a parallel region per call, and that small calls leave most threads idle:
// all calls together are cut by elements, so a matrix is shared out and vectors are taken along.
// Each call gives the bits that it gives alone.
#include <algorithm>

#include "base/error.h"
#include "device/parallel.h"
#include "ops/body_readings.h"
#include "ops/builder.h"
#include "ops/cuda_body.h"
#include "ops/optimizer_samples.h"

namespace adjoint {

namespace {

// How the operands of the gang are those of its calls.
struct Members {
  const OpDef* op = nullptr;
  Attrs attrs = {};
  int64_t calls = 0, own = 0, shared = 0;  // own: operands of one call that are not shared

  size_t operand(int64_t call, int64_t k) const {
    return static_cast<size_t>(k < own ? call * own + k : calls * own + k - own);
  }
  template <class T>
  std::vector<T> operands(const std::vector<T>& all, int64_t call) const {
    std::vector<T> mine;
    for (int64_t k = 0; k < own + shared; ++k) mine.push_back(all[operand(call, k)]);
    return mine;
  }
  template <class T>
  std::vector<T> results(const std::vector<T>& all, int64_t call) const {
    const int64_t each = static_cast<int64_t>(all.size()) / calls;
    return {all.begin() + call * each, all.begin() + (call + 1) * each};
  }
  OpCall call(const OpCall& gang, int64_t i) const {
    return {.op = op->name, .inputs = operands(gang.inputs, i), .attrs = attrs};
  }
};

Attrs own_attrs(const Attrs& attrs) {
  Attrs own = attrs;
  for (const std::string_view key : {"op", "calls", "shared", "from"}) {
    if (const auto found = own.find(key); found != own.end()) own.erase(found);
  }
  return own;
}

Members members_of(const OpCall& gang) {
  const std::string name = gang.text("op");
  Members m{.op = find_op(name), .attrs = own_attrs(gang.attrs)};
  if (!m.op || !m.op->body || m.op->cpu || m.op->infer) {
    fail("gang: op '", name, "' is no elementwise or row op that a body alone says");
  }
  m.calls = gang.integer("calls");
  m.shared = gang.integer("shared", 0);
  const int64_t given = static_cast<int64_t>(gang.inputs.size()) - m.shared;
  if (m.calls < 1 || m.shared < 0 || given < 0 || given % m.calls != 0) {
    fail("gang: ", gang.inputs.size(), " operands are not those of ", m.calls, " calls of ", name,
         " and ", m.shared, " that they share");
  }
  m.own = given / m.calls;
  return m;
}

std::vector<Type> infer(const OpCall& gang) {
  const Members m = members_of(gang);
  std::vector<Type> types;
  for (int64_t i = 0; i < m.calls; ++i) {
    const OpCall call = m.call(gang, i);
    if (!runs_in_units(body_of(call))) {
      fail("gang: ", call.op, " sums over rows or draws random numbers, and such calls run alone");
    }
    const std::vector<Type> made = infer_types(call);
    types.insert(types.end(), made.begin(), made.end());
  }
  return types;
}

// Where all calls have one shape, an axis of one is an axis of all. Else no axis is, and none may
// be split.
IndexMap index_map(const OpCall& gang) {
  const Members m = members_of(gang);
  const OpCall first = m.call(gang, 0);
  const IndexMap one = index_map_of(first);
  bool alike = true;
  for (int64_t i = 1; i < m.calls; ++i) {
    const OpCall call = m.call(gang, i);
    alike = alike && std::equal(call.inputs.begin(), call.inputs.end(), first.inputs.begin(),
                                [](const Type& x, const Type& y) { return same_shape(x, y); });
  }
  IndexMap all;
  all.whole = alike ? one.whole : "";
  all.inputs.resize(gang.inputs.size());
  const std::vector<Type> outputs = infer(gang);
  for (int64_t i = 0; i < m.calls; ++i) {
    for (int64_t k = 0; k < m.own + m.shared; ++k) {
      const size_t at = m.operand(i, k);
      all.inputs[at] = alike ? one.inputs[k] : std::string(gang.inputs[at].rank(), '.');
    }
    for (size_t k = 0; k < one.outputs.size(); ++k) {
      const Type& made = outputs[all.outputs.size()];
      all.outputs.push_back(alike ? one.outputs[k] : std::string(made.rank(), '.'));
    }
  }
  return all;
}

int64_t flops(const OpCall& gang) {
  const Members m = members_of(gang);
  int64_t sum = 0;
  for (int64_t i = 0; i < m.calls; ++i) sum += count_flops(m.call(gang, i));
  return sum;
}

// What one call may overwrite of its own. Not what is shared: others read it, before or after.
std::vector<std::pair<int, int>> may_overwrite(const OpCall& gang) {
  const Members m = members_of(gang);
  std::vector<std::pair<int, int>> pairs;
  int first = 0;
  for (int64_t i = 0; i < m.calls; ++i) {
    const OpCall call = m.call(gang, i);
    for (const auto& [output, operand] : overwrites(call)) {
      if (operand >= m.own) continue;
      pairs.emplace_back(first + output, static_cast<int>(m.operand(i, operand)));
    }
    first += static_cast<int>(body_of(call).outputs.size());
  }
  return pairs;
}

std::vector<Value> meaning(Builder& builder, std::span<const Value> in, const Attrs& attrs) {
  OpCall gang{.op = "gang", .inputs = {}, .attrs = attrs};
  for (const Value v : in) gang.inputs.push_back(builder.type(v));
  const Members m = members_of(gang);
  const std::vector<Value> operands(in.begin(), in.end());
  std::vector<Value> results;
  for (int64_t i = 0; i < m.calls; ++i) {
    const auto made = builder.emit_all(m.op->name, m.operands(operands, i), m.attrs);
    results.insert(results.end(), made.begin(), made.end());
  }
  return results;
}

// Calls f(i, call) for every call, as a kernel sees it.
template <class F>
void for_each_call(const KernelCall& k, const F& f) {
  const Members m = members_of(k.call);
  for (int64_t i = 0; i < m.calls; ++i) {
    const OpCall call = m.call(k.call, i);
    f(i, KernelCall{.call = call,
                    .outputs = m.results(k.outputs, i),
                    .in_strides = m.operands(k.in_strides, i),
                    .out_strides = m.results(k.out_strides, i),
                    .threads = k.threads,
                    .workspace_cap = k.workspace_cap,
                    .target = k.target,
                    .deterministic = k.deterministic});
  }
}

Bytes registers_of(const KernelCall& k) {
  Bytes most{0};
  for_each_call(k, [&](int64_t, const KernelCall& call) {
    most = std::max(most, round_up(body_unit_registers(call), {64}));
  });
  return most;
}

bool is_wide(const KernelCall& k) {
  return std::any_of(k.outputs.begin(), k.outputs.end(),
                     [](const Type& t) { return t.dtype == Dtype::kF64; });
}

Launch kernel(const KernelCall& k, const Pointers& at) {
  const Members m = members_of(k.call);
  const auto pointers = [&](int64_t i) {
    return Pointers{.in = m.operands(at.in, i), .out = m.results(at.out, i), .workspace = nullptr};
  };
  if (is_wide(k)) {  // in float64 a body runs as its reference, one call after another
    std::vector<Launch> launches;
    for_each_call(k, [&](int64_t i, const KernelCall& call) {
      launches.push_back(prepare_reference(call, pointers(i)));
    });
    return [launches] {
      for (const Launch& launch : launches) launch();
    };
  }
  struct Member {
    BodyUnits units;
    int64_t first;  // its first element among those of all calls
  };
  std::vector<Member> members;
  int64_t elements = 0;
  for_each_call(k, [&](int64_t i, const KernelCall& call) {
    members.push_back({prepare_body_units(call, pointers(i)), elements});
    elements += members.back().units.count * members.back().units.elements;
  });
  const int64_t registers = registers_of(k).count;
  auto* workspace = static_cast<std::byte*>(at.workspace);
  return [=] {
    parallel_for(elements, kWorthAThread, [&](int64_t begin, int64_t end, int thread) {
      for (const Member& member : members) {
        // A unit is whoever's its first element is.
        const int64_t each = member.units.elements;
        const auto unit = [&](int64_t element) {
          return std::clamp<int64_t>((element - member.first + each - 1) / each, 0,
                                     member.units.count);
        };
        const int64_t from = begin <= member.first ? 0 : unit(begin);
        const int64_t to = end <= member.first ? 0 : unit(end);
        if (from < to) member.units.run(from, to, workspace + thread * registers);
      }
    });
  };
}

// All calls in one launch: they are the same function of each element, whose operands lie side by
// side, and of single numbers that all share. Nothing when some call is not.
std::optional<CudaGang> one_launch(const KernelCall& k, const Members& m) {
  CudaGang gang{.body = body_of(m.call(k.call, 0))};
  if (gang.body.needs_whole_rows() || gang.body.uses_index() || is_wide(k)) return std::nullopt;
  bool fits = true;
  for_each_call(k, [&](int64_t i, const KernelCall& call) {
    std::vector<Dtype> own, shared, outputs;
    const Type& like = call.outputs[0];
    const auto dense = [&](const Type& type, const Strides& strides) {
      // Rows behind the last one leave its elements side by side; padding inside does not.
      const bool padded = std::any_of(type.axes.begin() + std::min(1, type.rank()), type.axes.end(),
                                      [](const Axis& a) { return a.padded > 0; });
      return same_shape(type, like) && strides == dense_strides(type) && !padded;
    };
    for (int64_t o = 0; o < m.own + m.shared; ++o) {
      const Type& type = call.call.inputs[o];
      fits = fits && (o < m.own ? dense(type, call.in_strides[o]) : type.num_elements() == 1);
      (o < m.own ? own : shared).push_back(type.dtype);
    }
    for (size_t o = 0; o < call.outputs.size(); ++o) {
      fits = fits && dense(call.outputs[o], call.out_strides[o]);
      outputs.push_back(call.outputs[o].dtype);
    }
    if (i == 0) gang.own = own, gang.shared = shared, gang.outputs = outputs;
    fits = fits && own == gang.own && shared == gang.shared && outputs == gang.outputs;
  });
  return fits ? std::optional(gang) : std::nullopt;
}

Launch cuda(const KernelCall& k, const Pointers& at) {
  const Members m = members_of(k.call);
  if (const auto gang = one_launch(k, m)) {
    std::vector<CudaGangMember> members;
    const std::vector<const void*> outs(at.out.begin(), at.out.end());
    for (int64_t i = 0; i < m.calls; ++i) {
      std::vector<const void*> places = m.operands(at.in, i);
      places.resize(m.own);
      for (const void* out : m.results(outs, i)) places.push_back(out);
      members.push_back({std::move(places), m.results(k.outputs, i)[0].num_elements()});
    }
    return prepare_gang_cuda(*gang, members, {at.in.end() - m.shared, at.in.end()}, at.stream);
  }
  std::vector<Launch> launches;
  for_each_call(k, [&](int64_t i, const KernelCall& call) {
    launches.push_back(prepare(call, {.in = m.operands(at.in, i),
                                      .out = m.results(at.out, i),
                                      .workspace = nullptr,
                                      .stream = at.stream}));
  });
  return [launches] {
    for (const Launch& launch : launches) launch();
  };
}

std::vector<Sample> samples() {
  const Attrs adamw = {{"op", std::string("adamw")},
                       {"calls", int64_t{3}},
                       {"shared", int64_t{4}},
                       {"beta1", 0.9},
                       {"beta2", 0.999},
                       {"eps", 1e-8},
                       {"decay", 0.1}};
  Sample updates{.inputs = {}, .attrs = adamw};
  for (const auto& sizes :
       {std::vector<int64_t>{7}, std::vector<int64_t>{3, 5000}, std::vector<int64_t>{}}) {
    updates.inputs.insert(updates.inputs.end(), 4, of(sizes));
  }
  updates.fills.assign(12, Sample::Fill::kPositive);
  updates.inputs.resize(16, of({}));
  updates.fills.resize(16, Sample::Fill::kOne);
  // Whole rows, of different lengths, and nothing shared.
  const Sample rows{.inputs = {of({5, 3}), of({2, 70}), of({3, 2, 33})},
                    .attrs = {{"op", std::string("softmax")}, {"calls", int64_t{3}}}};
  const Sample alike{.inputs = {of({5, 6}), of({6}), of({5, 6}), of({6})},
                     .attrs = {{"op", std::string("add")}, {"calls", int64_t{2}}}};
  return {updates, rows, alike};
}

std::vector<Sample> refused() {
  const auto call = [](std::vector<Type> inputs, const char* op, int64_t calls, int64_t shared) {
    return Sample{.inputs = std::move(inputs),
                  .attrs = {{"op", std::string(op)}, {"calls", calls}, {"shared", shared}}};
  };
  return {call({of({3})}, "sorcery", 1, 0),
          call({of({3, 3})}, "split", 1, 0),
          call({of({3}), of({4}), of({5})}, "gelu", 2, 0),
          call({of({3}), of({4})}, "square_sum", 2, 0),
          call({of({3})}, "gelu", 0, 0),
          call({of({3})}, "gelu", 1, 2)};
}

}  // namespace

extern const OpDef op_gang = {
    .name = "gang",
    .summary = "several calls of one elementwise or row op, run as one",
    .infer = infer,
    .index_map = index_map,
    .flops = flops,
    .differentiable = false,
    .effect = Effect::kWritesState,  // made of updates alone, and never repeated
    .overwrites = may_overwrite,
    .meaning = meaning,
    .cpu = kernel,
    .cpu_workspace =
        [](const KernelCall& k) {
          return is_wide(k) ? Bytes{0} : int64_t{k.threads} * registers_of(k);
        },
    .cuda = cuda,
    .cuda_workspace = [](const KernelCall&) { return Bytes{0}; },
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint
