// Products prepared and tuned: every call by the algorithm that a table names or the library
// chooses, or by all of its candidates against each other.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/backend.h"
#include "kernels/cuda/cublaslt/call.h"
#include "kernels/cuda/cublaslt/product_table.h"

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

constexpr int kCandidates = 32;       // asked of the library, which knows eight or so
constexpr int kHeats = 3;             // rounds through all of them; the best time counts
constexpr int kFinals = 7;            // rounds of the fastest; the median counts
constexpr size_t kFinalists = 4;      // and the library's first
constexpr double kMeasurable = 2e-4;  // seconds: shorter products are repeated up to this
constexpr double kWorthwhile = 0.99;  // of the first choice's time, or that one stays

class Contest {
 public:
  explicit Contest(CublasLtCall& call) : call_(call) {}

  TunedProduct winner() {
    start_all();
    // Side by side, so that a clock that sinks under the load sinks for all.
    for (int round = 0; round < kHeats; ++round) {
      for (Entrant& e : entrants_) e.seconds = std::min(e.seconds, time(e));
    }
    std::stable_sort(entrants_.begin(), entrants_.end(), faster);
    std::vector<Entrant> finalists;
    for (const Entrant& e : entrants_) {
      if (finalists.size() < kFinalists || e.place == 0) finalists.push_back(e);
    }
    std::vector<std::vector<double>> times(finalists.size());
    for (int round = 0; round < kFinals; ++round) {
      for (size_t i = 0; i < finalists.size(); ++i) times[i].push_back(time(finalists[i]));
    }
    for (size_t i = 0; i < finalists.size(); ++i) {
      std::sort(times[i].begin(), times[i].end());
      finalists[i].seconds = times[i][kFinals / 2];
    }
    const Entrant* best = &*std::min_element(finalists.begin(), finalists.end(), faster);
    for (const Entrant& e : finalists) {
      if (e.place == 0 && best->seconds > kWorthwhile * e.seconds) best = &e;
    }
    return {.algorithm = said(best->algorithm), .microseconds = best->seconds * 1e6};
  }

 private:
  struct Entrant {
    size_t place;  // in the library's order
    cublasLtMatmulAlgo_t algorithm;
    double seconds = std::numeric_limits<double>::infinity();
  };
  static bool faster(const Entrant& x, const Entrant& y) { return x.seconds < y.seconds; }

  // The first run loads an algorithm's code; one that does not even start takes no part.
  void start_all() {
    const std::vector<cublasLtMatmulAlgo_t> all = call_.candidates(kCandidates);
    for (size_t i = 0; i < all.size(); ++i) {
      call_.choose(all[i]);
      if (call_.run() == CUBLAS_STATUS_SUCCESS) entrants_.push_back({i, all[i]});
    }
    if (entrants_.empty()) {
      throw NoAlgorithm(join_parts("cuBLASLt runs no algorithm for the product ", call_.key()));
    }
  }

  // Seconds of one, from as many as can be measured.
  double time(const Entrant& e) {
    call_.choose(e.algorithm);
    const double once = std::isfinite(e.seconds) ? e.seconds : timed(1);
    return timed(1 + static_cast<int>(std::min(19.0, kMeasurable / std::max(once, 1e-6))));
  }
  double timed(int times) {
    begin_.record(call_.stream());
    for (int i = 0; i < times; ++i) require(call_.run(), "run a product");
    end_.record(call_.stream());
    return end_.seconds_since(begin_) / times;
  }

  CublasLtCall& call_;
  Event begin_, end_;
  std::vector<Entrant> entrants_;
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
                  Bytes workspace_bytes, cudaStream_t stream, TunedProducts& table) {
  for (const ProductCall& shape : calls_of(product, workspace_bytes)) {
    CublasLtCall call(shape, at, workspace, stream);
    if (table.find(product_machine(), call.key())) continue;
    table.remember(product_machine(), call.key(), Contest(call).winner());
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
