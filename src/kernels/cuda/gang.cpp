#include <algorithm>
#include <optional>

#include "body/facts.h"
#include "kernels/backend.h"
#include "kernels/cuda/codegen/body.h"
#include "kernels/gang_calls.h"

namespace adjoint {

namespace {

// Do the elements of an operand or a result lie side by side?
bool is_dense(const Type& type, const Strides& strides) {
  // Rows behind the last one leave its elements so; padding inside does not.
  const bool padded = std::any_of(type.axes.begin() + std::min(1, type.rank()), type.axes.end(),
                                  [](const Axis& a) { return a.padded > 0; });
  return strides == dense_strides(type) && !padded;
}

// Calls that can share one launch: the same function of each element, or the same sum of one, with
// contiguous operands and the same single numbers.
struct Joined {
  CudaGang gang;
  std::vector<bool> joins;  // per call
};
Joined joined_for_cuda(const KernelCall& k, const GangMembers& m) {
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
  const Joined joined = joined_for_cuda(k, gang_members(k.call));
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
  const GangMembers m = gang_members(k.call);
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

}  // namespace

std::optional<CudaGang> lone_sum_for_cuda(const KernelCall& k) {
  const std::vector<Type>& inputs = k.call.inputs;
  if (inputs.empty() || is_wide(k)) return std::nullopt;
  for (size_t o = 0; o < inputs.size(); ++o) {
    const bool fits = is_float(inputs[o].dtype) && same_shape(inputs[o], inputs[0]) &&
                      is_dense(inputs[o], k.in_strides[o]);
    if (!fits) return std::nullopt;
  }
  for (const Type& out : k.outputs) {
    if (out.rank() != 0) return std::nullopt;
  }
  CudaGang gang{.body = body_of(k.call), .sums = true};
  if (!adds_elements(gang.body) || gang.body.uses_index()) return std::nullopt;
  for (const Type& in : inputs) gang.own.push_back(in.dtype);
  for (const Type& out : k.outputs) gang.outputs.push_back(out.dtype);
  return gang;
}

Launch prepare_lone_sum_cuda(const CudaGang& sum, const KernelCall& k, const Pointers& at) {
  std::vector<const void*> places = at.in;
  places.insert(places.end(), at.out.begin(), at.out.end());
  return prepare_gang_sums_cuda(sum, {{std::move(places), k.call.inputs[0].num_elements()}},
                                at.workspace, at.stream);
}

Bytes lone_sum_workspace(const CudaGang& sum, const KernelCall& k) {
  const int64_t sums =
      sum.blocks(k.call.inputs[0].num_elements()) * static_cast<int64_t>(k.outputs.size());
  return round_up(Bytes{sums * 4}, {256});
}

extern const Kernel cuda_gang = {
    .op = "gang",
    .prepare = cuda,
    .workspace = cuda_workspace,
};

}  // namespace adjoint
