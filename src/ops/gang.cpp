// y0.., y1.., ... = gang(x0.., x1.., ..., s..): `calls` calls of one elementwise or row op, the
// last `shared` operands given once for all of them. Its other attributes are the op's own. What it
// saves is the start of a parallel region per call, and that small calls leave most threads idle:
// all calls together are cut by elements, so a matrix is shared out and vectors are taken along.
// Each call gives the bits that it gives alone.
// Calls of an op that adds everything up to single numbers are a gang, too. On the CPU they run one
// after another as they do alone; on a GPU all of them are two launches, which add in an order of
// their own, one that a call's size decides.
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

bool is_gang_of_sums(const OpCall& gang, const Members& m) {
  return makes_single_numbers(body_of(m.call(gang, 0)));
}

std::vector<Type> infer(const OpCall& gang) {
  const Members m = members_of(gang);
  const bool sums = is_gang_of_sums(gang, m);
  std::vector<Type> types;
  for (int64_t i = 0; i < m.calls; ++i) {
    const OpCall call = m.call(gang, i);
    const Body body = body_of(call);
    if (sums ? !makes_single_numbers(body) : !runs_in_units(body)) {
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
    KernelCall one(call, k);
    one.outputs = m.results(k.outputs, i);
    one.in_strides = m.operands(k.in_strides, i);
    one.out_strides = m.results(k.out_strides, i);
    f(i, one);
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

Launch one_after_another(std::vector<Launch> launches) {
  return [launches = std::move(launches)] {
    for (const Launch& launch : launches) launch();
  };
}

Pointers pointers_of(const Members& m, const Pointers& at, int64_t i) {
  return {.in = m.operands(at.in, i),
          .out = m.results(at.out, i),
          .workspace = at.workspace,
          .stream = at.stream};
}

// What calls want that run one after another.
Bytes largest_workspace(const KernelCall& k) {
  Bytes most{0};
  for_each_call(
      k, [&](int64_t, const KernelCall& call) { most = std::max(most, workspace_bytes(call)); });
  return most;
}

Launch kernel(const KernelCall& k, const Pointers& at) {
  const Members m = members_of(k.call);
  if (is_wide(k) || is_gang_of_sums(k.call, m)) {  // in float64 a body runs as its reference
    const auto prepared = is_wide(k) ? prepare_reference : prepare_cpu;
    std::vector<Launch> launches;
    for_each_call(k, [&](int64_t i, const KernelCall& call) {
      launches.push_back(prepared(call, pointers_of(m, at, i)));
    });
    return one_after_another(std::move(launches));
  }
  struct Member {
    BodyUnits units;
    int64_t first;  // its first element among those of all calls
  };
  std::vector<Member> members;
  int64_t elements = 0;
  for_each_call(k, [&](int64_t i, const KernelCall& call) {
    members.push_back({prepare_body_units(call, pointers_of(m, at, i)), elements});
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

Bytes cpu_workspace(const KernelCall& k) {
  if (is_wide(k)) return {0};
  if (is_gang_of_sums(k.call, members_of(k.call))) return largest_workspace(k);
  return int64_t{k.threads} * registers_of(k);
}

// Do the elements of an operand or a result lie side by side?
bool is_dense(const Type& type, const Strides& strides) {
  // Rows behind the last one leave its elements so; padding inside does not.
  const bool padded = std::any_of(type.axes.begin() + std::min(1, type.rank()), type.axes.end(),
                                  [](const Axis& a) { return a.padded > 0; });
  return strides == dense_strides(type) && !padded;
}

// The calls that can go in one launch: they are the same function of each element, or the sum of
// one, whose operands lie side by side, and of single numbers that all share.
struct Joined {
  CudaGang gang;
  std::vector<bool> joins;  // per call
};
Joined joined_for_cuda(const KernelCall& k, const Members& m) {
  Joined result{.gang = {.body = body_of(m.call(k.call, 0))}, .joins = {}};
  CudaGang& gang = result.gang;
  gang.sums = adds_elements(gang.body);
  const bool reduces = gang.body.needs_whole_rows() || is_gang_of_sums(k.call, m);
  const bool possible =
      (gang.sums ? m.own > 0 && m.shared == 0 : !reduces) && !gang.body.uses_index() && !is_wide(k);
  bool first = true;
  for_each_call(k, [&](int64_t, const KernelCall& call) {
    bool fits = possible;
    std::vector<Dtype> own, shared, outputs;
    for (int64_t o = 0; fits && o < m.own + m.shared; ++o) {
      const Type& type = call.call.inputs[o];
      const Type& like = gang.sums ? call.call.inputs[0] : call.outputs[0];
      fits = o < m.own ? same_shape(type, like) && is_dense(type, call.in_strides[o])
                       : type.num_elements() == 1;
      (o < m.own ? own : shared).push_back(type.dtype);
    }
    for (size_t o = 0; fits && o < call.outputs.size(); ++o) {
      fits = same_shape(call.outputs[o], call.outputs[0]) &&
             is_dense(call.outputs[o], call.out_strides[o]);
      outputs.push_back(call.outputs[o].dtype);
    }
    if (fits && first) {
      gang.own = own, gang.shared = shared, gang.outputs = outputs;
      first = false;
    }
    result.joins.push_back(fits && own == gang.own && shared == gang.shared &&
                           outputs == gang.outputs);
  });
  return result;
}

int64_t size_of_call(const Joined& joined, const KernelCall& call) {
  return (joined.gang.sums ? call.call.inputs[0] : call.outputs[0]).num_elements();
}

// Calls run one after another, so they take turns with it.
Bytes cuda_workspace(const KernelCall& k) {
  const Joined joined = joined_for_cuda(k, members_of(k.call));
  Bytes alone{0};
  int64_t sums = 0;
  for_each_call(k, [&](int64_t i, const KernelCall& call) {
    if (!joined.joins[i]) {
      alone = std::max(alone, workspace_bytes(call));
    } else if (joined.gang.sums) {
      sums += joined.gang.blocks(size_of_call(joined, call)) *
              static_cast<int64_t>(call.outputs.size());
    }
  });
  return std::max(alone, round_up(Bytes{sums * 4}, {256}));
}

Launch cuda(const KernelCall& k, const Pointers& at) {
  const Members m = members_of(k.call);
  const Joined joined = joined_for_cuda(k, m);
  std::vector<CudaGangMember> members;
  std::vector<Launch> launches;
  for_each_call(k, [&](int64_t i, const KernelCall& call) {
    const Pointers mine = pointers_of(m, at, i);
    if (!joined.joins[i]) {
      launches.push_back(prepare(call, mine));
      return;
    }
    std::vector<const void*> places(mine.in.begin(), mine.in.begin() + m.own);
    places.insert(places.end(), mine.out.begin(), mine.out.end());
    members.push_back({std::move(places), size_of_call(joined, call)});
  });
  if (!members.empty()) {
    launches.push_back(joined.gang.sums
                           ? prepare_gang_sums_cuda(joined.gang, members, at.workspace, at.stream)
                           : prepare_gang_cuda(joined.gang, members,
                                               {at.in.end() - m.shared, at.in.end()}, at.stream));
  }
  return one_after_another(std::move(launches));
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
  // Sums: less than a block of a GPU's, several, one number, and rows behind the last one.
  const Attrs sum = {{"op", std::string("square_sum")}};
  Sample sums{.inputs = {of({7}), of({5, 9001}), of({}), of({3, 2, 33}), of({40, 513}), of({2048})},
              .attrs = sum};
  sums.inputs[4].axes[0].padded = 64;
  sums.attrs["calls"] = int64_t{6};
  Sample alike_sums{.inputs = {of({4, 6}), of({4, 6})}, .attrs = sum};
  alike_sums.attrs["calls"] = int64_t{2};
  Sample casts{
      .inputs = {of({7}), of({40, 513}), of({}), of({3, 16})},
      .attrs = {
          {"op", std::string("cast")}, {"calls", int64_t{4}}, {"dtype", std::string("bf16")}}};
  casts.inputs[1].axes[0].padded = 64;
  return {updates, rows, alike, sums, alike_sums, casts};
}

std::vector<Sample> refused() {
  const auto call = [](std::vector<Type> inputs, const char* op, int64_t calls, int64_t shared) {
    return Sample{.inputs = std::move(inputs),
                  .attrs = {{"op", std::string(op)}, {"calls", calls}, {"shared", shared}}};
  };
  Sample draws = call({of({3}), random_counter_type()}, "dropout", 1, 0);
  draws.attrs["rate"] = 0.5;
  Body column_sums;
  column_sums.outputs = {{.node = input(column_sums, 0).node, .summed_axes = 1}};
  Sample columns = call({of({3, 4})}, "map", 1, 0);
  columns.attrs["body"] = print(column_sums);
  return {draws,
          columns,
          call({of({3})}, "sorcery", 1, 0),
          call({of({3, 3})}, "split", 1, 0),
          call({of({3}), of({4}), of({5})}, "gelu", 2, 0),
          call({of({3}), of({4}), of({5})}, "square_sum", 2, 0),
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
    // As its calls at worst. It is made after all that repeats calls, so none is kept from it.
    .effect = Effect::kWritesState,
    .takes_padding = true,
    .overwrites = may_overwrite,
    .meaning = meaning,
    .cpu = kernel,
    .cpu_workspace = cpu_workspace,
    .cuda = cuda,
    .cuda_workspace = cuda_workspace,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint
