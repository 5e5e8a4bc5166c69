// Products prepared and tuned: every call by the algorithm that a table names or the library
// chooses, or by all of its candidates against each other.
#include <algorithm>

#include "base/error.h"
#include "ops/cublaslt_call.h"
#include "ops/product_table.h"

namespace adjoint {

namespace {

constexpr int kAsked = 8;  // of which the first in order is taken: almost always the first

std::vector<ProductCall> calls_of(const Product& product, Bytes workspace_bytes) {
  auto calls = cublaslt_calls(product);
  CHECK(calls, "a product that cuBLASLt takes");
  CHECK(workspace_bytes >= product_cuda_workspace(product), "the workspace is what was planned");
  return *calls;
}

class Event {
 public:
  Event() { require(cudaEventCreate(&event_), "make an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) { require(cudaEventRecord(event_, stream), "record an event"); }
  double seconds_since(const Event& begin) {
    require(cudaEventSynchronize(event_), "run a product");
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "read a time");
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

constexpr int kCandidates = 32;       // asked of the library
constexpr size_t kLeastTried = 8;     // whatever the budget
constexpr size_t kFinalists = 4;      // timed more than once, and the library's first
constexpr int kRounds = 7;            // of which the median counts
constexpr int kLeastRounds = 3;       // whatever the budget
constexpr double kMeasurable = 2e-4;  // seconds: shorter products are repeated up to this
constexpr double kWorthwhile = 0.99;  // of the first choice's time, or that one stays

class Contest {
 public:
  Contest(CublasLtCall& call, double budget_seconds) : call_(call), budget_(budget_seconds) {}

  TunedProduct winner() {
    try_all();
    std::stable_sort(tried_.begin(), tried_.end(),
                     [](const Tried& x, const Tried& y) { return x.once < y.once; });
    std::vector<Tried*> finalists;
    for (Tried& t : tried_) {
      if (finalists.size() < kFinalists || t.place == 0) finalists.push_back(&t);
    }
    // Side by side, so that a clock that sinks sinks for all.
    for (int round = 0; round < kRounds; ++round) {
      if (round >= kLeastRounds && spent_ > budget_) break;
      for (Tried* t : finalists) t->times.push_back(time(t->algorithm));
    }
    const Tried* best = finalists[0];
    for (const Tried* t : finalists) {
      if (t->median() < best->median()) best = t;
    }
    for (const Tried* t : finalists) {
      if (t->place == 0 && best->median() > kWorthwhile * t->median()) best = t;
    }
    return {.algorithm = said(best->algorithm), .microseconds = best->median() * 1e6};
  }

 private:
  struct Tried {
    size_t place;  // in the library's order
    cublasLtMatmulAlgo_t algorithm;
    double once;
    std::vector<double> times = {};

    double median() const {
      std::vector<double> sorted = times;
      std::sort(sorted.begin(), sorted.end());
      return sorted[sorted.size() / 2];
    }
  };

  void try_all() {
    const std::vector<cublasLtMatmulAlgo_t> all = call_.candidates(kCandidates);
    for (size_t i = 0; i < all.size(); ++i) {
      if (tried_.size() >= kLeastTried && spent_ > budget_ / 2) break;
      // The first run loads the algorithm's code; one that does not even start is no candidate.
      call_.choose(all[i]);
      if (call_.run() != CUBLAS_STATUS_SUCCESS) continue;
      tried_.push_back({.place = i, .algorithm = all[i], .once = time(all[i])});
      spent_ += tried_.back().once;  // for that first run
    }
    if (tried_.empty()) {
      throw MachineError(join_parts("cuBLASLt runs no algorithm for the product ", call_.key()));
    }
  }

  double time(const cublasLtMatmulAlgo_t& algorithm) {
    call_.choose(algorithm);
    const double once = timed(1);
    if (once >= kMeasurable) return once;
    return timed(1 + static_cast<int>(std::min(19.0, kMeasurable / std::max(once, 1e-6))));
  }
  double timed(int times) {
    begin_.record(call_.stream());
    for (int i = 0; i < times; ++i) require(call_.run(), "run a product");
    end_.record(call_.stream());
    const double seconds = end_.seconds_since(begin_);
    spent_ += seconds;
    return seconds / times;
  }

  CublasLtCall& call_;
  double budget_, spent_ = 0;
  Event begin_, end_;
  std::vector<Tried> tried_;
};

}  // namespace

std::string product_machine() {
  static std::string machine = [] {
    int device = 0;
    cudaDeviceProp properties;
    require(cudaGetDevice(&device), "say the current device");
    require(cudaGetDeviceProperties(&properties, device), "describe the device");
    return product_machine(properties.name, {static_cast<int64_t>(properties.totalGlobalMem)},
                           cublasLtGetVersion());
  }();
  return machine;
}

Launch prepare_product_cuda(const Product& product, const ProductPointers& at, void* workspace,
                            Bytes workspace_bytes, cudaStream_t stream,
                            const TunedProducts* tuned) {
  std::vector<std::shared_ptr<const CublasLtCall>> prepared;
  for (const ProductCall& shape : calls_of(product, workspace_bytes)) {
    const auto call = std::make_shared<CublasLtCall>(shape, at, workspace, stream);
    const TunedProduct* known = tuned ? tuned->find(product_machine(), call->key()) : nullptr;
    if (!known || !call->choose(known->algorithm)) call->choose(call->candidates(kAsked)[0]);
    prepared.push_back(call);
  }
  return [prepared] {
    for (const auto& call : prepared) {
      require(call->run(), "multiply");
    }
  };
}

void tune_product(const Product& product, const ProductPointers& at, void* workspace,
                  Bytes workspace_bytes, cudaStream_t stream, TunedProducts& table,
                  double budget_seconds) {
  for (const ProductCall& shape : calls_of(product, workspace_bytes)) {
    CublasLtCall call(shape, at, workspace, stream);
    if (table.find(product_machine(), call.key())) continue;
    table.remember(product_machine(), call.key(), Contest(call, budget_seconds).winner());
  }
}

std::optional<Launch> tuned_product_cuda(const Product& product, const ProductPointers& at,
                                         const Pointers& call, bool deterministic,
                                         bool may_time) try {
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const Bytes workspace = product_cuda_workspace(product);
  if (deterministic) {
    return prepare_product_cuda(product, at, call.workspace, workspace, stream, nullptr);
  }
  TunedProducts& table = product_table();
  if (may_time) tune_product(product, at, call.workspace, workspace, stream, table);
  return prepare_product_cuda(product, at, call.workspace, workspace, stream, &table);
} catch (const NoAlgorithm&) {
  return std::nullopt;
}

}  // namespace adjoint
