// Runs small schemes as kernels/harness.h does, but bodies and gangs by the kernels generated for
// CUDA. A test first prepares all its schemes, then finish_kernels() compiles them together, then
// they run.
#pragma once
#include <cstring>
#include <deque>
#include <memory>

#include "kernels/backend.h"
#include "kernels/harness.h"

namespace adjoint {

// Memory of an object with guard bytes around it; all bytes are NaNs until they are written.
class GuardedMemory {
 public:
  GuardedMemory(Type type, Strides strides, int64_t shift)
      : type_(std::move(type)),
        strides_(std::move(strides)),
        size_(type_.bytes().count + shift + 2 * kAround),
        // A prepared call needs the addresses of its operands, but their values only when it runs.
        bytes_(new (std::align_val_t{kAround}) std::byte[size_]),
        data_(bytes_.get() + kAround + shift) {}

  std::byte* data() const { return data_; }
  const Strides& strides() const { return strides_; }
  void clear() { std::memset(bytes_.get(), kNobodys, size_); }

  void set(const Numbers& values) {
    for_each_offset(
        [&](int64_t k, int64_t at) { store_element(data_, type_.dtype, at, values[k]); });
  }
  Numbers values() const {
    Numbers values(type_.num_elements());
    for_each_offset(
        [&](int64_t k, int64_t at) { values[k] = load_element(data_, type_.dtype, at); });
    return values;
  }
  // Whether all bytes around the elements, including padding and gaps between rows, are unchanged.
  bool nobody_wrote_elsewhere() const {
    std::vector<std::byte> want(size_, std::byte{kNobodys});
    const int64_t each = size_of(type_.dtype).count;
    for_each_offset([&](int64_t, int64_t at) {
      std::memcpy(&want[data_ - bytes_.get() + at * each], data_ + at * each, each);
    });
    return std::memcmp(want.data(), bytes_.get(), size_) == 0;
  }

 private:
  static constexpr size_t kAround = 256;  // bytes, before it and after it
  static constexpr unsigned char kNobodys = 0xff;
  struct Free {
    void operator()(std::byte* p) const { operator delete[](p, std::align_val_t{kAround}); }
  };

  template <class F>
  void for_each_offset(const F& f) const {
    for (int64_t k = 0; k < type_.num_elements(); ++k) {
      int64_t rest = k, offset = 0;
      for (int a = type_.rank(); a-- > 0;) {
        offset += rest % type_.dim(a) * strides_[a];
        rest /= type_.dim(a);
      }
      f(k, offset);
    }
  }

  Type type_;
  Strides strides_;
  size_t size_;
  std::unique_ptr<std::byte[], Free> bytes_;
  std::byte* data_;
};

class SchemeOnCpu {
 public:
  struct Places {
    int64_t shift = 0;        // bytes from an aligned place to where an object begins
    bool transposed = false;  // the first axis of inputs is the innermost in memory
    bool overwrites = false;  // a result overwrites an operand, if the op allows it
  };

  explicit SchemeOnCpu(const Scheme& scheme) : SchemeOnCpu(scheme, Places{}) {}
  SchemeOnCpu(const Scheme& scheme, Places places) : scheme_(scheme) {
    memory_.resize(scheme.objects.size());
    for (const Value v : scheme.inputs) place(v, places, places.transposed);
    for (const Morphism& m : scheme.morphisms) {
      for (const Value v : m.outputs) place(v, places, false);
      // Only in schemes of one call, because other readers of an operand are not considered.
      if (places.overwrites && scheme.morphisms.size() == 1) place_over_operands(m);
      prepare_call(m);
    }
  }

  std::vector<Numbers> run(const std::vector<Numbers>& inputs) {
    for (const auto& memory : memory_) memory->clear();
    for (GuardedMemory& workspace : workspaces_) workspace.clear();
    for (size_t i = 0; i < inputs.size(); ++i) memory_[scheme_.inputs[i]]->set(inputs[i]);
    for (const Launch& launch : launches_) launch();
    for (const auto& memory : memory_) expect_guarded(*memory);
    for (const GuardedMemory& workspace : workspaces_) expect_guarded(workspace);
    std::vector<Numbers> outputs;
    for (const Value v : scheme_.outputs) outputs.push_back(memory_[v]->values());
    return outputs;
  }

 private:
  void expect_guarded(const GuardedMemory& memory) const {
    EXPECT_TRUE(memory.nobody_wrote_elsewhere()) << "a kernel wrote beside\n" << print(scheme_);
  }

  void place(Value v, const Places& places, bool transposed) {
    const Type& type = scheme_[v].type;
    Strides strides = dense_strides(type);
    if (transposed) {
      int64_t distance = 1;
      for (int a = 0; a < type.rank(); ++a) {
        strides[a] = distance;
        distance *= type.axes[a].physical();
      }
    }
    memory_[v] = std::make_shared<GuardedMemory>(type, strides, places.shift);
  }

  void place_over_operands(const Morphism& m) {
    std::vector<bool> taken(m.inputs.size(), false), moved(m.outputs.size(), false);
    for (const auto& [output, operand] : overwrites(call_of(scheme_, m))) {
      if (moved[output] || taken[operand]) continue;
      moved[output] = taken[operand] = true;
      memory_[m.outputs[output]] = memory_[m.inputs[operand]];
    }
  }

  void prepare_call(const Morphism& m) {
    const OpCall& call = calls_.emplace_back(call_of(scheme_, m));
    // Ops without a body have kernels written by hand for CUDA; here the CPU's kernels replace
    // them.
    const bool generated = op_named(m.op).body || m.op == "gang";
    const KernelCall kernel =
        kernel_call(call, scheme_, m, {.target = generated ? Target::kCuda : Target::kCpu},
                    [&](Value v) { return memory_[v]->strides(); });
    Pointers at;
    for (const Value v : m.inputs) at.in.push_back(memory_[v]->data());
    for (const Value v : m.outputs) at.out.push_back(memory_[v]->data());
    const Type bytes{Dtype::kU8, {{"bytes", workspace_bytes(kernel).count}}};
    at.workspace = workspaces_.emplace_back(bytes, dense_strides(bytes), 0).data();
    launches_.push_back(prepare(kernel, at));
  }

  Scheme scheme_;
  std::vector<std::shared_ptr<GuardedMemory>> memory_;  // per object
  std::deque<GuardedMemory> workspaces_;
  std::deque<OpCall> calls_;
  std::vector<Launch> launches_;
};

}  // namespace adjoint
