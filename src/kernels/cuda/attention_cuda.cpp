#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/note.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_plain.h"
#include "kernels/cuda/attention_tensor.h"
#include "kernels/cuda/cudnn/attention.h"
#include "kernels/cuda/cudnn/plan.h"
#include "kernels/cuda/library_room.h"

namespace adjoint {

namespace {

// Up to 9.15 the gradient is wrong for lengths that are no multiple of 128; what is older than 9.6
// wants sums that begin with zeros.
constexpr size_t kAnyLength = 91600, kOldestCudnn = 90600;
// From here on -inf hides keys of a row that has seen none yet, which a window needs.
constexpr size_t kOldestWithOptions = 91100;
constexpr Bytes kAlignment{256};  // of what lies side by side in a workspace

enum class Pass : uint8_t { kForward, kGrad, kDeterministicGrad };

struct AttentionPlan {
  AttentionGraph memory;  // its graph is the plan's now
  std::shared_ptr<const CudnnPlan> plan;
};

// A call as cuDNN sees it.
struct Call {
  AttentionShape shape;
  Rows q, k, v, out;
  void* lse = nullptr;
  Rows dout = {}, dq = {}, dk = {}, dv = {};

  std::array<Rows, 8> all() const { return {q, k, v, out, dout, dq, dk, dv}; }
};

bool is_aligned(const AttentionShape& shape, Rows rows) {
  const int64_t size = size_of(shape.dtype).count;
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.row_step * size % 16 == 0 &&
         rows.sample_step * size % 16 == 0;
}

RowSteps steps_of(const AttentionShape& shape, Rows rows) {
  // What one sample's step is matters to nobody, and so should not make another plan.
  return {shape.samples == 1 ? shape.length * rows.row_step : rows.sample_step, rows.row_step};
}

AttentionPlan make_plan(const Call& call, Pass pass, Bytes room, cudnnHandle_t handle) {
  const auto steps = [&](Rows rows) { return steps_of(call.shape, rows); };
  const AttentionSteps all = {steps(call.q),    steps(call.k),  steps(call.v),  steps(call.out),
                              steps(call.dout), steps(call.dq), steps(call.dk), steps(call.dv)};
  AttentionPlan made;
  made.memory = pass == Pass::kForward
                    ? attention_graph(call.shape, all)
                    : attention_grad_graph(call.shape, all, pass == Pass::kDeterministicGrad);
  try {
    made.plan = std::make_shared<CudnnPlan>(std::move(made.memory.graph), handle, room);
  } catch (const CudnnNoRoom& e) {
    note_once(join_parts("attention runs by Adjoint's own kernels, which are slower: ", e.what()));
  } catch (const MachineError&) {  // our own kernels do it
  }
  return made;
}

// The plan of calls like this one in a workspace of this size, made once: every layer has the same.
// One without a plan is a call for our own kernels.
const AttentionPlan& plan_of(const Call& call, Pass pass, Bytes room, cudnnHandle_t handle) {
  static std::mutex mutex;
  // Never destroyed: at exit CUDA may be gone.
  static auto& plans = *new std::map<std::vector<int64_t>, AttentionPlan>;
  const AttentionShape& s = call.shape;
  int device = 0;
  cudaGetDevice(&device);
  std::vector<int64_t> key = {device,
                              static_cast<int64_t>(pass),
                              static_cast<int64_t>(s.dtype),
                              s.causal,
                              s.samples,
                              s.length,
                              s.kv_heads,
                              s.group,
                              s.size,
                              s.value_size,
                              s.window,
                              std::bit_cast<int64_t>(s.cap),
                              std::bit_cast<int64_t>(s.scale()),
                              room.count};
  for (const Rows& rows : call.all()) {
    const RowSteps steps = steps_of(s, rows);
    key.insert(key.end(), {steps.sample, steps.row});
  }
  const std::scoped_lock lock(mutex);
  const auto found = plans.find(key);
  if (found != plans.end()) return found->second;
  return plans.emplace(std::move(key), make_plan(call, pass, room, handle)).first->second;
}

// Places for what a call keeps in its workspace, one after another.
class Places {
 public:
  Places(void* begin, Bytes bytes) : begin_(static_cast<char*>(begin)), bytes_(bytes) {}
  void* take(Bytes bytes) {
    const Bytes end = used_ + bytes;
    CHECK(end <= bytes_, "attention's workspace is as large as the way it takes says");
    char* place = begin_ + used_.count;
    used_ = round_up(end, kAlignment);
    return place;
  }

 private:
  char* begin_;
  Bytes bytes_, used_;
};

bool tensor_takes(const AttentionShape& s, std::initializer_list<Rows> all) {
  const bool halves = s.dtype == Dtype::kBF16 || s.dtype == Dtype::kF16;
  return halves && s.size % 8 == 0 && s.value_size % 8 == 0 &&
         std::all_of(all.begin(), all.end(), [&](Rows rows) { return is_aligned(s, rows); });
}

bool is_for_cudnn(const Call& call) {
  const auto all = call.all();
  const size_t version = cudnnGetVersion();
  if (version < kOldestCudnn || (version < kAnyLength && call.shape.length % 128)) return false;
  const bool is_usual = call.shape.is_plain() && call.shape.value_size == call.shape.size;
  if (!is_usual && version < kOldestWithOptions) return false;
  return cudnn_takes(call.shape) && std::all_of(all.begin(), all.end(), [&](Rows rows) {
           return is_aligned(call.shape, rows);
         });
}

// The call's part that begins at a sample and a head of keys.
Call part_of(const Call& call, const AttentionShape& part, int64_t sample, int64_t kv_head) {
  const AttentionShape& s = call.shape;
  const auto moved = [&](Rows rows, int64_t head, int64_t size) {
    const int64_t elements = sample * rows.sample_step + head * size;
    rows.data = static_cast<char*>(rows.data) + elements * size_of(s.dtype).count;
    return rows;
  };
  const int64_t head = kv_head * s.group;
  Call result = {
      .shape = part,
      .q = moved(call.q, head, s.size),
      .k = moved(call.k, kv_head, s.size),
      .v = moved(call.v, kv_head, s.value_size),
      .out = moved(call.out, head, s.value_size),
      .lse = static_cast<float*>(call.lse) + (sample * s.kv_heads * s.group + head) * s.length,
      .dout = moved(call.dout, head, s.value_size),
      .dq = moved(call.dq, head, s.size),
      .dk = moved(call.dk, kv_head, s.size),
      .dv = moved(call.dv, kv_head, s.value_size)};
  return result;
}

}  // namespace

bool tensor_takes(const AttentionPlaces& p) {
  return tensor_takes(p.shape, {p.q, p.k, p.v, p.out});
}
bool tensor_takes(const AttentionGradPlaces& p) {
  return tensor_takes(p.shape, {p.q, p.k, p.v, p.out, p.dout, p.dq, p.dk, p.dv});
}

Launch prepare_attention_cuda(const AttentionPlaces& p, void* workspace, const AttentionWay& way,
                              cudaStream_t stream) {
  const Call call = {.shape = p.shape, .q = p.q, .k = p.k, .v = p.v, .out = p.out, .lse = p.lse};
  if (way.cudnn && is_for_cudnn(call)) {
    const cudnnHandle_t handle = cudnn_handle(stream);
    const Bytes room = library_room(way.workspace);
    if (const auto& [at, plan] = plan_of(call, Pass::kForward, room, handle); plan) {
      void* scratch = Places(workspace, way.workspace).take(plan->workspace());
      return plan->prepare(handle,
                           {{at.q, p.q.data},
                            {at.k, p.k.data},
                            {at.v, p.v.data},
                            {at.out, p.out.data},
                            {at.lse, p.lse}},
                           scratch);
    }
  }
  return tensor_takes(p) ? prepare_attention_tensor(p, stream) : prepare_attention_plain(p, stream);
}

Launch prepare_attention_grad_cuda(const AttentionGradPlaces& p, void* workspace,
                                   const AttentionWay& way, bool deterministic,
                                   cudaStream_t stream) {
  const AttentionShape& shape = p.shape;
  const Call call = {.shape = shape,
                     .q = p.q,
                     .k = p.k,
                     .v = p.v,
                     .out = p.out,
                     .lse = const_cast<void*>(p.lse),
                     .dout = p.dout,
                     .dq = p.dq,
                     .dk = p.dk,
                     .dv = p.dv};
  const auto own = [&] {
    void* sums = Places(workspace, way.workspace).take(attention_grad_plain_workspace(shape));
    return tensor_takes(p) ? prepare_attention_grad_tensor(p, sums, stream)
                           : prepare_attention_grad_plain(p, sums, stream);
  };
  if (!way.cudnn || !is_for_cudnn(call)) return own();
  const cudnnHandle_t handle = cudnn_handle(stream);
  const AttentionShape& part = way.part;
  const Pass pass = deterministic ? Pass::kDeterministicGrad : Pass::kGrad;
  // What we lend to a part beside cuDNN's own workspace.
  const Bytes row{part.samples * part.kv_heads * part.group * part.length * 4};
  Bytes lent = round_up(row, kAlignment);
  if (!deterministic) lent += round_up(part.size * row, kAlignment);
  std::vector<Launch> launches;
  for (int64_t sample = 0; sample < shape.samples; sample += part.samples)
    for (int64_t kv_head = 0; kv_head < shape.kv_heads; kv_head += part.kv_heads) {
      const Call piece = part_of(call, part, sample, kv_head);
      const auto& [at, plan] = plan_of(piece, pass, library_room(way.workspace - lent), handle);
      if (!plan) return own();
      Places places(workspace, way.workspace);
      std::vector<std::pair<CudnnGraph::Tensor, void*>> pointers = {
          {at.q, piece.q.data},           {at.k, piece.k.data},   {at.v, piece.v.data},
          {at.out, piece.out.data},       {at.lse, piece.lse},    {at.dout, piece.dout.data},
          {at.dq, piece.dq.data},         {at.dk, piece.dk.data}, {at.dv, piece.dv.data},
          {at.row_sums, places.take(row)}};
      if (at.dq_sums) pointers.emplace_back(at.dq_sums, places.take(part.size * row));
      launches.push_back(plan->prepare(handle, pointers, places.take(plan->workspace())));
    }
  if (launches.size() == 1) return launches[0];
  return [launches] {
    for (const Launch& launch : launches) launch();
  };
}

}  // namespace adjoint
